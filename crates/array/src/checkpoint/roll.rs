//! Moving a metadata log to a fresh zone: everything that counts is written there from memory, and then the old
//! zone is reset.
//!
//! New records go to the new zone at once, so that nothing waits while there is room. The old zone is reset when the
//! checkpoint is whole, everything that was in flight at its beginning is acknowledged, and all drives are flushed:
//! partial parity that is given up then is of stripes that are durable with their parity, or is in the checkpoint
//! with all the data that it covers durable.

use std::sync::Arc;

use zoned::{Action, Blocks, Durability, Error, ErrorKind, Io, Result, ZoneId, ZonedDevice};

use crate::Sabotage;
use crate::core::{After, Core};
use crate::format::record::Body;
use crate::format::zone_entries::per_block;
use crate::io::write::Children;
use crate::layout::{Slot, Stripe};
use crate::member::{METADATA_ZONES, NoRoom};
use crate::zone::Zone;

/// A log that goes to another zone.
struct Moving {
    /// Of the drive that it is on.
    life: u64,
    /// The zone that it leaves.
    old: ZoneId,
    device: Option<Arc<dyn ZonedDevice>>,
    /// The first record of the new zone.
    first: std::result::Result<Option<Io<()>>, NoRoom>,
}

/// A log is moved when less than one in this many blocks of its zone is left.
const EARLY: u64 = 4;

impl Core {
    /// Moves the log of `slot`, unless that is under way.
    /// When this returns there is room in the new zone.
    pub(crate) fn roll(self: &Arc<Core>, slot: Slot, after: &mut After) {
        let Some(moving) = self.begin_move(slot) else { return };
        let (core, life) = (Arc::clone(self), moving.life);
        after.run(async move {
            let mut commits = Vec::new();
            let moved = core.move_log(slot, moving, &mut commits).await;
            let failed = match &moved {
                // Without the drive its parity is not needed; without two, nothing is acknowledged any more.
                Err(error) if core.member(slot).is_life(life) => core.fail(slot, error).await,
                // What the drive before said is not this one's fault.
                _ => Ok(()),
            };
            for (id, end) in commits {
                core.logged_by_checkpoint(id, end, &failed);
            }
            core.rolled(slot, life);
        });
    }

    /// New records go to the next zone from here on, the superblock first. `None` where that is under way.
    fn begin_move(&self, slot: Slot) -> Option<Moving> {
        let member = self.member(slot);
        let mut log = member.log.lock();
        if !log.begin_roll() {
            return None;
        }
        let old = log.zone;
        // Under the log's lock: a newer one is written after it, to the same zone.
        let superblock = Body::Superblock(self.config.lock().clone());
        (log.zone, log.pointer) = (ZoneId((old.0 + 1) % METADATA_ZONES), 0);
        let first = member.append_to(&mut log, &superblock, true, Durability::Cached);
        Some(Moving { life: log.life, old, device: member.device(), first })
    }

    /// Moves the log of `slot` if little room is left.
    pub(crate) fn roll_early(self: &Arc<Core>, slot: Slot, after: &mut After) {
        let early = {
            let log = self.member(slot).log.lock();
            !log.rolling && log.left() < log.capacity / EARLY
        };
        if early {
            self.roll(slot, after);
        }
    }

    /// Adds a record, waiting for room where there is none.
    pub(crate) async fn append_rolling(
        self: &Arc<Core>,
        slot: Slot,
        body: &Body,
        how: Durability,
    ) -> Result<Option<Io<()>>> {
        let member = self.member(slot);
        loop {
            let seen = member.rolled.version();
            match member.append(body, false, how) {
                Ok(io) => return Ok(io),
                Err(NoRoom) => {
                    let mut after = After::default();
                    self.roll(slot, &mut after);
                    after.finish(self);
                    member.rolled.changed_since(seen).await;
                }
            }
        }
    }

    /// The log has room again, or its drive is lost: what waited goes on.
    pub(crate) fn rolled(self: &Arc<Core>, slot: Slot, life: u64) {
        let member = self.member(slot);
        let waiting = {
            let mut log = member.log.lock();
            if log.life == life {
                log.end_roll();
            }
            std::mem::take(&mut log.waiting)
        };
        for id in waiting {
            let mut after = After::default();
            {
                let mut zone = self.zone(id);
                zone.logging = false;
                self.log_parity(&mut zone, id, &mut after);
                self.release(&mut zone, id, &mut after);
            }
            after.finish(self);
        }
        member.rolled.notify();
    }

