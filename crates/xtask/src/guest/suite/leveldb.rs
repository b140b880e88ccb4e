//! Tests of unmodified LevelDB programs: machine resets, kills, and bytes beside zoned btrfs.

use std::time::Duration;

use anyhow::Result;

use super::lab::{Lab, drives, follow, refuse_requests};
use super::report::GroupReport;
use super::resets::{ResetMachine, ResetTest};
use crate::guest::job::{Job, NullBlk};
use crate::guest::machine::Machine;

/// Number of resets of the machine.
const RESETS: u64 = 10;
/// The programs of the guest: the libraries of LevelDB come with them.
const PROGRAMS: [&str; 2] = ["furrow-leveldb", "mkfs.btrfs"];
/// Number of conventional zones of the null_blk device.
const CONVENTIONAL_ZONES: u32 = 6;
/// Time limit of the kills and the comparison.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the tests: the machine that is reset beside the one whose program is killed.
pub fn run(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let test = ResetTest { name: "leveldb-resets", programs: &["furrow-leveldb"], ordinary: false };
    std::thread::scope(|scope| {
        let resets = scope
            .spawn(|| ResetMachine::start(lab, report, test, "nvme:/dev/furrow/ng-zns0", 3)?.run(RESETS));
        let rest = kills_and_bytes(lab, report);
        resets.join().unwrap_or_else(|_| anyhow::bail!("a machine's thread panicked"))?;
        rest
    })
}

fn kills_and_bytes(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine { drives: drives(2), file_systems: true, ..Machine::default() };
    let job = Job {
        null_blk: vec![NullBlk { conventional: CONVENTIONAL_ZONES, ..NullBlk::default() }],
        ..Job::default()
    };
    let mut running = lab.start(&machine, &PROGRAMS, "leveldb", "-", job)?;
    follow(&mut running, report, LIMIT, refuse_requests)
}
