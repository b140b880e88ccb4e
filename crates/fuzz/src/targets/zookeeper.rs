//! Fuzz targets for what `furrow zk turns` reads: answers of an AdminServer, the file of credentials, the list of servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{OpenOptions, remove_file};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use serde_json::Value;
use zk::checks::{property_faults, state_fault, version_fault, voter_fault};
use zk::ensemble::Answer;
use zk::{Credentials, ServerAddress, ServerId};

/// The longest message that is one line on a screen or a few.
const MAX_MESSAGE: usize = 1000;

/// Decodes the body of an answer, and takes every field out of it in every form that fields have.
pub(crate) fn answer(bytes: &[u8]) {
    let Ok(body) = std::str::from_utf8(bytes) else { return };
    let answer = match Answer::decode("monitor", body) {
        Ok(answer) => answer,
        Err(error) => return check_message(&error.to_string()),
    };
    for name in ["version", "server_state", "zabstate"] {
        match answer.text(name) {
            Ok(text) => assert_eq!(answer.fields().get(name).and_then(Value::as_str), Some(text)),
            Err(error) => check_message(&error.to_string()),
        }
    }
    for names in [&["znode_count"][..], &["cnt_fsynctime", "fsynctime_count"], &["leader_id"], &["uptime"]] {
        match answer.number(names) {
            Ok(number) => assert!(names.iter().any(|name| is_number(answer.fields().get(*name), number))),
            Err(error) => check_message(&error.to_string()),
        }
    }
    for name in ["last_zxid", "zxid"] {
        match answer.zxid(name) {
            Ok(zxid) => assert_ne!(zxid, Some(u64::MAX)),
            Err(error) => check_message(&error.to_string()),
        }
    }
    let _flag = answer.flag("is_leader");
    let texts =
        answer.fields().iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let properties: BTreeMap<String, String> = texts.collect();
    property_faults(&properties).iter().for_each(|fault| check_message(fault));
    for text in properties.values() {
        let _faults = (version_fault(text), state_fault(text));
    }
    let voters: BTreeSet<ServerId> =
        properties.keys().filter_map(|id| id.parse().ok()).map(ServerId).collect();
    let _fault = voter_fault(&voters, &BTreeSet::from([ServerId(1), ServerId(2), ServerId(3)]));
}

/// True if the field is that number, or a float that is it without its fraction.
fn is_number(field: Option<&Value>, number: u64) -> bool {
    let Some(field) = field else { return false };
    field.as_u64() == Some(number) || field.as_f64().is_some_and(|float| float.trunc() == number as f64)
}

/// Fails for a message that would disturb a terminal: a server's own words are part of it.
fn check_message(message: &str) {
    assert!(message.len() <= MAX_MESSAGE, "a message of {} bytes", message.len());
    assert!(!message.chars().any(char::is_control), "a control character in {message:?}");
}

/// Reads credentials. A message about them must not depend on their letters.
pub(crate) fn credentials(bytes: &[u8]) {
    let masked: Vec<u8> = bytes
        .iter()
        .map(|byte| if byte.is_ascii_graphic() && *byte != b':' { b'x' } else { *byte })
        .collect();
    let (first, second) = (read(bytes), read(&masked));
    match (first, second) {
        (Ok(credentials), Ok(_)) => assert_eq!(format!("{credentials:?}"), "Credentials(..)"),
        (first, second) => assert_eq!(first.err(), second.err(), "a message shows the credentials"),
    }
}

/// Reads a file of these bytes that nobody but its owner may read.
fn read(bytes: &[u8]) -> Result<Credentials, String> {
    let path = super::temporary::path("credentials");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    file.expect("makes a file").write_all(bytes).expect("a small file");
    let read = Credentials::read(&path);
    remove_file(&path).expect("a file of this target");
    read
}

/// Parses the list of an ensemble's servers.
pub(crate) fn ensemble(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(address) = text.parse::<ServerAddress>() {
        let shown = address.to_string();
        assert_eq!(shown.parse(), Ok(address), "{shown}");
        let (_, port) = shown.rsplit_once(':').expect("an address has a port");
        assert_eq!(
            port.parse::<u16>().map(|port| port.to_string()),
            Ok(port.to_owned()),
            "one form of a port"
        );
    }
    if let Ok(addresses) = ServerAddress::parse_ensemble(text) {
        assert!(addresses.len() % 2 == 1 && addresses.len() >= 3);
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len(), "{text}");
        let list: Vec<String> = addresses.iter().map(ServerAddress::to_string).collect();
        assert_eq!(ServerAddress::parse_ensemble(&list.join(",")), Ok(addresses));
    }
}
