//! Servers that are killed while a file system writes, of devices whose caches end with their process: power cuts.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::exported::{Exported, LIMIT, Mounted, compare_files, create_array, list, write_files};
use super::load::{kills, kills_of_one_drive, limit, spread};
use crate::checks::Checks;
use crate::{clock, null_blk, shell};

/// Geometry of a drive whose cache is lost with its process.
const FORGETS: &str = "zones=64&zone-size=16MiB&zone-capacity=12MiB&max-open=8&max-active=12";
/// Such a drive with more open zones: f2fs needs six, and an array has three fewer than its drives.
const FORGETS_OF_F2FS: &str = "zones=64&zone-size=16MiB&zone-capacity=12MiB&max-open=12&max-active=16";
/// Ordinary block device for the metadata of f2fs, and its size.
const METADATA: &str = "/dev/metadata";
const METADATA_MIB: u32 = 256;
/// Number of drives of an array.
const DRIVES: usize = 5;
/// Files that are synced before a kill: at least the first number, below the second.
const FILES_IN_A_LIFE: (u64, u64) = (3, 9);
/// Number of the latest files that are kept; older ones are removed.
const FILES_KEPT: usize = 24;
/// Longest time from the sync of a file to the kill, in milliseconds.
const PAUSE: u64 = 60;

/// A file system on an exported device.
#[derive(Clone, Copy, Debug)]
enum FileSystem {
    Btrfs,
    /// Its metadata is on the ordinary block device of this path, which keeps what was written whatever becomes of the export.
    F2fs(&'static str),
}

impl FileSystem {
    fn make(self, path: &str) -> Result<()> {
        match self {
            FileSystem::Btrfs => {
                shell::run_successfully(&["mkfs.btrfs", "-q", "-f", "-m", "single", path], LIMIT)?
            }
            FileSystem::F2fs(metadata) => {
                shell::run_successfully(&["mkfs.f2fs", "-q", "-f", "-m", "-c", path, metadata], LIMIT)?
            }
        };
        Ok(())
    }

    /// Mounts the file system, which was checked where its checker knows that a log may have to be replayed.
    fn check_and_mount(self, path: &str) -> Result<Mounted> {
        match self {
            FileSystem::Btrfs => {
                shell::run_successfully(&["btrfs", "check", path], LIMIT)?;
                Mounted::btrfs(path)
            }
            FileSystem::F2fs(metadata) => Mounted::mount("f2fs", metadata),
        }
    }
}

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check(
        "a kill of a server with a volatile cache is a power cut to btrfs",
        limit()?,
        |control| {
            control.note(power_cuts(
                FileSystem::Btrfs,
                &format!("emu:/tmp/forgets?{FORGETS}"),
                kills_of_one_drive()?,
            )?)
        },
    )?;
    checks.check(
        "a kill of an array's server is a power cut to btrfs and to all drives",
        limit()?,
        |control| {
            control.note(power_cuts(FileSystem::Btrfs, &create_array("forgets", DRIVES, FORGETS)?, kills()?)?)
        },
    )
}

/// f2fs, whose module Debian's small kernel does not have: in a guest of its own.
pub(super) fn run_f2fs(checks: &mut Checks) -> Result<()> {
    let metadata = null_blk::make_ordinary("metadata", METADATA_MIB)?;
    ensure!(metadata == Path::new(METADATA), "the device for metadata is {}", metadata.display());
    checks.check(
        "a kill of an array's server is a power cut to f2fs and to all drives",
        limit()?,
        |control| {
            control.note(power_cuts(
                FileSystem::F2fs(METADATA),
                &create_array("f2fs", DRIVES, FORGETS_OF_F2FS)?,
                kills()?,
            )?)
        },
    )
}

/// Kills the server while a file system writes and syncs files, again and again. After each kill the file system is checked and mounted,
/// and every file that was synced is compared.
fn power_cuts(file_system: FileSystem, url: &str, kills: usize) -> Result<String> {
    let export = Exported::start(url, &[])?;
    file_system.make(&export.path)?;
    export.stop()?;
    let (mut files, mut compared) = (0..0, 0);
    for kill in 0..kills {
        let export = Exported::start(url, &[])?;
        let mounted =
            mount_and_compare(file_system, &export, &files).with_context(|| format!("after {kill} kills"))?;
        compared += files.len();
        for old in files.start..files.end.saturating_sub(FILES_KEPT) {
            std::fs::remove_file(mounted.at.join(format!("file-{old}")))?;
            files.start = old + 1;
        }
        files.end = write_until_killed(kill, export, &mounted, files.end)?;
        drop(mounted);
        // The number of the block device is free when the file system has let go of it.
        clock::wait_for("end of the file system", || stop_dead_exports().ok())?;
    }
    let export = Exported::start(url, &[])?;
    mount_and_compare(file_system, &export, &files)?.unmount()?;
    compared += files.len();
    export.stop()?;
    Ok(format!("{kills} kills: {} files synced, files compared {compared} times", files.end))
}

/// Checks and mounts a file system; compares the files that were synced.
fn mount_and_compare(file_system: FileSystem, export: &Exported, files: &Range<usize>) -> Result<Mounted> {
    let mounted = file_system.check_and_mount(&export.path)?;
    compare_files(&mounted.at, files.clone())?;
    Ok(mounted)
}

/// Writes and syncs files from number `first` on, and kills the server meanwhile. Returns the number behind that of the last
/// file that was synced.
fn write_until_killed(kill: usize, export: Exported, mounted: &Mounted, first: usize) -> Result<usize> {
    let synced = AtomicUsize::new(first);
    let (least, end) = FILES_IN_A_LIFE;
    let target = first + usize::try_from(least + spread(kill, end - least))?;
    let path = export.path.clone();
    let write = || loop {
        let number = synced.load(Ordering::Acquire);
        match write_files(&mounted.at, number..number + 1) {
            Ok(()) => synced.fetch_add(1, Ordering::AcqRel),
            Err(why) => return why,
        };
    };
    let (why, had_progress) = std::thread::scope(|scope| {
        let writer = scope.spawn(write);
        let progress = clock::wait_for("synced files", || {
            (writer.is_finished() || synced.load(Ordering::Acquire) >= target).then_some(())
        });
        clock::sleep(Duration::from_millis(spread(kill, PAUSE)));
        let had_progress = progress.is_ok() && !writer.is_finished();
        export.kill()?;
        Ok::<_, anyhow::Error>((writer.join().ok().context("the writer panicked")?, had_progress))
    })?;
    ensure!(had_progress, "files cannot be written though the server lives: {why:#}");
    clock::wait_for("end of the block device", || (!Path::new(&path).exists()).then_some(()))?;
    Ok(synced.into_inner())
}

/// Frees the numbers of exports whose servers were killed.
fn stop_dead_exports() -> Result<()> {
    let listed = list()?;
    for export in listed.as_array().into_iter().flatten() {
        let id = export.get("id").and_then(serde_json::Value::as_u64).context("an export has a number")?;
        shell::run_successfully(&["furrow", "export", "--stop", &id.to_string()], LIMIT)?;
    }
    Ok(())
}
