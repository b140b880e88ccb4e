//! The command `furrow prio check`: what the kernel does with I/O priorities below a directory, and a trial.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use rustix::fs::{major, minor};
use serde_json::{Value, json};
use units::{Driver, Instant};

use crate::context::Context;
use crate::exit::Failure;
use crate::output;

/// Bytes of a log's append in the trial.
const APPEND: usize = 4 << 10;
/// Bytes of a bulk write in the trial.
const BULK_WRITE: usize = 256 << 10;
/// Bytes of a bulk file, which is synced when it is whole, and then written anew.
const BULK_FILE: u64 = 64 << 20;
const BULK_WRITERS: usize = 4;
/// Parts of the trial: the log alone, beside bulk, and beside bulk with priorities.
const PARTS: u32 = 3;
/// The shortest trial in which each part measures more than it waits.
const SHORTEST_TRIAL: Duration = Duration::from_secs(3);
/// The time after a part's start from which the log is measured: bulk has begun.
const SETTLES: Duration = Duration::from_millis(300);

/// The arguments of `furrow prio check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A directory on the drive, or a file in it: the trial writes 256 MiB there, and removes them.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Only show the facts.
    #[arg(long)]
    no_trial: bool,
    /// The length of the trial, 3 s at least.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "no_trial")]
    trial: Duration,
}

/// The arguments of the load.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[arg(value_enum)]
    what: Load,
    file: PathBuf,
    #[arg(long, value_parser = humantime::parse_duration)]
    time: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Load {
    Log,
    Bulk,
}

/// Shows the facts, and tries.
pub fn run(context: &Context, args: &CheckArgs) -> Result<ExitCode> {
    let path = if args.path.is_file() {
        // The folder of a file without one in its name is the current one.
        args.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    } else {
        &args.path
    };
    if !path.is_dir() {
        return Err(Failure::usage(format!("{} is no directory and no file", path.display())));
    }
    if args.trial < SHORTEST_TRIAL {
        return Err(Failure::usage(format!("--trial is at least {SHORTEST_TRIAL:?}")));
    }
    let facts = facts(path)?;
    if !context.json {
        let pairs: Vec<(&str, String)> = facts.iter().map(|(name, value)| (*name, value.clone())).collect();
        output::pairs(&pairs)?;
    }
    let rows = if args.no_trial { Vec::new() } else { trial(path, args.trial / PARTS)? };
    if context.json {
        let facts: serde_json::Map<String, Value> =
            facts.into_iter().map(|(name, value)| (name.replace(' ', "_"), value.into())).collect();
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        output::json(&json!({ "facts": facts, "trial": rows }))?;
    } else if !rows.is_empty() {
        output::line("")?;
        let header = ["appends of 4 KiB, O_DSYNC", "a second", "mean us", "p99 us", "bulk MiB/s"];
        output::table(&header, &header[1..], rows.iter().map(Row::cells).collect())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Names and values: the file system, the drive, and what priorities do there.
fn facts(path: &Path) -> Result<Vec<(&'static str, String)>> {
    let device = fs::metadata(path).with_context(|| format!("{}", path.display()))?.dev();
    let number = format!("{}:{}", major(device), minor(device));
    let mut facts = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let (kind, options) = mount_of(&mounts, &number).unwrap_or_else(|| ("unknown".into(), String::new()));
    facts.push(("file system", format!("{kind} ({options})")));
    facts.push(("journal", journal_words(&kind).to_owned()));
    let drive = drive_of(Path::new("/sys/dev/block"), &number);
    let queue = |name: &str| {
        let drive = drive.as_ref()?;
        Some(fs::read_to_string(drive.join("queue").join(name)).ok()?.trim().to_owned())
    };
    let name = drive.as_ref().and_then(|drive| Some(drive.file_name()?.to_string_lossy().into_owned()));
    facts.push((
        "drive",
        name.map_or_else(|| format!("none of its own ({number})"), |name| format!("{name} ({number})")),
    ));
    let scheduler = queue("scheduler").as_deref().and_then(chosen_scheduler);
    facts.push(("I/O scheduler", scheduler.clone().unwrap_or_else(|| "unknown".into())));
    facts.push(("priorities", scheduler_words(scheduler.as_deref()).to_owned()));
    facts.push(("write cache", queue("write_cache").unwrap_or_else(|| "unknown".into())));
    let may = sys::priority::may_be_real_time();
    let words = if may { "yes" } else { "no: logs are best effort 0, bulk is idle" };
    facts.push(("CAP_SYS_NICE", words.to_owned()));
    Ok(facts)
}

/// The file system's kind and options of the mount on the drive `number`.
fn mount_of(mounts: &str, number: &str) -> Option<(String, String)> {
    mounts.lines().find_map(|line| {
        if line.split(' ').nth(2) != Some(number) {
            return None;
        }
        let mut rest = line.split_once(" - ")?.1.split(' ');
        let kind = rest.next()?.to_owned();
        Some((kind, rest.nth(1).unwrap_or_default().to_owned()))
    })
}

fn journal_words(kind: &str) -> &'static str {
    match kind {
        "ext4" | "xfs" | "jbd2" => {
            "a sync that changes a file's length or extents waits for the journal, which has no class; one within written room does not"
        }
        "btrfs" | "f2fs" => {
            "a sync writes metadata of the file system's own, at the syncing thread's class where that thread submits it"
        }
        "tmpfs" | "ramfs" => "none: nothing is durable",
        _ => "unknown",
    }
}

/// The directory in /sys of a drive; for a partition, that of the whole drive.
fn drive_of(devices: &Path, number: &str) -> Option<PathBuf> {
    let device = devices.join(number).canonicalize().ok()?;
    if device.join("partition").exists() { Some(device.parent()?.to_owned()) } else { Some(device) }
}

/// The scheduler in brackets of the queue's list.
fn chosen_scheduler(list: &str) -> Option<String> {
    Some(list.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn scheduler_words(scheduler: Option<&str>) -> &'static str {
    match scheduler {
        Some("mq-deadline") => {
            "honoured: nothing lower goes while a real-time request waits or is in flight, for 10 s at most"
        }
        Some("bfq") => "honoured, and the drive idles for the log: bulk becomes much slower",
        Some("none" | "kyber") => "ignored: only the admission of bulk helps; mq-deadline honours them",
        _ => "unknown: the drive's queue is not in /sys",
    }
}

/// The measurements of one part of the trial.
struct Row {
    name: &'static str,
    log: Value,
    /// Synced bytes of all writers a second.
    bulk: f64,
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let number = |name: &str| {
            let number = self.log.get(name).and_then(Value::as_f64);
            number.map_or("-".to_owned(), |number| format!("{number:.0}"))
        };
        let bulk = format!("{:.0}", self.bulk / f64::from(1 << 20));
        vec![self.name.to_owned(), number("per_second"), number("mean_us"), number("p99_us"), bulk]
    }

    fn json(&self) -> Value {
        json!({ "part": self.name, "log": self.log, "bulk_bytes_per_second": self.bulk })
    }
}

/// A trial, whose directory goes with the value.
struct Trial {
    directory: PathBuf,
    /// The length of each part.
    time: Duration,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("furrow: removing {}: {error}", self.directory.display());
        }
    }
}

