//! Which drives a durable write has to flush (RAIZN, section 4.3.3, "persistence bitmap").
//!
//! Flushes of a drive are numbered in the order of their submission. When a block of a zone has landed on a
//! drive, the drive's next flush covers the block. The zone keeps, for each drive, the number of the flush
//! that covers its last block there. Once a flush with this number or a later one is done, all blocks of the
//! zone on the drive are durable. A durable write is acknowledged when all blocks of its zone are durable on
//! all drives. A drive on which all these blocks are durable already is not flushed.
//!
//! The paper keeps one bit for each stripe unit. One number for each drive and zone is enough, because a
//! flush covers all lower blocks of the zone too.

use zoned::{Blocks, Durability, ZoneId};

use super::Writes;
use crate::layout::Parity;
use crate::layout::slots::Slots;
use crate::zone::Zone;

impl Writes {
    /// Blocks or records of a zone have landed on the drives in `slots`: the drives' next flushes cover them.
    pub(crate) fn stamp_slots(&self, zone: &mut Zone, slots: Slots, how: Durability) {
        if !self.ctx.geometry.volatile_cache {
            return;
        }
        if !self.ctx.rules.flushes_all_slots() && how == Durability::Cached {
            return;
        }
        for member in self.members.iter().filter(|member| slots.has(member.slot)) {
            zone.set_flush_number(member.slot, member.next_flush_number());
        }
    }

    /// The drives with blocks of the zone that no flush has covered.
    pub(crate) fn not_durable(&self, zone: &Zone) -> Slots {
        let mut slots = Slots::default();
        for member in
            self.members.iter().filter(|member| !member.is_flush_done(zone.flush_number(member.slot)))
        {
            slots.add(member.slot);
        }
        slots
    }

    /// The partial parity that covers the zone's blocks below `end` has landed on its drive.
    pub(crate) fn parity_landed(&self, zone: &mut Zone, id: ZoneId, parity: Parity, end: Blocks) {
        let stripe = self.ctx.layout.stripe_of(Blocks(end.0.saturating_sub(1)));
        let mut slots = Slots::default();
        let slot = self.ctx.places.slot(id, self.ctx.layout.parity(stripe, parity));
        slot.into_iter().for_each(|slot| slots.add(slot));
        self.stamp_slots(zone, slots, Durability::Cached);
    }
}
