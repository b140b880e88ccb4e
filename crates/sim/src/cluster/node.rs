//! A node of a simulated cluster: a process with replicas of groups, their log on its drive, their tables and its clock.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::{Batching, FormatOptions, Fs, MountOptions, ParallelOptions, Uuid};
use parking_lot::Mutex;
use replica::{Base, Body, Index, ReplicaId, Role, Version};
use shard::{
    Change, Group, GroupId, GroupOptions, GroupsLog, GroupsLogOptions, Parts, PeerMessage, Peers, Place,
    StoredGroup,
};
use units::{Bytes, Driver, Instant, VirtualDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, FaultOp, FaultSpec, Latency, Media, Seeded};

use super::driver::{NodeDriver, Pauses};
use super::engine::Engine;
use super::rules::ClusterRules;
use super::tables::{Committed, LastWrite, ModelTables};
use crate::Rng;
use crate::drive::latency;
use crate::trace::Drive;

const LOG_PATH: &str = "/groups";
/// Longer than any operation of a drive.
const LONGEST_OPERATION: Duration = Duration::from_millis(100);
/// The wall clock of a run's beginning, in milliseconds.
const FIRST_UNIX_MS: u64 = 1_700_000_000_000;

/// A message of a replica on its way: the group, the replicas from which and for which it is, and the message.
pub(super) type Sent = (GroupId, (ReplicaId, ReplicaId), PeerMessage);

/// The messages that a node has sent, and that the network has not taken yet. Each goes as its bytes, as between processes.
#[derive(Debug, Default)]
struct Outbox(Mutex<Vec<Sent>>);

impl Peers for Outbox {
    fn send(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let bytes = message.encode(group, from, to).expect("replicas send messages that have bytes");
        let (.., message) = PeerMessage::decode(&bytes).expect("the message's own bytes");
        self.0.lock().push((group, (from, to), message));
    }
}

/// The settings of the nodes' processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub group: GroupOptions,
    pub log: GroupsLogOptions,
}

impl Process {
    /// `log_bytes`: of the log of all groups, and of one group's.
    pub(super) fn new(
        group: GroupOptions,
        (log_bytes, group_bytes): (u64, u64),
        rules: ClusterRules,
    ) -> Process {
        let log = ParallelOptions { open: 64, batching: Batching::Auto, ..ParallelOptions::default() };
        let mut options = rules.log_options();
        (options.size, options.log) = (Bytes(log_bytes), log);
        Process { group: GroupOptions { log: Bytes(group_bytes), ..group }, log: options }
    }

    /// A drive without replicas.
    pub(super) fn new_drive(&self, seed: u64) -> shard::Result<Media> {
        let node = VirtualDriver::new(seed);
        let driver: Arc<dyn Driver> = Arc::clone(&node) as Arc<dyn Driver>;
        let drive = Drive { zones: 48, zone_size: 32, zone_capacity: 28, ..Drive::tiny(true) };
        let emu = Emu::memory(drive.options("emu:node", Latency::NONE), Arc::clone(&driver));
        let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
        let made = block_on(&*node, async {
            let uuid = Some(Uuid::from_u128(u128::from(seed) << 64 | 0x636c_7573));
            Fs::format(&device, &FormatOptions { uuid, ..FormatOptions::default() }).await?;
            let fs = Fs::mount(device, &MountOptions::default()).await?;
            let (log, _) = GroupsLog::open(&fs, LOG_PATH, &self.log).await?;
            log.close().await?;
            fs.unmount().await?;
            Ok(emu.media())
        });
        node.drop_all_tasks();
        made
    }
}

/// A node's machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The node's clock by true time, in millionths.
    pub speed_ppm: u64,
    /// The time of a write to the drive, by a fast one's.
    pub slowness: u32,
    /// The pauses of the groups' tasks.
    pub pauses: Pauses,
    /// The most by which the wall clock is wrong, in milliseconds: it jumps at each start.
    pub wall_ms: u64,
}

impl Machine {
    fn latency(&self) -> Latency {
        let fast = latency();
        Latency { write: fast.write * self.slowness, flush: fast.flush * self.slowness, ..fast }
    }
}

/// A replica that runs, and the engine above it.
pub(super) struct Hosted {
    pub group: Arc<Group>,
    pub engine: Arc<Engine>,
}

/// A node that runs.
struct Up {
    /// The true time of its start.
    started: Instant,
    /// The newest version that the process's program speaks.
    speaks: Version,
    driver: Arc<VirtualDriver>,
    emu: Arc<Emu>,
    log: Arc<GroupsLog>,
    /// The driver of the groups.
    of_groups: Arc<dyn Driver>,
    groups: BTreeMap<usize, Hosted>,
    sent: Arc<Outbox>,
    fs: Fs,
}

