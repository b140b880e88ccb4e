//! Tests of machine resets: after a reset the machine boots with the same drive, and all acknowledged data
//! must be present.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::chance::Chance;
use super::lab::{Lab, drives};
use super::report::Report;
use crate::guest::clock;
use crate::guest::job::{Event, Job};
use crate::guest::machine::{Machine, Running};
use crate::guest::qmp::Monitor;

/// Total number of machine resets.
const RESETS: u64 = 50;
/// The number of machines that share the resets, with a processor each: one writes by appends, one through
/// the block layer.
const DEVICES: [&str; 2] = ["nvme:/dev/furrow/ng-zns0", "blk:/dev/furrow/zns0"];
/// The longest time from the first acknowledged write to the reset.
const WORK: Duration = Duration::from_millis(1200);
/// One reset in this many happens during the mount.
const DURING_MOUNT: u64 = 5;
/// The longest time from the order to mount to a reset during the mount.
const MOUNT: Duration = Duration::from_millis(400);
/// Time limit of the guest's next event.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs both machines.
pub fn run(lab: &Lab, report: &Report) -> Result<()> {
    println!("                   --seed {} has the same moments again", lab.seed);
    let results = std::thread::scope(|scope| {
        let share = RESETS / 2;
        let machines: Vec<_> = (1..)
            .zip(DEVICES)
            .map(|(stream, device)| {
                scope.spawn(move || Machinery::start(lab, report, device, stream)?.run(share))
            })
            .collect();
        machines.into_iter().map(|machine| machine.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.unwrap_or_else(|_| bail!("a machine's thread panicked"))?;
    }
    Ok(())
}

/// A machine that is reset, and the writes acknowledged by its guest.
struct Machinery<'a> {
    running: Running,
    monitor: Monitor,
    report: &'a Report,
    device: &'a str,
    chance: Chance,
    start: Instant,
    durable: BTreeMap<String, u64>,
    acknowledgements: u64,
    mounts: u64,
}

/// Stage of the guest.
#[derive(PartialEq, Eq)]
enum Stage {
    Booted,
    Mounting,
    Mounted,
    Working,
}

impl<'a> Machinery<'a> {
    fn start(lab: &Lab, report: &'a Report, device: &'a str, stream: u64) -> Result<Machinery<'a>> {
        let machine = Machine {
            drives: drives(1),
            cpus: 1,
            memory_mb: 1024,
            survives_reset: true,
            ..Machine::default()
        };
        let running = lab.start(&machine, &[], "resets", device, Job::default())?;
        Ok(Machinery {
            monitor: Monitor::connect(&running.monitor())?,
            running,
            report,
            device,
            chance: Chance::new(lab.seed, stream),
            start: clock::now(),
            durable: BTreeMap::new(),
            acknowledgements: 0,
            mounts: 0,
        })
    }

    fn run(mut self, resets: u64) -> Result<()> {
        for reset in 1..=resets {
            self.round().with_context(|| format!("{}, before reset {reset}", self.device))?;
            self.monitor.execute("system_reset", json!({}))?;
            self.until(|stage| *stage == Stage::Booted)
                .with_context(|| format!("{}, after reset {reset}", self.device))?;
        }
        self.until(|stage| *stage == Stage::Mounted).context("the last mount")?;
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
        let (stage, time) = match self.chance.below(DURING_MOUNT) {
            0 => (Stage::Mounting, MOUNT),
            _ => (Stage::Working, WORK),
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
    fn until(&mut self, there: impl Fn(&Stage) -> bool) -> Result<()> {
        let end = clock::now() + LIMIT;
        loop {
            let event = self.running.next(end.saturating_duration_since(clock::now()))?;
            if self.take(event)?.is_some_and(|stage| there(&stage)) {
                return Ok(());
            }
        }
    }

    /// Processes a guest's event and replies; returns the stage if the event begins a new one.
    fn take(&mut self, event: Event) -> Result<Option<Stage>> {
        match event {
            Event::Ready { .. } => Ok(Some(Stage::Booted)),
            Event::Ask { .. } => {
                self.running.send_line(&serde_json::to_string(&self.durable)?)?;
                Ok(Some(Stage::Mounting))
            }
            Event::Test { name, failure: Some(why), .. } => bail!("{name}: {why}"),
            Event::Test { .. } => {
                self.mounts += 1;
                Ok(Some(Stage::Mounted))
            }
            Event::Acknowledged { path, size } => {
                self.durable.insert(path, size);
                self.acknowledgements += 1;
                Ok(Some(Stage::Working))
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
