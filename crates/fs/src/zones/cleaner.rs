//! The cleaner: finishes zones, resets dead ones, and reclaims zones with few live blocks. `ahead` opens zones for logs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use units::sync::{Event, Turn};
use units::{Blocks, Bytes, ZoneId, sleep_until};
use zoned::{Action, Buf, BufMut, IoClass, ZoneState};

use crate::background::BackgroundTask;
use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::files::extents::Extent;
use crate::metadata::format::record::{MAX_EXTENTS, Record};
use crate::metadata::log::MAX_PENDING_RECORDS;
use crate::shared::Shared;
use crate::zones::allocator::{OwnZone, PlaceFor};
use crate::zones::job_class::JobClass;
use crate::zones::open_zone::{DataKind, DataSource};
use crate::zones::place::PlaceAmount;
use crate::zones::table::{MIN_RECLAIM_GAIN_DIVISOR, Phase};

/// With more dead zones than this the cleaner commits the metadata records that freed them, instead of waiting
/// for another commit.
const MAX_DEAD_ZONES: usize = 4;
/// A reclaim must gain a zone divided by this number while no writer waits for space.
const EASY_RECLAIM_GAIN_DIVISOR: u64 = 4;
/// The longest copy of a reclaim, in bytes.
const MAX_COPY_BYTES: u64 = 1 << 20;
/// Pause before the cleaner checks again a dead zone that a reader holds.
const PINNED_ZONE_PAUSE: Duration = Duration::from_micros(200);

/// Runs the cleaner until the mount is gone.
pub(crate) async fn run(_task: BackgroundTask, shared: Weak<Shared>, work: Event) {
    loop {
        let seen = work.version();
        let Some(shared) = shared.upgrade() else { return };
        if shared.metadata.is_closed() {
            return;
        }
        let progress = match shared.clean_round().await {
            Ok(progress) => progress,
            Err(error) => {
                // Work that an unmount ends did not fail.
                if error.kind() != ErrorKind::Closed {
                    tracing::warn!(%error, "background work failed");
                }
                shared.state.lock().allocator.exhausted = true;
                shared.space.notify();
                false
            }
        };
        drop(shared);
        if !progress {
            work.changed_since(seen).await;
        }
    }
}

impl Shared {
    /// One round of cleaning zones. Returns true if there may be more to do at once.
    async fn clean_round(self: &Arc<Shared>) -> Result<bool> {
        if self.metadata.check().is_err() {
            self.state.lock().allocator.exhausted = true;
            self.space.notify();
            return Ok(false);
        }
        if self.state.lock().journal.pending.len() > MAX_PENDING_RECORDS {
            self.metadata.commit_all().await?;
        }
        let (strict, changes) = {
            let state = self.state.lock();
            (state.allocator.wanted.is_some(), state.allocator.changes)
        };
        if self.finish_zones().await || self.reset_zones().await? {
            return Ok(true);
        }
        if self.reclaim().await? {
            return Ok(true);
        }
        let (waiting, retry) = {
            let mut state = self.state.lock();
            let waiting = state.allocator.wanted.is_some();
            if waiting && (!strict || changes != state.allocator.changes) {
                // A writer began to wait, or blocks were freed, during this round of cleaning: the next round
                // checks again.
                return Ok(true);
            }
            if waiting {
                // No further zone can be reclaimed: this round of cleaning accepted the smallest gain.
                let coming = state.allocator.table.has_dead()
                    || state.allocator.table.is_resetting()
                    || state.allocator.opening;
                state.allocator.exhausted = !coming;
            }
            state.allocator.wanted = None;
            (waiting, waiting && !state.allocator.exhausted)
        };
        if waiting {
            self.space.notify();
        }
        if retry {
            // The cleaner tries again after a pause: a reader holds the zone, or a zone is being opened
            // ahead.
            sleep_until(&*self.driver, self.driver.now().after(PINNED_ZONE_PAUSE)).await;
        }
        Ok(retry)
    }