pub(super) struct Node {
    /// The node's replicas, by the places of their groups: a part of the node's state on its drive, which is written at once.
    replicas: BTreeMap<usize, (ReplicaId, Role)>,
    committed: Vec<Arc<Committed>>,
    process: Process,
    machine: Machine,
    /// The drive of a node that does not run.
    media: Media,
    tables: Vec<Arc<ModelTables>>,
    up: Option<Up>,
    /// The contents of the log on the drive of a node that does not run, once they were looked at.
    died: OnceCell<BTreeMap<GroupId, StoredGroup>>,
    /// The drive was lost: the node is gone for good.
    pub is_lost: bool,
    /// An operation of the drive is to fail, or has failed.
    pub has_bad_drive: bool,
    /// The number of the node's starts and ends: events of an earlier life are void.
    pub life: u64,
}

impl Node {
    /// A node without replicas. `committed`: what each group has committed.
    pub(super) fn new(
        process: Process,
        media: Media,
        committed: Vec<Arc<Committed>>,
        machine: Machine,
    ) -> Node {
        let tables = committed.iter().map(|of_group| Arc::new(ModelTables::new(of_group))).collect();
        Node {
            replicas: BTreeMap::new(),
            committed,
            process,
            machine,
            media,
            tables,
            up: None,
            died: OnceCell::new(),
            is_lost: false,
            has_bad_drive: false,
            life: 0,
        }
    }

    /// The node's replica of a group, whether the node runs or not.
    pub(super) fn replica(&self, group: usize) -> Option<(ReplicaId, Role)> {
        self.replicas.get(&group).copied()
    }

