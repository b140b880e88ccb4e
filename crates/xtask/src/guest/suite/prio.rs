//! Tests of I/O priorities: the class that the kernel's queue gets each write with, machine resets under logs in files, and what logs and bulk
//! get under each I/O scheduler.

use std::time::Duration;

use anyhow::{Result, bail};

use super::lab::{Lab, follow, refuse_requests};
use super::report::GroupReport;
use super::resets::{ResetMachine, ResetTest};
use crate::guest::job::Job;
use crate::guest::machine::{Machine, OrdinaryDrive, SlowDrive};

/// Number of resets of the machine.
const RESETS: u64 = 5;
/// The stream of the reset moments.
const STREAM: u64 = 5;
/// The test of the class of each write.
const CLASSES: &str = "prio";
/// The programs of the tests.
const PROGRAMS: [&str; 8] =
    ["furrow-prio", "mkfs.ext4", "filefrag", "dd", "sh", "ionice", "setpriv", "dmesg"];
/// The programs of the test that is reset.
const PROGRAMS_OF_RESETS: [&str; 3] = ["furrow-prio-writer", "mkfs.ext4", "dmesg"];
/// The drive whose own queue is long: what it takes goes in the order of its coming.
const SLOW: SlowDrive = SlowDrive { mib_per_second: 64, latency: Duration::from_millis(1) };
/// Size of that drive.
const DRIVE_MB: u32 = 512;
/// Time limit of each part.
const LIMIT: Duration = Duration::from_secs(240);
/// Time limit of the measurement in full.
const LIMIT_IN_FULL: Duration = Duration::from_secs(2400);

/// Runs the tests: the classes beside the machine that is reset, then the measurement alone.
pub fn run(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let test = ResetTest { name: "prio-resets", programs: &PROGRAMS_OF_RESETS, ordinary: true };
    std::thread::scope(|scope| {
        let resets = scope.spawn(|| match &lab.only {
            None => ResetMachine::start(lab, report, test, "/dev/furrow/ordinary0", STREAM)?.run(RESETS),
            Some(_) => Ok(()),
        });
        let classes = in_guest(lab, report, CLASSES, LIMIT);
        resets.join().unwrap_or_else(|_| bail!("a machine's thread panicked"))?;
        classes
    })?;
    in_guest(lab, report, "prio-rates", LIMIT)
}

/// Measures logs beside bulk under each I/O scheduler in five runs, with one log and with four.
pub fn measure_in_full(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    in_guest(lab, report, "prio-rates-in-full", LIMIT_IN_FULL)
}

fn in_guest(lab: &Lab, report: &GroupReport<'_>, test: &str, limit: Duration) -> Result<()> {
    let slow = OrdinaryDrive { size_mb: DRIVE_MB, slow: Some(SLOW) };
    let machine = Machine {
        ordinary_drives: vec![slow],
        schedulers: true,
        traces_requests: test == CLASSES,
        ..Machine::default()
    };
    let mut running = lab.start(&machine, &PROGRAMS, test, "-", Job::default())?;
    follow(&mut running, report, limit, refuse_requests)
}
