//! A test of synced writes on a machine that is reset at random moments: data reported to the harness as
//! durable must survive.
//!
//! A file's content is derived from its path, so that any prefix can be verified. The harness records acknowledged
//! sizes; a file about to be removed or renamed is dropped from the record first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fs::{Bytes, CreateOptions, FileKind, FormatOptions, Fs, MountOptions, Writer};
use units::block_on;
use xtask::guest::job::Event;

use super::device::open;
use crate::checks::Checks;
use crate::control::Control;

/// Time limits of a mount with verification, and of a round's writes, which a reset interrupts earlier.
const MOUNT_AND_VERIFY_LIMIT: Duration = Duration::from_secs(60);

/// Number of data files and logs kept; the oldest are removed.
const KEPT_FILES: usize = 12;
const KEPT_LOGS: usize = 3;
/// Number of records in a log before the next log starts.
const RECORDS_PER_LOG: u64 = 400;
/// Bytes of the longest record, and of the longest data file.
const MAX_RECORD_BYTES: u64 = 9000;
const MAX_FILE_BYTES: u64 = 200_000;

/// Verifies the files, then writes until the machine is reset.
pub fn run(checks: &mut Checks, device: &str) -> Result<()> {
    let acknowledged: BTreeMap<String, u64> = {
        let answer = checks.control.ask("state")?;
        serde_json::from_str(&answer).with_context(|| format!("the harness said {answer}"))?
    };
    let mut mounted = None;
    checks.check("mount after a reset", MOUNT_AND_VERIFY_LIMIT, |control| {
        let device = open(device)?;
        let driver = Arc::clone(device.driver());
        if acknowledged.is_empty() {
            let options = FormatOptions { force: true, ..FormatOptions::default() };
            block_on(&*driver, Fs::format(&device, &options))?;
        } else {
            let report = block_on(&*driver, Fs::check(&device))?;
            ensure!(report.problems.is_empty(), "the check found {:?}", report.problems);
        }
        let fs = block_on(&*driver, Fs::mount(device, &MountOptions::default()))?;
        let mut bytes = 0;
        for (path, size) in &acknowledged {
            bytes += block_on(&*driver, verify(&fs, path, *size)).with_context(|| path.clone())?;
        }
        control
            .note(format!("mounted; {} files, {bytes} bytes acknowledged and there", acknowledged.len()))?;
        mounted = Some(fs);
        Ok(())
    })?;
    let Some(fs) = mounted else { return Ok(()) };
    let driver = Arc::clone(fs.driver());
    checks.check("synced writes", MOUNT_AND_VERIFY_LIMIT, |control| {
        block_on(&*driver, write_until_reset(&fs, control))
    })
}

/// Checks that the file has at least `size` bytes and that all its bytes are as written.
async fn verify(fs: &Fs, path: &str, size: u64) -> Result<u64> {
    let reader = fs.open(path)?;
    let found = reader.size().0;
    ensure!(found >= size, "{size} bytes were acknowledged, {found} are there");
    let mut bytes = vec![0; usize::try_from(found)?];
    let mut done = 0;
    while let Some(part) = bytes.get_mut(done..).filter(|part| !part.is_empty()) {
        let count = reader.read_at(Bytes(u64::try_from(done)?), part).await?;
        ensure!(count > 0, "the file ends at {done} of {found} bytes");
        done += count;
    }
    let wanted = expected_content(path, 0, found);
    if bytes != wanted {
        let at = bytes.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        bail!("byte {at:?} of {found} is not what was written; {size} were acknowledged");
    }
    Ok(size)
}

/// The expected bytes of a file from offset `from` on.
fn expected_content(path: &str, from: u64, length: u64) -> Vec<u8> {
    let name = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let words = (from / 8)..=(from + length) / 8;
    let bytes = words.flat_map(|word| mix(name ^ word).to_le_bytes());
    let skipped = usize::try_from(from % 8).unwrap_or_default();
    bytes.skip(skipped).take(usize::try_from(length).unwrap_or_default()).collect()
}

/// The finaliser of splitmix64: the bytes of neighbouring words have nothing in common.
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Writes files until the machine is reset. Names are never reused, so the content identifies the file.
async fn write_until_reset(fs: &Fs, control: &mut Control) -> Result<()> {
    let mut names: Vec<String> =
        fs.read_dir("/")?.into_iter().map(|entry| format!("/{}", entry.name)).collect();
    names.sort_by_key(|name| number(name));
    let mut logs: VecDeque<String> = names.iter().filter(|name| name.starts_with("/log-")).cloned().collect();
    let mut files: VecDeque<String> =
        names.iter().filter(|name| name.starts_with("/file-")).cloned().collect();
    let mut next = names.iter().map(|name| number(name)).max().map_or(0, |last| last + 1);
    loop {
        // Writes logs: alternates between continuing an old log and starting a new one.
        let (path, log, mut size) = match logs.back() {
            Some(last) if next.is_multiple_of(2) && number(last) + 1 < next => {
                let writer = fs.open_append(last).await?;
                let size = writer.size().0;
                (last.clone(), writer, size)
            }
            _ => {
                let path = format!("/log-{next}");
                let kind = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
                let writer = fs.create(&path, &kind).await?;
                logs.push_back(path.clone());
                (path, writer, 0)
            }
        };
        next += 1;
        for record in 0..RECORDS_PER_LOG {
            size = append(&log, &path, size, mix(next ^ (record << 20)) % MAX_RECORD_BYTES + 1).await?;
            log.sync().await?;
            control.say(&Event::Acknowledged { path: path.clone(), size })?;
            if record % 8 == 7 {
                files.push_back(write_data_file(fs, control, next).await?);
                next += 1;
                while files.len() > KEPT_FILES {
                    remove(fs, control, files.pop_front()).await?;
                }
            }
        }
        log.close().await?;
        while logs.len() > KEPT_LOGS {
            remove(fs, control, logs.pop_front()).await?;
        }
    }
}

async fn append(writer: &Writer, path: &str, size: u64, length: u64) -> Result<u64> {
    writer.append(&expected_content(path, size, length)).await?;
    Ok(size + length)
}

/// Writes a data file under a temporary name and renames it, so that the name exists with all bytes or not at all.
async fn write_data_file(fs: &Fs, control: &mut Control, number: u64) -> Result<String> {
    let (before, path) = (format!("/new-{number}"), format!("/file-{number}"));
    let writer = fs.create(&before, &CreateOptions::default()).await?;
    let size = append(&writer, &path, 0, mix(number) % MAX_FILE_BYTES + 1).await?;
    writer.sync().await?;
    writer.close().await?;
    fs.rename(&before, &path).await?;
    fs.sync().await?;
    control.say(&Event::Acknowledged { path: path.clone(), size })?;
    Ok(path)
}

async fn remove(fs: &Fs, control: &mut Control, path: Option<String>) -> Result<()> {
    let path = path.context("there is an oldest")?;
    control.say(&Event::Dropped { path: path.clone() })?;
    fs.unlink(&path).await?;
    Ok(())
}

/// The number in a file's name.
fn number(name: &str) -> u64 {
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_where_reading_begins() {
        let whole = expected_content("/log-1", 0, 100);
        assert_eq!(whole.len(), 100);
        for from in 0..100 {
            assert_eq!(
                expected_content("/log-1", u64::try_from(from).unwrap(), 5)[..],
                whole[from..]
                    .iter()
                    .chain(&expected_content("/log-1", 100, 5))
                    .copied()
                    .take(5)
                    .collect::<Vec<u8>>()[..]
            );
        }
        assert_ne!(whole, expected_content("/log-2", 0, 100));
    }
}