    /// `commits` are those that the checkpoint did not bring to an end. A new drive that takes the slot meanwhile
    /// has its own log: nothing of this is written to it.
    async fn move_log(
        self: &Arc<Core>,
        slot: Slot,
        moving: Moving,
        commits: &mut Vec<(ZoneId, Blocks)>,
    ) -> Result<()> {
        let member = self.member(slot);
        let Moving { life, old, device, first } = moving;
        let full = |_: NoRoom| {
            self.error(ErrorKind::ZoneFull, "checkpoint")
                .because("the metadata that counts does not fit a zone")
        };
        let mut children = Children::default();
        children.push(slot, first.map_err(full)?);
        let mut barriers = Vec::new();
        let mut ios = Vec::new();
        self.write_checkpoint(slot, life, &mut ios, &mut barriers, commits).map_err(full)?;
        ios.into_iter().for_each(|io| children.push(slot, Some(io)));
        children.join().await.into_iter().next().map_or(Ok(()), |(_, e)| Err::<(), Error>(e))?;
        // If the drive failed meanwhile, data alone has to do, once that is in the others' superblocks.
        self.settled("write").await?;
        for (id, end) in commits.drain(..) {
            self.logged_by_checkpoint(id, end, &Ok(()));
        }
        for barrier in barriers {
            barrier.await?;
        }
        self.log_taken_back(slot, life).await?;
        if let Some(io) = member.append_end(life, Durability::Cached).map_err(full)? {
            io.await?;
        }
        self.flush_members().await?;
        let Some(device) = device.filter(|_| member.is_good() && member.is_life(life)) else { return Ok(()) };
        device.zone(old, Action::Reset).await?;
        // The zone may be the next one: what it held must not come back then.
        match member.flush() {
            Some(io) => io.await,
            None => Ok(()),
        }
    }

    /// Once everything that was in flight at a checkpoint's beginning has come to an end: what it says of a stripe may cover
    /// blocks that were refused since, and were taken back, so that no mount can use it. The parity of what is left of such
    /// a zone, which takes no more writes, is logged once more.
    pub(crate) async fn log_taken_back(self: &Arc<Core>, slot: Slot, life: u64) -> Result<()> {
        for id in (0..self.geometry.zones).map(ZoneId) {
            let io = {
                let zone = self.zone(id);
                let ours = |stripe: &Stripe| self.layout.parity(id, *stripe) == slot;
                let open = zone.open_stripe(&self.layout).filter(ours);
                let Some(stripe) = open.filter(|_| zone.poison.is_some()) else { continue };
                let body = self.partial(&zone, id, stripe, self.layout.start(stripe), zone.pointer);
                self.member(slot).append_of(life, &body)
            };
            let full = |_| {
                self.error(ErrorKind::ZoneFull, "checkpoint")
                    .because("the metadata that counts does not fit a zone")
            };
            if let Some(io) = io.map_err(full)? {
                io.await?;
            }
        }
        Ok(())
    }

    /// The records of what is hidden on a drive, and of what belongs there.
    pub(crate) fn patched(&self, zone: &Zone, id: ZoneId, slot: Slot) -> Vec<Body> {
        if self.sabotage == Some(Sabotage::Hidden) {
            return Vec::new();
        }
        let (generation, mut bodies) = (zone.generation, Vec::new());
        for (row, data) in zone.patches.runs(slot) {
            let stripe = Stripe(row / self.layout.unit);
            let Some(index) = self.layout.index_on(id, stripe, slot) else { continue };
            let start = self.layout.unit_start(stripe, index).plus(Blocks(row - self.layout.row(stripe)));
            let end = start.plus(Blocks((data.len() / self.bytes(1)) as u64));
            bodies.push(Body::RelocatedData { zone: id, generation, start, end, data: data.clone() });
        }
        let ranges = zone.patches.hidden(slot).to_vec();
        if !ranges.is_empty() {
            bodies.push(Body::Hidden { zone: id, generation, ranges, rebuilt: false });
        }
        bodies
    }

    /// The record of what a drive lost of a zone; `None` where that is nothing.
    pub(crate) fn lost(&self, zone: &Zone, id: ZoneId, slot: Slot) -> Option<Body> {
        let ranges = self.member(slot).lost.of(id);
        (!ranges.is_empty()).then(|| Body::Lost { zone: id, generation: zone.generation, ranges })
    }

