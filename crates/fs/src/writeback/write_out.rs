//! Writes the pages of a data file to the device, and records where they lie.

use std::sync::Arc;

use zoned::IoClass;

use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::files::extents::Extent;
use crate::files::file::{Content, File};
use crate::files::pages::{Pages, Piece};
use crate::files::writes::WriteOut;
use crate::metadata::format::record::{MAX_EXTENTS, Record};
use crate::options::CacheMode;
use crate::shared::Shared;
use crate::writeback::dirty::DirtyBytes;
use crate::zones::allocator::{LONGEST_REST_DIVISOR, OwnZone, PlaceFor};
use crate::zones::job_class::JobClass;
use crate::zones::open_zone::{DataKind, DataSource};
use crate::zones::place::PlaceAmount;

/// A writer may add one block of padding per so many blocks written. An array logs parity for a `sync` that ends within a
/// stripe; at this bound, the padding that avoids such parity is about as long as the parity.
const MIN_DATA_BLOCKS_PER_PADDING_BLOCK: u64 = 512;
/// Number of zones that accepted bytes are written to before they are given up.
const ZONES_TRIED: u32 = 3;

/// The longest end of a file that is copied for a write-back.
const LONGEST_COPY: usize = 64 << 10;

impl Shared {
    /// Bytes of a data file's full buffer: as many of the device's optimal writes as fit, at least one.
    pub(crate) fn write_buffer_bytes(&self) -> usize {
        let optimal = self.device.geometry().optimal_write.0.max(1) * self.block();
        let optimal = usize::try_from(optimal).expect("what a device takes at a time fits into memory");
        let longest = self.dirty.as_ref().map_or(u64::MAX, |dirty| dirty.longest_buffer());
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        (self.options.write_buffer.min(longest) / optimal).max(1) * optimal
    }

    /// Writes the bytes of `file` that are in memory only, in operations of `class`.
    ///
    /// # Errors
    /// The file's write failure, from then on: the file ends before the first lost byte. That of the metadata log, and `Closed`: the bytes stay in memory.
    pub(crate) async fn write_out_as(&self, class: IoClass, file: &Arc<File>, what: WriteOut) -> Result<()> {
        let _turn = file.writes.acquire_as(class, &**self.device.purpose(Purpose::Write)).await;
        self.write_out_in_turn(class, file, what).await
    }

    /// As [`write_out_as`](Shared::write_out_as), for a caller that waits.
    pub(crate) async fn write_out(&self, file: &Arc<File>, what: WriteOut) -> Result<()> {
        self.write_out_as(file.writes.class_of_waiter(), file, what).await
    }

    /// As [`write_out_as`](Shared::write_out_as). The caller holds the file's turn.
    pub(crate) async fn write_out_in_turn(
        &self,
        class: IoClass,
        file: &Arc<File>,
        what: WriteOut,
    ) -> Result<()> {
        file.writes.check()?;
        let job = file.writes.begin_job(class);
        let (full, everything) = (self.write_buffer_bytes(), what == WriteOut::Everything);
        let block = usize::try_from(self.block()).expect("a block fits into memory");
        // One write for an append that waits for it; copies that take no part of the cache otherwise.
        let longest_copy = if self.dirty.is_some() { LONGEST_COPY } else { usize::MAX };
        let upto = file.content.read().size;
        loop {
            let piece = {
                let mut content = file.content.write();
                let everything = everything && content.stored < upto;
                content.pages.next_piece(everything, full, block, longest_copy)
            };
            let Some(piece) = piece else { return Ok(()) };
            self.write_piece(&job, file, &piece).await?;
            if let Some(dirty) = &self.dirty {
                dirty.reuse(piece.data, full);
                self.leave_memory_to_dirty_bytes();
            }
        }
    }

