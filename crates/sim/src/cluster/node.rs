//! A node of a simulated cluster: a process with one replica, its drive, its tables and its clock.

use std::sync::Arc;
use std::time::Duration;

use fs::{Batching, FormatOptions, Fs, MountOptions, ParallelOptions, Uuid};
use parking_lot::Mutex;
use replica::{Base, Body, ReplicaId, Settings};
use shard::{
    Change, Group, GroupId, GroupOptions, GroupsLog, GroupsLogOptions, Parts, PeerMessage, Peers, Place,
    StoredGroup,
};
use units::{Bytes, Driver, Instant, VirtualDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, FaultOp, FaultSpec, Latency, Media, Seeded};

use super::rules::ClusterRules;
use super::tables::{Committed, LastWrite, ModelTables};
use crate::drive::latency;
use crate::trace::Drive;

/// The group of a run.
pub(super) const GROUP: GroupId = GroupId(1);
const LOG_PATH: &str = "/groups";
/// Bytes of entries in a group's log above which it takes no commands.
const GROUP_LOG_BYTES: u64 = 8 << 10;
/// Longer than any operation of a drive.
const LONGEST_OPERATION: Duration = Duration::from_millis(100);

/// The messages that a node has sent, and that the network has not taken yet. Each goes as its bytes, as between processes.
#[derive(Debug, Default)]
struct Outbox(Mutex<Vec<(ReplicaId, PeerMessage)>>);

impl Peers for Outbox {
    fn send(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let bytes = message.encode(group, from, to).expect("replicas send messages that have bytes");
        let (.., message) = PeerMessage::decode(&bytes).expect("the message's own bytes");
        self.0.lock().push((to, message));
    }
}

/// The settings of a node's process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub group: GroupOptions,
    pub log: GroupsLogOptions,
}

impl Process {
    pub(super) fn new(settings: Settings, log_bytes: u64, rules: ClusterRules) -> Process {
        let log = ParallelOptions { open: 64, batching: Batching::Auto, ..ParallelOptions::default() };
        let mut options = rules.log_options();
        (options.size, options.log) = (Bytes(log_bytes), log);
        let group = GroupOptions { settings, log: Bytes(GROUP_LOG_BYTES) };
        Process { group, log: options }
    }

    /// A drive with a new replica of a group on it.
    pub(super) fn new_drive(&self, base: &Base, seed: u64) -> shard::Result<Media> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let drive = Drive { zones: 48, zone_size: 32, zone_capacity: 28, ..Drive::tiny(true) };
        let emu = Emu::memory(drive.options("emu:node", Latency::NONE), Arc::clone(&driver));
        let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
        block_on(&*driver, async {
            let uuid = Some(Uuid::from_u128(u128::from(seed) << 64 | 0x636c_7573));
            Fs::format(&device, &FormatOptions { uuid, ..FormatOptions::default() }).await?;
            let fs = Fs::mount(device, &MountOptions::default()).await?;
            let (log, _) = GroupsLog::open(&fs, LOG_PATH, &self.log).await?;
            log.write(GROUP, &Change::State(StoredGroup::new(base.clone()))).await?;
            log.close().await?;
            fs.unmount().await?;
            Ok(emu.media())
        })
    }
}

/// A node that runs.
struct Up {
    /// The true time of its start.
    started: Instant,
    driver: Arc<VirtualDriver>,
    emu: Arc<Emu>,
    group: Arc<Group>,
    sent: Arc<Outbox>,
    _fs: Fs,
}

pub(super) struct Node {
    place: Place,
    process: Process,
    /// The drive of a node that does not run.
    media: Media,
    tables: Arc<ModelTables>,
    up: Option<Up>,
    /// The contents of the log on the drive of a node that does not run.
    died: Option<StoredGroup>,
    /// The drive was lost: the node is gone for good.
    pub is_lost: bool,
    /// The number of the node's starts: events of an earlier life are void.
    pub life: u64,
    /// The node's clock by true time, in millionths.
    speed_ppm: u64,
    /// The time of a write to the drive.
    latency: Latency,
}

