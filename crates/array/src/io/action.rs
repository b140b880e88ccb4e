//! Zone commands and flushes.
//!
//! A reset of a zone with content takes five steps; one of a zone with a stored map fewer ([`super::reset`]). After a crash, the next mount completes or discards it:
//!
//! 1. No operation of the zone is in flight, and new work waits.
//! 2. The intent with the zone's generation is durable on one drive more than may fail. From this step on a mount completes the reset.
//! 3. All physical zones are reset.
//! 4. The resets are durable: old units must not come back between new ones.
//! 5. The next generation is in the logs of the same drives. A flush that makes new data of the zone durable also
//!    makes this record durable, so that a mount does not apply the old intent to new data.
//!
//! A finish flushes all drives and records the end of the content on as many drives. From here on the zone is
//! full. Then zeros fill the stripe at the pointer, so that its parity gets to its place, and the physical
//! zones are finished.

use std::sync::Arc;

use zoned::{
    Action, Blocks, BufMut, Completer, Done, Durability, ErrorKind, Io, IoClass, Resources, Result,
    ZoneEvent, ZoneId, ZoneState,
};

use crate::context::Context;
use crate::deferred::Deferred;
use crate::degraded::failures::Failures;
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::io::write::Writes;
use crate::layout::row_set::RowSet;
use crate::layout::slots::Slots;
use crate::member::drive_ios::DriveIos;
use crate::membership::Membership;
use crate::zone::work::WriteRequest;
use crate::zone::zone_table::ZoneTable;
use crate::zone::{LAST_GENERATION, Zone};

/// The path of zone commands and flushes.
pub(crate) struct Actions {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub failures: Arc<Failures>,
    pub writes: Arc<Writes>,
}

impl Actions {
    pub(crate) fn begin_action(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        limits: &mut Resources,
        action: Action,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        let result = match action {
            Action::Open => self.zones.admit(limits, zone, id, "open", ZoneEvent::Open),
            Action::Close => self.zones.close(limits, zone, id),
            Action::Finish | Action::Reset => {
                return self.begin_change(zone, id, limits, action, completer, deferred);
            }
        };
        deferred.complete(completer, result.map(|()| Done::Unit));
    }

    fn begin_change(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        limits: &mut Resources,
        action: Action,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        let (name, to) = match action {
            Action::Finish => {
                let to = zone.state.transition(ZoneEvent::Finish);
                ("finish", to.map_err(|_| self.zones.illegal_state_error(zone, id, "finish")))
            }
            _ => ("reset", self.zones.state_after_reset(zone, id)),
        };
        let to = match to {
            Ok(to) => to,
            Err(error) => return deferred.complete(completer, Err(error)),
        };
        let (lost, worn) = (zone.state == ZoneState::Offline, zone.state == ZoneState::ReadOnly);
        let nothing_to_do = match action {
            Action::Finish => zone.state == ZoneState::Full,
            // Blocks of a poisoned zone may have been dropped from memory.
            _ => {
                let written = zone.pointer > Blocks::ZERO || zone.state == ZoneState::Full || lost || worn;
                !written && zone.poison.is_none()
            }
        };
        if nothing_to_do {
            limits.moved(id, zone.state, to);
            zone.state = to;
            return deferred.complete(completer, Ok(Done::Unit));
        }
        if self.members.is_broken() {
            return deferred.complete(completer, Err(self.members.broken_error(name).in_zone(id)));
        }
        if action == Action::Reset && zone.generation >= LAST_GENERATION {
            let error = self.ctx.error(ErrorKind::Unsupported, name).in_zone(id);
            let why = "the zone's generation counter is at its end: close the array and open it again, which begins \
                       it anew";
            return deferred.complete(completer, Err(error.because(why)));
        }
        zone.busy = true;
        // The flag is set before the intent is written: a log roll from here on copies the intent.
        // The reset of a zone with a stored map has no intent: its next generation alone ends the zone's life.
        zone.resetting = action == Action::Reset && self.ctx.places.stored().is_none();
        let core = Arc::clone(self);
        let generation = zone.generation;
        deferred.run(async move {
            let result = match action {
                Action::Finish => core.finish_zone(id, generation).await,
                _ => match core.ctx.places.stored() {
                    Some(maps) => core.reset_mapped_zone(id, generation, maps).await,
                    None => core.reset_zone(id, generation).await,
                },
            };
            core.command_ended(id, action, &result);
            completer.complete(result.map(|_| Done::Unit));
            core.zones.begin_queued(id);
        });
    }

