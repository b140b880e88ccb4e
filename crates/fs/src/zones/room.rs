//! Room for accepted bytes: a writer's bytes that are in memory have blocks reserved, so that a write-back never finds the drive full.
//!
//! Only blocks that need no reclaim are reserved ([`Allocator::sure_blocks`]), beside whole zones for reclaim. Logs, zones opened ahead and zones that are given up
//! leave as many as are reserved. A reclaim needs less room than the zones kept for it, wherever it finds it, and gives back a zone: accepted bytes wait for it.

use std::sync::Arc;

use units::ZoneId;

use crate::error::Result;
use crate::files::file::{Content, File};
use crate::metadata::state::State;
use crate::shared::Shared;
use crate::writeback::dirty::DirtyBytes;
use crate::zones::allocator::Allocator;
use crate::zones::open_zone::{DataKind, OpenZone};
use crate::zones::table::Stream;

/// Blocks are reserved up to the next multiple of this file offset where the drive has room.
const RESERVED_AHEAD_BYTES: u64 = 256 << 10;
/// Bytes of an extent in a metadata snapshot, at most.
const EXTENT_BYTES: u64 = 72;

impl Allocator {
    /// Number of blocks of file data that can be written without reclaim.
    fn sure_blocks(&self) -> u64 {
        let free = self.table.free_zone_count();
        let room = |reclaim: bool| {
            let rooms =
                self.open.iter().filter(move |zone| zone.is_of_reclaim() == reclaim && zone.has_room());
            rooms.map(|zone| zone.room()).sum::<u64>()
        };
        let writers = room(false);
        let zones = free.saturating_sub(self.kept).min(self.zones_above_reserve());
        // Where a zone that is kept was taken, as much stays free elsewhere.
        let kept = (self.kept + self.reserved_zones()) as u64 * self.zone_blocks;
        let all = self.empty_zones() as u64 * self.zone_blocks + writers + room(true);
        (zones as u64 * self.zone_blocks + writers).min(all.saturating_sub(kept))
    }

    /// True if the reserved blocks are there without `blocks` of those that can be written.
    pub(crate) fn reserved_are_there_without(&self, blocks: u64) -> bool {
        self.reserved_blocks == 0 || self.sure_blocks() >= self.reserved_blocks + blocks
    }

    /// True if the reserved blocks are there when a log takes one more zone.
    pub(crate) fn log_leaves_reserved_blocks(&self) -> bool {
        // The reserve for recovery grows with each zone of a log.
        let zones = if self.reserve.kept { 2 } else { 1 };
        self.reserved_are_there_without(zones * self.zone_blocks)
    }

    /// True if the reserved blocks are there when a log begins again to use a zone that has no live segment: the reserve for recovery grows.
    pub(crate) fn rest_leaves_reserved_blocks(&self) -> bool {
        !self.reserve.kept || self.reserved_are_there_without(self.zone_blocks)
    }

    /// Any zone that takes accepted bytes when no reclaim can make room: one that is kept for another purpose.
    pub(super) fn any_zone_for_accepted_bytes(&mut self, kind: DataKind) -> Option<Arc<OpenZone>> {
        let is_kept = self.table.free_zone_count() <= self.kept;
        if let Some(zone) = self.ahead.pop_back().or_else(|| self.any_empty_zone(kind).filter(|_| !is_kept)) {
            return Some(self.open_zone(zone, kind));
        }
        if let Some(open) = self.open.iter().find(|zone| zone.has_room()) {
            return Some(Arc::clone(open));
        }
        let zone = self.any_empty_zone(kind)?;
        Some(self.open_zone(zone, kind))
    }

    fn any_empty_zone(&self, kind: DataKind) -> Option<ZoneId> {
        self.table.next_free_zone(Stream::of(kind)).filter(|_| self.slot_free())
    }
}

impl Shared {
    /// Reserves blocks for `bytes` bytes at the end of the data file `file`. Waits for reclaim before it fails with `NoSpace`; nothing is
    /// reserved then.
    pub(crate) async fn reserve(&self, file: &File, bytes: u64) -> Result<()> {
        if self.options.rules().reserves_nothing() {
            return Ok(());
        }
        {
            let mut content = file.content.write();
            content.append_upto = content.size.saturating_add(bytes);
            if content.append_upto <= content.promised {
                return Ok(());
            }
        }
        loop {
            let seen = self.space.version();
            self.check_open()?;
            self.metadata.check()?;
            {
                let mut state = self.state.lock();
                if self.try_reserve(&mut state, file)? {
                    return Ok(());
                }
                if state.allocator.exhausted {
                    return Err(state.allocator.no_space());
                }
                state.allocator.want(file.writes.class_of_waiter());
            }
            self.hurry_cleaner();
            self.space.changed_since(seen).await;
        }
    }

    fn try_reserve(&self, state: &mut State, file: &File) -> Result<bool> {
        let mut content = file.content.write();
        let end = content.append_upto;
        // Blocks are reserved ahead of small appends, so that few of them take the state's lock.
        for promised in [end.checked_next_multiple_of(RESERVED_AHEAD_BYTES).unwrap_or(end), end] {
            let blocks = content.blocks_to_reserve(promised, state.block);
            let more = blocks.saturating_sub(content.reserved);
            if state.allocator.sure_blocks() >= state.allocator.reserved_blocks + more {
                // Every buffer and every file may need an extent of its own, and one more where a zone ends.
                let buffers =
                    state.allocator.reserved_blocks * state.block / self.write_buffer_bytes() as u64;
                let files = self.dirty.as_ref().map_or(0, DirtyBytes::file_count) as u64;
                self.metadata.check_room(state, (buffers + files + 4) * 2 * EXTENT_BYTES)?;
                state.allocator.reserved_blocks += more;
                content.reserved += more;
                content.promised = promised;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives up reserved blocks of a file, of which `written` blocks hold bytes now, and those that were reserved ahead of the file's end.
    pub(crate) fn settle_reserved(&self, state: &mut State, content: &mut Content, written: u64) {
        let end = if content.dirty_bytes() == 0 { 0 } else { content.size };
        content.promised = content.promised.min(end.max(content.append_upto));
        let needed = content.blocks_to_reserve(content.promised, state.block);
        let left = content.reserved.saturating_sub(written).min(needed);
        state.allocator.reserved_blocks -= content.reserved - left;
        content.reserved = left;
    }

    /// Gives up all blocks reserved for a file: none of its bytes in memory will be written.
    pub(crate) fn give_up_reserved(&self, state: &mut State, content: &mut Content) {
        state.allocator.reserved_blocks -= std::mem::take(&mut content.reserved);
        content.promised = 0;
    }

    /// True if `padding` blocks more than the data may be written: the reserved blocks are there without them.
    pub(crate) fn has_room_for_padding(&self, padding: u64) -> bool {
        padding == 0 || self.state.lock().allocator.reserved_are_there_without(padding)
    }
}
