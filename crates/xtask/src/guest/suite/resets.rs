//! Tests of machine resets: after a reset the machine boots with the same drive, and all acknowledged data
//! must be present.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::chance::SeededChance;
use super::lab::{Lab, drives};
use super::report::GroupReport;
use crate::guest::clock;
use crate::guest::job::{Event, Job};
use crate::guest::machine::{Machine, OrdinaryDrive, RunningMachine};
use crate::guest::qmp::Monitor;

/// Total number of machine resets.
const TOTAL_RESETS: u64 = 50;
/// The number of machines that share the resets, with a processor each: one writes by appends, one through
/// the block layer.
const DEVICES: [&str; 2] = ["nvme:/dev/furrow/ng-zns0", "blk:/dev/furrow/zns0"];
/// The longest time from the first acknowledged write to the reset.
const MAX_WRITE_TIME: Duration = Duration::from_millis(1200);
/// One reset in this many happens during the mount.
const RESETS_PER_MOUNT_RESET: u64 = 5;
/// The longest time from the order to mount to a reset during the mount.
const MAX_MOUNT_TIME: Duration = Duration::from_millis(400);
/// Size of a drive without zones.
const ORDINARY_DRIVE_MB: u32 = 512;
/// Time limit of the guest's next event.
const EVENT_LIMIT: Duration = Duration::from_secs(120);

/// Runs both machines.
pub fn run(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    println!("                   --seed {} has the same moments again", lab.seed);
    let results = std::thread::scope(|scope| {
        let share = TOTAL_RESETS / 2;
        let machines: Vec<_> = (1..)
            .zip(DEVICES)
            .map(|(stream, device)| {
                let test = ResetTest { name: "resets", programs: &[], ordinary: false };
                scope.spawn(move || ResetMachine::start(lab, report, test, device, stream)?.run(share))
            })
            .collect();
        machines.into_iter().map(|machine| machine.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.unwrap_or_else(|_| bail!("a machine's thread panicked"))?;
    }
    Ok(())
}

/// The test that runs in a machine that is reset: it asks for the state, reports one test when it has found all that was acknowledged, then
/// what it acknowledges.
#[derive(Clone, Copy)]
pub(super) struct ResetTest<'a> {
    pub(super) name: &'a str,
    /// The programs that the test starts.
    pub(super) programs: &'a [&'a str],
    /// True if the machine has a drive without zones instead of one with zones.
    pub(super) ordinary: bool,
}

/// A machine that is reset, and the writes acknowledged by its guest.
pub(super) struct ResetMachine<'a> {
    running: RunningMachine,
    monitor: Monitor,
    report: &'a GroupReport<'a>,
    device: &'a str,
    chance: SeededChance,
    start: Instant,
    durable: BTreeMap<String, u64>,
    acknowledgements: u64,
    mounts: u64,
}

/// A stage of the test that runs in the guest.
#[derive(PartialEq, Eq)]
enum GuestStage {
    Booted,
    Mounting,
    Mounted,
    Working,
}

impl<'a> ResetMachine<'a> {
    pub(super) fn start(
        lab: &Lab,
        report: &'a GroupReport<'a>,
        test: ResetTest<'_>,
        device: &'a str,
        stream: u64,
    ) -> Result<ResetMachine<'a>> {
        let ordinary = OrdinaryDrive { size_mb: ORDINARY_DRIVE_MB, slow: None };
        let machine = Machine {
            drives: if test.ordinary { Vec::new() } else { drives(1) },
            ordinary_drives: if test.ordinary { vec![ordinary] } else { Vec::new() },
            cpus: 1,
            memory_mb: 1024,
            survives_reset: true,
            ..Machine::default()
        };
        let running = lab.start(&machine, test.programs, test.name, device, Job::default())?;
        Ok(ResetMachine {
            monitor: Monitor::connect(&running.monitor())?,
            running,
            report,
            device,
            chance: SeededChance::new(lab.seed, stream),
            start: clock::now(),
            durable: BTreeMap::new(),
            acknowledgements: 0,
            mounts: 0,
        })
    }

    pub(super) fn run(mut self, resets: u64) -> Result<()> {
        for reset in 1..=resets {
            self.round().with_context(|| format!("{}, before reset {reset}", self.device))?;
            self.monitor.execute("system_reset", json!({}))?;
            self.until(|stage| *stage == GuestStage::Booted)
                .with_context(|| format!("{}, after reset {reset}", self.device))?;
        }
        self.until(|stage| *stage == GuestStage::Mounted).context("the last mount")?;
        self.report.success(
            &format!(
                "{}: {resets} resets, {} acknowledgements, {} mounts, each with all that was acknowledged",
                self.device, self.acknowledgements, self.mounts
            ),
            self.start,
        );
        Ok(())
    }

    /// Waits until the randomly chosen moment of the machine's reset.
    fn round(&mut self) -> Result<()> {
        let (stage, time) = match self.chance.below(RESETS_PER_MOUNT_RESET) {
            0 => (GuestStage::Mounting, MAX_MOUNT_TIME),
            _ => (GuestStage::Working, MAX_WRITE_TIME),
        };
        self.until(|now| *now == stage)?;
        let end = clock::now() + self.chance.shorter(time);
        loop {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Ok(());
            }
            if let Some(event) = self.running.poll(left)? {
                self.take(event)?;
            }
        }
    }

    /// Waits until the guest has reached a stage of its test.
    fn until(&mut self, there: impl Fn(&GuestStage) -> bool) -> Result<()> {
        let end = clock::now() + EVENT_LIMIT;
        loop {
            let event = self.running.next(end.saturating_duration_since(clock::now()))?;
            if self.take(event)?.is_some_and(|stage| there(&stage)) {
                return Ok(());
            }
        }
    }

    /// Processes a guest's event and replies; returns the stage if the event begins a new one.
    fn take(&mut self, event: Event) -> Result<Option<GuestStage>> {
        match event {
            Event::Ready { .. } => Ok(Some(GuestStage::Booted)),
            Event::Ask { .. } => {
                self.running.send_line(&serde_json::to_string(&self.durable)?)?;
                Ok(Some(GuestStage::Mounting))
            }
            Event::Test { name, failure: Some(why), .. } => bail!("{name}: {why}"),
            Event::Test { .. } => {
                self.mounts += 1;
                Ok(Some(GuestStage::Mounted))
            }
            Event::Acknowledged { path, size } => {
                self.durable.insert(path, size);
                self.acknowledgements += 1;
                Ok(Some(GuestStage::Working))
            }
            Event::Dropped { path } => {
                self.durable.remove(&path);
                Ok(None)
            }
            Event::Failed { why } => bail!("the guest gave up: {why}"),
            Event::Exit { code } => bail!("the test program ended with {code}"),
            _ => Ok(None),
        }
    }
}
