//! A drive that is missing at a mount: that is written down before anything is done without it.
//!
//! What a mount does without a drive (parity that is computed from what is left, resets that are finished) does not fit
//! what the drive holds. A power cut in the middle of the mount, and the drive being there at the next one, must not
//! bring it back: all others have to say that it failed, in zones that the next mount reads and does not write to.

use std::sync::Arc;

use zoned::{Action, Blocks, Durability, ZoneId, ZoneInfo, ZoneState};

use crate::format::record::Body;
use crate::layout::Slot;
use crate::member::{Log, Member};
use crate::mount::gather::{Mount, Present};
use crate::mount::unusable::{OfDrive, Stopped};

impl Mount {
    /// Records on all drives that are there which of them failed or are missing, wherever that is not known yet.
    ///
    /// A drive whose log has no room takes an empty metadata zone, if another one is left for the next checkpoint; or
    /// else the checkpoint begins with this record. One drive after the other: a cut in between leaves the record on all
    /// others.
    pub(crate) async fn persist_loss(&mut self) -> Result<(), Stopped> {
        if !self.lost.is_empty() {
            self.superblock.config += 1;
        }
        for slot in &self.lost {
            if let Some(member) = self.superblock.members.get_mut(slot.index()) {
                let ours = self.candidate.as_ref().is_some_and(|candidate| candidate.slot == *slot);
                (member.failed, member.rebuilding) = (true, ours);
            }
        }
        let (array, config) = (self.superblock.uuid, self.superblock.config);
        let body = Body::Superblock(self.superblock.clone());
        for (slot, present) in (0..).map(Slot).zip(&mut self.present) {
            let Some(present) = present else { continue };
            if present.tale.epochs.get(&self.epoch).is_none_or(|told| told.config >= config) {
                continue;
            }
            let geometry = present.device.geometry();
            let blocks = body.blocks(geometry.block_size);
            let (info, epoch) = match present.place_for(self.epoch, blocks) {
                Some(info) => (info, self.epoch),
                None => match present.free(self.epoch) {
                    Some(info) => (info, self.next),
                    // That is the end of this mount a little later.
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
            present.tale.sequence += 1;
            let log = Log {
                array,
                epoch,
                sequence: present.tale.sequence,
                zone: info.zone,
                pointer: if epoch == self.next { 0 } else { info.pointer.0 },
                capacity: geometry.zone_capacity.0,
                reserved: 0,
                rolling: false,
                waiting: Vec::new(),
                life: 0,
            };
            let member = Member::new(slot, Some(Arc::clone(&present.device)), log, Arc::default());
            if let Some(io) = member.append(&body, false, Durability::Durable).expect("there is room") {
                io.await.of(slot)?;
            }
            if epoch == self.next {
                continue;
            }
            // The zone counts: the next checkpoint goes to another, and then it is emptied.
            present.tale.epochs.entry(epoch).or_default().zones.insert(info.zone);
            if let Some(info) = present.zones.iter_mut().find(|known| known.zone == info.zone) {
                info.state = ZoneState::ImplicitOpen;
            }
        }
        Ok(())
    }
}

impl Present {
    /// Metadata zones without anything that counts, those that are empty first.
    fn frees(&self, epoch: u64) -> Vec<ZoneInfo> {
        let counts = |zone: ZoneId| self.tale.epochs.get(&epoch).is_some_and(|told| told.counts(zone));
        let usable = |info: &&ZoneInfo| !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
        let mut free: Vec<ZoneInfo> =
            self.zones.iter().filter(|info| !counts(info.zone)).filter(usable).copied().collect();
        free.sort_by_key(|info| info.state != ZoneState::Empty);
        free
    }

    /// The metadata zone that the next checkpoint goes to.
    pub(crate) fn free(&self, epoch: u64) -> Option<ZoneInfo> {
        self.frees(epoch).first().copied()
    }

    /// The metadata zone that takes a record of `blocks` blocks: one that counts, or an empty one if another is free.
    fn place_for(&self, epoch: u64, blocks: u64) -> Option<ZoneInfo> {
        let told = self.tale.epochs.get(&epoch)?;
        let takes = |info: &&ZoneInfo| {
            told.zones.contains(&info.zone)
                && !matches!(info.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline)
                && info.pointer.plus(Blocks(blocks)) <= self.device.geometry().zone_capacity
        };
        let free = self.frees(epoch);
        let spare = free.first().filter(|info| info.state == ZoneState::Empty && free.len() > 1);
        self.zones.iter().find(takes).or(spare).copied()
    }
}