    /// Writes everything that counts to the log of `slot`: all but the superblock before it and the end. `commits` are
    /// those that the records bring to an end; `barriers` fall when everything in flight now is acknowledged. `life` is
    /// that of the drive that it is for.
    pub(crate) fn write_checkpoint(
        self: &Arc<Core>,
        slot: Slot,
        life: u64,
        ios: &mut Vec<Io<()>>,
        barriers: &mut Vec<Io<()>>,
        commits: &mut Vec<(ZoneId, Blocks)>,
    ) -> std::result::Result<(), NoRoom> {
        let member = self.member(slot);
        let mut entries = Vec::with_capacity(self.zones.len());
        for id in (0..self.geometry.zones).map(ZoneId) {
            let mut zone = self.zone(id);
            entries.push(zone.entry());
            if zone.resetting {
                let intent = Body::ResetIntent { zone: id, generation: zone.generation };
                ios.extend(member.append_of(life, &intent)?);
            }
            for (stripe, relocated) in &zone.relocated {
                if self.layout.parity(id, *stripe) == slot {
                    let body = Body::Relocated {
                        zone: id,
                        generation: zone.generation,
                        start: self.layout.start(*stripe),
                        end: relocated.end,
                        unit: relocated.unit.clone(),
                    };
                    ios.extend(member.append_of(life, &body)?);
                }
            }
            for body in self.patched(&zone, id, slot) {
                ios.extend(member.append_of(life, &body)?);
            }
            if let Some(body) = self.lost(&zone, id, slot) {
                ios.extend(member.append_of(life, &body)?);
            }
            if let Some(stripe) = zone.open_stripe(&self.layout)
                && self.layout.parity(id, stripe) == slot
                && member.is_life(life)
            {
                let end = zone.pointer;
                let body = self.partial(&zone, id, stripe, self.layout.start(stripe), end);
                let io = member.append_of(life, &body)?;
                if zone.logged < end {
                    zone.commit(end, false);
                    commits.push((id, end));
                }
                ios.extend(io);
            }
            if !zone.flights.is_empty() {
                let (completer, io) = Io::pair(&self.driver, &self.geometry.name);
                zone.barrier(completer);
                barriers.push(io.typed::<()>());
            }
        }
        let count = per_block(self.geometry.block_size).max(1);
        for (first, part) in (0_u32..).step_by(count).zip(entries.chunks(count)) {
            let body = Body::Zones { first: ZoneId(first), entries: part.to_vec() };
            ios.extend(member.append_of(life, &body)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::{Driver, VirtualDriver, block_on, sleep_until};
    use zoned::emu::{DeferredDevice, Emu, EmuOptions, Latency};
    use zoned::{Buf, BufMut, Bytes, ZoneState};

    use super::*;
    use crate::{Array, CreateOptions, OpenOptions, create};

    const BLOCK: usize = 512;
    const ZONE: ZoneId = ZoneId(1);

    fn blocks(from: u64, to: u64) -> Buf {
        Buf::copy_from(&(from..to).flat_map(|n| [n as u8 ^ 0x5a; BLOCK]).collect::<Vec<_>>())
    }

    /// A write of a stripe is in flight when the log with its parity moves, and is refused then: what was acknowledged of
    /// the stripe follows from the log all the same, whichever other drive is lost.
    #[test]
    fn a_write_that_is_refused_while_a_log_moves_costs_nothing_that_was_acknowledged() {
        let layout = crate::Layout { drives: 5, unit: 4, zone_capacity: 256 };
        let parity = layout.parity(ZONE, Stripe(2));
        let worn = layout.data(ZONE, Stripe(2), 1);
        for lost in (0..5).filter(|slot| *slot != worn.index()) {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let drive = |n: u32| {
                let options = EmuOptions {
                    name: format!("emu:{n}"),
                    block_size: BLOCK as u32,
                    zones: 6,
                    zone_size: Blocks(256),
                    zone_capacity: Blocks(256),
                    latency: Latency::all(Duration::from_micros(10)),
                    ..EmuOptions::default()
                };
                Emu::memory(options, Arc::clone(&driver))
            };
            let emus: Vec<Arc<Emu>> = (0..5).map(drive).collect();
            let mut devices: Vec<Arc<dyn ZonedDevice>> =
                emus.iter().map(|emu| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect();
            block_on(&*driver, async {
                let options = CreateOptions { stripe_unit: Bytes(4 * 512), ..CreateOptions::default() };
                create(&devices, &options).await.expect("created");
                let mut some = devices.clone();
                some[worn.index()] =
                    DeferredDevice::over(Arc::clone(&devices[worn.index()]), Duration::from_millis(5));
                let array = Array::open(some, OpenOptions::default()).await.expect("opened");
                let device: &dyn ZonedDevice = &*array;
                let start = device.geometry().start(ZONE);
                device.write(start, blocks(0, 37), Durability::Durable).await.expect("written");
                let flight = device.write(start.plus(Blocks(37)), blocks(37, 42), Durability::Cached);
                let core = &array.core;
                let mut after = After::default();
                core.roll(parity, &mut after);
                after.finish(core);
                emus[worn.index()].wear(ZoneId(ZONE.0 + METADATA_ZONES), ZoneState::ReadOnly);
                flight.await.expect_err("refused");
                while core.member(parity).log.lock().rolling {
                    sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
                }
                drop(array);
                devices.remove(lost);
                let array = Array::open(devices, OpenOptions::default()).await.expect("opened again");
                let device: &dyn ZonedDevice = &*array;
                let found = device.read(start, BufMut::zeroed(37 * BLOCK)).await.expect("read");
                assert!(*found == *blocks(0, 37), "without drive {lost}");
            });
        }
    }
}
