//! What a log and bulk get on a drive under each I/O scheduler: with nothing, with priorities, and under `furrow prio run`, which also admits bulk. The
//! figures are reported, not checked, because the machine is emulated and shared.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use serde_json::Value;
use sys::BufMut;

use super::classes::open_direct;
use super::drives::Drive;
use super::load;
use crate::checks::Checks;
use crate::control::Control;
use crate::shell;

/// Time limit of one drive under one scheduler, and of one program.
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_OF_RUN: Duration = Duration::from_secs(60);
const SCHEDULERS: [&str; 3] = ["none", "mq-deadline", "bfq"];

/// The number of runs of a measurement, and of logs beside the bulk.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Runs of each way, in turn.
    runs: usize,
    /// Numbers of log writers.
    log_writers: &'static [usize],
}

impl Extent {
    /// Three runs with one log: the measurement of the group `prio`, which every run of the guest tests includes.
    pub(super) const SHORT: Extent = Extent { runs: 3, log_writers: &[1] };
    /// Five runs, with one log and with four: the measurement of the group `prio-in-full`, which runs on request alone.
    pub(super) const FULL: Extent = Extent { runs: 5, log_writers: &[1, MOST_LOG_WRITERS] };
}

/// The most log writers.
const MOST_LOG_WRITERS: usize = 4;
/// Milliseconds before the measurement of a run, and of the measurement. Admission first learns what the log is alone.
const MILLIS: [&str; 2] = ["250", "600"];
const MILLIS_WITH_ADMISSION: [&str; 2] = ["1500", "2000"];
/// Bytes of a write that prepares a file.
const PREPARING_WRITE: usize = 1 << 20;

/// How log and bulk share a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Nothing,
    Priorities,
    PrioritiesAndAdmission,
}

impl Way {
    const ALL: [Way; 3] = [Way::Nothing, Way::Priorities, Way::PrioritiesAndAdmission];

    fn name(self) -> &'static str {
        match self {
            Way::Nothing => "nothing",
            Way::Priorities => "class",
            Way::PrioritiesAndAdmission => "class and admission",
        }
    }
}

/// A log's write latencies and the bulk's rate.
#[derive(Clone, Copy, Default)]
struct Figures {
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    log_bytes_per_s: f64,
    bulk_bytes_per_s: f64,
}

pub(super) fn run(checks: &mut Checks, extent: Extent) -> Result<()> {
    for drive in &Drive::make_both()? {
        prepare(drive)?;
        for scheduler in SCHEDULERS {
            for writers in extent.log_writers.iter().copied() {
                let logs = if writers == 1 { "a log".to_owned() } else { format!("{writers} logs") };
                let name = format!("{} under {scheduler}: {logs} beside bulk, measured", drive.name);
                checks.check(&name, LIMIT, |control| {
                    drive.choose(scheduler)?;
                    let what = format!("{}, {scheduler}, {logs}", drive.name);
                    measure(control, drive, &what, writers, extent.runs)
                })?;
            }
        }
    }
    Ok(())
}