    /// Writes a piece of `file`, if need be to several zones in turn. Bytes that no zone takes are lost.
    async fn write_piece(&self, job: &JobClass, file: &Arc<File>, piece: &Piece) -> Result<()> {
        let mut zones_left = if self.dirty.is_some() { ZONES_TRIED } else { 1 };
        loop {
            let Err(error) = self.place_piece(job, file, piece).await else { return Ok(()) };
            // A mount that ends, or whose metadata cannot be written, loses no byte of this file alone.
            self.check_open()?;
            self.metadata.check()?;
            zones_left -= 1;
            if matches!(error.kind(), ErrorKind::Device(_)) && zones_left > 0 {
                tracing::warn!(ino = file.ino, %error, "a zone does not take a file's bytes; they go to another one");
                continue;
            }
            let Some(dirty) = &self.dirty else { return Err(file.writes.fail(error, true)) };
            if self.options.rules().forgets_lost_bytes() {
                let end = piece.at + piece.data.len() as u64;
                file.content.write().pages.drop_below(end, self.write_buffer_bytes());
                return Ok(());
            }
            return self.lose_bytes(dirty, file, error);
        }
    }

    /// Ends `file` before the bytes that no zone takes. Returns the file's failure, if somebody can still read the file.
    fn lose_bytes(&self, dirty: &DirtyBytes, file: &Arc<File>, error: Error) -> Result<()> {
        let mut state = self.state.lock();
        let Some(is_open) = state.file_node(file.ino).map(|node| node.handles > 0) else { return Ok(()) };
        tracing::error!(ino = file.ino, %error, "a file's bytes cannot be written: the file ends before them");
        let error = file.writes.fail(error, false);
        if !is_open {
            file.drop_lost_pages();
        }
        let mut content = file.content.write();
        self.give_up_reserved(&mut state, &mut content);
        self.count_dirty(file, &content);
        dirty.note_failure(file, &error);
        Err(error)
    }

    /// Writes a piece of `file`, or as much of it as ends with one of the device's optimal writes, and commits its extents: the file's stored bytes end
    /// behind those written.
    async fn place_piece(&self, job: &JobClass, file: &Arc<File>, piece: &Piece) -> Result<()> {
        let placed = self.place_and_record(job, file, piece).await;
        // The file may have been removed during the write: no later write or close would give its own zone back.
        self.release_own_zone(file);
        placed?;
        self.metadata.bound_pending().await
    }

    async fn place_and_record(&self, job: &JobClass, file: &Arc<File>, piece: &Piece) -> Result<()> {
        let (lifetime, (written, padded)) = {
            let status = file.writes.status.lock();
            (status.lifetime, status.blocks)
        };
        let own = self.own_zone(file, piece.at);
        let block = self.block();
        let amount = if piece.is_end {
            let blocks = piece.data.len() as u64 / block;
            let padding = ((written + blocks) / MIN_DATA_BLOCKS_PER_PADDING_BLOCK).saturating_sub(padded);
            PlaceAmount::All { padding: if self.has_room_for_padding(padding) { padding } else { 0 } }
        } else {
            PlaceAmount::Whole
        };
        // A caller who waits for the file's bytes raises the class of the job, and not the file's source: the table that a compaction writes stays in one kind of zone.
        let kind = DataKind { lifetime, source: DataSource::of(file.writes.class_in_background()) };
        let who = if self.dirty.is_some() { PlaceFor::AcceptedBytes } else { PlaceFor::Writer };
        let placed = self.place(job, kind, &piece.data, amount, own, who).await?;
        {
            let (written, padded) = &mut file.writes.status.lock().blocks;
            *written += placed.runs.iter().map(|(_, _, blocks)| blocks).sum::<u64>();
            *padded += placed.padding;
        }
        let mut extents = Vec::with_capacity(placed.runs.len());
        let mut at = piece.at;
        for &(zone, start, blocks) in &placed.runs {
            let bytes = (blocks * block).min(piece.at + piece.bytes - at);
            extents.push(Extent { offset: at, bytes, start, zone });
            at += bytes;
        }
        if !self.record_extents(file, &extents, at)? {
            return Ok(());
        }
        if let Some(cache) = self.cache.as_ref().filter(|_| self.options.cache_mode == CacheMode::Buffered) {
            let stored = usize::try_from(at - piece.at).ok().and_then(|stored| piece.data.get(..stored));
            cache.store(file.ino, piece.at, stored.unwrap_or_default());
            if self.state.lock().file_node(file.ino).is_none() {
                cache.remove(file.ino, std::slice::from_ref(&(piece.at..at)));
            }
        }
        Ok(())
    }

