//! `cargo xtask guest test`: what must hold on a stock kernel.

mod array;
mod chance;
mod export;
mod faults;
mod lab;
mod leveldb;
mod prio;
mod report;
mod resets;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::lab::{Lab, REQUIRED, drives, follow, is_required, refuse_requests};
use self::report::{GroupReport, Report};
use super::clock;
use super::job::{Job, NullBlk};
use super::kernel::{Flavour, Kernel};
use super::machine::{Machine, QEMU};
use super::{build, cache};

/// `cargo xtask guest test`
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The groups of tests to run; all of them by default
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Say what groups there are
    #[arg(long)]
    list: bool,
    /// Decides what chance decides [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// A device's URL to take instead of the tests' own, in those that take any
    #[arg(long, value_name = "URL")]
    device: Option<String>,
    /// Of the tests that run in guests only those whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Take the programs as they were built last
    #[arg(long)]
    no_build: bool,
}

/// Groups that run at the same time. A machine waits for its drives, clocks and boots for half of its time.
const GROUPS_AT_ONCE: usize = 2;

/// A group of tests: starts machines and injects faults into them.
struct Group {
    name: &'static str,
    about: &'static str,
    run: fn(&Lab, &GroupReport<'_>) -> Result<()>,
    /// True if no other group runs beside this one, since it measures rates.
    alone: bool,
    /// True if only its name on the command line runs it.
    on_request: bool,
}

/// The groups, the longest ones first.
const GROUPS: &[Group] = &[
    Group {
        name: "export",
        about: "emulator and array as block devices: conformance, blkzone, fio, btrfs, f2fs, kill -9, --recover",
        run: export::run,
        alone: false,
        on_request: false,
    },
    Group {
        name: "array",
        about: "arrays over both interfaces; under redis-benchmark a drive is unplugged, replaced, rebuilt",
        run: array::run,
        alone: false,
        on_request: false,
    },
    Group {
        name: "resets",
        about: "50 machine resets at random moments during synced writes: nothing acknowledged is lost",
        run: resets::run,
        alone: false,
        on_request: false,
    },
    Group {
        name: "leveldb",
        about: "LevelDB's programs: 10 machine resets, 10 kills with logs in conventional zones, bytes beside zoned btrfs",
        run: leveldb::run,
        alone: false,
        on_request: false,
    },
    Group {
        name: "faults",
        about: "failing reads, writes and flushes, worn zones, a slow drive, a drive that is unplugged",
        run: faults::run,
        alone: false,
        on_request: false,
    },
    Group {
        name: "stock",
        about: "mkfs, logs, db_bench, the server with redis-cli, on drives with few open zones",
        run: stock,
        alone: false,
        on_request: false,
    },
    Group {
        name: "conformance",
        about: "the device contract on every kind of kernel device, with io_uring and without",
        run: conformance,
        alone: false,
        on_request: false,
    },
    Group {
        name: "prio",
        about: "I/O priorities: the class of every write of logs and bulk, resets under logs in files; what schedulers make of them, measured",
        run: prio::run,
        alone: true,
        on_request: false,
    },
    Group {
        name: "prio-in-full",
        about: "what schedulers make of logs and bulk, in 5 runs, with 1 and 4 logs: measured, on request alone",
        run: prio::measure_in_full,
        alone: true,
        on_request: true,
    },
    Group {
        name: "rates",
        about: "appends beside a bare loop, block writes beside fio's: measured, not judged",
        run: rates,
        alone: true,
        on_request: false,
    },
];

/// Runs the tests of the suite; true if all passed.
pub fn run(args: &TestArgs) -> Result<bool> {
    if args.list {
        for group in GROUPS {
            println!("{:12} {}", group.name, group.about);
        }
        return Ok(true);
    }
    let chosen: Vec<&Group> = match args.names.as_slice() {
        [] => GROUPS.iter().filter(|group| !group.on_request).collect(),
        names => names
            .iter()
            .map(|name| {
                GROUPS.iter().find(|group| group.name == name).with_context(|| format!("no group {name}"))
            })
            .collect::<Result<_>>()?,
    };
    let kernel = match kernel_if_available() {
        Ok(kernel) => kernel,
        Err(why) if is_required() => {
            bail!("{why:#}; {REQUIRED} is set, so that this is a failure")
        }
        Err(why) => {
            println!("guest: SKIPPED, nothing of a real kernel was tested: {why:#}");
            return Ok(true);
        }
    };
    if !args.no_build {
        build()?;
    }
    let seed = args.seed.unwrap_or_else(clock::seed);
    let lab = Lab { kernel, seed, device: args.device.clone(), only: args.only.clone() };
    let report = Report::new();
    let (alone, shared): (Vec<&Group>, Vec<&Group>) = chosen.into_iter().partition(|group| group.alone);
    run_side_by_side(&shared, &lab, &report);
    for group in alone {
        group.run_and_report(&lab, &report);
    }
    report.finish(&cache().join("results.json"))
}

/// Runs the groups, [`GROUPS_AT_ONCE`] of them at a time.
fn run_side_by_side(groups: &[&Group], lab: &Lab, report: &Report) {
    let next = Mutex::new(groups.iter());
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..GROUPS_AT_ONCE {
            scope.spawn(|| {
                while let Some(group) = take() {
                    group.run_and_report(lab, report);
                }
            });
        }
    });
}

impl Group {
    fn run_and_report(&self, lab: &Lab, report: &Report) {
        let start = clock::now();
        println!("guest {}: {}", self.name, self.about);
        let report = report.group(self.name);
        if let Err(why) = (self.run)(lab, &report) {
            report.failure(&format!("{why:#}"));
        }
        println!("guest {}: {:.1} s", self.name, start.elapsed().as_secs_f64());
    }
}

/// The guest's kernel. Fails without a kernel or QEMU.
fn kernel_if_available() -> Result<Kernel> {
    super::kernel::run(std::process::Command::new(QEMU).arg("--version"))?;
    Kernel::get(Flavour::Cloud, &cache())
}

/// Number of conventional zones of the null_blk device that has some.
const NULL_BLK_CONVENTIONAL_ZONES: u32 = 4;

fn conformance(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine { drives: drives(1), ..Machine::default() };
    let conventional = NullBlk { conventional: NULL_BLK_CONVENTIONAL_ZONES, ..NullBlk::default() };
    let null_blk = vec![NullBlk::default(), conventional];
    let job = Job { null_blk, loops: vec![NullBlk::for_loop()], ..Job::default() };
    let mut running = lab.start(&machine, &["furrow"], "conformance", "-", job)?;
    follow(&mut running, report, Duration::from_secs(900), refuse_requests)
}

fn stock(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine { drives: drives(2), ..Machine::default() };
    let mut running =
        lab.start(&machine, &["furrow", "redis-cli", "redis-benchmark"], "stock", "-", Job::default())?;
    follow(&mut running, report, Duration::from_secs(1800), refuse_requests)
}

fn rates(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine { drives: drives(1), ..Machine::default() };
    let mut running = lab.start(&machine, &["fio"], "rates", "-", Job::default())?;
    follow(&mut running, report, Duration::from_secs(1800), refuse_requests)
}
