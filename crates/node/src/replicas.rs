//! The replicas of this process: the log and the tables that all of them share, and of each group its replica and its engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use fs::Fs;
use kv::{Engine, EngineOptions, Store};
use parking_lot::RwLock;
use peers::Receiver;
use replica::{Base, ReplicaId};
use shard::{
    Change, Group, GroupId, GroupOptions, GroupStore, GroupTables, GroupsLog, GroupsLogOptions, Parts,
    PeerMessage, Peers, Place, StoredGroup, Tables, TablesDb, TablesOptions,
};
use units::{Bytes, Driver, block_on};

use crate::error::Result;

const LOG_PATH: &str = "/groups";
const TABLES_PATH: &str = "/tables";

/// The groups' log holds at most one part in so many of the drive, and a memtable takes one.
const LOG_SHARE: u64 = 16;
const MEMTABLE_SHARE: u64 = 64;
const MEMTABLE_MIN: u64 = 1 << 20;
const MEMTABLE_MAX: u64 = 64 << 20;
/// Memtables of the tables' database.
const MEMTABLES: u64 = 4;
/// The reserve is at most one part in so many of the drive.
const RESERVE_SHARE: u64 = 3;

/// The receiver of other processes' messages.
#[derive(Default)]
pub(crate) struct Inbox(RwLock<HashMap<GroupId, Weak<Group>>>);

impl Receiver for Inbox {
    fn receive(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let group = self.0.read().get(&group).and_then(Weak::upgrade);
        // A message to a replica that is not here, or not any more, is lost.
        if let Some(group) = group.filter(|group| group.place().replica == to) {
            group.receive(from, message);
        }
    }
}

/// A group's replica in this process, and the engine over it.
#[derive(Clone, Debug)]
pub(crate) struct LocalGroup {
    pub group: Arc<Group>,
    pub engine: Engine,
}

/// The settings of all replicas of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaOptions {
    pub group: GroupOptions,
    pub engine: EngineOptions,
    pub block_cache: usize,
    pub write_buffer: Option<usize>,
}

/// The replicas of this process.
#[derive(Debug)]
pub(crate) struct Replicas {
    driver: Arc<dyn Driver>,
    fs: Fs,
    /// Bytes that are kept free on the drive: the groups' log twice, since records are written again before others go, and all memtables as tables.
    reserve: Bytes,
    options: ReplicaOptions,
    log: Arc<GroupsLog>,
    tables: Arc<TablesDb>,
    groups: RwLock<BTreeMap<GroupId, LocalGroup>>,
    inbox: Arc<Inbox>,
}

impl Replicas {
    /// Opens the groups' log and the tables. Returns what the log holds of each group.
    ///
    /// # Errors
    /// The log's, and the tables' database's.
    pub(crate) fn open(
        fs: &Fs,
        options: ReplicaOptions,
    ) -> Result<(Replicas, BTreeMap<GroupId, StoredGroup>)> {
        let driver = Arc::clone(fs.driver());
        let capacity = fs.statfs().capacity.0;
        let usual = GroupsLogOptions::default();
        let size = Bytes(usual.size.0.min(capacity / LOG_SHARE));
        let log_options = GroupsLogOptions { size, ..usual };
        let (log, stored) = block_on(&*driver, GroupsLog::open(fs, LOG_PATH, &log_options))?;
        let memtable = (capacity / MEMTABLE_SHARE).clamp(MEMTABLE_MIN, MEMTABLE_MAX);
        let picked = usize::try_from(memtable).unwrap_or(usize::MAX);
        let write_buffer = options.write_buffer.unwrap_or(picked);
        let tables_options = TablesOptions::new(write_buffer, options.block_cache);
        let tables = TablesDb::open(fs, TABLES_PATH, &tables_options)?;
        let reserve = (2 * size.0 + MEMTABLES * write_buffer as u64).min(capacity / RESERVE_SHARE);
        let replicas = Replicas {
            driver,
            fs: fs.clone(),
            reserve: Bytes(reserve),
            options,
            log: Arc::new(log),
            tables,
            groups: RwLock::default(),
            inbox: Arc::default(),
        };
        Ok((replicas, stored))
    }