fn trial(path: &Path, time: Duration) -> Result<Vec<Row>> {
    let directory = path.join(format!(".furrow-prio-check-{}", std::process::id()));
    fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
    let path = std::path::absolute(directory).context("the current directory")?;
    let trial = Trial { directory: path, time };
    Ok(vec![
        trial.part("alone", 0, false)?,
        trial.part("beside bulk", BULK_WRITERS, false)?,
        trial.part("beside bulk, prio run", BULK_WRITERS, true)?,
    ])
}

impl Trial {
    fn part(&self, name: &'static str, writers: usize, with_classes: bool) -> Result<Row> {
        let bulk: Vec<Loader> = (0..writers)
            .map(|writer| self.start(Load::Bulk, &format!("check-{writer}.bulk"), with_classes))
            .collect::<Result<_>>()?;
        let log = self.start(Load::Log, "check.log", with_classes)?.result()?;
        let mut bytes = 0.0;
        for writer in bulk {
            bytes += writer.result()?.get("bytes_per_second").and_then(Value::as_f64).unwrap_or_default();
        }
        Ok(Row { name, log, bulk: bytes })
    }

    fn start(&self, what: Load, file: &str, with_classes: bool) -> Result<Loader> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(&program);
        if with_classes {
            let (counters, pages) = (self.directory.join("counters"), self.directory.join("pages"));
            let (class, glob) = match what {
                Load::Log => ("--log", "check.log"),
                Load::Bulk => ("--bulk", "check-*.bulk"),
            };
            command.args(["prio", "run", "--join", class, glob, "--counters"]);
            command.arg(counters).arg("--").arg(&program).env("FURROW_PRIO_DIR", pages);
        }
        let name = match what {
            Load::Log => "log",
            Load::Bulk => "bulk",
        };
        command.args(["prio", "load", name]).arg(self.directory.join(file)).arg("--time");
        command.arg(humantime::format_duration(self.time).to_string()).stdout(Stdio::piped());
        Ok(Loader(command.spawn().context("starting the load")?))
    }
}