    pub(super) fn tables(&self, group: usize) -> Option<&ModelTables> {
        self.tables.get(group).map(|tables| &**tables)
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Starts the node's process, whose program speaks versions up to `speaks`: the drive is mounted, log and tables are opened.
    pub(super) fn start(&mut self, now: Instant, speaks: Version, rng: &mut Rng) -> shard::Result<()> {
        let node = VirtualDriver::new(rng.draw());
        let started = self.start_on(&node, now, speaks, rng);
        if started.is_err() {
            // A log that is dropped is closed by a task.
            node.drop_all_tasks();
            node.drop_all_tasks();
        }
        started
    }

    fn start_on(
        &mut self,
        node: &Arc<VirtualDriver>,
        now: Instant,
        speaks: Version,
        rng: &mut Rng,
    ) -> shard::Result<()> {
        let driver: Arc<dyn Driver> = Arc::clone(node) as Arc<dyn Driver>;
        let emu = Emu::from_media(self.media.clone(), "emu:node", self.machine.latency(), driver);
        let (fs, log, mut stored) = block_on(&**node, open(Arc::clone(&emu), &self.process))?;
        let wall = FIRST_UNIX_MS + now.0 / 1_000_000 + rng.below(1 + self.machine.wall_ms);
        let of_groups: Arc<dyn Driver> =
            Arc::new(NodeDriver::new(Arc::clone(node), self.machine.pauses, wall));
        let mut up = Up {
            started: now,
            speaks,
            driver: Arc::clone(node),
            emu,
            log: Arc::new(log),
            of_groups,
            groups: BTreeMap::new(),
            sent: Arc::default(),
            fs,
        };
        for group in self.replicas.keys().copied() {
            let nothing =
                || shard::Error::Replica { group: id_of(group), why: "the log has lost the replica".into() };
            let stored = stored.remove(&id_of(group)).ok_or_else(nothing)?;
            self.host(&mut up, group, stored)?;
        }
        // A replica whose creation or deletion the power cut short.
        for group in stored.keys() {
            block_on(&*up.driver, up.log.write(*group, &Change::Removed))?;
        }
        self.life += 1;
        self.died = OnceCell::new();
        self.has_bad_drive = false;
        self.up = Some(up);
        Ok(())
    }

    /// Starts a replica of the node, and the engine above it.
    fn host(&self, up: &mut Up, group: usize, stored: StoredGroup) -> shard::Result<()> {
        let Some(((replica, role), tables)) = self.replica(group).zip(self.tables.get(group)) else {
            return Ok(());
        };
        let parts = Parts {
            driver: Arc::clone(&up.of_groups),
            log: Arc::clone(&up.log),
            tables: Arc::clone(tables) as _,
            peers: Arc::clone(&up.sent) as _,
        };
        let place = Place { group: id_of(group), replica, role };
        let mut options = self.process.group;
        options.settings.speaks = up.speaks;
        let of = Group::start(place, &options, parts, stored)?;
        let engine = Engine::new(Arc::clone(&of), Arc::clone(tables) as _, Arc::clone(&up.of_groups));
        up.groups.insert(group, Hosted { group: of, engine: Arc::new(engine) });
        Ok(())
    }

    /// Creates a replica on a node that runs, which begins with this state: in the log first, then in the node's state. `is_cut_short`: in the log only.
    pub(super) fn create(
        &mut self,
        group: usize,
        replica: (ReplicaId, Role),
        base: &Base,
        is_cut_short: bool,
    ) -> shard::Result<()> {
        let Some(mut up) = self.up.take() else { return Ok(()) };
        let stored = StoredGroup::new(base.clone());
        let created = block_on(&*up.driver, up.log.write(id_of(group), &Change::State(stored.clone())))
            .and_then(|()| {
                if is_cut_short {
                    return Ok(());
                }
                self.replicas.insert(group, replica);
                if let Some((tables, committed)) = self.tables.get_mut(group).zip(self.committed.get(group)) {
                    *tables = Arc::new(ModelTables::new(committed));
                }
                self.host(&mut up, group, stored)
            });
        self.up = Some(up);
        created
    }

    /// Deletes a replica of a node that runs, which the change of members at `left_out_at` left out: from the node's state first. `is_cut_short`: from the state only. False: the replica has applied a later change meanwhile, and stays.
    pub(super) fn delete(
        &mut self,
        group: usize,
        left_out_at: Index,
        is_cut_short: bool,
    ) -> shard::Result<bool> {
        let Some(up) = &mut self.up else { return Ok(false) };
        let Some(hosted) = up.groups.get(&group) else { return Ok(false) };
        if hosted.group.with_replica(|replica| replica.members().since()) > left_out_at {
            return Ok(false);
        }
        hosted.group.close();
        block_on(&*up.driver, hosted.group.finished());
        up.groups.remove(&group);
        self.replicas.remove(&group);
        if !is_cut_short {
            block_on(&*up.driver, up.log.write(id_of(group), &Change::Removed))?;
        }
        Ok(true)
    }

    /// The next operations of the node's drive fail.
    pub(super) fn fail_drive(&mut self, fault: FaultSpec) {
        if let Some(up) = &self.up {
            up.emu.fail(fault);
            self.has_bad_drive = true;
        }
    }

    /// The power of the node's machine is cut. `flushed`: the tables were flushed just before.
    pub(super) fn die(&mut self, seed: u64, flushed: bool) {
        let Some(up) = self.up.take() else { return };
        self.media = up.emu.power_cut(&mut Seeded::new(seed));
        self.tables = self.tables.iter().map(|tables| Arc::new(tables.cut(flushed))).collect();
        self.life += 1;
        // Operations in flight end, later ones fail, and with them the tasks of the process. Its messages go nowhere.
        for operation in [FaultOp::Read, FaultOp::Write, FaultOp::Flush, FaultOp::Zone] {
            up.emu.fail(FaultSpec::all(operation));
        }
        up.groups.values().for_each(|hosted| hosted.group.close());
        up.driver.run_until(up.driver.now().after(LONGEST_OPERATION));
        up.driver.drop_all_tasks();
        // A log that is dropped is closed by a task, which holds the log and the driver: it would never end.
        let driver = Arc::clone(&up.driver);
        drop(up);
        driver.drop_all_tasks();
    }

    /// The node is lost with its drive.
    pub(super) fn lose(&mut self) {
        self.die(0, false);
        self.is_lost = true;
    }

    /// The node's drive is lost, and an empty one takes its place.
    pub(super) fn replace_drive(&mut self, empty: Media) {
        self.die(0, false);
        self.media = empty;
        self.replicas.clear();
    }

    /// The node's replica of a group, if the node runs.
    pub(super) fn group(&self, group: usize) -> Option<&Arc<Group>> {
        self.hosted(group).map(|hosted| &hosted.group)
    }

    /// The node's replica of a group, with its engine, if the node runs.
    pub(super) fn hosted(&self, group: usize) -> Option<&Hosted> {
        self.up.as_ref().and_then(|up| up.groups.get(&group))
    }

    /// The node's replicas, if it runs.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.up.iter().flat_map(|up| up.groups.values()).map(|hosted| &hosted.group)
    }

    /// Free room on the drive of a node that runs.
    pub(super) fn free(&self) -> Option<Bytes> {
        self.up.as_ref().map(|up| up.fs.statfs().free)
    }

    /// The error that ended one of the node's replicas.
    pub(super) fn ended(&self) -> Option<String> {
        self.groups().find_map(|group| group.ended())
    }

