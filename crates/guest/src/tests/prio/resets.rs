//! A test of logs in files on a machine that is reset at random moments: bytes reported to the harness as durable must survive.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prio::{LogFile, Options};
use xtask::guest::job::Event;

use super::content;
use super::drives::{make_ext4, mount_ext4};
use super::write_log::{HOWS, how_by_name};
use crate::checks::Checks;
use crate::control::Control;

/// Time limits of a mount with verification, and of a round's writes, which a reset interrupts earlier.
const LIMIT: Duration = Duration::from_secs(60);
const MOUNT_POINT: &str = "/tmp/logs";
/// Bytes of the longest record.
const MAX_RECORD_BYTES: u64 = 9000;
/// Bytes of room ahead of a log: small, so that logs outgrow it many times.
const ROOM: u64 = 64 << 10;

/// Verifies the logs, one for each way to write them, then appends to one of them until the machine is reset. To one alone: the syncs of another one would
/// commit its changes of the file system, too.
pub(super) fn run(checks: &mut Checks, device: &str) -> Result<()> {
    let acknowledged: BTreeMap<String, u64> = {
        let answer = checks.control.ask("state")?;
        serde_json::from_str(&answer).with_context(|| format!("the harness said {answer}"))?
    };
    let durable = |how: &str| acknowledged.get(how).copied().unwrap_or_default();
    // The one with the fewest bytes: each has its turn.
    let next = HOWS.into_iter().min_by_key(|how| durable(how)).context("there are ways")?;
    let mut opened = None;
    checks.check("logs in files after a reset", LIMIT, |control| {
        let device = fs::canonicalize(device)?;
        if acknowledged.is_empty() {
            make_ext4(&device)?;
        }
        mount_ext4(&device, Path::new(MOUNT_POINT))?;
        for how in HOWS {
            let end = verify(how, durable(how)).with_context(|| format!("the log by {how}"))?;
            if how == next {
                opened = Some(open(how, end)?);
            }
        }
        let bytes: u64 = acknowledged.values().sum();
        control.note(format!("{} logs, {bytes} bytes acknowledged and there", acknowledged.len()))
    })?;
    let Some(log) = opened else { return Ok(()) };
    checks.check("synced records", LIMIT, |control| append_until_reset(next, &log, control))
}

/// Compares the bytes of the log of a way, of which the first `durable` must be there. Returns where the log ends; `None` if there is none.
fn verify(how: &str, durable: u64) -> Result<Option<u64>> {
    let bytes = match fs::read(path(how)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && durable == 0 => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = content::end(&bytes);
    ensure!(end as u64 >= durable, "{durable} bytes were acknowledged, {end} are there");
    let wanted = content::expected(how, 0, end);
    let wrong = bytes.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
    ensure!(wrong.is_none(), "byte {wrong:?} of {end} is not what was written; {durable} were acknowledged");
    Ok(Some(end as u64))
}

/// Opens the log of a way, where it ends.
fn open(how: &str, end: Option<u64>) -> Result<LogFile> {
    let options = Options { how: how_by_name(how)?, room: ROOM, ..Options::default() };
    Ok(match end {
        Some(end) => LogFile::open(path(how), end, &options)?,
        None => LogFile::create(path(how), &options)?,
    })
}

fn path(how: &str) -> PathBuf {
    PathBuf::from(MOUNT_POINT).join(how)
}

fn append_until_reset(how: &str, log: &LogFile, control: &mut Control) -> Result<()> {
    loop {
        let from = log.end();
        let length = from.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MAX_RECORD_BYTES + 1;
        let end = log.append(&content::expected(how, from, usize::try_from(length)?))?;
        log.sync(end)?;
        control.say(&Event::Acknowledged { path: how.to_owned(), size: end })?;
    }
}