    /// Whether a write at offset `at` of `file` goes to a zone that is kept for the file: where the file is expected to fill most of a zone, and not more.
    fn own_zone(&self, file: &File, at: u64) -> OwnZone {
        let expected = file.writes.status.lock().expected;
        let capacity = self.device.geometry().zone_capacity.0 * self.block();
        match at {
            _ if expected > capacity || expected < capacity - capacity / LONGEST_REST_DIVISOR => OwnZone::No,
            0 => OwnZone::Begin(file.ino),
            _ => OwnZone::Continue(file.ino),
        }
    }

    /// Ends the keeping of a zone for `file` where nothing more will be written: the file has no reader and no name left, or it has no writer and no byte
    /// that is in memory only.
    pub(crate) fn release_own_zone(&self, file: &File) {
        if self.own_zone(file, 0) == OwnZone::No {
            return;
        }
        let mut state = self.state.lock();
        let is_written = match state.file_node(file.ino) {
            Some(node) => !node.writing && file.content.read().dirty_bytes() == 0,
            None => true,
        };
        if is_written && state.allocator.release_own_zone(file.ino) {
            drop(state);
            self.kick_cleaner();
        }
    }

    /// Commits the extents of bytes of `file` that were written, the last of which end at file offset `end`, and drops their pages. Returns false where nobody
    /// can read the file any more.
    fn record_extents(&self, file: &Arc<File>, extents: &[Extent], end: u64) -> Result<bool> {
        let modified_ms = self.driver.unix_millis();
        let mut state = self.state.lock();
        let Some(writing) = state.file_node(file.ino).map(|node| node.writing) else { return Ok(false) };
        if self.dirty.is_none() {
            self.metadata.check_room(&state, extents.len() as u64 * 72)?;
        }
        for part in extents.chunks(MAX_EXTENTS) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            let (ino, from, size) = (file.ino, first.offset, last.end());
            state.commit(Record::Extents { ino, from, size, modified_ms, extents: part.to_vec() })?;
        }
        // Pages and extents change under one lock: a reader finds each byte in a page or in an extent.
        let mut content = file.content.write();
        content.pages.drop_below(end - end % self.block(), self.write_buffer_bytes());
        if content.dirty_bytes() == 0 && !writing {
            content.pages = Pages::default();
        }
        let written = extents.iter().map(|extent| extent.bytes.div_ceil(self.block())).sum();
        self.settle_reserved(&mut state, &mut content, written);
        drop(state);
        self.count_dirty(file, &content);
        Ok(true)
    }

    /// Counts the dirty bytes of `file` anew.
    pub(crate) fn count_dirty(&self, file: &Arc<File>, content: &Content) {
        if let Some(dirty) = &self.dirty {
            let has_full_buffer = content.pages.has_full_buffer(self.write_buffer_bytes());
            // Nobody writes the bytes that a failed write has lost.
            let is_lost = file.writes.has_failed();
            let bytes = if is_lost { 0 } else { content.dirty_bytes() };
            dirty.set(file, bytes, has_full_buffer && !is_lost, self.driver.now());
            self.leave_memory_to_dirty_bytes();
        }
    }

    /// Makes the page cache as much smaller as dirty bytes and spare buffers take: all have one budget.
    pub(crate) fn leave_memory_to_dirty_bytes(&self) {
        if let (Some(dirty), Some(cache)) = (&self.dirty, &self.cache) {
            cache.leave(dirty.memory(self.write_buffer_bytes()));
        }
    }

    /// Writes all bytes that were appended to any file before the call. Returns the error of one of the files that
    /// lost bytes since the last call, after all files were tried.
    pub(crate) async fn write_out_all(&self) -> Result<()> {
        let Some(dirty) = &self.dirty else { return Ok(()) };
        // The task writes files side by side meanwhile.
        dirty.write_everything(self.driver.now());
        for file in dirty.files() {
            if self.write_out(&file, WriteOut::Everything).await.is_err() {
                self.check_open()?;
                self.metadata.check()?;
            }
        }
        dirty.take_failures().map_or(Ok(()), Err)
    }
}
