//! A new drive in the place of one that failed, while the array is in use.
//!
//! 1. The new drive is emptied.
//! 2. Zone by zone, those that are written first, its part is put together from the other drives and written. The
//!    zone's I/O waits meanwhile; from then on its writes go to the new drive too.
//! 3. When all zones are there the new drive's log is begun with everything that counts, and everything in flight is
//!    waited for and flushed.
//! 4. The other drives' superblocks name the new one as a good member; and last, its checkpoint gets its end.
//!
//! Without that end a drive is no member: a crash before leaves the array without a drive, as it was, and the rebuild
//! begins anew.

use std::sync::Arc;

use uuid::{Builder, Uuid};
use zoned::{
    Action, Blocks, BufMut, Durability, ErrorKind, Io, Result, ZoneId, ZoneState, ZonedDevice, join_all,
};

use crate::core::Core;
use crate::format::record::Body;
use crate::jobs::{Job, Rebuild};
use crate::layout::{Piece, Slot, Stripe};
use crate::member::{METADATA_ZONES, Member};
use crate::open::fits;
use crate::xor::xor;
use crate::zone::{Relocated, Work};
use crate::{Array, RebuildOptions};

impl Array {
    /// Puts `device` in the place of the drive in `slot`, which failed or is missing, and rebuilds what it held.
    /// **Everything that `device` holds is lost.** The array is in use meanwhile. When this returns it has all its
    /// drives again. Dropped, the rebuild runs on: [`Array::rebuild`] gives its handle.
    ///
    /// Errors: those of [`Array::start_replace`]; any other ends the rebuild and leaves the array as it was, without
    /// the drive.
    pub async fn replace(&self, slot: Slot, device: Arc<dyn ZonedDevice>) -> Result<()> {
        self.start_replace(slot, device, RebuildOptions::default()).await?.wait().await
    }

    /// Begins to put `device` in the place of the drive in `slot`, which failed or is missing. **Everything that
    /// `device` holds is lost.** Returns when it is emptied; the rebuild runs on beside the clients.
    ///
    /// Errors: [`ErrorKind::Invalid`] where the slot's drive is good, a rebuild runs, or the new drive does not fit.
    pub async fn start_replace(
        &self,
        slot: Slot,
        device: Arc<dyn ZonedDevice>,
        options: RebuildOptions,
    ) -> Result<Rebuild> {
        let _ = options;
        let core = &self.core;
        let refuse = |kind, why: &str| Err(core.error(kind, "replace").because(why));
        let superblock = self.superblock();
        if slot.index() >= superblock.members.len() {
            return refuse(ErrorKind::Invalid, "the array has no such slot");
        }
        let member = core.member(slot);
        if member.is_good() || core.is_broken() {
            return refuse(
                ErrorKind::Invalid,
                "only a failed or missing drive of an array that works is replaced",
            );
        }
        fits(&device, &superblock, slot)?;
        let handle = {
            let mut rebuild = core.jobs.rebuild.lock();
            if rebuild.as_ref().is_some_and(|job| !job.is_over()) {
                return refuse(ErrorKind::Invalid, "a rebuild runs already: wait for it, or cancel it");
            }
            let handle = Rebuild::new(Job::new(Some(slot), &core.driver));
            *rebuild = Some(handle.clone());
            handle
        };
        for info in device.report(0..device.geometry().zones).await? {
            if !matches!(info.state, ZoneState::Empty | ZoneState::Offline) {
                device.zone(info.zone, Action::Reset).await?;
            }
        }
        device.flush().await?;
        member.begin_replacement(Arc::clone(&device), core.zones.len());
        let (core, ours) = (Arc::clone(core), handle.clone());
        let task = async move {
            let result = rebuild_all(&core, slot, &device).await;
            core.member(slot).abort_replacement();
            core.member(slot).end_replacement();
            ours.end(result);
        };
        drop(units::spawn(&*self.core.driver, "rebuild", task));
        Ok(handle)
    }

    /// The rebuild that runs, or the last one.
    pub fn rebuild(&self) -> Option<Rebuild> {
        self.core.jobs.rebuild.lock().clone()
    }
}

async fn rebuild_all(core: &Arc<Core>, slot: Slot, device: &Arc<dyn ZonedDevice>) -> Result<()> {
    let mut order: Vec<ZoneId> = (0..core.geometry.zones).map(ZoneId).collect();
    order.sort_by_key(|id| !core.zone(*id).state.is_active());
    for id in order {
        core.rebuild_zone(slot, device, id).await?;
    }
    device.flush().await?;
    core.admit_member(slot).await
}

impl Core {
    /// Brings a zone's part of the new drive up to date, and its writes to it from then on.
    async fn rebuild_zone(
        self: &Arc<Core>,
        slot: Slot,
        device: &Arc<dyn ZonedDevice>,
        id: ZoneId,
    ) -> Result<()> {
        let paused: Io<()> = self.enter(id, Work::Pause).typed();
        paused.await?;
        let result = self.copy_zone(slot, device, id).await;
        {
            let mut zone = self.zone(id);
            zone.busy = false;
            if result.is_ok() {
                self.member(slot).has_zone(id, true);
                // On the new drive everything lies in its place.
                zone.patches.forget(slot);
            }
        }
        self.pump(id);
        result
    }

