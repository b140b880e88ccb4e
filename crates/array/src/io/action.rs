//! Zone commands.
//!
//! A reset of a zone that holds something, step by step; a crash between two of them is decided at the next mount:
//!
//! 1. nothing of the zone is in flight, and nothing more is let in;
//! 2. the intent, with the zone's generation, is durable on two drives: from here on the reset will happen;
//! 3. all physical zones are reset;
//! 4. and that is durable: an old unit must not come back between new ones;
//! 5. the next generation is in the logs of the same two drives. A flush that makes data of the zone's new life
//!    durable makes this durable too, so that the intent is not carried out again on it.
//!
//! A finish makes everything durable and records on two drives where the content ends: from here on the zone is
//! full. Then it fills the stripe at the pointer with zeros, so that its parity has its place, and finishes the
//! physical zones.

use std::sync::Arc;

use zoned::{
    Action, Blocks, BufMut, Completer, Done, Durability, Error, ErrorKind, Io, Resources, Result, ZoneEvent,
    ZoneId, ZoneState,
};

use crate::Sabotage;
use crate::admin::status::WornZone;
use crate::core::{After, Core};
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::io::flush::Slots;
use crate::io::write::Children;
use crate::layout::{Slot, Stripe};
use crate::zone::Zone;

/// The last generation. A zone that reaches it cannot be reset until the array is opened anew.
pub(crate) const LAST_GENERATION: u64 = u64::MAX - 1;
/// A mount begins the counter of a zone that is beyond this anew.
pub(crate) const HIGH_GENERATION: u64 = u64::MAX - (1 << 32);

impl Core {
    pub(crate) fn illegal(&self, zone: &Zone, id: ZoneId, name: &'static str) -> Error {
        if zone.state == ZoneState::Offline {
            return self.lost_error(id, name);
        }
        let kind = match zone.state {
            ZoneState::ReadOnly => ErrorKind::ZoneReadOnly,
            ZoneState::Offline => ErrorKind::ZoneOffline,
            _ => ErrorKind::IllegalMove,
        };
        let why = match self.worn_words(id) {
            Some(worn) => worn,
            None => format!("the zone is {:?}", zone.state),
        };
        self.error(kind, name).in_zone(id).because(why)
    }

    /// Which drive's part of a zone wore out, and what that means.
    pub(crate) fn worn_words(&self, id: ZoneId) -> Option<String> {
        let worn = self.worn.lock();
        let of = |worn: &&WornZone| worn.zone == id;
        let first = worn.iter().find(of)?;
        let how = match first.state {
            ZoneState::Offline => "offline: what it held is read from the other drives",
            _ => "read-only",
        };
        Some(format!(
            "the zone's part on drive {} is {how}. What the zone holds can be read; nothing more is written to it, and \
             it cannot be reset: replace the drive to have the zone back",
            first.slot.0
        ))
    }

    pub(crate) fn begin_action(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        limits: &mut Resources,
        action: Action,
        completer: Completer,
        after: &mut After,
    ) {
        let result = match action {
            Action::Open => self.admit(limits, zone, id, "open", ZoneEvent::Open),
            Action::Close => self.close(limits, zone, id),
            Action::Finish | Action::Reset => {
                return self.begin_change(zone, id, limits, action, completer, after);
            }
        };
        after.complete(completer, result.map(|()| Done::Unit));
    }

    fn close(&self, limits: &mut Resources, zone: &mut Zone, id: ZoneId) -> Result<()> {
        let event = ZoneEvent::Close { empty: zone.pointer == Blocks::ZERO && zone.poison.is_none() };
        let to = zone.state.transition(event).map_err(|_| self.illegal(zone, id, "close"))?;
        limits.moved(id, zone.state, to);
        zone.state = to;
        Ok(())
    }

    fn begin_change(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        limits: &mut Resources,
        action: Action,
        completer: Completer,
        after: &mut After,
    ) {
        let (name, event) = match action {
            Action::Finish => ("finish", ZoneEvent::Finish),
            _ => ("reset", ZoneEvent::Reset),
        };
        let lost = zone.state == ZoneState::Offline;
        let to = match zone.state.transition(event) {
            Ok(to) => to,
            // With every part there it can begin anew.
            Err(_) if lost && action == Action::Reset && self.keeps_lost(id).is_none() => ZoneState::Empty,
            Err(_) => return after.complete(completer, Err(self.illegal(zone, id, name))),
        };
        let nothing_to_do = match action {
            Action::Finish => zone.state == ZoneState::Full,
            // A poisoned one may hold what was taken back.
            _ => {
                let written = zone.pointer > Blocks::ZERO || zone.state == ZoneState::Full || lost;
                !written && zone.poison.is_none()
            }
        };
        if nothing_to_do {
            limits.moved(id, zone.state, to);
            zone.state = to;
            return after.complete(completer, Ok(Done::Unit));
        }
        if self.is_broken() {
            return after.complete(completer, Err(self.broken_error(name).in_zone(id)));
        }
        if action == Action::Reset && zone.generation >= LAST_GENERATION {
            let error = self.error(ErrorKind::Unsupported, name).in_zone(id);
            let why = "the zone's generation counter is at its end: close the array and open it again, which begins \
                       it anew";
            return after.complete(completer, Err(error.because(why)));
        }
        zone.busy = true;
        // Before the intent is written: whoever moves the log to a new zone takes it along from here on.
        zone.resetting = action == Action::Reset;
        let core = Arc::clone(self);
        let generation = zone.generation;
        after.run(async move {
            let result = match action {
                Action::Finish => core.finish_zone(id, generation).await,
                _ => core.reset_zone(id, generation).await,
            };
            core.changed(id, action, &result);
            completer.complete(result.map(|_| Done::Unit));
            core.pump(id);
        });
    }