    /// The receiver of messages to the replicas.
    pub(crate) fn inbox(&self) -> Arc<dyn Receiver> {
        Arc::clone(&self.inbox) as Arc<dyn Receiver>
    }

    /// The replica of a group, if this process has one that was started.
    pub(crate) fn group(&self, group: GroupId) -> Option<LocalGroup> {
        self.groups.read().get(&group).cloned()
    }

    /// All replicas that were started.
    pub(crate) fn all(&self) -> Vec<LocalGroup> {
        self.groups.read().values().cloned().collect()
    }

    /// Writes a new replica to the groups' log. Returns what the log holds of it.
    ///
    /// # Errors
    /// The log's, and the tables' where they have something of another replica of the group.
    pub(crate) fn create(&self, group: GroupId, base: &Base) -> Result<StoredGroup> {
        GroupTables::remove(&self.tables, group)?;
        let stored = StoredGroup::new(base.clone());
        block_on(&*self.driver, self.log.write(group, &Change::State(stored.clone())))?;
        Ok(stored)
    }

    /// Ends the replica of a group, if it was started. Clients' commands for it fail, and its messages are lost.
    ///
    /// # Errors
    /// The engine's: the replica has ended all the same.
    pub(crate) fn stop(&self, group: GroupId) -> Result<()> {
        self.inbox.0.write().remove(&group);
        let Some(LocalGroup { group, engine }) = self.groups.write().remove(&group) else { return Ok(()) };
        let closed = engine.close();
        group.close();
        // The tables must not go under a task that uses them.
        block_on(&*self.driver, group.finished());
        Ok(closed?)
    }

    /// Removes everything that the groups' log and the tables have of a group whose replica does not run, durably.
    ///
    /// # Errors
    /// The log's and the tables'.
    pub(crate) fn delete(&self, group: GroupId) -> Result<()> {
        block_on(&*self.driver, self.log.write(group, &Change::Removed))?;
        Ok(GroupTables::remove(&self.tables, group)?)
    }

    /// Starts a replica from what the groups' log holds of it.
    ///
    /// # Errors
    /// The tables' and the replica's.
    pub(crate) fn start(&self, place: Place, stored: StoredGroup, peers: Arc<dyn Peers>) -> Result<()> {
        let tables: Arc<dyn Tables> = Arc::new(GroupTables::open(&self.tables, place.group, place.role)?);
        let parts = Parts {
            driver: Arc::clone(&self.driver),
            log: Arc::clone(&self.log),
            tables: Arc::clone(&tables),
            peers,
        };
        let group = Group::start(place, &self.options.group, parts, stored)?;
        let store = GroupStore::new(Arc::clone(&group), tables);
        let store: Arc<dyn Store> = Arc::new(store.with_reserve(self.fs.clone(), self.reserve));
        let engine = Engine::start(store, Arc::clone(&self.driver), self.options.engine);
        self.inbox.0.write().insert(place.group, Arc::downgrade(&group));
        self.groups.write().insert(place.group, LocalGroup { group, engine });
        Ok(())
    }

    /// Ends the replicas, then the tables and the log. What the tables have not made durable is in the log.
    ///
    /// # Errors
    /// The first error of an engine, the tables or the log; all are closed.
    pub(crate) fn close(&self) -> Result<()> {
        let groups = std::mem::take(&mut *self.groups.write());
        let mut closed = Ok(());
        for LocalGroup { group, engine } in groups.values() {
            closed = closed.and(engine.close());
            group.close();
        }
        // RocksDB must not be closed under a task that uses it.
        for LocalGroup { group, .. } in groups.values() {
            block_on(&*self.driver, group.finished());
        }
        let log = block_on(&*self.driver, self.log.close());
        let tables = self.tables.close();
        closed?;
        log?;
        Ok(tables?)
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "messages to {} groups", self.0.read().len())
    }
}
