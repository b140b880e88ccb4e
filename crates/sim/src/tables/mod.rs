//! The crash explorer's target `tables`: the tables of two groups in one RocksDB database, on a recorded drive.
//!
//! One task puts entries into the tables, takes parts of another replica's tables, gives and drops values, and flushes, in a random order.
//!
//! Rule at every power cut: both groups' tables are as they were behind one of the steps, the same one. No step of a group is missing that came before a flush of the group's tables that ended.
//!
//! A share of the images is opened, the next steps are done, the power is cut again, and the same rule holds.

mod contents;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use fs::{FormatOptions, Fs, MountOptions};
use replica::Role;
use shard::{GroupId, GroupTables, Tables as _, TablesDb};
use units::{Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency, Media};

pub(crate) use self::contents::Contents;
use self::plan::{Act, GROUPS, Workload};
use crate::model::{Fault, Progress, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::second_cut::SecondCut;
use crate::trace::Trace;
use crate::{BrokenRules, Error, Recorder, Result, Rng, Step, Target};

/// Steps after a recovery.
const STEPS_AFTER_CUT: usize = 6;
/// Longest random delay of an acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(50);
const PATH: &str = "/tables";

/// The contents of all groups' tables.
type Groups = Vec<Contents>;

/// The open tables of all groups.
struct Open {
    fs: Fs,
    db: Arc<TablesDb>,
    groups: Vec<GroupTables>,
}

impl Open {
    async fn new(device: &Arc<dyn ZonedDevice>, broken: BrokenRules) -> shard::Result<Open> {
        let mount = broken.mount_options_with_broken_rule(MountOptions::default());
        let fs = Fs::mount(Arc::clone(device), &mount).await?;
        let mut options = broken.tables_options();
        (options.write_buffer, options.block_cache) = (64 << 10, 1 << 20);
        let db = TablesDb::open(&fs, PATH, &options)?;
        let groups = (0..GROUPS).map(|group| GroupTables::open(&db, GroupId(group as u64), Role::Witness));
        let groups = groups.collect::<shard::Result<Vec<GroupTables>>>()?;
        Ok(Open { fs, db, groups })
    }

    /// Closes the tables; nothing is made durable.
    async fn close(self) -> shard::Result<()> {
        drop(self.groups);
        self.db.close()?;
        Ok(self.fs.unmount().await?)
    }

    fn contents(&self) -> shard::Result<Groups> {
        let contents = |tables: &GroupTables| {
            let mut contents = Contents { applied: tables.applied(), ..Contents::default() };
            let mut from = Some(Vec::new());
            while let Some(key) = from {
                let part = tables.rows(&key)?;
                contents.rows.extend(part.rows);
                from = part.to;
            }
            Ok(contents)
        };
        self.groups.iter().map(contents).collect()
    }

    fn carry_out(&mut self, (group, act): &(usize, Act)) -> shard::Result<()> {
        let Some(tables) = self.groups.get_mut(*group) else { return Ok(()) };
        match act {
            Act::Apply(entries) => tables.apply(entries),
            Act::Flush => tables.flush().map(|_| ()),
            Act::DropValues(upto) => tables.drop_values(*upto),
            Act::Merge(rows, index) => tables.merge(rows.clone(), *index),
            Act::SkipTo(index) => {
                tables.skip_to(*index)?;
                tables.flush().map(|_| ())
            }
            Act::Give(key, row) => tables.give(key, row.clone()),
            Act::Remove => {
                let group = GroupId(*group as u64);
                GroupTables::remove(&self.db, group)?;
                *tables = GroupTables::open(&self.db, group, Role::Witness)?;
                Ok(())
            }
        }
    }

    /// Carries out the steps from `first` on, at most `count`.
    fn run(
        &mut self,
        workload: &Workload,
        first: usize,
        count: usize,
        recorder: &Recorder,
    ) -> shard::Result<()> {
        for (index, step) in workload.steps.iter().enumerate().skip(first).take(count) {
            recorder.attempt(Plan::step(step.0, index));
            self.carry_out(step)?;
            if step.1.makes_durable() {
                recorder.acknowledged(Plan::step(step.0, index));
            }
        }
        Ok(())
    }
}

/// Runs a workload on tables and records it. RocksDB's threads make every recording different.
pub(crate) fn record(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Result<Trace> {
    let plan = Workload::new(seed, workload, volatile_cache);
    let drive = plan.drive;
    let driver: Arc<dyn Driver> = RealDriver::new();
    let emu = Emu::memory(drive.options("emu:crash", Latency::NONE), Arc::clone(&driver));
    let recorder = Recorder::new(emu, MAX_ACK_DELAY);
    let failed = |e: shard::Error| Error::Workload(format!("tables, seed {seed}, workload {workload}: {e}"));
    let run = async {
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        Fs::format(&device, &FormatOptions::default()).await?;
        let mut open = Open::new(&device, broken).await?;
        open.groups.iter().try_for_each(|tables| tables.flush().map(|_| ()))?;
        recorder.ready();
        open.run(&plan, 0, plan.steps.len(), &recorder)?;
        open.close().await
    };
    block_on(&*driver, run).map_err(failed)?;
    Ok(Trace {
        target: Target::Tables,
        seed,
        workload,
        drive,
        ordered: false,
        modelled: false,
        events: recorder.take(),
    })
}

/// Checks the drive images of one workload of the target `tables`.
pub(crate) struct TablesOracle {
    workload: Workload,
    broken: BrokenRules,
    /// The contents before the first step and behind each one.
    states: Vec<Groups>,
}

impl TablesOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> TablesOracle {
        let workload = Workload::new(trace.seed, trace.workload, trace.drive.volatile_cache);
        let mut states = vec![vec![Contents::default(); GROUPS]];
        for (group, act) in &workload.steps {
            let mut groups = states.last().cloned().unwrap_or_default();
            groups.get_mut(*group).into_iter().for_each(|contents| act.carry_out(contents));
            states.push(groups);
        }
        TablesOracle { workload, broken, states }
    }

    /// The number of steps behind which the contents are those found, among those that the power cut allows.
    fn judge(&self, (first, last): (usize, usize), found: &Groups) -> std::result::Result<usize, Fault> {
        let allowed = (first..=last).find(|steps| self.states.get(*steps) == Some(found));
        allowed.ok_or_else(|| {
            let (kind, is) = match self.states.iter().position(|state| state == found) {
                Some(steps) if steps < first => (FailureKind::Lost, format!("behind {steps} steps")),
                Some(steps) => (FailureKind::Invented, format!("behind {steps} steps")),
                None => (FailureKind::Lost, "behind no step".into()),
            };
            fault(kind, format!("the tables are those {is}, {first} to {last} are allowed"))
        })
    }

    async fn probe_image(
        &self,
        image: Media,
        driver: &Arc<dyn Driver>,
        progress: &Progress,
        probe: Probe,
    ) -> std::result::Result<(), Fault> {
        let failed = |e: shard::Error| fault(FailureKind::Mount, e);
        let last_of = |steps: &Vec<bool>| steps.iter().rposition(|promised| *promised);
        let flushes = progress.promised.iter().filter_map(last_of);
        let promised = flushes.map(|flush| self.workload.covered_by(flush)).max().unwrap_or(0);
        let attempted = progress.attempted.iter().copied().max().unwrap_or(0);
        let of = |image| Emu::from_media(image, "emu:image", Latency::NONE, Arc::clone(driver));
        let recorder = Recorder::new(of(image.clone()), MAX_ACK_DELAY);
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let mut open = Open::new(&device, self.broken).await.map_err(failed)?;
        let found = self.judge((promised, attempted), &open.contents().map_err(failed)?)?;
        if !probe.twice {
            return open.close().await.map_err(failed);
        }
        recorder.ready();
        open.run(&self.workload, found, STEPS_AFTER_CUT, &recorder).map_err(failed)?;
        open.close().await.map_err(failed)?;
        let mut cut = SecondCut::of(image, recorder.take(), &mut Rng::new(probe.seed));
        let index = |step: &Step| Plan::task_and_index(*step).1;
        let flushes = cut.promised.iter().map(index);
        let first = flushes.map(|flush| self.workload.covered_by(flush)).max().unwrap_or(found).max(found);
        let last = cut.begun.iter().map(index).max().map_or(found, |index| index + 1);
        let place = cut.place();
        let device: Arc<dyn ZonedDevice> = of(cut.image());
        let at_place = |fault: Fault| Fault { what: fault.what + &place, ..fault };
        let open = Open::new(&device, self.broken).await.map_err(failed).map_err(at_place)?;
        let contents = open.contents().map_err(failed).map_err(at_place)?;
        self.judge((first, last), &contents).map_err(at_place)?;
        open.close().await.map_err(failed)
    }
}

impl Oracle for TablesOracle {
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault> {
        let driver: Arc<dyn Driver> = RealDriver::new();
        block_on(&*driver, self.probe_image(image, &driver, progress, probe)).err().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_do_what_their_model_does() {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let (mut merges, mut ahead, mut bare, mut removals) = (0, 0, 0, 0);
        for n in 0..12 {
            let workload = Workload::new(9, n, true);
            let emu = Emu::memory(workload.drive.options("emu:t", Latency::NONE), Arc::clone(&driver));
            let device: Arc<dyn ZonedDevice> = emu as Arc<dyn ZonedDevice>;
            block_on(&*driver, async {
                Fs::format(&device, &FormatOptions::default()).await.expect("formats");
                let mut open = Open::new(&device, BrokenRules::default()).await.expect("opens");
                let mut model = vec![Contents::default(); GROUPS];
                for (index, step) in workload.steps.iter().enumerate() {
                    let contents = &mut model[step.0];
                    if let Act::Apply(entries) = &step.1 {
                        let is_later = |row: &shard::Row| row.index >= entries[0].0;
                        ahead += u32::from(contents.rows.values().any(is_later));
                    }
                    merges += u32::from(matches!(step.1, Act::Merge(..)));
                    removals += u32::from(matches!(step.1, Act::Remove) && *contents != Contents::default());
                    step.1.carry_out(contents);
                    bare += u32::from(contents.rows.values().any(|row| row.value.is_none()));
                    open.carry_out(step).expect("the tables work");
                    assert_eq!(
                        open.contents().expect("reads"),
                        model,
                        "step {index} of workload {n}: {step:?}"
                    );
                    let ids =
                        |most| open.groups.iter().map(move |tables| tables.once_ids(most).expect("reads"));
                    assert!(
                        ids(2).eq(model.iter().map(|contents| contents.once_ids(2))),
                        "step {index} of workload {n}"
                    );
                }
                open.close().await.expect("closes");
            });
        }
        assert!(merges > 100 && ahead > 100 && bare > 100, "{merges} merges, {ahead} ahead, {bare} bare");
        assert!(removals > 3, "{removals} removals");
    }
}
