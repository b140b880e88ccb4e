//! Tests of exports in the guest: devices of this project as block devices of the guest's kernel.

use std::time::Duration;

use anyhow::Result;

use super::lab::{Lab, follow, refuse_requests};
use super::report::Report;
use crate::guest::job::Job;
use crate::guest::machine::Machine;

/// Time limit of all tests of exports together.
const EXPORT_TEST_LIMIT: Duration = Duration::from_secs(900);

/// Runs the tests. The exported drives are files in the guest's memory.
pub fn run(lab: &Lab, report: &Report) -> Result<()> {
    let machine = Machine { file_systems: true, memory_mb: 4096, ..Machine::default() };
    let programs = ["furrow", "blkzone", "fio", "mkfs.btrfs", "btrfs"];
    let mut running = lab.start(&machine, &programs, "export", "-", Job::default())?;
    follow(&mut running, report, EXPORT_TEST_LIMIT, refuse_requests)
}