/// A process with a part of the load. It is killed if its result is not asked for.
struct Loader(Child);

impl Loader {
    fn result(mut self) -> Result<Value> {
        let mut text = String::new();
        if let Some(stdout) = &mut self.0.stdout {
            stdout.read_to_string(&mut text).context("the load's result")?;
        }
        let status = self.0.wait().context("the load")?;
        if !status.success() {
            return Err(Failure::refused(format!("the trial's load ended with {status}")));
        }
        serde_json::from_str(&text).context("the load's result")
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

/// Makes one writer's load, and prints its result.
pub fn load(context: &Context, args: &LoadArgs) -> Result<ExitCode> {
    let driver = &**context.driver();
    let result = match args.what {
        Load::Log => append_synced(driver, &args.file, args.time),
        Load::Bulk => write_bulk(driver, &args.file, args.time),
    };
    output::json(&result.with_context(|| format!("writing {}", args.file.display()))?)?;
    Ok(ExitCode::SUCCESS)
}

fn append_synced(driver: &dyn Driver, file: &Path, time: Duration) -> Result<Value> {
    /// `O_DSYNC` of Linux. rustix's `OFlags::DSYNC` has the bits of `O_SYNC`, which also waits for the file's times.
    const DATA_SYNC: i32 = 0o1_0000;
    let mut file = OpenOptions::new().create(true).append(true).custom_flags(DATA_SYNC).open(file)?;
    let (start, data) = (driver.now(), vec![7; APPEND]);
    let mut latencies: Vec<Duration> = Vec::new();
    let mut now = start;
    while now.since(start) < time {
        file.write_all(&data)?;
        let end = driver.now();
        if now.since(start) >= SETTLES {
            latencies.push(end.since(now));
        }
        now = end;
    }
    latencies.sort_unstable();
    let count = latencies.len();
    // No number where no write ended in the time.
    let micros = |latency: Duration| latency.as_secs_f64() * 1e6;
    let mean = latencies.iter().sum::<Duration>().as_secs_f64() * 1e6 / count as f64;
    let mean = Some(mean).filter(|_| count > 0);
    let p99 = latencies.get(count * 99 / 100).copied().map(micros);
    let per_second = count as f64 / time.saturating_sub(SETTLES).as_secs_f64();
    Ok(json!({ "per_second": per_second, "mean_us": mean, "p99_us": p99 }))
}

fn write_bulk(driver: &dyn Driver, file: &Path, time: Duration) -> Result<Value> {
    let file = File::create(file)?;
    let (start, data) = (driver.now(), vec![9; BULK_WRITE]);
    let (mut at, mut bytes, mut now): (u64, u64, Instant) = (0, 0, start);
    while now.since(start) < time {
        file.write_all_at(&data, at)?;
        at += BULK_WRITE as u64;
        bytes += BULK_WRITE as u64;
        if at >= BULK_FILE {
            file.sync_data()?;
            at = 0;
        }
        now = driver.now();
    }
    file.sync_data()?;
    let took = driver.now().since(start);
    Ok(json!({ "bytes_per_second": bytes as f64 / took.as_secs_f64() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_drive_is_found_by_its_number() {
        let mounts = "22 1 254:1 / /boot rw - vfat /dev/vda1 rw,utf8\n\
            23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n";
        assert_eq!(mount_of(mounts, "254:0"), Some(("ext4".into(), "rw,discard".into())));
        assert_eq!(mount_of(mounts, "0:33"), None);
    }

    #[test]
    fn the_scheduler_in_use_is_the_one_in_brackets() {
        assert_eq!(chosen_scheduler("none [mq-deadline] kyber bfq"), Some("mq-deadline".into()));
        assert_eq!(chosen_scheduler(""), None);
        assert!(scheduler_words(Some("none")).starts_with("ignored"));
    }

    #[test]
    fn a_partition_s_queue_is_its_drive_s() {
        let sys = tempfile::tempdir().unwrap();
        let part = sys.path().join("vda/vda1");
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        std::os::unix::fs::symlink(&part, sys.path().join("254:1")).unwrap();
        assert_eq!(drive_of(sys.path(), "254:1").unwrap().file_name().unwrap(), "vda");
    }
}
