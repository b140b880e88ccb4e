//! The order of writes to a drive file.
//!
//! 1. Write empty entries for reset zones; sync. After this sync new data may overwrite the old data.
//! 2. Write data; sync.
//! 3. Write entries with the new pointers; sync.
//!
//! Whenever the host loses power, the newest valid entry of each zone describes data that is in the file and
//! of one epoch. Conventional blocks are overwritten in place, as atomically as the host's disk writes them.

use std::io;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use zerocopy::IntoBytes;

use crate::emu::content::Pool;
use crate::emu::file::drive::{Drive, Table};
use crate::emu::file::format::TableEntry;
use crate::emu::zone::Zone;
use crate::{Buf, ZoneId, ZoneState};

/// The zones of a medium, as far as a flush of the drive file needs them.
pub(in crate::emu) trait FlushedZones {
    /// Bytes in a block.
    fn block_size(&self) -> u32;

    /// The pool of the zones' chunks.
    fn pool(&self) -> &Pool;

    /// Locks a zone.
    fn lock_zone(&self, id: ZoneId) -> MutexGuard<'_, Zone>;
}

/// A zone's state at the start of a flush of the drive file.
struct Snapshot {
    id: ZoneId,
    state: ZoneState,
    written: u64,
    stored: u64,
    resets: u64,
    rewrites: Vec<(u64, Buf)>,
}

impl Drive {
    /// Makes all operations durable in the drive file that were submitted before the flush.
    pub(in crate::emu) fn flush(&self, media: &dyn FlushedZones) -> io::Result<()> {
        let mut table = self.table.lock();
        self.unflushed.store(0, Ordering::Relaxed);
        let touched = std::mem::take(&mut *self.touched.lock());
        self.flush_zones(media, &mut table, &touched)
    }

    /// Makes the given zones durable in the drive file.
    pub(in crate::emu) fn flush_only(&self, media: &dyn FlushedZones, zones: &[ZoneId]) -> io::Result<()> {
        let mut table = self.table.lock();
        self.touched.lock().retain(|z| !zones.contains(z));
        self.flush_zones(media, &mut table, zones)
    }

    fn flush_zones(&self, media: &dyn FlushedZones, table: &mut Table, zones: &[ZoneId]) -> io::Result<()> {
        if table.failed {
            return Err(io::Error::other("an earlier flush failed: the drive must be opened again"));
        }
        let result = self.try_flush(media, table, zones);
        table.failed = result.is_err();
        result
    }

    fn try_flush(&self, media: &dyn FlushedZones, table: &mut Table, zones: &[ZoneId]) -> io::Result<()> {
        if zones.is_empty() {
            return Ok(());
        }
        let mut snapshots: Vec<Snapshot> = zones.iter().map(|id| snapshot(media, *id)).collect();
        let mut emptied = Vec::new();
        for snap in &snapshots {
            let before = table_entry(table, snap.id);
            if before.resets != snap.resets && before.written > 0 {
                let empty =
                    TableEntry { state: ZoneState::Empty, written: 0, resets: snap.resets, ..*before };
                self.write_table_entry(snap.id, before, empty)?;
                emptied.push(snap.id);
            }
        }
        if !emptied.is_empty() {
            self.sync()?;
            emptied.into_iter().for_each(|zone| self.free_zone_space(zone));
        }
        let mut data = false;
        for snap in &mut snapshots {
            data |= self.write_data(media, snap)?;
        }
        if data {
            self.sync()?;
        }
        let mut entries = false;
        for snap in &snapshots {
            let before = table_entry(table, snap.id);
            let (state, written, resets) = (snap.state, snap.written, snap.resets);
            let after = TableEntry { state, written, resets, ..*before };
            if after != *before {
                self.write_table_entry(snap.id, before, after)?;
                entries = true;
            }
        }
        if entries {
            self.sync()?;
        }
        snapshots.into_iter().for_each(|snap| free_stored_memory(media, snap));
        Ok(())
    }

    /// Writes an entry of the zone table into the zone's slot without the newest entry.
    fn write_table_entry(&self, zone: ZoneId, before: &mut TableEntry, after: TableEntry) -> io::Result<()> {
        let after = TableEntry { sequence: before.sequence + 1, ..after };
        let bytes = after.encode(&self.header.uuid, zone.0);
        self.put(bytes.as_bytes(), self.header.slot_at(zone.0, after.sequence % 2))?;
        *before = after;
        Ok(())
    }

    /// Writes a zone's data that the drive file lacks. A zone that was reset during the flush is recorded as
    /// empty.
    fn write_data(&self, media: &dyn FlushedZones, snap: &mut Snapshot) -> io::Result<bool> {
        let size = u64::from(media.block_size());
        for (block, data) in &snap.rewrites {
            self.put(data, self.at(snap.id, block * size))?;
        }
        let (mut at, end) = ((snap.stored * size) as usize, (snap.written * size) as usize);
        let some = at < end || !snap.rewrites.is_empty();
        while at < end {
            // The zone is locked for one chunk at a time, so writers wait for one chunk at most.
            let zone = media.lock_zone(snap.id);
            if zone.resets != snap.resets {
                (snap.resets, snap.written, snap.state) = (zone.resets, 0, ZoneState::Empty);
                break;
            }
            let part = zone.content.chunk_part(media.pool(), at, end);
            assert!(!part.is_empty(), "what is not stored is in memory");
            self.put(part, self.at(snap.id, at as u64))?;
            at += part.len();
        }
        Ok(some)
    }
}

fn table_entry(table: &mut Table, id: ZoneId) -> &mut TableEntry {
    table.zones.get_mut(id.index()).expect("checked against the geometry")
}

fn snapshot(media: &dyn FlushedZones, id: ZoneId) -> Snapshot {
    let mut zone = media.lock_zone(id);
    zone.touched = false;
    let state = match zone.state {
        ZoneState::ImplicitOpen | ZoneState::ExplicitOpen | ZoneState::Closed if zone.written == 0 => {
            ZoneState::Empty
        }
        ZoneState::ImplicitOpen | ZoneState::ExplicitOpen => ZoneState::Closed,
        other => other,
    };
    let rewrites = zone.overlay.iter().map(|(block, data)| (*block, data.clone())).collect();
    Snapshot { id, state, written: zone.written, stored: zone.stored, resets: zone.resets, rewrites }
}

/// Frees the memory of data that is now in the drive file.
fn free_stored_memory(media: &dyn FlushedZones, snap: Snapshot) {
    let size = u64::from(media.block_size());
    let mut zone = media.lock_zone(snap.id);
    if zone.resets == snap.resets {
        zone.stored = snap.written;
        zone.content.release(media.pool(), (snap.written * size) as usize);
    }
    for (block, data) in snap.rewrites {
        if zone.overlay.get(&block).is_some_and(|now| now.as_ptr() == data.as_ptr()) {
            zone.overlay.remove(&block);
        }
    }
}
