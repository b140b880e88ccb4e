//! A store in memory, for tests and for measurements of the engine without RocksDB.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use units::Bytes as Size;

use crate::error::{Error, Result};
use crate::once::{OnceId, OnceIds, OnceTable};
use crate::overlay::Overlay;
use crate::parallel_wal::WalMode;
use crate::store::{Room, Store, View, Visit, Writing};

/// A store that is a map under a lock. Its room can be bounded, and its writes can be made to fail.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The group of the table of ids; 0: the store has no table of ids.
    once_group: u64,
    /// The records of ids, each with the number of the batch that wrote it.
    once: RwLock<BTreeMap<OnceId, (u64, Vec<u8>)>>,
    /// Bytes that the store may hold; 0: no limit.
    capacity: u64,
    reserve: u64,
    wal: WalMode,
    broken: AtomicBool,
    writes: AtomicU64,
    syncs: AtomicU64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore { wal: WalMode::Group, ..MemoryStore::default() }
    }

    /// A store with room for `capacity` bytes of keys and records; the engine keeps `reserve` of them free.
    pub fn with_capacity(capacity: Size, reserve: Size) -> MemoryStore {
        MemoryStore { capacity: capacity.0, reserve: reserve.0, ..MemoryStore::new() }
    }

    /// Makes the store report the log `wal`, so that the engine forms batches as for a store with that log.
    pub fn with_wal(self, wal: WalMode) -> MemoryStore {
        MemoryStore { wal, ..self }
    }

    /// Gives the store a table of ids, whose ids name `group`, a number above 0.
    pub fn with_once(self, group: u64) -> MemoryStore {
        MemoryStore { once_group: group, ..self }
    }

    /// Makes every write from now on fail, as on a broken drive, or with `false` succeed again.
    pub fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    /// Number of batches written.
    pub fn write_count(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Number of writes and syncs that made batches durable.
    pub fn sync_count(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    fn write_now(&self, batch: &Overlay, sync: bool) -> Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Error::Store {
                doing: "writing a batch",
                detail: "the store was told to fail".into(),
            });
        }
        let mut map = self.map.write();
        if self.capacity > 0 {
            let mut after = if batch.is_cleared() { BTreeMap::new() } else { map.clone() };
            apply_batch(&mut after, batch);
            let (before, after) = (Self::bytes_used(&map), Self::bytes_used(&after));
            if after > self.capacity && after > before {
                return Err(Error::NoSpace(format!("{after} of {} bytes", self.capacity)));
            }
        }
        if batch.is_cleared() {
            map.clear();
        }
        apply_batch(&mut map, batch);
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let mut once = self.once.write();
        for (id, record) in batch.once().entries() {
            match record {
                Some(record) => once.insert(id, (number, record.to_vec())),
                None => once.remove(&id),
            };
        }
        if sync {
            self.syncs.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn bytes_used(map: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
        map.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum()
    }
}

impl OnceTable for MemoryStore {
    fn group(&self) -> u64 {
        self.once_group
    }

    fn record(&self, id: OnceId, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        found(self.once.read().get(&id).map(|(_, record)| &record[..]));
        Ok(())
    }

    fn ids(&self, most: usize) -> Result<OnceIds> {
        let once = self.once.read();
        let mut ids: Vec<(u64, OnceId)> = once.iter().map(|(id, (number, _))| (*number, *id)).collect();
        ids.sort_unstable();
        let longest_idle = ids.iter().take(most).map(|(_, id)| *id).collect();
        Ok(OnceIds { count: ids.len(), longest_idle })
    }
}

impl Store for MemoryStore {
    fn once(&self) -> Option<&dyn OnceTable> {
        (self.once_group > 0).then_some(self as &dyn OnceTable)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        found(self.map.read().get(key).map(Vec::as_slice));
        Ok(())
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let map = self.map.read();
        for (n, key) in keys.iter().enumerate() {
            found(n, map.get(*key).map(Vec::as_slice));
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let map = self.map.read();
        for (key, record) in map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            if visit(key, record) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, batch: &Overlay, sync: bool, _view: View) -> Writing<'_> {
        let batch = batch.clone();
        Box::pin(async move { self.write_now(&batch, sync) })
    }

    fn wal(&self) -> WalMode {
        self.wal
    }

    fn key_estimate(&self) -> u64 {
        self.map.read().len() as u64
    }

    fn used_memory(&self) -> u64 {
        Self::bytes_used(&self.map.read())
    }

    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn room(&self) -> Option<Room> {
        (self.capacity > 0 && self.reserve > 0).then(|| Room {
            free: Size(self.capacity.saturating_sub(Self::bytes_used(&self.map.read()))),
            reserve: Size(self.reserve),
        })
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn apply_batch(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: &Overlay) {
    for (key, record) in batch.entries() {
        match record {
            Some(record) => map.insert(key.to_vec(), record.encode()),
            None => map.remove(&key[..]),
        };
    }
}