impl Node {
    pub(super) fn new(
        place: Place,
        process: Process,
        media: Media,
        committed: &Arc<Committed>,
        (speed_ppm, slowness): (u64, u32),
    ) -> Node {
        let fast = latency();
        let latency = Latency { write: fast.write * slowness, flush: fast.flush * slowness, ..fast };
        let tables = Arc::new(ModelTables::new(committed));
        Node {
            place,
            process,
            media,
            tables,
            up: None,
            died: None,
            is_lost: false,
            life: 0,
            speed_ppm,
            latency,
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn tables(&self) -> &ModelTables {
        &self.tables
    }

    /// Starts the node's process: the drive is mounted, log and tables are opened.
    pub(super) fn start(&mut self, now: Instant, seed: u64) -> shard::Result<()> {
        let virtual_driver = VirtualDriver::new(seed);
        let driver: Arc<dyn Driver> = Arc::clone(&virtual_driver) as Arc<dyn Driver>;
        let media = self.media.clone();
        let emu = Emu::from_media(media, "emu:node", self.latency, Arc::clone(&driver));
        let (fs, log, stored) = block_on(&*driver, open(Arc::clone(&emu), &self.process))?;
        let sent = Arc::new(Outbox::default());
        let parts = Parts {
            driver,
            log: Arc::new(log),
            tables: Arc::clone(&self.tables) as _,
            peers: Arc::clone(&sent) as _,
        };
        let group = Group::start(self.place, &self.process.group, parts, stored)?;
        self.life += 1;
        self.up = Some(Up { started: now, driver: virtual_driver, emu, group, sent, _fs: fs });
        Ok(())
    }

    /// The power of the node's machine is cut. `flushed`: the tables were flushed just before.
    pub(super) fn die(&mut self, seed: u64, flushed: bool) {
        let Some(up) = self.up.take() else { return };
        self.media = up.emu.power_cut(&mut Seeded::new(seed));
        self.tables = Arc::new(self.tables.cut(flushed));
        self.life += 1;
        // Operations in flight end, later ones fail, and with them the tasks of the process. Its messages go nowhere.
        for operation in [FaultOp::Read, FaultOp::Write, FaultOp::Flush, FaultOp::Zone] {
            up.emu.fail(FaultSpec::all(operation));
        }
        up.group.close();
        self.died = self.read_log().ok();
        up.driver.run_until(up.driver.now().after(LONGEST_OPERATION));
        up.driver.drop_all_tasks();
    }

    /// The node is lost with its drive.
    pub(super) fn lose(&mut self) {
        self.die(0, false);
        (self.is_lost, self.died) = (true, None);
    }

    /// The replica, if the node runs.
    pub(super) fn group(&self) -> Option<&Arc<Group>> {
        self.up.as_ref().map(|up| &up.group)
    }

    /// Reads the log from the drive of a node that does not run.
    fn read_log(&self) -> shard::Result<StoredGroup> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(0);
        let emu = Emu::from_media(self.media.clone(), "emu:node", Latency::NONE, Arc::clone(&driver));
        let (_fs, _log, stored) = block_on(&*driver, open(emu, &self.process))?;
        Ok(stored)
    }

    /// For each of these writes, whether the node's drive has its value, in the log or in the tables.
    pub(super) fn has(&self, puts: &[(Vec<u8>, LastWrite)]) -> Vec<bool> {
        let found = |stored: &StoredGroup| {
            puts.iter()
                .map(|(key, write)| self.has_in_log(stored, *write) || self.tables.has(key, *write))
                .collect()
        };
        match (self.group(), &self.died) {
            _ if self.is_lost => Vec::new(),
            (Some(group), _) => group.with_stored(found),
            (None, Some(stored)) => found(stored),
            (None, None) => Vec::new(),
        }
    }

    fn has_in_log(&self, stored: &StoredGroup, write: LastWrite) -> bool {
        let place =
            write.index.0.checked_sub(stored.base.index.0 + 1).and_then(|at| usize::try_from(at).ok());
        let durable = place.and_then(|place| stored.entries.get(place));
        let durable = durable.filter(|entry| (entry.index, entry.term) == (write.index.0, write.term.0));
        // The drive's log has a value that the replica has dropped until the entry is retired: nobody asks for it.
        let is_kept = || {
            let kept = self.group().map(|group| group.with_replica(|replica| replica.entry(write.index)));
            kept.is_none_or(|entry| entry.is_some_and(|(_, body)| body.has_value()))
        };
        durable.and_then(Body::of).is_some_and(|body| body.has_value()) && is_kept()
    }

    /// True if the node would answer reads by its lease.
    pub(super) fn answers(&self, now: Instant) -> bool {
        let up = self.up.as_ref();
        up.is_some_and(|up| up.group.with_replica(|replica| replica.may_answer(self.clock(up.started, now))))
    }

    /// The driver of a node that runs.
    pub(super) fn driver(&self) -> Option<&Arc<VirtualDriver>> {
        self.up.as_ref().map(|up| &up.driver)
    }

    /// The node's clock at a true time.
    fn clock(&self, started: Instant, now: Instant) -> Instant {
        let since = now.0.saturating_sub(started.0);
        Instant(scale(since, self.speed_ppm, 1_000_000))
    }

    /// The true time at which the node has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let up = self.up.as_ref()?;
        let due = up.driver.next_due()?;
        Some(Instant(up.started.0.saturating_add(scale(due.0, 1_000_000, self.speed_ppm))))
    }

    /// The node runs until a true time, and does what `then` says. Returns the messages that it has sent.
    pub(super) fn run(&self, now: Instant, then: impl FnOnce(&Group)) -> Vec<(ReplicaId, PeerMessage)> {
        let Some(up) = &self.up else { return Vec::new() };
        let clock = self.clock(up.started, now);
        // A node that mounts its drive does and hears nothing yet.
        if up.driver.now() <= clock {
            up.driver.run_until(clock);
            then(&up.group);
            up.driver.run_until(clock);
        }
        std::mem::take(&mut *up.sent.0.lock())
    }
}

/// Mounts a node's drive and opens the log there.
async fn open(emu: Arc<Emu>, process: &Process) -> shard::Result<(Fs, GroupsLog, StoredGroup)> {
    let fs = Fs::mount(emu as Arc<dyn ZonedDevice>, &MountOptions::default()).await?;
    let (log, mut groups) = GroupsLog::open(&fs, LOG_PATH, &process.log).await?;
    let nothing = shard::Error::Replica { group: GROUP, why: "the log has lost the replica".into() };
    Ok((fs, log, groups.remove(&GROUP).ok_or(nothing)?))
}

/// `value * by / of`, rounded up.
fn scale(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from((u128::from(value) * u128::from(by)).div_ceil(u128::from(of.max(1)))).unwrap_or(u64::MAX)
}