    /// A command on a zone has ended: the zone has its new state, or an unknown one.
    fn command_ended(&self, id: ZoneId, action: Action, result: &Result<Blocks>) {
        let mut limits = self.zones.limits.lock();
        let mut zone = self.zones.zone(id);
        zone.busy = false;
        let from = zone.state;
        match (action, result) {
            (Action::Finish, Ok(end)) => {
                (zone.state, zone.end, zone.pointer) =
                    (ZoneState::Full, Some(*end), self.ctx.layout.capacity());
                zone.parity = zone.parity.emptied();
                // The drives' next flushes cover the finish of the physical zones.
                self.writes.stamp_slots(&mut zone, Slots::ALL, Durability::Durable);
                self.zones.filling.add(id);
            }
            (_, Ok(_)) => zone.state = ZoneState::Empty,
            (_, Err(e)) => {
                // Some drives carried out the reset or finish and others did not: the next mount completes
                // the command.
                zone.poison = Some(e.duplicate());
            }
        }
        limits.moved(id, from, zone.state);
    }

    /// Makes all blocks acknowledged so far durable.
    pub(crate) fn flush(self: &Arc<Self>) -> Io {
        let (this, owner) = (Arc::clone(self), self.ctx.keep_alive());
        let filled = std::mem::take(&mut *self.zones.filled.lock());
        Io::spawn(&self.ctx.driver, &self.ctx.geometry.name, async move {
            let _owner = owner;
            this.members.flush_members().await?;
            this.record_ends(filled).await?;
            Ok(Done::Unit)
        })
    }

    /// Records that zones are full and durable, so that the next mount does not resync them.
    pub(crate) async fn record_ends(self: &Arc<Self>, filled: Vec<(ZoneId, u64, Blocks)>) -> Result<()> {
        for (id, generation, end) in filled {
            let end = Some(end);
            {
                let mut zone = self.zones.zone(id);
                if zone.generation != generation || zone.state != ZoneState::Full || zone.busy {
                    continue;
                }
                zone.end = end;
            }
            let entries = vec![ZoneEntry { generation, end }];
            self.members
                .write_zone_record(id, &Body::Zones { first: id, entries }, Durability::Cached)
                .await?;
        }
        Ok(())
    }

    /// Sends a command to all drives' parts of a zone; failures are judged.
    pub(crate) async fn on_all_drives(self: &Arc<Self>, id: ZoneId, action: Action) -> Result<()> {
        let mut children = DriveIos::default();
        // A new drive whose rebuild runs gets the command too, if it holds its part of the zone.
        for part in self.members.parts(id) {
            children.push(part.slot(), part.act(action));
        }
        let failures = children.join().await;
        self.failures.judge_writes(id, failures).await
    }

    async fn reset_zone(self: &Arc<Self>, id: ZoneId, generation: u64) -> Result<Blocks> {
        if self.ctx.rules.logs_reset_intents() {
            let intent = Body::ResetIntent { zone: id, generation };
            self.members.write_zone_record(id, &intent, Durability::Durable).await?;
        }
        self.reset_parts(id, generation).await
    }

    /// Completes resets that a mount found begun, once its checkpoint has their intents on all drives. A zone whose reset fails takes no
    /// writes until it is reset.
    ///
    /// # Errors
    /// More drives failed than there are parities.
    pub(crate) async fn complete_resets(self: &Arc<Self>, zones: &[ZoneId]) -> Result<()> {
        for id in zones.iter().copied() {
            let generation = {
                let mut zone = self.zones.zone(id);
                zone.busy = true;
                zone.generation
            };
            let reset = self.reset_parts(id, generation).await;
            self.command_ended(id, Action::Reset, &reset);
        }
        if self.members.is_broken() { Err(self.members.broken_error("open")) } else { Ok(()) }
    }

    /// Resets the physical zones of a zone whose intent to be reset is durable, and begins the zone's next generation.
    async fn reset_parts(self: &Arc<Self>, id: ZoneId, generation: u64) -> Result<Blocks> {
        // The generation of a crafted image may be the highest number there is.
        let next = generation.saturating_add(1);
        self.on_all_drives(id, Action::Reset).await?;
        if self.ctx.rules.logs_reset_intents() {
            self.members.flush_members().await?;
        }
        {
            // The new generation is set before its record is written: a log roll from here on must copy
            // nothing of the old generation.
            let mut zone = self.zones.zone(id);
            // A failed zone is usable again from here on.
            let state = if zone.state == ZoneState::Offline { ZoneState::Empty } else { zone.state };
            zone.make_empty(next);
            self.members.iter().for_each(|member| member.bad_rows.set(id, RowSet::default()));
            (zone.state, zone.busy) = (state, true);
        }
        if self.ctx.rules.records_generations() {
            let entries = vec![ZoneEntry { generation: next, end: None }];
            self.members
                .write_zone_record(id, &Body::Zones { first: id, entries }, Durability::Cached)
                .await?;
        }
        // A durable write of new data makes the record of the new generation durable too.
        self.writes.stamp_slots(&mut self.zones.zone(id), Slots::ALL, Durability::Durable);
        Ok(Blocks::ZERO)
    }

