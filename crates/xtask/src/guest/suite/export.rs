//! Tests of exports in the guest: devices of this project as block devices of the guest's kernel.

use std::time::Duration;

use anyhow::Result;

use super::lab::{Lab, drives, follow, plug_or_unplug};
use super::report::Report;
use crate::guest::job::Job;
use crate::guest::machine::Machine;
use crate::guest::qmp::Monitor;

/// Time limit of all tests of exports together.
const EXPORT_TEST_LIMIT: Duration = Duration::from_secs(900);

/// Number of NVMe drives: an array's, the last of which is unplugged, and the one that takes its place.
const ARRAY_AND_NEW_DRIVE: usize = 6;

/// Runs the tests. The emulated drives that are exported are files in the guest's memory.
pub fn run(lab: &Lab, report: &Report) -> Result<()> {
    let machine = Machine {
        drives: drives(ARRAY_AND_NEW_DRIVE),
        pluggable: true,
        file_systems: true,
        memory_mb: 4096,
        ..Machine::default()
    };
    let programs = ["furrow", "blkzone", "fio", "mkfs.btrfs", "btrfs", "dmesg"];
    let mut running = lab.start(&machine, &programs, "export", "-", Job::default())?;
    let mut monitor = Monitor::connect(&running.monitor())?;
    follow(&mut running, report, EXPORT_TEST_LIMIT, |_, what| plug_or_unplug(&mut monitor, what))
}