    /// The zone is in its new state, or nobody knows in which.
    fn changed(&self, id: ZoneId, action: Action, result: &Result<Blocks>) {
        let mut limits = self.limits.lock();
        let mut zone = self.zone(id);
        zone.busy = false;
        let from = zone.state;
        match (action, result) {
            (Action::Finish, Ok(end)) => {
                (zone.state, zone.end, zone.pointer) = (ZoneState::Full, Some(*end), self.layout.capacity());
                zone.parity = BufMut::default();
            }
            (_, Ok(_)) => zone.state = ZoneState::Empty,
            (_, Err(e)) => {
                // Some drives did it and others did not: the next mount brings it to an end.
                zone.poison = Some(e.duplicate());
            }
        }
        limits.moved(id, from, zone.state);
    }

    /// The two drives that hold the records of a zone: those of its first unit and its first parity, or the next ones
    /// in order where these are missing.
    pub(crate) fn homes(&self, id: ZoneId) -> Vec<Slot> {
        let (first, parity) = (self.layout.data(id, Stripe(0), 0), self.layout.parity(id, Stripe(0)));
        let rest = (0..self.layout.drives).map(Slot).filter(|slot| *slot != first && *slot != parity);
        [first, parity].into_iter().chain(rest).filter(|slot| self.member(*slot).is_good()).take(2).collect()
    }

    /// Writes a record about a zone to the logs of its two drives. Where one fails meanwhile, the next takes over.
    pub(crate) async fn record(self: &Arc<Core>, id: ZoneId, body: &Body, how: Durability) -> Result<()> {
        let mut wrote: Vec<Slot> = Vec::new();
        loop {
            let left: Vec<Slot> = self.homes(id).into_iter().filter(|slot| !wrote.contains(slot)).collect();
            if left.is_empty() {
                return self.settled("write").await;
            }
            let mut children = Children::default();
            for slot in &left {
                let io = self.append_rolling(*slot, body, how).await?;
                children.push(*slot, io);
            }
            for (slot, error) in children.join().await {
                self.fail(slot, &error).await?;
            }
            wrote.extend(left);
        }
    }

    /// Records that zones are full to their capacity and durable, so that the next mount need not look at them.
    pub(crate) async fn record_ends(self: &Arc<Core>, filled: Vec<(ZoneId, u64, Blocks)>) -> Result<()> {
        for (id, generation, end) in filled {
            let end = Some(end);
            {
                let mut zone = self.zone(id);
                if zone.generation != generation || zone.state != ZoneState::Full || zone.busy {
                    continue;
                }
                zone.end = end;
            }
            let entries = vec![ZoneEntry { generation, end }];
            self.record(id, &Body::Zones { first: id, entries }, Durability::Cached).await?;
        }
        Ok(())
    }

    /// A command to all physical zones of a zone.
    pub(crate) async fn everywhere(self: &Arc<Core>, id: ZoneId, action: Action) -> Result<()> {
        let mut children = Children::default();
        // One that is being filled too, where it has the zone.
        for member in &self.members {
            children.push(member.slot, member.act(id, action));
        }
        let failures = children.join().await;
        self.judge(id, failures).await
    }

    async fn reset_zone(self: &Arc<Core>, id: ZoneId, generation: u64) -> Result<Blocks> {
        if self.sabotage != Some(Sabotage::ResetLog) {
            let intent = Body::ResetIntent { zone: id, generation };
            self.record(id, &intent, Durability::Durable).await?;
        }
        self.everywhere(id, Action::Reset).await?;
        if self.sabotage != Some(Sabotage::ResetLog) {
            self.flush_members().await?;
        }
        {
            // Before its record is written, for the same reason; and nothing of the old life may be taken along.
            let mut zone = self.zone(id);
            // A lost zone is not, from here on, and its next life is not said to be.
            let state = if zone.state == ZoneState::Offline { ZoneState::Empty } else { zone.state };
            zone.empty(generation + 1);
            self.members.iter().for_each(|member| member.lost.set(id, Vec::new()));
            (zone.state, zone.busy) = (state, true);
        }
        if self.sabotage != Some(Sabotage::Generation) {
            let entries = vec![ZoneEntry { generation: generation + 1, end: None }];
            self.record(id, &Body::Zones { first: id, entries }, Durability::Cached).await?;
        }
        // A durable write to the new life makes that record durable too, wherever it lies.
        self.landed_on(&mut self.zone(id), Slots::ALL, Durability::Durable);
        Ok(Blocks::ZERO)
    }

