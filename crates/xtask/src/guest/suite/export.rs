//! Tests of exports in the guest: devices of this project as block devices of the guest's kernel.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::lab::{Lab, drives, follow, is_required, plug_or_unplug, refuse_requests};
use super::report::GroupReport;
use crate::guest::cache;
use crate::guest::job::{EXPORT_KILL_LIMIT, EXPORT_KILLS, Job};
use crate::guest::kernel::{Flavour, Kernel};
use crate::guest::machine::Machine;
use crate::guest::qmp::Monitor;

/// Time limit of all tests of exports together, without [`EXPORT_KILLS`].
const EXPORT_TEST_LIMIT: Duration = Duration::from_secs(900);
/// Number of tests that kill servers.
const TESTS_THAT_KILL: u32 = 7;

/// Number of NVMe drives: five of an array, and two that take the places of drives that are unplugged.
const ARRAY_AND_NEW_DRIVES: usize = 7;

/// Runs the tests. The emulated drives that are exported are files in the guest's memory.
pub fn run(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine {
        drives: drives(ARRAY_AND_NEW_DRIVES),
        pluggable: true,
        file_systems: true,
        memory_mb: 4096,
        ..Machine::default()
    };
    let programs = ["furrow", "blkzone", "fio", "mkfs.btrfs", "btrfs", "dmesg"];
    let programs_of_the_page = ["sh", "cp", "ls", "mount", "sleep", "umount"];
    let programs = [programs.as_slice(), programs_of_the_page.as_slice()].concat();
    let mut job = Job::default();
    let mut limit = EXPORT_TEST_LIMIT;
    if let Some(kills) = kills(std::env::var(EXPORT_KILLS).ok())? {
        job.env.insert(EXPORT_KILLS.to_owned(), kills.to_string());
        limit += EXPORT_KILL_LIMIT * kills * TESTS_THAT_KILL;
    }
    let mut running = lab.start(&machine, &programs, "export", "-", job.clone())?;
    let mut monitor = Monitor::connect(&running.monitor())?;
    follow(&mut running, report, limit, |_, what| plug_or_unplug(&mut monitor, what))?;
    drop(running);
    f2fs(lab, report, job, limit)
}

/// Runs the tests of f2fs, which Debian's full kernel has alone.
fn f2fs(lab: &Lab, report: &GroupReport<'_>, job: Job, limit: Duration) -> Result<()> {
    let machine = Machine { file_systems: true, memory_mb: 3072, ..Machine::default() };
    let kernel = match Kernel::get(Flavour::Full, &cache()) {
        Err(why) if !is_required() => {
            println!("guest: SKIPPED, f2fs was not tested: {why:#}");
            return Ok(());
        }
        kernel => kernel?,
    };
    let full = Lab { kernel, ..lab.clone() };
    let programs = ["furrow", "mkfs.f2fs", "dmesg"];
    let mut running = full.start(&machine, &programs, "export-f2fs", "-", job)?;
    follow(&mut running, report, limit, refuse_requests)
}

/// The number of kills that the environment asks for.
fn kills(variable: Option<String>) -> Result<Option<u32>> {
    const MOST: u32 = 10_000;
    let Some(text) = variable else { return Ok(None) };
    let wrong = || format!("{EXPORT_KILLS}={text}: a number of kills is needed, from 1 to {MOST}");
    let kills: u32 = text.parse().with_context(wrong)?;
    ensure!((1..=MOST).contains(&kills), wrong());
    Ok(Some(kills))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_kills_that_is_none_is_refused() {
        assert_eq!(kills(None).unwrap(), None);
        assert_eq!(kills(Some("100".into())).unwrap(), Some(100));
        for wrong in ["", "0", "-1", "many", "10001"] {
            let error = format!("{:#}", kills(Some(wrong.into())).unwrap_err());
            assert!(error.contains("from 1 to 10000"), "{error}");
        }
    }
}
