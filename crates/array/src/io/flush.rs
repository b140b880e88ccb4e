//! Which drives a durable write has to flush (the persistence bitmap of section 4.3.3).
//!
//! Flushes of a drive are numbered as they are submitted. When a block of a zone has landed on a drive, the next
//! flush of that drive covers it: the zone keeps that number for each drive, of its last block there. Once a flush with
//! this number or a later one is done, everything of the zone on the drive is durable. A durable write is acknowledged
//! when that holds of all drives; those of which it holds already are not flushed. Other zones do not matter.
//!
//! Where the paper keeps a bit for each stripe unit, this keeps a number for each drive and zone: what lies below in the
//! zone is covered by the same number.

use std::sync::Arc;

use zoned::{Durability, Result, ZoneId};

use crate::Sabotage;
use crate::core::Core;
use crate::io::write::Children;
use crate::layout::Slot;
use crate::metrics::add;
use crate::zone::Zone;

/// A set of slots: an array has no more than 64.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Slots(u64);

const _: () = assert!(crate::format::superblock::MAX_MEMBERS <= u64::BITS);

impl Slots {
    /// Every slot.
    pub(crate) const ALL: Slots = Slots(u64::MAX);

    pub(crate) fn add(&mut self, slot: Slot) {
        self.0 |= 1 << slot.0;
    }

    pub(crate) fn has(self, slot: Slot) -> bool {
        self.0 & (1 << slot.0) != 0
    }
}

impl Core {
    /// Blocks or records of a zone have landed on these drives: their next flushes cover them.
    pub(crate) fn landed_on(&self, zone: &mut Zone, slots: Slots, how: Durability) {
        if !self.geometry.volatile_cache {
            return;
        }
        if self.sabotage == Some(Sabotage::Persistence) && how == Durability::Cached {
            return;
        }
        for member in self.members.iter().filter(|member| slots.has(member.slot)) {
            zone.stamp(member.slot, member.next_flush());
        }
    }

    /// The drives that hold something of the zone which no flush has covered.
    pub(crate) fn not_durable(&self, zone: &Zone) -> Slots {
        let mut slots = Slots::default();
        for member in self.members.iter().filter(|member| !member.covers(zone.stamp_of(member.slot))) {
            slots.add(member.slot);
        }
        slots
    }

    /// Makes durable what these drives hold; one that cannot be flushed is failed.
    pub(crate) async fn flush_slots(self: &Arc<Core>, slots: Slots) -> Result<()> {
        let mut children = Children::default();
        let mut numbers = Vec::new();
        for member in self.good() {
            if !slots.has(member.slot) {
                add(&self.tally.flushes_spared, u64::from(self.geometry.volatile_cache));
                continue;
            }
            if let Some((number, io)) = member.flush_numbered() {
                add(&self.tally.flushes, 1);
                numbers.push((member.slot, number));
                children.push(member.slot, Some(io));
            }
        }
        let failures = children.join().await;
        for (slot, number) in numbers {
            if !failures.iter().any(|(failed, _)| *failed == slot) {
                self.member(slot).flushed_up_to(number);
            }
        }
        for (slot, error) in failures {
            self.fail(slot, &error).await?;
        }
        self.settled("flush").await
    }

    /// The parity that ends at `end` has landed on its drive.
    pub(crate) fn parity_landed(&self, zone: &mut Zone, id: ZoneId, end: zoned::Blocks) {
        let stripe = self.layout.stripe_of(zoned::Blocks(end.0.saturating_sub(1)));
        let mut slots = Slots::default();
        slots.add(self.layout.parity(id, stripe));
        self.landed_on(zone, slots, Durability::Cached);
    }
}