    async fn copy_zone(
        self: &Arc<Core>,
        slot: Slot,
        device: &Arc<dyn ZonedDevice>,
        id: ZoneId,
    ) -> Result<()> {
        let layout = self.layout;
        let (end, full) = {
            let zone = self.zone(id);
            (zone.readable(), zone.state == ZoneState::Full)
        };
        let rows = layout.used(id, slot, end);
        let mut row = 0;
        while row < rows {
            let stripe = Stripe(row / layout.unit);
            let count = layout.unit_of(stripe).min(rows - row);
            let mut unit = BufMut::zeroed(self.bytes(count));
            match layout.index_on(id, stripe, slot) {
                Some(index) => {
                    let offset = layout.unit_start(stripe, index);
                    let piece = Piece { slot, stripe, index, row: 0, offset, len: count };
                    let rebuild = self.rebuild(&self.zone(id), id, piece)?;
                    rebuild.run(&mut unit).await?;
                }
                None => {
                    self.sum(id, stripe, layout.end(stripe), &mut unit).await?;
                    // It lies in its place now.
                    self.zone(id).relocated.remove(&stripe);
                }
            }
            device.write(Member::address(&**device, id, row), unit.freeze(), Durability::Cached).await?;
            row += count;
        }
        let last = layout.stripe_of(end);
        let torn = full && end > layout.start(last) && end < layout.capacity();
        if torn && layout.parity(id, last) == slot {
            let mut unit = BufMut::zeroed(self.bytes(layout.unit_of(last)));
            self.sum(id, last, end, &mut unit).await?;
            self.zone(id).relocated.insert(last, Relocated { end, unit: unit.freeze() });
        }
        if full && rows < device.geometry().zone_capacity.0 {
            device.zone(ZoneId(id.0 + METADATA_ZONES), Action::Finish).await?;
        }
        Ok(())
    }

    /// The XOR of the data of a stripe below `end`.
    async fn sum(&self, id: ZoneId, stripe: Stripe, end: Blocks, into: &mut BufMut) -> Result<()> {
        let layout = &self.layout;
        let (mut ios, mut overlays) = (Vec::new(), Vec::new());
        for index in 0..layout.data_units() {
            let count = layout.filled(stripe, index, end);
            if count > 0 {
                let from = layout.data(id, stripe, index);
                let buf = BufMut::zeroed(self.bytes(count));
                let io = self.member(from).read(id, layout.row(stripe), buf);
                let over = self.zone(id).patches.over(self.bytes(1), from, layout.row(stripe), count);
                overlays.push(over);
                ios.push(io.map_err(|_| self.broken_error("replace"))?);
            }
        }
        for (data, overlay) in join_all(ios).await.into_iter().zip(overlays) {
            let mut data = data?;
            overlay.apply(&mut data);
            xor(into, &data);
        }
        Ok(())
    }

    /// The new drive has all zones: it becomes a member.
    async fn admit_member(self: &Arc<Core>, slot: Slot) -> Result<()> {
        let member = self.member(slot);
        let bits = (u128::from(self.driver.random()) << 64) | u128::from(self.driver.random());
        let uuid: Uuid = Builder::from_random_bytes(bits.to_le_bytes()).into_uuid();
        let (epoch, superblock) = {
            let epoch = self.good().map(|good| good.log.lock().epoch).next();
            let mut superblock = self.config.lock().clone();
            superblock.config += 1;
            if let Some(info) = superblock.members.get_mut(slot.index()) {
                (info.uuid, info.failed, info.rebuilding) = (uuid, false, false);
            }
            (epoch.ok_or_else(|| self.broken_error("replace"))?, superblock)
        };
        let mut barriers = Vec::new();
        let mut ios = Vec::new();
        member.begin_log(epoch, ZoneId(0));
        // From here on it is written like any other, partial parity included.
        member.take_over();
        let full =
            |_| self.error(ErrorKind::ZoneFull, "replace").because("the checkpoint does not fit a zone");
        let body = Body::Superblock(superblock.clone());
        ios.extend(member.append(&body, true, Durability::Cached).map_err(full)?);
        let mut commits = Vec::new();
        let written = self.write_checkpoint(slot, &mut ios, &mut barriers, &mut commits).map_err(full);
        let joined: Result<Vec<()>> = join_all(ios).await.into_iter().collect();
        if written.is_err() || joined.is_err() {
            // Before anything is acknowledged by these commits: the array does without the drive, as it did.
            member.set_failed();
        }
        for (id, end) in commits {
            self.logged_by_checkpoint(id, end, &Ok(()));
        }
        written.and(joined)?;
        for barrier in barriers {
            barrier.await?;
        }
        // The data of every record on the new drive is durable before any of them counts.
        let flushes: Vec<Io<()>> = self.good().filter_map(Member::flush).collect();
        join_all(flushes).await.into_iter().collect::<Result<Vec<()>>>()?;
        let _turn = self.persisting.acquire().await;
        let unchanged = self.config.lock().config + 1 == superblock.config;
        if !unchanged || self.is_broken() {
            return Err(self.error(ErrorKind::Gone, "replace").because("another drive failed meanwhile"));
        }
        *self.config.lock() = superblock;
        let mut ios = Vec::new();
        for other in self.good().filter(|other| other.slot != slot) {
            ios.extend(other.append(&body, false, Durability::Durable).map_err(full)?);
        }
        join_all(ios).await.into_iter().collect::<Result<Vec<()>>>()?;
        let end = member.append(&Body::CheckpointEnd, true, Durability::Durable).map_err(full)?;
        match end {
            Some(io) => io.await,
            None => Err(self.broken_error("replace")),
        }
    }
}
