//! `cargo xtask guest test`: what must hold on a stock kernel.

mod array;
mod chance;
mod export;
mod faults;
mod lab;
mod report;
mod resets;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::lab::{Lab, REQUIRED, drives, follow, is_required, refuse_requests};
use self::report::Report;
use super::clock;
use super::job::{Job, NullBlk};
use super::kernel::{Flavour, Kernel};
use super::machine::{Machine, QEMU};
use super::{build, cache};

/// `cargo xtask guest test`
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The tests to run; all of them by default
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Say what tests there are
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

/// A test of the suite: starts machines and injects faults into them.
struct SuiteTest {
    name: &'static str,
    about: &'static str,
    run: fn(&Lab, &Report) -> Result<()>,
}

const SUITE_TESTS: &[SuiteTest] = &[
    SuiteTest {
        name: "conformance",
        about: "the device contract on every kind of kernel device, with io_uring and without",
        run: conformance,
    },
    SuiteTest {
        name: "stock",
        about: "mkfs, logs, db_bench, the server with redis-cli, on drives with few open zones",
        run: stock,
    },
    SuiteTest {
        name: "resets",
        about: "50 machine resets at random moments during synced writes: nothing acknowledged is lost",
        run: resets::run,
    },
    SuiteTest {
        name: "faults",
        about: "failing reads, writes and flushes, worn zones, a slow drive, a drive that is unplugged",
        run: faults::run,
    },
    SuiteTest {
        name: "array",
        about: "arrays over both interfaces; under redis-benchmark a drive is unplugged, replaced, rebuilt",
        run: array::run,
    },
    SuiteTest {
        name: "export",
        about: "emulator and array as block devices: conformance, blkzone, fio, btrfs, f2fs, kill -9, --recover",
        run: export::run,
    },
    SuiteTest {
        name: "rates",
        about: "appends beside a bare loop, block writes beside fio's: measured, not judged",
        run: rates,
    },
];

/// Runs the tests of the suite; true if all passed.
pub fn run(args: &TestArgs) -> Result<bool> {
    if args.list {
        for case in SUITE_TESTS {
            println!("{:12} {}", case.name, case.about);
        }
        return Ok(true);
    }
    let chosen: Vec<&SuiteTest> = match args.names.as_slice() {
        [] => SUITE_TESTS.iter().collect(),
        names => names
            .iter()
            .map(|name| {
                SUITE_TESTS.iter().find(|case| case.name == name).with_context(|| format!("no test {name}"))
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
    for case in chosen {
        let start = clock::now();
        println!("guest {}: {}", case.name, case.about);
        if let Err(why) = (case.run)(&lab, &report) {
            report.failure(case.name, &format!("{why:#}"));
        }
        println!("guest {}: {:.1} s", case.name, start.elapsed().as_secs_f64());
    }
    report.finish(&cache().join("results.json"))
}

/// The guest's kernel. Fails without a kernel or QEMU.
fn kernel_if_available() -> Result<Kernel> {
    super::kernel::run(std::process::Command::new(QEMU).arg("--version"))?;
    Kernel::get(Flavour::Cloud, &cache())
}

/// Number of conventional zones of the null_blk device that has some.
const NULL_BLK_CONVENTIONAL_ZONES: u32 = 4;

fn conformance(lab: &Lab, report: &Report) -> Result<()> {
    let machine = Machine { drives: drives(1), ..Machine::default() };
    let conventional = NullBlk { conventional: NULL_BLK_CONVENTIONAL_ZONES, ..NullBlk::default() };
    let null_blk = vec![NullBlk::default(), conventional];
    let job = Job { null_blk, loops: vec![NullBlk::for_loop()], ..Job::default() };
    let mut running = lab.start(&machine, &["furrow"], "conformance", "-", job)?;
    follow(&mut running, report, Duration::from_secs(900), refuse_requests)
}

fn stock(lab: &Lab, report: &Report) -> Result<()> {
    let machine = Machine { drives: drives(2), ..Machine::default() };
    let mut running =
        lab.start(&machine, &["furrow", "redis-cli", "redis-benchmark"], "stock", "-", Job::default())?;
    follow(&mut running, report, Duration::from_secs(1800), refuse_requests)
}

fn rates(lab: &Lab, report: &Report) -> Result<()> {
    let machine = Machine { drives: drives(1), ..Machine::default() };
    let mut running = lab.start(&machine, &["fio"], "rates", "-", Job::default())?;
    follow(&mut running, report, Duration::from_secs(1800), refuse_requests)
}
