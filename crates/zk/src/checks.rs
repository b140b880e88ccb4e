//! Settings of servers with which turns are useless or dangerous. Each fault is a sentence that says what to write instead.

use std::collections::{BTreeMap, BTreeSet};

use crate::ensemble::{AdminServer, AskError, shortened};
use crate::sample::ServerId;

/// The oldest version whose AdminServer takes snapshots without faults.
const OLDEST: (u32, u32, u32) = (3, 9, 4);

/// A server with a smaller `snapCount` takes snapshots by itself while it is in use.
const LEAST_SNAP_COUNT: i64 = 1_000_000_000;

/// Checks one server that serves clients: its version, state, settings, credentials, and its view of who votes.
///
/// # Errors
/// Those of asking. Faults that were found are the result.
pub fn server(server: &AdminServer, listed: &BTreeSet<ServerId>) -> Result<Vec<String>, AskError> {
    let (version, state) = server.version_and_state()?;
    let mut faults: Vec<String> =
        [version_fault(&version), state_fault(&state)].into_iter().flatten().collect();
    // A server of another kind or age may lack the commands below.
    if !faults.is_empty() {
        return Ok(faults);
    }
    faults.extend(property_faults(&server.properties()?));
    faults.extend(voter_fault(&server.voters()?, listed));
    match server.check_credentials() {
        Ok(()) => {}
        Err(error @ (AskError::NotAuthenticated | AskError::NotAuthorized)) => faults.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(faults)
}

/// The fault of a version below 3.9.4.
pub fn version_fault(version: &str) -> Option<String> {
    let numbers = version.split(['-', ',', ' ']).next().unwrap_or_default();
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
    let found = match (parts.next(), parts.next(), parts.next()) {
        (Some(Some(major)), Some(Some(minor)), Some(Some(patch))) => Some((major, minor, patch)),
        _ => None,
    };
    match found {
        Some(found) if found >= OLDEST => None,
        Some(_) => Some(format!(
            "ZooKeeper {numbers} is older than 3.9.4, the first version whose AdminServer is safe to use for this"
        )),
        None => Some(format!("'{numbers}' is no version of ZooKeeper")),
    }
}

/// The fault of a server that does not vote.
pub fn state_fault(state: &str) -> Option<String> {
    match state {
        "leader" | "follower" => None,
        "observer" => Some(
            "the server is an observer: list voters only, an observer's snapshot disturbs no majority".into(),
        ),
        "standalone" => Some(
            "the server runs alone: there is no ensemble whose majority turns could keep undisturbed".into(),
        ),
        other => Some(format!("the server's state is '{other}', neither leader nor follower")),
    }
}

/// The faults of a server's Java properties.
pub fn property_faults(properties: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    let number = |name: &str| {
        let text = properties.get(&format!("zookeeper.{name}"))?;
        Some(text.trim().parse::<i64>().map_err(|_| {
            format!("{name}={} is no decimal number, so ZooKeeper uses its default", shortened(text))
        }))
    };
    match number("snapCount") {
        None => faults.push("snapCount is not set, so the server takes a snapshot by itself each 100,000 transactions or earlier: write snapCount=2000000000".into()),
        Some(Err(fault)) => faults.push(fault),
        Some(Ok(count)) if count > i64::from(i32::MAX) => faults.push(format!(
            "snapCount={count} does not fit ZooKeeper's 32 bits, so the default of 100,000 holds: write snapCount=2000000000"
        )),
        Some(Ok(count)) if count < LEAST_SNAP_COUNT => faults.push(format!(
            "snapCount={count} lets the server take snapshots by itself: write snapCount=2000000000"
        )),
        Some(Ok(_)) => {}
    }
    match number("snapSizeLimitInKb") {
        None => faults.push("snapSizeLimitInKb is not set, so the server takes a snapshot by itself each 4 GiB of log or earlier: write snapSizeLimitInKb=-1".into()),
        Some(Err(fault)) => faults.push(fault),
        Some(Ok(0)) => faults.push("snapSizeLimitInKb=0 makes ZooKeeper divide by zero and end at its first write: write snapSizeLimitInKb=-1".into()),
        Some(Ok(limit)) if limit > 0 => faults.push(format!(
            "snapSizeLimitInKb={limit} lets the server take snapshots by itself: write snapSizeLimitInKb=-1"
        )),
        Some(Ok(_)) => {}
    }
    match number("txnLogSizeLimitInKb") {
        Some(Ok(limit)) if limit > 0 => {}
        Some(Err(fault)) => faults.push(fault),
        _ => faults.push(
            "txnLogSizeLimitInKb is not set: a commanded snapshot does not begin a new log file, so purging would free nothing; write for example txnLogSizeLimitInKb=262144"
                .into(),
        ),
    }
    let is_false =
        |name: &str| properties.get(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("false"));
    if is_false("zookeeper.admin.snapshot.enabled") {
        faults.push("admin.snapshot.enabled=false forbids commanded snapshots: take that line out".into());
    }
    if is_false("zookeeper.serializeLastProcessedZxid.enabled") {
        faults.push("serializeLastProcessedZxid.enabled=false makes ZooKeeper refuse commanded snapshots: take that line out".into());
    }
    let is_weighted =
        |name: &String| name.starts_with("zookeeper.group.") || name.starts_with("zookeeper.weight.");
    if let Some(name) = properties.keys().find(|name| is_weighted(name)) {
        let name = shortened(name.trim_start_matches("zookeeper."));
        faults.push(format!("{name} is set: with groups or weights a majority of servers is not what decides, and turns count servers"));
    }
    faults
}

/// The fault of an ensemble whose voters are not those that are listed.
pub fn voter_fault(voters: &BTreeSet<ServerId>, listed: &BTreeSet<ServerId>) -> Option<String> {
    let names = |servers: BTreeSet<&ServerId>| {
        servers.iter().map(|server| server.0.to_string()).collect::<Vec<_>>().join(", ")
    };
    let missing: BTreeSet<&ServerId> = voters.difference(listed).collect();
    let extra: BTreeSet<&ServerId> = listed.difference(voters).collect();
    if !missing.is_empty() {
        return Some(format!(
            "the ensemble has voters that --ensemble does not list: server {}",
            names(missing)
        ));
    }
    (!extra.is_empty()).then(|| format!("--ensemble lists servers that do not vote: server {}", names(extra)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (format!("zookeeper.{name}"), (*value).to_owned())).collect()
    }

    const GOOD: [(&str, &str); 3] =
        [("snapCount", "2000000000"), ("snapSizeLimitInKb", "-1"), ("txnLogSizeLimitInKb", "262144")];

    #[test]
    fn good_settings_have_no_fault() {
        assert_eq!(property_faults(&properties(&GOOD)), [""; 0]);
        assert_eq!(property_faults(&properties(&[])).len(), 3);
    }

    #[test]
    fn each_bad_setting_is_one_sentence() {
        for (name, value, word) in [
            ("snapCount", "100000", "by itself"),
            ("snapCount", "3000000000", "32 bits"),
            ("snapCount", "many", "no decimal number"),
            ("snapSizeLimitInKb", "0", "divide by zero"),
            ("snapSizeLimitInKb", "4194304", "by itself"),
            ("txnLogSizeLimitInKb", "0", "purging"),
            ("txnLogSizeLimitInKb", "-1", "purging"),
            ("admin.snapshot.enabled", "false", "forbids"),
            ("serializeLastProcessedZxid.enabled", "false", "refuse"),
            ("group.1", "1:2:3", "groups"),
            ("weight.1", "2", "weights"),
        ] {
            let mut all = properties(&GOOD);
            all.extend(properties(&[(name, value)]));
            let faults = property_faults(&all);
            assert!(faults.len() == 1 && faults[0].contains(word), "{name}={value}: {faults:?}");
        }
    }

    #[test]
    fn the_words_of_a_server_s_settings_are_cut_and_have_no_control_characters() {
        let long = format!("\u{1b}[2J{}", "x".repeat(1000));
        for (name, value) in [("snapCount", long.as_str()), (&format!("group.{long}"), "1:2")] {
            let mut all = properties(&GOOD);
            all.extend(properties(&[(name, value)]));
            let faults = property_faults(&all);
            assert!(
                faults.len() == 1 && faults[0].len() < 500 && !faults[0].contains('\u{1b}'),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn versions_from_3_9_4_on_are_taken() {
        for good in ["3.9.4", "3.9.5-abc, built on 2026-01-01", "3.10.0-SNAPSHOT", "4.0.0"] {
            assert_eq!(version_fault(good), None, "{good}");
        }
        for (bad, word) in
            [("3.9.3-c26634f", "older"), ("3.8.0", "older"), ("", "no version"), ("x.y", "no version")]
        {
            assert!(version_fault(bad).unwrap().contains(word), "{bad}");
        }
    }

    #[test]
    fn servers_that_do_not_vote_are_refused() {
        assert_eq!(state_fault("leader").or(state_fault("follower")), None);
        for (state, word) in [("observer", "voters only"), ("standalone", "alone"), ("read-only", "neither")]
        {
            assert!(state_fault(state).unwrap().contains(word), "{state}");
        }
    }

    #[test]
    fn the_list_must_name_all_voters_and_no_one_else() {
        let ids = |ids: &[u64]| ids.iter().copied().map(ServerId).collect::<BTreeSet<_>>();
        assert_eq!(voter_fault(&ids(&[1, 2, 3]), &ids(&[1, 2, 3])), None);
        assert!(voter_fault(&ids(&[1, 2, 3, 4, 5]), &ids(&[1, 2, 3])).unwrap().contains("server 4, 5"));
        assert!(voter_fault(&ids(&[1, 2]), &ids(&[1, 2, 3])).unwrap().contains("do not vote: server 3"));
    }
}