/// Writes the files once: a measured write changes no extents.
fn prepare(drive: &Drive) -> Result<()> {
    let bulk = drive.at.to_str().context("a path of the guest")?;
    let files = (0..load::BULK_WRITERS).map(|writer| (load::bulk_path(bulk, writer), load::BULK_BYTES));
    let log = log_path(drive)?;
    let logs = (0..MOST_LOG_WRITERS).map(|writer| (load::log_path(&log, writer), load::LOG_BYTES));
    for (path, bytes) in files.chain(logs) {
        let path = Path::new(&path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        let file = open_direct(path, OFlags::empty())?;
        let data = BufMut::zeroed(PREPARING_WRITE);
        for at in (0..bytes).step_by(PREPARING_WRITE) {
            file.write_all_at(&data, at)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

fn log_path(drive: &Drive) -> Result<String> {
    Ok(format!("{}/wal/log", drive.at.to_str().context("a path of the guest")?))
}

fn measure(control: &mut Control, drive: &Drive, name: &str, log_writers: usize, count: usize) -> Result<()> {
    let log = log_path(drive)?;
    let bulk = drive.at.to_str().context("a path of the guest")?;
    let (mut logs_alone, mut bulks_alone) = (Vec::new(), Vec::new());
    let mut beside = Way::ALL.map(|_| Vec::new());
    for _ in 0..count {
        logs_alone.push(run_once((&log, log_writers), load::NONE, Way::Nothing)?);
        bulks_alone.push(run_once((load::NONE, 0), bulk, Way::Nothing)?);
        for (way, runs) in Way::ALL.into_iter().zip(&mut beside) {
            runs.push(run_once((&log, log_writers), bulk, way)?);
        }
    }
    let alone = Figures {
        bulk_bytes_per_s: Spread::of(&bulks_alone, |run| run.bulk_bytes_per_s).median,
        ..median_log(&logs_alone)
    };
    control.note(format!(
        "{name}: alone, {count} runs: log {} ms, bulk {} MiB/s",
        Spread::of(&logs_alone, |run| run.mean_us / 1e3),
        Spread::of(&bulks_alone, |run| run.bulk_bytes_per_s / f64::from(1 << 20)),
    ))?;
    for (way, runs) in Way::ALL.into_iter().zip(&beside) {
        let by_alone = Spread::of(runs, |run| run.mean_us / alone.mean_us);
        let kept =
            Spread::of(runs, |run| run.bulk_bytes_per_s / (alone.bulk_bytes_per_s - run.log_bytes_per_s));
        control.note(format!(
            "{name}: {}: log mean {} ms, by alone {by_alone}, p50 by alone {}, p99 by alone {}; bulk {} MiB/s, kept {kept}",
            way.name(),
            Spread::of(runs, |run| run.mean_us / 1e3),
            Spread::of(runs, |run| run.p50_us / alone.p50_us),
            Spread::of(runs, |run| run.p99_us / alone.p99_us),
            Spread::of(runs, |run| run.bulk_bytes_per_s / f64::from(1 << 20)),
        ))?;
        if way == Way::PrioritiesAndAdmission {
            control.measured(&format!("{name}: log by alone (goal 1.3)"), by_alone.median, "times")?;
            control.measured(&format!("{name}: bulk kept (goal 0.8)"), kept.median, "times")?;
        }
    }
    Ok(())
}

fn median_log(runs: &[Figures]) -> Figures {
    Figures {
        mean_us: Spread::of(runs, |run| run.mean_us).median,
        p50_us: Spread::of(runs, |run| run.p50_us).median,
        p99_us: Spread::of(runs, |run| run.p99_us).median,
        ..Figures::default()
    }
}

/// Runs the load once.
fn run_once((log, log_writers): (&str, usize), bulk: &str, way: Way) -> Result<Figures> {
    let log_writers = log_writers.to_string();
    let own = ["/init", load::PROGRAM, log, &log_writers, bulk];
    let run = ["furrow", "prio", "run", "--log", "wal/*", "--bulk", "*.bulk", "--"];
    let (launcher, priorities, millis): (&[&str], _, _) = match way {
        Way::Nothing => (&[], load::NO_PRIORITIES, MILLIS),
        Way::Priorities => (&[], load::PRIORITIES, MILLIS),
        Way::PrioritiesAndAdmission => (&run, load::NO_PRIORITIES, MILLIS_WITH_ADMISSION),
    };
    let line = [launcher, &own, &[priorities], &millis].concat();
    let said = shell::run_successfully(&line, LIMIT_OF_RUN)?;
    let found: Value = serde_json::from_str(&said).with_context(|| format!("the load said {said}"))?;
    let number =
        |key: &str| found.get(key).and_then(Value::as_f64).with_context(|| format!("no {key}: {said}"));
    Ok(Figures {
        mean_us: number("mean_us")?,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        log_bytes_per_s: number("log_bytes_per_s")?,
        bulk_bytes_per_s: number("bulk_bytes_per_s")?,
    })
}

/// The median, the least and the most of some runs.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(runs: &[Figures], figure: impl Fn(&Figures) -> f64) -> Spread {
        let mut figures: Vec<f64> = runs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let at = |place: usize| figures.get(place).copied().unwrap_or_default();
        let last = figures.len().saturating_sub(1);
        Spread { median: at(figures.len() / 2), least: at(0), most: at(last) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.least, self.most)
    }
}