    async fn finish_zone(self: &Arc<Core>, id: ZoneId, generation: u64) -> Result<Blocks> {
        self.flush_members().await?;
        let end = {
            let mut zone = self.zone(id);
            zone.end = Some(zone.pointer);
            zone.pointer
        };
        let entries = vec![ZoneEntry { generation, end: Some(end) }];
        self.record(id, &Body::Zones { first: id, entries }, Durability::Durable).await?;
        let needs = {
            let zone = self.zone(id);
            let open = zone.open_stripe(&self.layout);
            let blocks = open.map_or(0, |stripe| self.layout.end(stripe).minus(zone.pointer).0);
            self.relocations(&zone, id, blocks)
        };
        self.reserve(&needs).await;
        let padding = self.pad(id);
        if let Some(padding) = padding {
            padding.await?;
            let padded = self.zone(id).pointer;
            // Once the zeros are durable, parity logged for less of the stripe is not needed any more.
            self.filled.lock().push((id, generation, padded));
        }
        self.everywhere(id, Action::Finish).await?;
        Ok(end)
    }

    /// Fills the stripe at the pointer with zeros, so that its parity has its place.
    fn pad(self: &Arc<Core>, id: ZoneId) -> Option<Io<()>> {
        let mut after = After::default();
        let io = {
            let mut zone = self.zone(id);
            let stripe = zone.open_stripe(&self.layout)?;
            let blocks = self.layout.end(stripe).minus(zone.pointer).0;
            let (completer, io) = Io::pair(&self.driver, &self.geometry.name);
            let zeros = BufMut::zeroed(self.bytes(blocks)).freeze();
            self.put(&mut zone, id, zeros, Durability::Cached, Done::Unit, completer, &mut after);
            io.typed()
        };
        after.finish(self);
        Some(io)
    }
}

#[cfg(test)]
mod tests {
    use units::{VirtualDriver, block_on};
    use zoned::emu::{Emu, EmuOptions};
    use zoned::{Bytes, Driver, ZonedDevice};

    use super::*;
    use crate::{Array, CreateOptions, OpenOptions, create};

    #[test]
    fn a_generation_counter_at_its_end_begins_anew_at_the_next_mount() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = |n: u32| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                zones: 6,
                zone_size: Blocks(64),
                zone_capacity: Blocks(64),
                max_open: Some(8),
                max_active: Some(8),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
        };
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..3).map(drive).collect();
        let (id, data) = (ZoneId(1), zoned::Buf::copy_from(&vec![7; 5 * 4096]));
        block_on(&*driver, async {
            let options = CreateOptions { stripe_unit: Bytes(8192), ..CreateOptions::default() };
            create(&drives, &options).await.expect("created");
            let open = async |drives: &[Arc<dyn ZonedDevice>]| {
                Array::open(drives.to_vec(), OpenOptions::default()).await.expect("opened")
            };
            let array = open(&drives).await;
            array.core.zone(id).generation = LAST_GENERATION - 1;
            let device: &dyn ZonedDevice = &*array;
            let start = device.geometry().start(id);
            device.write(start, data.clone(), Durability::Cached).await.expect("written");
            device.zone(id, Action::Reset).await.expect("the last one");
            device.write(start, data.clone(), Durability::Cached).await.expect("written");
            let refused = device.zone(id, Action::Reset).await.expect_err("the counter is at its end");
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("open it again"), "{refused}");
            drop(array);
            // And where a drive is lost at the mount after that.
            for lost in [None, Some(1)] {
                let mut some = drives.clone();
                if let Some(lost) = lost {
                    some.remove(lost);
                }
                let array = open(&some).await;
                assert_eq!(array.core.zone(id).generation, 1);
                let device: &dyn ZonedDevice = &*array;
                let read = device.read(start, BufMut::zeroed(5 * 4096)).await.expect("read");
                assert_eq!(*read, *data);
                if lost.is_some() {
                    device.zone(id, Action::Reset).await.expect("reset");
                    device.write(start, data.clone(), Durability::Cached).await.expect("written");
                    let read = device.read(start, BufMut::zeroed(5 * 4096)).await.expect("read");
                    assert_eq!(*read, *data);
                }
            }
        });
    }
}
