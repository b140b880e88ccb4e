//! The crash explorer's target `groups`: replicas of several groups that share one log, on a recorded drive.
//!
//! Each group's task makes one change after the other durable, as its replica would ask: entries that replace others, votes, retired entries, snapshots that take the log's place, a replica that is removed and comes anew. Whatever keeps the log too long is written again.
//!
//! Rule at every power cut: each group's state is that after its last promised change, or after the one in flight.
//!
//! A share of the images is opened and written on, the power is cut again, and the same rule holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::{Batching, FormatOptions, Fs, MountOptions, ParallelOptions, Uuid};
use raft::eraftpb::{Entry, EntryType, HardState};
use replica::{Base, Configuration, GroupState, Index, Office, ReplicaId, Role, Term, Version};
use shard::{Change, GroupId, GroupsLog, GroupsLogOptions, StoredGroup};
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, Latency, Media};
use zoned::{Bytes, ZonedDevice};

use crate::drive::latency;
use crate::model::{Fault, Progress, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::second_cut::SecondCut;
use crate::trace::{Drive, Trace};
use crate::{BrokenRules, Error, Recorder, Result, Rng, Step, Target};

/// The most groups.
const GROUPS: usize = 5;
/// Number of changes of each group.
const CHANGES_PER_GROUP: usize = 60;
/// Changes after a recovery.
const CHANGES_AFTER_CUT: usize = 12;
/// Most entries that a group's log has behind its base.
const MOST_ENTRIES: u64 = 14;
/// Longest pause of a group between two changes.
const MAX_PAUSE: Duration = Duration::from_micros(150);
/// Longest random delay of an acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(50);
const LOG_PATH: &str = "/groups";

/// The states of all groups that there are.
type Groups = BTreeMap<GroupId, StoredGroup>;

/// The drive and the settings of a workload.
struct Workload {
    salt: u64,
    drive: Drive,
    /// Number of groups.
    groups: usize,
    /// Longest value of an entry, in bytes.
    longest: usize,
    options: GroupsLogOptions,
    mount: MountOptions,
}

impl Workload {
    fn new(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Workload {
        let mut rng = Rng::at(seed, &[workload, 0x6709]);
        let tiny = Drive { zones: 64, ..Drive::of_workload(volatile_cache, workload) };
        let drive = Drive { block_size: 512, max_open: 14, max_active: 14, ..tiny };
        let drive = match rng.below(4) {
            0 => tiny,
            1 => Drive { zone_size: 64, zone_capacity: 60, max_append: 2, ..drive },
            _ => Drive { zone_size: 32, zone_capacity: 28, max_append: 4, ..drive },
        };
        let log = ParallelOptions {
            open: 64,
            batching: if rng.chance(75) { Batching::Auto } else { Batching::Each },
            zones: 1 + rng.index(3),
            ..ParallelOptions::default()
        };
        let mut options = broken.groups_log_options();
        (options.size, options.log) = (Bytes(1 << (14 + rng.below(4))), log);
        Workload {
            salt: seed ^ workload,
            drive,
            groups: 1 + rng.index(GROUPS),
            longest: 1 + rng.index(400),
            options,
            mount: broken.mount_options_with_broken_rule(MountOptions::default()),
        }
    }

    /// The change `index` of a group in that state. `life`: another one after a recovery.
    fn change(&self, (life, group, index): (u64, usize, usize), state: Option<&StoredGroup>) -> Change {
        let mut rng = Rng::at(self.salt, &[life, group as u64, index as u64, 0xc4a9]);
        let Some(state) = state else { return Change::State(StoredGroup::new(base(&mut rng, 0, 0))) };
        let (first, last) = (state.base.index.0 + 1, state.base.index.0 + state.entries.len() as u64);
        let term = state.entries.last().map_or(state.base.term.0, |entry| entry.term) + rng.below(2);
        let vote = |rng: &mut Rng| HardState {
            term: state.vote.term + 1 + rng.below(3),
            vote: rng.below(5),
            commit: first - 1,
            ..HardState::default()
        };
        match rng.below(40) {
            0..3 => Change::Removed,
            3 | 4 => {
                let index = last + 1 + rng.below(4);
                let base = base(&mut rng, index, term);
                let entries = self.entries(&mut rng, base.index.0 + 1, term);
                Change::Write { base: Some(base), entries, vote: Some(vote(&mut rng)) }
            }
            5 => Change::Write { base: None, entries: Vec::new(), vote: Some(vote(&mut rng)) },
            n if !state.entries.is_empty() && (n < 14 || last >= first + MOST_ENTRIES) => {
                let index = first + rng.below(last - first + 1);
                let term = state.entries.iter().find(|entry| entry.index == index).map_or(0, |e| e.term);
                Change::Retired(base(&mut rng, index, term))
            }
            _ => {
                // Most entries come behind the last one.
                let from = if rng.chance(70) { last + 1 } else { first + rng.below(last + 2 - first) };
                let entries = self.entries(&mut rng, from, term);
                let vote = rng.chance(30).then(|| vote(&mut rng));
                Change::Write { base: None, entries, vote }
            }
        }
    }

    fn entries(&self, rng: &mut Rng, first: u64, term: u64) -> Vec<Entry> {
        let count = 1 + rng.below(4);
        (first..first + count)
            .map(|index| {
                let len = rng.index(self.longest);
                let value = (0..len).map(|_| rng.below(256) as u8).collect::<Vec<u8>>();
                let entry_type =
                    if rng.chance(90) { EntryType::EntryNormal } else { EntryType::EntryConfChangeV2 };
                Entry { entry_type, term, index, data: value.into(), ..Entry::default() }
            })
            .collect()
    }
}

fn base(rng: &mut Rng, index: u64, term: u64) -> Base {
    let member = |id: u64| (ReplicaId(id), if id == 2 { Role::Backup } else { Role::Witness });
    let members = Configuration::new((1..=3 + rng.below(3)).map(member));
    let offices = vec![Office { holder: ReplicaId(1), term: Term(rng.below(term + 1)) }];
    let last_replica = members.last_replica();
    let mut state = GroupState::first_version(members, Index(rng.below(index + 1)), offices);
    if rng.chance(50) {
        (state.version, state.last_replica) = (Version::LAST_REPLICA, last_replica);
    }
    Base { index: Index(index), term: Term(term), state }
}

/// The state of a group behind a change.
fn after(state: Option<StoredGroup>, change: Change) -> Option<StoredGroup> {
    let mut state = match change {
        Change::Removed => return None,
        Change::State(state) => return Some(state),
        _ => state?,
    };
    let behind = |state: &StoredGroup, index: u64| {
        usize::try_from(index - state.base.index.0).unwrap_or(usize::MAX).min(state.entries.len())
    };
    match change {
        Change::Write { base, entries, vote } => {
            if let Some(base) = base {
                (state.base, state.entries) = (base, Vec::new());
            }
            if let Some(first) = entries.first() {
                let kept = behind(&state, first.index - 1);
                state.entries.truncate(kept);
                state.entries.extend(entries);
            }
            state.vote = vote.unwrap_or(state.vote);
        }
        Change::Retired(base) => {
            let gone = behind(&state, base.index.0);
            state.entries.drain(..gone);
            state.base = base;
        }
        Change::State(_) | Change::Removed => {}
    }
    Some(state)
}

/// Runs a workload on a log of groups and records it.
pub(crate) fn record(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Result<Trace> {
    let plan = Workload::new(seed, workload, volatile_cache, broken);
    let drive = plan.drive;
    let driver: Arc<dyn Driver> = VirtualDriver::new(Rng::at(seed, &[workload, 1]).draw());
    let emu = Emu::memory(drive.options("emu:crash", latency()), Arc::clone(&driver));
    let recorder = Recorder::new(emu, MAX_ACK_DELAY);
    let failed = |e: shard::Error| Error::Workload(format!("groups, seed {seed}, workload {workload}: {e}"));
    block_on(&*driver, run(plan, &recorder)).map_err(failed)?;
    Ok(Trace {
        target: Target::Groups,
        seed,
        workload,
        drive,
        ordered: false,
        modelled: false,
        events: recorder.take(),
    })
}

async fn run(plan: Workload, recorder: &Arc<Recorder>) -> shard::Result<()> {
    let device: Arc<dyn ZonedDevice> = Arc::clone(recorder) as Arc<dyn ZonedDevice>;
    let driver = Arc::clone(device.driver());
    let uuid = Some(Uuid::from_u128(u128::from(plan.salt) << 64 | 0x6772_6f75_7073));
    Fs::format(&device, &FormatOptions { uuid, ..FormatOptions::default() }).await?;
    let fs = Fs::mount(device, &plan.mount).await?;
    let (log, _) = GroupsLog::open(&fs, LOG_PATH, &plan.options).await?;
    fs.sync().await?;
    recorder.ready();
    let shared = Arc::new(SharedState { plan, log, recorder: Arc::clone(recorder), driver });
    let write = |group| {
        let shared = Arc::clone(&shared);
        spawn(&*shared.driver.clone(), "group", shared.write(group))
    };
    let tasks: Vec<_> = (0..shared.plan.groups).map(write).collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

/// State shared by the tasks of a workload.
struct SharedState {
    plan: Workload,
    log: GroupsLog,
    recorder: Arc<Recorder>,
    driver: Arc<dyn Driver>,
}

impl SharedState {
    async fn write(self: Arc<SharedState>, group: usize) -> shard::Result<()> {
        let id = GroupId(group as u64);
        let mut state = None;
        // A group that pauses long has the oldest records.
        let pause = if group == 0 { 20 * MAX_PAUSE } else { MAX_PAUSE };
        for index in 0..CHANGES_PER_GROUP {
            // Copies that nothing asks for do no harm, and let all earlier records of the group go.
            let copies = self.log.pinning() == Some(id) || self.driver.random().is_multiple_of(6);
            if let Some(state) = state.as_ref().filter(|_| copies) {
                self.log.write(id, &Change::State(StoredGroup::clone(state))).await?;
            }
            let change = self.plan.change((0, group, index), state.as_ref());
            let step = Plan::step(group, index);
            self.recorder.attempt(step);
            self.log.write(id, &change).await?;
            self.recorder.acknowledged(step);
            state = after(state, change);
            if self.driver.random().is_multiple_of(2) {
                let idle = self.driver.random() % u64::try_from(pause.as_nanos()).unwrap_or(1);
                sleep_until(&*self.driver, self.driver.now().after(Duration::from_nanos(idle))).await;
            }
        }
        Ok(())
    }
}

/// Checks the drive images of one workload of the target `groups`.
pub(crate) struct GroupsOracle {
    workload: Workload,
    /// The states of each group, before its first change and behind each one.
    states: Vec<Vec<Option<StoredGroup>>>,
}

impl GroupsOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> GroupsOracle {
        let workload = Workload::new(trace.seed, trace.workload, trace.drive.volatile_cache, broken);
        let states = (0..GROUPS).map(|group| {
            let mut states = vec![None];
            for index in 0..CHANGES_PER_GROUP {
                let state: Option<StoredGroup> = states.last().cloned().flatten();
                let change = workload.change((0, group, index), state.as_ref());
                states.push(after(state, change));
            }
            states
        });
        GroupsOracle { states: states.collect(), workload }
    }

    fn judge(&self, progress: &Progress, found: &Groups) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (group, states) in self.states.iter().enumerate() {
            let found = found.get(&GroupId(group as u64));
            let promised = (0..CHANGES_PER_GROUP).take_while(|n| progress.is_promised(group, *n)).count();
            let attempted = progress.attempted.get(group).copied().unwrap_or(0);
            let may_be = promised..=attempted.max(promised);
            if !may_be.clone().any(|n| states.get(n).is_some_and(|state| state.as_ref() == found)) {
                let is = states.iter().position(|state| state.as_ref() == found);
                let (kind, is) = match is {
                    Some(n) if n < promised => (FailureKind::Lost, format!("it is that behind {n}")),
                    Some(n) => (FailureKind::Invented, format!("it is that behind {n}")),
                    None => (FailureKind::Lost, "it is that of no change".into()),
                };
                faults.push(fault(
                    kind,
                    format!("group {group}: a state of {may_be:?} changes is wanted; {is}"),
                ));
            }
        }
        faults
    }

    async fn judge_first_cut(&self, device: &Arc<dyn ZonedDevice>, progress: &Progress) -> Vec<Fault> {
        match self.read_back(device).await {
            Err(e) => vec![fault(FailureKind::Mount, e)],
            Ok(found) => self.judge(progress, &found),
        }
    }

    async fn read_back(&self, device: &Arc<dyn ZonedDevice>) -> shard::Result<Groups> {
        let fs = Fs::mount(Arc::clone(device), &self.workload.mount).await?;
        let (log, found) = GroupsLog::open(&fs, LOG_PATH, &self.workload.options).await?;
        log.close().await?;
        fs.unmount().await?;
        Ok(found)
    }

    /// Opens the log, makes changes, cuts the power again, and judges what is left.
    async fn judge_second_cut(
        &self,
        image: Media,
        driver: &Arc<dyn Driver>,
        progress: &Progress,
        rng: &mut Rng,
    ) -> Vec<Fault> {
        let emu = Emu::from_media(image.clone(), "emu:image", latency(), Arc::clone(driver));
        let recorder = Recorder::new(emu, MAX_ACK_DELAY);
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let life = 1 + rng.draw() % 1_000;
        let states = match self.write_on(&device, &recorder, life).await {
            Ok(states) => states,
            Err(e) => return vec![fault(FailureKind::Mount, e)],
        };
        let mut faults = states.first().map_or_else(Vec::new, |found| self.judge(progress, found));
        let mut cut = SecondCut::of(image, recorder.take(), rng);
        let place = cut.place();
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(cut.image(), "emu:image", Latency::NONE, Arc::clone(driver));
        match self.read_back(&device).await {
            Err(e) => faults.push(fault(FailureKind::Mount, format!("after a second cut: {e}"))),
            Ok(found) if cut.ready => {
                let may_be = cut.promised.len()..=cut.begun.len();
                if !may_be.clone().any(|n| states.get(n) == Some(&found)) {
                    let is = states.iter().position(|state| *state == found);
                    let what = format!("after {may_be:?} changes behind a recovery, the state is {is:?}");
                    faults.push(fault(FailureKind::Lost, what));
                }
            }
            Ok(found) => faults.extend(self.judge(progress, &found)),
        }
        faults.iter_mut().for_each(|fault| fault.what += &place);
        faults
    }

    /// Opens the log and makes changes of all groups, one after the other. Returns the states found and behind each change.
    async fn write_on(
        &self,
        device: &Arc<dyn ZonedDevice>,
        recorder: &Recorder,
        life: u64,
    ) -> shard::Result<Vec<Groups>> {
        let fs = Fs::mount(Arc::clone(device), &self.workload.mount).await?;
        let (log, found) = GroupsLog::open(&fs, LOG_PATH, &self.workload.options).await?;
        recorder.ready();
        let mut states = vec![found.clone()];
        let mut groups = found;
        for index in 0..CHANGES_AFTER_CUT {
            let group = index % GROUPS;
            let id = GroupId(group as u64);
            if let Some((pinning, state)) = log.pinning().and_then(|id| Some((id, groups.get(&id)?))) {
                log.write(pinning, &Change::State(state.clone())).await?;
            }
            let change = self.workload.change((life, group, index), groups.get(&id));
            recorder.attempt(Step(index as u64));
            log.write(id, &change).await?;
            recorder.acknowledged(Step(index as u64));
            match after(groups.remove(&id), change) {
                Some(state) => groups.insert(id, state),
                None => None,
            };
            states.push(groups.clone());
        }
        log.close().await?;
        Ok(states)
    }
}

impl Oracle for GroupsOracle {
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault> {
        let mut rng = Rng::new(probe.seed);
        let driver: Arc<dyn Driver> = VirtualDriver::new(rng.draw());
        block_on(&*driver, async {
            if probe.twice {
                return self.judge_second_cut(image, &driver, progress, &mut rng).await;
            }
            let device: Arc<dyn ZonedDevice> =
                Emu::from_media(image, "emu:image", Latency::NONE, Arc::clone(&driver));
            self.judge_first_cut(&device, progress).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_retire_take_snapshots_and_are_written_again() {
        let (mut retired, mut snapshots, mut removed) = (0, 0, 0);
        for n in 0..8 {
            let trace = record(5, n, true, BrokenRules::default()).expect("runs");
            let oracle = GroupsOracle::new(&trace, BrokenRules::default());
            for (group, states) in oracle.states.iter().enumerate() {
                for (index, state) in states.iter().take(CHANGES_PER_GROUP).enumerate() {
                    match oracle.workload.change((0, group, index), state.as_ref()) {
                        Change::Retired(_) => retired += 1,
                        Change::Write { base: Some(_), .. } => snapshots += 1,
                        Change::Removed => removed += 1,
                        _ => {}
                    }
                }
            }
        }
        assert!(retired > 200 && snapshots > 50 && removed > 20, "{retired}, {snapshots}, {removed}");
    }

    #[test]
    fn a_recording_is_a_function_of_its_seed() {
        let trace = || record(6, 1, true, BrokenRules::default()).expect("runs").encode();
        assert!(trace() == trace(), "two recordings differ");
    }
}