    /// Reads the log from the drive of a node that does not run.
    fn read_log(&self) -> BTreeMap<GroupId, StoredGroup> {
        let node = VirtualDriver::new(0);
        let driver: Arc<dyn Driver> = Arc::clone(&node) as Arc<dyn Driver>;
        let emu = Emu::from_media(self.media.clone(), "emu:node", Latency::NONE, driver);
        let stored =
            block_on(&*node, open(emu, &self.process)).map(|(.., stored)| stored).unwrap_or_default();
        node.drop_all_tasks();
        stored
    }

    /// For each of these writes of a group, whether the node's drive has its value, in the log or in the tables.
    pub(super) fn has(&self, group: usize, puts: &[(Vec<u8>, LastWrite)]) -> Vec<bool> {
        let Some(tables) = self.tables(group) else { return Vec::new() };
        let found = |stored: &StoredGroup| {
            puts.iter()
                .map(|(key, write)| self.has_in_log(group, stored, *write) || tables.has(key, *write))
                .collect()
        };
        if self.is_lost {
            return Vec::new();
        }
        if let Some(group) = self.group(group) {
            return group.with_stored(found);
        }
        let died = self.died.get_or_init(|| self.read_log());
        died.get(&id_of(group)).map(found).unwrap_or_default()
    }

    fn has_in_log(&self, group: usize, stored: &StoredGroup, write: LastWrite) -> bool {
        let place =
            write.index.0.checked_sub(stored.base.index.0 + 1).and_then(|at| usize::try_from(at).ok());
        let durable = place.and_then(|place| stored.entries.get(place));
        let durable = durable.filter(|entry| (entry.index, entry.term) == (write.index.0, write.term.0));
        // The drive's log has a value that the replica has dropped until the entry is retired: nobody asks for it.
        let is_kept = || {
            let group = self.group(group);
            let kept = group.map(|group| group.with_replica(|replica| replica.entry(write.index)));
            kept.is_none_or(|entry| entry.is_some_and(|(_, body)| body.has_value()))
        };
        durable.and_then(Body::of).is_some_and(|body| body.has_value()) && is_kept()
    }

    /// True if the node would answer reads of a group by its lease.
    pub(super) fn answers(&self, group: usize, now: Instant) -> bool {
        let Some(up) = &self.up else { return false };
        let clock = self.clock(up.started, now);
        up.groups.get(&group).is_some_and(|hosted| hosted.group.with_replica(|of| of.may_answer(clock)))
    }

    /// The driver of a node that runs.
    pub(super) fn driver(&self) -> Option<&Arc<VirtualDriver>> {
        self.up.as_ref().map(|up| &up.driver)
    }

    /// The node's clock at a true time.
    fn clock(&self, started: Instant, now: Instant) -> Instant {
        let since = now.0.saturating_sub(started.0);
        Instant(scale(since, self.machine.speed_ppm, 1_000_000))
    }

    /// The true time at which the node has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let up = self.up.as_ref()?;
        let due = up.driver.next_due()?;
        Some(Instant(up.started.0.saturating_add(scale(due.0, 1_000_000, self.machine.speed_ppm))))
    }

    /// True if the node runs, and does not mount its drive or write there so that all else waits.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.up.as_ref().is_some_and(|up| up.driver.now() <= self.clock(up.started, now))
    }

    /// The node runs until a true time, and does what `then` says. Returns the messages that it has sent.
    pub(super) fn run(&self, now: Instant, then: impl FnOnce(&Node)) -> Vec<Sent> {
        let Some(up) = &self.up else { return Vec::new() };
        let clock = self.clock(up.started, now);
        // A node that mounts its drive does and hears nothing yet.
        if up.driver.now() <= clock {
            up.driver.run_until(clock);
            then(self);
            up.driver.run_until(clock);
        }
        std::mem::take(&mut *up.sent.0.lock())
    }
}

/// The number of the group at a place of the run.
pub(super) fn id_of(group: usize) -> GroupId {
    GroupId(group as u64)
}

/// Mounts a node's drive and opens the log there.
async fn open(
    emu: Arc<Emu>,
    process: &Process,
) -> shard::Result<(Fs, GroupsLog, BTreeMap<GroupId, StoredGroup>)> {
    let fs = Fs::mount(emu as Arc<dyn ZonedDevice>, &MountOptions::default()).await?;
    let (log, groups) = GroupsLog::open(&fs, LOG_PATH, &process.log).await?;
    Ok((fs, log, groups))
}

/// `value * by / of`, rounded up.
fn scale(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from((u128::from(value) * u128::from(by)).div_ceil(u128::from(of.max(1)))).unwrap_or(u64::MAX)
}