    /// Finishes the zones that wait for a finish, which frees their open-zone slots.
    pub(crate) async fn finish_zones(&self) -> bool {
        let _turn = self.lock_zone_turn().await;
        self.finish_zones_now().await
    }

    async fn finish_zones_now(&self) -> bool {
        let zones = self.state.lock().allocator.finishing.clone();
        for &zone in &zones {
            let finished = self.device.purpose(Purpose::Reclaim).zone(zone, Action::Finish).await;
            if let Err(error) = finished {
                tracing::warn!(%zone, %error, "finishing a zone failed");
            }
            let mut state = self.state.lock();
            state.allocator.finishing.retain(|z| *z != zone);
            let pointer = state.allocator.table.pointer(zone).0;
            state.allocator.table.note_state(zone, ZoneState::Full, pointer);
            state.allocator.table.set_phase(zone, Phase::Full);
            state.allocator.note_reclaimable();
            drop(state);
            self.space.notify();
        }
        !zones.is_empty()
    }

    /// Resets the zones without a live block: only once the metadata that freed the last block is durable,
    /// and not while a read is under way in the zone.
    pub(crate) async fn reset_zones(&self) -> Result<bool> {
        let _turn = self.lock_zone_turn().await;
        self.reset_zones_now().await
    }

    /// Locks the finish and reset of zones, if writers of logs do both themselves: without
    /// [`MountOptions::open_ahead`](crate::MountOptions::open_ahead).
    async fn lock_zone_turn(&self) -> Option<Turn<'_>> {
        if self.options.open_ahead { None } else { Some(self.zone_turn.acquire().await) }
    }

    /// Finishes and resets zones in the path of a log's writer, before the log takes a zone: in a mount that
    /// opens no zones ahead.
    pub(crate) async fn finish_and_reset_zones_for_log(&self) -> Result<()> {
        if let Some(_turn) = self.lock_zone_turn().await {
            self.finish_zones_now().await;
            self.reset_zones_now().await?;
        }
        Ok(())
    }

    async fn reset_zones_now(&self) -> Result<bool> {
        let broken = self.options.rules().resets_early();
        let (dead, upto) = {
            let state = self.state.lock();
            let dead = state.allocator.table.dead();
            let scarce = state.allocator.table.free_zone_count() <= state.allocator.scarce_free_zones();
            let urgent = state.allocator.wanted.is_some() || scarce || dead.len() > MAX_DEAD_ZONES;
            let by = |z: &ZoneId| state.allocator.table.get(*z).map_or(0, |z| z.freed_by);
            let upto = dead.iter().map(by).max().unwrap_or(0);
            (dead, if urgent && !broken { upto } else { 0 })
        };
        if dead.is_empty() {
            return Ok(false);
        }
        self.metadata.commit_upto(upto).await?;
        let ready: Vec<ZoneId> = {
            let mut state = self.state.lock();
            let durable = state.journal.durable;
            let is_ready = |z: &ZoneId| {
                let entry = state.allocator.table.get(*z);
                // The task that opens zones ahead may have reset the dead zone meanwhile, and a log may have
                // taken it.
                let dead = entry.filter(|e| e.phase == Phase::Full && e.live == 0);
                let safe = dead.is_some_and(|e| broken || e.freed_by <= durable);
                safe && !self.pins.is_pinned(*z)
            };
            let ready: Vec<_> = dead.into_iter().filter(is_ready).collect();
            for &zone in &ready {
                state.allocator.table.set_phase(zone, Phase::Resetting);
            }
            ready
        };
        let device = self.device.purpose(Purpose::Reclaim);
        let ios = ready.iter().map(|zone| device.zone(*zone, Action::Reset)).collect();
        for (result, &zone) in zoned::join_all(ios).await.into_iter().zip(&ready) {
            let mut state = self.state.lock();
            match result {
                Ok(()) => {
                    state.allocator.stuck.retain(|stuck| *stuck != zone);
                    state.allocator.leaving.retain(|left| left.zone != zone);
                    state.allocator.table.set_phase(zone, Phase::Free);
                    state.allocator.note_reclaimable();
                }
                Err(error) => {
                    tracing::warn!(%zone, %error, "a zone cannot be reset, and is not used any more");
                    state.allocator.table.set_phase(zone, Phase::Unusable);
                }
            }
        }
        if !ready.is_empty() {
            self.space.notify();
        }
        Ok(!ready.is_empty())
    }

    /// Reclaims the full zone with the fewest live blocks, when empty zones are few.
    async fn reclaim(self: &Arc<Shared>) -> Result<bool> {
        let victim = {
            let state = self.state.lock();
            if state.allocator.table.free_zone_count() > state.allocator.scarce_free_zones()
                && state.allocator.wanted.is_none()
            {
                return Ok(false);
            }
            let fraction = if state.allocator.wanted.is_some() {
                MIN_RECLAIM_GAIN_DIVISOR
            } else {
                EASY_RECLAIM_GAIN_DIVISOR
            };
            let capacity = self.device.geometry().zone_capacity.0;
            state.allocator.table.reclaim_victim((capacity / fraction).max(1), &state.allocator.stuck)
        };
        let Some(victim) = victim else { return Ok(false) };
        let live = |shared: &Shared| shared.state.lock().allocator.table.get(victim).map_or(0, |z| z.live);
        let before = live(self);
        let emptied = self.empty_zone(victim).await;
        if emptied.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace) {
            // A zone that waits for its finish holds the open-zone slot that the copy needs: the next round
            // finishes that zone, then reclaims again.
            return Ok(!self.state.lock().allocator.finishing.is_empty());
        }
        if let Err(error) = &emptied {
            if error.kind() == ErrorKind::Closed {
                // An unmount ended the reclaim.
                return Err(error.clone());
            }
            tracing::warn!(zone = %victim, %error, "reclaiming a zone failed; its data stays where it is");
        }
        if emptied.is_err() || live(self) >= before {
            self.state.lock().allocator.stuck.push(victim);
        }
        Ok(true)
    }

    /// Copies every live block of `zone` into other zones, for a reclaim.
    async fn empty_zone(self: &Arc<Shared>, zone: ZoneId) -> Result<()> {
        let (lifetime, live) = {
            let state = self.state.lock();
            let mut live: Vec<(u64, Extent)> = Vec::new();
            for node in state.files() {
                let content = node.file.content.read();
                let here = content.extents.as_slice().iter().filter(|e| e.zone == zone);
                live.extend(here.map(|e| (node.file.ino, *e)));
            }
            (state.allocator.table.lifetime(zone), live)
        };
        let (block, mut left) = (self.block(), &*live);
        while let Some(((ino, extent), rest)) = left.split_first() {
            left = rest;
            let mut at = 0;
            while at < extent.bytes {
                let bytes = (extent.bytes - at).min(MAX_COPY_BYTES.next_multiple_of(block));
                let start = extent.start.plus(Blocks(at / block));
                let part = Extent { offset: extent.offset + at, bytes, start, zone };
                at += self.move_extent(*ino, part, lifetime).await?;
            }
        }
        Ok(())
    }

    /// Copies the front of the extent `part` into another zone, for a reclaim. Returns the number of bytes
    /// copied.
    async fn move_extent(
        self: &Arc<Shared>,
        ino: u64,
        part: Extent,
        lifetime: crate::Lifetime,
    ) -> Result<u64> {
        let device = self.device.purpose(Purpose::Reclaim);
        let geometry = device.geometry();
        let block = self.block();
        let blocks = part.bytes.div_ceil(block);
        let job = self.begin_reclaim_job();
        let data = {
            let _pin = self.pins.pin(part.zone);
            let mut whole = BufMut::with_capacity(usize::try_from(blocks * block).unwrap_or(0));
            let mut done = 0;
            while done < blocks {
                let n = (blocks - done).min(geometry.max_transfer.0);
                let at = geometry.start(part.zone).plus(part.start).plus(Blocks(done));
                let len = usize::try_from(Blocks(n).bytes(geometry.block_size).0).unwrap_or(0);
                let into = BufMut::zeroed(len);
                let read = job
                    .submit(&**device, at..at.plus(Blocks(n)), |class| device.read_as(class, at, into))
                    .await;
                job.all_ended();
                whole.extend_from_slice(&read.map_err(|e| Error::device("reading for reclaim", e))?);
                done += n;
            }
            whole.freeze()
        };
        self.write_copy(&job, ino, part, &data, lifetime).await
    }

    /// Begins to move an extent, in the class of reclaim, or of the writers that wait for space. Writers that come to wait later raise it.
    fn begin_reclaim_job(&self) -> Arc<JobClass> {
        let allocator = &mut self.state.lock().allocator;
        let class = allocator.wanted.map_or(IoClass::Reclaim, |class| class.min(IoClass::Reclaim));
        let job = Arc::new(JobClass::new(class));
        allocator.reclaim_job = Some(Arc::clone(&job));
        job
    }

    /// Wakes the cleaner for a caller who waits for space, and gives the reclaim's operations in flight the class of who waits.
    pub(crate) fn hurry_cleaner(&self) {
        self.kick_cleaner();
        let (wanted, job) = {
            let allocator = &self.state.lock().allocator;
            (allocator.wanted, allocator.reclaim_job.clone())
        };
        if let Some((class, job)) = wanted.zip(job) {
            job.raise(&**self.device.purpose(Purpose::Reclaim), class);
        }
    }

    async fn write_copy(
        &self,
        job: &JobClass,
        ino: u64,
        mut part: Extent,
        data: &Buf,
        lifetime: crate::Lifetime,
    ) -> Result<u64> {
        let block = self.block();
        let kind = DataKind { lifetime, source: DataSource::Reclaim };
        let placed = self.place(job, kind, data, PlaceAmount::Whole, OwnZone::No, PlaceFor::Reclaim).await?;
        let mut moved = Vec::with_capacity(placed.runs.len());
        let mut done = 0;
        for &(zone, start, blocks) in &placed.runs {
            let bytes = (blocks * block).min(part.bytes - done);
            moved.push(Extent { offset: part.offset + done, bytes, start, zone });
            done += bytes;
        }
        part.bytes = done;
        let mut state = self.state.lock();
        let Some(file) = state.file(ino) else { return Ok(done) };
        // A writer may have cut or rewritten a part of the extent during the copy: the copy of that part is garbage.
        let same = {
            let content = file.content.read();
            let same = content.extents.same_bytes(&part, block);
            moved.retain_mut(|copy| {
                copy.bytes = copy.bytes.min(same.saturating_sub(copy.offset - part.offset));
                copy.bytes > 0
            });
            moved
        };
        for extents in same.chunks(MAX_EXTENTS) {
            state.commit(Record::Remap { ino, extents: extents.to_vec() })?;
        }
        drop(state);
        drop(placed);
        Ok(done)
    }

    /// Bytes in dead blocks of full zones.
    pub(crate) fn garbage(&self) -> Bytes {
        let state = self.state.lock();
        let dead = |z: &crate::zones::table::Zone| match z.phase {
            Phase::Full | Phase::Resetting => z.capacity.saturating_sub(z.live),
            Phase::Data => z.pointer.saturating_sub(z.live),
            _ => 0,
        };
        Blocks(state.allocator.table.iter().map(|(_, z)| dead(z)).sum())
            .bytes(self.device.geometry().block_size)
    }
}
