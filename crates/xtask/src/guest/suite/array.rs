//! Tests of arrays in the guest: one of their drives is unplugged, another one is plugged in.

use std::time::Duration;

use anyhow::Result;

use super::lab::{Lab, drives, follow, plug_or_unplug};
use super::report::GroupReport;
use crate::guest::job::Job;
use crate::guest::machine::Machine;
use crate::guest::qmp::Monitor;

/// For all of it.
const ARRAY_TEST_LIMIT: Duration = Duration::from_secs(2000);
/// Number of drives: an array's and a spare one.
const ARRAY_AND_SPARE_DRIVES: usize = 5;

/// Runs the tests.
pub fn run(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine {
        drives: drives(ARRAY_AND_SPARE_DRIVES + 1),
        pluggable: true,
        spares: 1,
        ..Machine::default()
    };
    let programs = ["furrow", "redis-cli", "redis-benchmark"];
    let mut running = lab.start(&machine, &programs, "array", "-", Job::default())?;
    let mut monitor = Monitor::connect(&running.monitor())?;
    follow(&mut running, report, ARRAY_TEST_LIMIT, |_, what| plug_or_unplug(&mut monitor, what))
}