    async fn finish_zone(self: &Arc<Self>, id: ZoneId, generation: u64) -> Result<Blocks> {
        self.members.flush_members().await?;
        let end = {
            let mut zone = self.zones.zone(id);
            zone.end = Some(zone.pointer);
            zone.pointer
        };
        let entries = vec![ZoneEntry { generation, end: Some(end) }];
        self.members.write_zone_record(id, &Body::Zones { first: id, entries }, Durability::Durable).await?;
        let needs = {
            let zone = self.zones.zone(id);
            let open = zone.open_stripe(&self.ctx.layout);
            let blocks = open.map_or(0, |stripe| self.ctx.layout.end(stripe).minus(zone.pointer).0);
            self.writes.relocation_needs(&zone, id, blocks)
        };
        self.members.reserve(&needs).await;
        let padding = self.pad(id);
        if let Some(padding) = padding {
            padding.await?;
            let padded = self.zones.zone(id).pointer;
            // Once the padding zeros are durable, the partial parity of the stripe is not needed any more.
            self.zones.filled.lock().push((id, generation, padded));
        }
        self.finish_parts(id).await?;
        Ok(end)
    }

    /// Finishes the physical zones of a zone whose last stripe is whole. Where other zones share a physical zone, it is finished if
    /// no other part fits behind.
    async fn finish_parts(self: &Arc<Self>, id: ZoneId) -> Result<()> {
        let Some(shared) = self.zones.shared() else { return self.on_all_drives(id, Action::Finish).await };
        let layout = &self.ctx.layout;
        let rows = layout.row(layout.stripe_of(self.zones.zone(id).pointer)).min(layout.part_rows);
        let mut children = DriveIos::default();
        for part in self.members.parts(id).filter(|part| shared.is_last_slot(part.place())) {
            children.push(part.slot(), part.act(Action::Finish));
        }
        let failures = children.join().await;
        self.failures.judge_writes(id, failures).await?;
        self.zones.end_parts(id, rows);
        Ok(())
    }

    /// Finishes the physical zones of a failed zone, which its reset gives up; not those with another zone's part behind.
    pub(crate) async fn finish_failed_parts(self: &Arc<Self>, id: ZoneId) -> Result<()> {
        let Some(shared) = self.zones.shared() else { return self.on_all_drives(id, Action::Finish).await };
        let mut children = DriveIos::default();
        for part in self.members.parts(id).filter(|part| shared.is_last(id, part.place())) {
            children.push(part.slot(), part.act(Action::Finish));
            shared.fill(part.place());
        }
        let failures = children.join().await;
        self.failures.judge_writes(id, failures).await
    }

    /// Fills the stripe at the write pointer with zeros, so that its parity gets to its place.
    fn pad(self: &Arc<Self>, id: ZoneId) -> Option<Io<()>> {
        self.zones.change(id, |zone, deferred| {
            let stripe = zone.open_stripe(&self.ctx.layout)?;
            let blocks = self.ctx.layout.end(stripe).minus(zone.pointer).0;
            let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
            let zeros = BufMut::zeroed(self.ctx.bytes(blocks)).freeze();
            let offset = Some(zone.pointer);
            let request = WriteRequest {
                class: IoClass::Log,
                offset,
                data: zeros,
                how: Durability::Cached,
                submitted: None,
                moves_awaited: None,
            };
            self.writes.put(zone, id, request, completer, deferred);
            Some(io.typed())
        })
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
            array.core.zones.zone(id).generation = LAST_GENERATION - 1;
            let device: &dyn ZonedDevice = &*array;
            let start = device.geometry().start(id);
            device.write(start, data.clone(), Durability::Cached).await.expect("written");
            device.zone(id, Action::Reset).await.expect("the last one");
            device.write(start, data.clone(), Durability::Cached).await.expect("written");
            let refused = device.zone(id, Action::Reset).await.expect_err("the counter is at its end");
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("open it again"), "{refused}");
            drop(array);
            // The contents are read with all drives, and after a mount without drive 1.
            for lost in [None, Some(1)] {
                let mut some = drives.clone();
                if let Some(lost) = lost {
                    some.remove(lost);
                }
                let array = open(&some).await;
                assert_eq!(array.core.zones.zone(id).generation, 1);
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
