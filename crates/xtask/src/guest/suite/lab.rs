//! Starts machines for the tests of the suite and follows the events that they report.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::report::GroupReport;
use crate::guest::job::{Event, Job, ONLY};
use crate::guest::kernel::Kernel;
use crate::guest::machine::{Machine, RunningMachine, ZnsDrive, ordinary_serial, serial};
use crate::guest::programs::Programs;
use crate::guest::qmp::Monitor;
use crate::guest::{INIT, built, cache, clock};

/// Environment variable that makes a missing kernel or QEMU a failure instead of a reason to skip the suite.
pub(super) const REQUIRED: &str = "FURROW_REQUIRE_GUEST";

/// True if what cannot be tested on this machine is a failure.
pub(super) fn is_required() -> bool {
    std::env::var_os(REQUIRED).is_some_and(|value| value != "0")
}

/// The settings that every test of the suite gets.
#[derive(Clone)]
pub(super) struct Lab {
    pub(super) kernel: Kernel,
    pub(super) seed: u64,
    /// The URL of a device that replaces the tests' own devices, if given.
    pub(super) device: Option<String>,
    /// Text in the names of the only in-guest tests to run, if given.
    pub(super) only: Option<String>,
}

impl Lab {
    /// Starts a machine that runs one of the in-guest tests on a device, with the programs `with`. A machine
    /// with fewer programs boots faster.
    pub(super) fn start(
        &self,
        machine: &Machine,
        with: &[&str],
        test: &str,
        device: &str,
        rest: Job,
    ) -> Result<RunningMachine> {
        let mut programs = Programs::default();
        programs.add_as("/init", &built().join(INIT))?;
        for name in with {
            match *name {
                "furrow" => programs.add_furrow(&built())?,
                "furrow-prio" => programs.add_furrow_and_prio(&built())?,
                "furrow-leveldb" => programs.add_furrow_and_leveldb(&built())?,
                name => programs.add(name, &built())?,
            }
        }
        let mut job = Job {
            drives: (0..machine.drives.len()).map(serial).collect(),
            ordinary_drives: (0..machine.ordinary_drives.len()).map(ordinary_serial).collect(),
            command: ["/init", test, self.device.as_deref().unwrap_or(device)].map(str::to_owned).to_vec(),
            ..rest
        };
        job.env.extend(self.only.iter().map(|text| (ONLY.to_owned(), text.clone())));
        machine.boot(&self.kernel, &programs, &cache(), &job, || {
            (Box::new(std::io::stderr()), Box::new(std::io::stderr()))
        })
    }
}

/// Prints the guest's events until its test ends, at most `limit`. `ask` executes the test's requests.
pub(super) fn follow(
    running: &mut RunningMachine,
    report: &GroupReport<'_>,
    limit: Duration,
    mut ask: impl FnMut(&mut RunningMachine, &str) -> Result<String>,
) -> Result<()> {
    let end = clock::now() + limit;
    let mut failed = false;
    loop {
        let left = end.saturating_duration_since(clock::now());
        match running.next(left)? {
            Event::Exit { code: 0 } => return Ok(()),
            // The guest has already reported the failed checks by name.
            Event::Exit { .. } if failed => return Ok(()),
            Event::Exit { code } => bail!("the test program ended with {code}"),
            Event::Failed { why } => bail!("the guest gave up: {why}"),
            Event::Ask { what } => {
                let answer = ask(running, &what)?;
                running.send_line(&answer)?;
            }
            event => failed |= report.event(&event),
        }
    }
}

pub(super) fn refuse_requests(_: &mut RunningMachine, what: &str) -> Result<String> {
    bail!("the guest asked for {what}")
}

/// Executes a guest's requests `unplug N` and `plug N` for its drives.
pub(super) fn plug_or_unplug(monitor: &mut Monitor, what: &str) -> Result<String> {
    match what.split(' ').collect::<Vec<_>>().as_slice() {
        ["unplug", drive] => monitor.execute("device_del", json!({ "id": format!("nvme{drive}") })),
        ["plug", drive] => {
            let number: usize = drive.parse().context("a drive's number is needed")?;
            monitor.execute(
                "device_add",
                json!({
                    "driver": "nvme", "id": format!("nvme{number}"), "serial": serial(number),
                    "bus": format!("slot{number}"), "subsys": format!("subsystem{number}"),
                }),
            )
        }
        _ => bail!("there is no such order"),
    }
    .with_context(|| format!("the order was: {what}"))?;
    Ok("done".to_owned())
}

pub(super) fn drives(count: usize) -> Vec<ZnsDrive> {
    vec![ZnsDrive::default(); count]
}
