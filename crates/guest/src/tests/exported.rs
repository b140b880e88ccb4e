//! Runs `furrow export` as a process of the guest, and mounts what it exports.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::pattern;
use crate::{clock, shell};

/// Time limit of a test, and of each program that it starts.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// Size of the largest file that a test of a file system writes.
const LARGEST_FILE: usize = 300_000;
/// Directory that file systems are mounted on.
const MOUNT_POINT: &str = "/tmp/mounted";

/// A running `furrow export`, killed when the test ends.
pub(super) struct Exported {
    server: Child,
    /// Number of the block device.
    pub(super) id: u32,
    /// Path of the block device.
    pub(super) path: String,
}

impl Exported {
    /// Exports a device.
    pub(super) fn start(url: &str, more: &[&str]) -> Result<Exported> {
        let line: Vec<&str> =
            ["furrow", "export", "-d", url].into_iter().chain(more.iter().copied()).collect();
        Exported::run(&line)
    }

    /// Takes over the block device `id`.
    pub(super) fn recover(id: u32) -> Result<Exported> {
        Exported::run(&["furrow", "export", "--recover", &id.to_string()])
    }

    /// Starts a server that takes over the block device `id`, and kills it after `life`, whatever it has done until then.
    pub(super) fn kill_while_recovering(id: u32, life: Duration) -> Result<()> {
        let mut server = shell::start(&["furrow", "export", "--recover", &id.to_string()])?;
        clock::sleep(life);
        let ended = server.try_wait()?;
        server.kill()?;
        let said = server.wait_with_output()?;
        let error = String::from_utf8_lossy(&said.stderr);
        ensure!(ended.is_none(), "a server that was to take over ended: {error}");
        Ok(())
    }

    fn run(line: &[&str]) -> Result<Exported> {
        let mut server = shell::start(line)?;
        let mut output = BufReader::new(server.stdout.take().context("no pipe")?);
        let mut ready = String::new();
        output.read_line(&mut ready)?;
        let path = ready.split_once(" as /dev/").and_then(|(_, rest)| rest.split([';', '\n']).next());
        let Some(name) = path else {
            server.kill().ok();
            let mut said = String::new();
            if let Some(mut error) = server.stderr.take() {
                error.read_to_string(&mut said)?;
            }
            bail!("{} ended with {} and was not ready: {ready}{said}", line.join(" "), server.wait()?);
        };
        let id = name.trim_start_matches("ublkb").parse().with_context(|| format!("no number: {ready}"))?;
        server.stdout = Some(output.into_inner());
        let path = format!("/dev/{name}");
        shell::ignore(&mut server)?;
        Ok(Exported { server, id, path })
    }

    /// Ends the server as a service manager does, and waits until the block device is gone.
    pub(super) fn stop(self) -> Result<()> {
        self.terminate()?;
        self.wait()
    }

    /// Sends the server SIGTERM.
    pub(super) fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has a number")?, Signal::TERM)?;
        Ok(())
    }

    /// Waits until the server has ended, which it has to do without a failure.
    pub(super) fn wait(mut self) -> Result<()> {
        let status = self.ended()?;
        ensure!(status.success(), "furrow export ended with {status}");
        ensure!(!Path::new(&self.path).exists(), "{} is there after the end of its server", self.path);
        Ok(())
    }

    fn ended(&mut self) -> Result<ExitStatus> {
        clock::wait_for("end of furrow export", || self.server.try_wait().transpose())?.map_err(Into::into)
    }

    /// Kills the server; returns the number of its block device.
    pub(super) fn kill(mut self) -> Result<u32> {
        self.server.kill()?;
        self.server.wait()?;
        Ok(self.id)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// A mounted file system, unmounted when the test ends.
pub(super) struct Mounted {
    /// Directory of the file system.
    pub(super) at: PathBuf,
}

impl Mounted {
    pub(super) fn btrfs(path: &str) -> Result<Mounted> {
        Mounted::mount("btrfs", path)
    }

    /// Mounts a file system of a kind on the block device `path`.
    pub(super) fn mount(kind: &str, path: &str) -> Result<Mounted> {
        std::fs::create_dir_all(MOUNT_POINT)?;
        rustix::mount::mount(path, MOUNT_POINT, kind, MountFlags::empty(), None)
            .with_context(|| format!("mounting {path}: {}", kernel_log()))?;
        Ok(Mounted { at: PathBuf::from(MOUNT_POINT) })
    }

    /// Unmounts the file system, which writes it out.
    pub(super) fn unmount(self) -> Result<()> {
        rustix::mount::unmount(&self.at, UnmountFlags::empty()).context("unmounting")?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Already unmounted by `unmount`, unless the test failed.
        rustix::mount::unmount(&self.at, UnmountFlags::DETACH).ok();
    }
}

/// The last lines of the kernel's log, for messages.
fn kernel_log() -> String {
    const LINES: usize = 15;
    let log = shell::run(&["dmesg"], LIMIT).map(|ended| ended.output).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}

/// Creates an array of emulated drives in files; returns its URL.
pub(super) fn create_array(name: &str, drives: usize, settings: &str) -> Result<String> {
    create_array_of((0..drives).map(|drive| format!("emu:/tmp/{name}-{drive}?{settings}")))
}

/// Creates an array of the drives with these URLs; returns its URL.
pub(super) fn create_array_of(urls: impl Iterator<Item = String>) -> Result<String> {
    let urls: Vec<String> = urls.collect();
    let line: Vec<&str> =
        ["furrow", "array", "create", "--force"].into_iter().chain(urls.iter().map(String::as_str)).collect();
    shell::run_successfully(&line, LIMIT)?;
    Ok(array_of(urls.into_iter()))
}

/// URL of the array of the drives with these URLs.
pub(super) fn array_of(urls: impl Iterator<Item = String>) -> String {
    format!("array:{}", urls.collect::<Vec<_>>().join(","))
}

/// The exports of the machine.
pub(super) fn list() -> Result<Value> {
    let said = shell::run_successfully(&["furrow", "export", "--list", "--json"], LIMIT)?;
    serde_json::from_str(&said).with_context(|| format!("the list is no JSON: {said}"))
}

/// The content of file `number`: as long as the number says, different in each file.
fn content(number: usize) -> Vec<u8> {
    const PIECE: usize = 4096;
    let length = (number * 7919 + 1) % LARGEST_FILE;
    let pieces = (0..length).step_by(PIECE);
    let piece = |at: usize| pattern::block([at as u64, number as u64], PIECE.min(length - at));
    pieces.map(piece).collect::<Vec<_>>().concat()
}

/// Writes files of these numbers, each durable before the next.
pub(super) fn write_files(directory: &Path, numbers: Range<usize>) -> Result<()> {
    for number in numbers {
        let file = std::fs::File::create(directory.join(format!("file-{number}")))?;
        Write::write_all(&mut &file, &content(number))?;
        file.sync_all().with_context(|| format!("syncing file {number}"))?;
    }
    Ok(())
}

/// Compares files with what was written.
pub(super) fn compare_files(directory: &Path, numbers: Range<usize>) -> Result<()> {
    for number in numbers {
        let found = std::fs::read(directory.join(format!("file-{number}")))
            .with_context(|| format!("reading file {number}, which was synced"))?;
        ensure!(found == content(number), "file {number} is not what was written");
    }
    Ok(())
}
