//! Step 2 of a mount: a failed or missing drive is recorded on the other drives before anything relies on the
//! other drives alone.
//!
//! A mount without a drive computes parity from the remaining data and completes resets, so that the missing
//! drive's content no longer fits the array. If a power cut ends the mount and the drive is present at the next
//! mount, the drive must not become a member again: all other drives have to say that it failed, in metadata
//! zones that the next mount reads.

use std::sync::Arc;

use zoned::{Action, Blocks, Durability, ZoneId, ZoneInfo, ZoneState};

use crate::format::record::Body;
use crate::layout::Slot;
use crate::member::{Log, Member};
use crate::mount::errors::{FromDrive, MountError};
use crate::mount::gather::{Mount, PresentMember};

impl Mount {
    /// Records on every present drive which drives failed or are missing, unless the drive's superblock says
    /// so already.
    ///
    /// If the log of a drive has no room, an empty metadata zone takes the record, provided that another
    /// empty one is left for the next checkpoint. Otherwise the next checkpoint begins with the record. The
    /// drives are written one after the other: after a crash in between, all drives but one have the new
    /// record or the old one.
    pub(crate) async fn record_failures(&mut self) -> Result<(), MountError> {
        if !self.newly_failed.is_empty() {
            self.superblock.config += 1;
        }
        for slot in &self.newly_failed {
            let resumes = self.candidate.as_ref().is_some_and(|candidate| candidate.slot == *slot);
            self.superblock.set_member(*slot, true, resumes);
        }
        let config = self.superblock.config;
        let body = Body::Superblock(self.superblock.clone());
        for (slot, present) in (0..).map(Slot).zip(&mut self.present) {
            let Some(present) = present else { continue };
            if present.log.epochs.get(&self.epoch).is_none_or(|contents| contents.config >= config) {
                continue;
            }
            let geometry = present.device.geometry();
            let blocks = body.blocks(geometry.block_size);
            let (info, epoch) = match present.place_for(self.epoch, blocks) {
                Some(info) => (info, self.epoch),
                None => match present.first_free_zone(self.epoch) {
                    Some(info) => (info, self.next),
                    // Without a free zone for the checkpoint the mount fails later.
                    None => continue,
                },
            };
            if epoch == self.next {
                present.begun = Some((info.zone, blocks));
                if info.state != ZoneState::Empty {
                    present.device.zone(info.zone, Action::Reset).await.of(slot)?;
                    present.device.flush().await.of(slot)?;
                }
            }
            present.log.sequence += 1;
            let pointer = if epoch == self.next { 0 } else { info.pointer.0 };
            let capacity = geometry.zone_capacity.0;
            let log = Log::new(&self.superblock, epoch, present.log.sequence, info.zone, pointer, capacity);
            let member = Member::new(slot, Some(present.device.clone()), log, Arc::default());
            if let Some(io) = member.append(&body, false, Durability::Durable).expect("there is room") {
                io.await.of(slot)?;
            }
            if epoch == self.next {
                continue;
            }
            // The metadata zone holds a record that counts, so that the next checkpoint goes to another zone.
            present.log.epochs.entry(epoch).or_default().zones.insert(info.zone);
            if let Some(info) = present.zones.iter_mut().find(|known| known.zone == info.zone) {
                info.state = ZoneState::ImplicitOpen;
            }
        }
        Ok(())
    }
}

impl PresentMember {
    /// The drive's usable metadata zones without records that count, empty ones first.
    fn free_zones(&self, epoch: u64) -> Vec<ZoneInfo> {
        let counts = |zone: ZoneId| self.log.epochs.get(&epoch).is_some_and(|contents| contents.counts(zone));
        let usable = |info: &&ZoneInfo| !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
        let mut free: Vec<ZoneInfo> =
            self.zones.iter().filter(|info| !counts(info.zone)).filter(usable).copied().collect();
        free.sort_by_key(|info| info.state != ZoneState::Empty);
        free
    }

    /// The drive's metadata zone for the next checkpoint.
    pub(crate) fn first_free_zone(&self, epoch: u64) -> Option<ZoneInfo> {
        self.free_zones(epoch).first().copied()
    }

    /// The metadata zone for a record of `blocks` blocks: one with records that count, or an empty one if another is free.
    fn place_for(&self, epoch: u64, blocks: u64) -> Option<ZoneInfo> {
        let contents = self.log.epochs.get(&epoch)?;
        let takes = |info: &&ZoneInfo| {
            contents.zones.contains(&info.zone)
                && !matches!(info.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline)
                && info.pointer.plus(Blocks(blocks)) <= self.device.geometry().zone_capacity
        };
        let free = self.free_zones(epoch);
        let spare = free.first().filter(|info| info.state == ZoneState::Empty && free.len() > 1);
        self.zones.iter().find(takes).or(spare).copied()
    }
}
