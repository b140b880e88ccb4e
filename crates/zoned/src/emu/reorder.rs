//! Appends in flight that land in any order, as on real drives.
//!
//! An append is held and lands at some time before its completion. The driver's random numbers decide the order among
//! the held appends of a zone. Every other operation of the zone first lets the held appends land, because only
//! appends may be reordered among each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::emu::media::Moment;
use crate::emu::{Media, OpId};
use crate::{Blocks, Buf, Done, Driver, Durability, Op, Result, ZoneId};

/// The appends of a drive that are held until they land.
pub(super) struct Reorder {
    media: Arc<Media>,
    driver: Arc<dyn Driver>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Held appends of each zone, in order of submission.
    zones: BTreeMap<ZoneId, Vec<Append>>,
    /// Results of landed appends, kept until the append completes.
    landed: BTreeMap<OpId, Result<Done>>,
}

struct Append {
    id: OpId,
    data: Buf,
    how: Durability,
    submitted: Moment,
}

impl Reorder {
    pub(super) fn new(media: &Arc<Media>, driver: &Arc<dyn Driver>) -> Reorder {
        Reorder { media: Arc::clone(media), driver: Arc::clone(driver), held: Mutex::default() }
    }

    /// Holds an append that only needs space in an open zone; returns false for any other operation, which takes
    /// effect at once, after the held appends.
    pub(super) fn hold_append(&self, id: OpId, op: &Op) -> bool {
        let mut held = self.held.lock();
        match op {
            Op::Append { zone, data, how } if self.fits(&held, *zone, data) => {
                let submitted = self.media.moment();
                let append = Append { id, data: data.clone(), how: *how, submitted };
                held.zones.entry(*zone).or_default().push(append);
                return true;
            }
            Op::Append { zone, .. } | Op::Zone { zone, .. } => self.settle(&mut held, *zone),
            Op::Read { at, .. } | Op::Write { at, .. } => {
                if let Some(zone) = self.media.geometry().zone_of(*at) {
                    self.settle(&mut held, zone);
                }
            }
            Op::Report { zones } => {
                let all: Vec<ZoneId> = held.zones.keys().copied().collect();
                all.into_iter().filter(|z| zones.contains(&z.0)).for_each(|z| self.settle(&mut held, z));
            }
            Op::Flush => {}
        }
        false
    }

    fn fits(&self, held: &Held, id: ZoneId, data: &Buf) -> bool {
        let geometry = self.media.geometry();
        if id.0 >= geometry.zones || geometry.is_conventional(id) {
            return false;
        }
        let size = geometry.block_size as usize;
        let blocks = |data: &Buf| data.len().div_ceil(size) as u64;
        let legal = !data.is_empty()
            && data.len().is_multiple_of(size)
            && Blocks(blocks(data)) <= geometry.max_append;
        let waiting: u64 = held.zones.get(&id).into_iter().flatten().map(|a| blocks(&a.data)).sum();
        let zone = self.media.lock(id);
        legal && zone.state.is_open() && zone.written + waiting + blocks(data) <= geometry.zone_capacity.0
    }

    /// Lands append `id` just before its completion becomes visible.
    pub(super) fn land(&self, id: OpId) {
        self.land_until(&mut self.held.lock(), id);
    }

    /// The result of the landed append `id`, taken at its completion.
    pub(super) fn take(&self, id: OpId) -> Result<Done> {
        let mut held = self.held.lock();
        self.land_until(&mut held, id);
        held.landed.remove(&id).expect("an append that was held has landed")
    }

    /// A copy of the medium with all submitted appends landed.
    pub(super) fn with_all_landed(&self, copy: impl FnOnce() -> Media) -> Media {
        let held = self.held.lock();
        let media = copy();
        for (zone, appends) in &held.zones {
            for append in appends {
                // As on a real drive, any of the appends in flight may be the one that does not fit.
                let _lands_or_not =
                    media.append_late(append.id, *zone, &append.data, append.how, append.submitted);
            }
        }
        media
    }

    /// Lands some held appends of the zone of append `id`, and append `id` last.
    fn land_until(&self, held: &mut Held, id: OpId) {
        let holds = |appends: &Vec<Append>| appends.iter().any(|a| a.id == id);
        let Some(zone) = held.zones.iter().find(|(_, appends)| holds(appends)).map(|(zone, _)| *zone) else {
            return;
        };
        while !held.landed.contains_key(&id) {
            self.land_one(held, zone);
        }
    }

    fn settle(&self, held: &mut Held, zone: ZoneId) {
        while held.zones.contains_key(&zone) {
            self.land_one(held, zone);
        }
    }

    /// Lands one held append of a zone at the zone's pointer.
    fn land_one(&self, held: &mut Held, zone: ZoneId) {
        let Some(appends) = held.zones.get_mut(&zone) else { return };
        let pick = self.driver.random().checked_rem(appends.len() as u64).unwrap_or(0);
        let append = appends.remove(usize::try_from(pick).expect("below a length"));
        if appends.is_empty() {
            held.zones.remove(&zone);
        }
        let Append { id, data, how, submitted } = append;
        let result = self.media.append_late(id, zone, &data, how, submitted).map(Done::At);
        held.landed.insert(id, result);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use units::VirtualDriver;

    use super::*;
    use crate::emu::{Emu, EmuOptions, Exhaustive, Latency, Media, Seeded};
    use crate::{Action, BufMut, Io, Lba, ZoneState, ZonedDevice};

    fn drive(seed: u64, options: EmuOptions) -> (Arc<Emu>, Arc<dyn ZonedDevice>) {
        let latency = Latency { write: Duration::from_micros(15), ..Latency::NONE };
        let options = EmuOptions { reorder: true, latency, ..options };
        let emu = Emu::memory(options, VirtualDriver::new(seed));
        let dev = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
        (emu, dev)
    }

    fn block(tag: u8) -> Buf {
        Buf::copy_from(&[tag; 4096])
    }

    fn append(dev: &Arc<dyn ZonedDevice>, tag: u8) -> Io<Lba> {
        dev.append(ZoneId(0), block(tag), Durability::Cached)
    }

    fn tag_at(dev: &Arc<dyn ZonedDevice>, at: Lba) -> u8 {
        dev.read(at, BufMut::zeroed(4096)).wait().expect("readable")[0]
    }

    fn tags(media: &Media) -> Vec<u8> {
        let dev: Arc<dyn ZonedDevice> =
            Emu::from_media(media.clone(), "cut", Latency::NONE, VirtualDriver::new(1));
        let pointer = dev.report(0..1).wait().expect("reports")[0].pointer.0;
        (0..pointer).map(|at| tag_at(&dev, Lba(at))).collect()
    }

    #[test]
    fn appends_in_flight_get_addresses_in_many_orders_and_their_data_is_there() {
        let mut orders = BTreeSet::new();
        for seed in 0..40 {
            let (_, dev) = drive(seed, EmuOptions::tiny());
            append(&dev, 1).wait().expect("opens the zone");
            let ios: Vec<Io<Lba>> = (2..6).map(|tag| append(&dev, tag)).collect();
            let got: Vec<Lba> = ios.into_iter().map(|io| io.wait().expect("fits")).collect();
            for (at, tag) in got.iter().zip(2..) {
                assert_eq!(tag_at(&dev, *at), tag);
            }
            assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), 4);
            orders.insert(got);
        }
        assert!(orders.len() > 10, "{} orders of 24", orders.len());
    }

    #[test]
    fn the_order_is_a_function_of_the_drivers_seed() {
        let order = |seed| {
            let (_, dev) = drive(seed, EmuOptions::tiny());
            let ios: Vec<Io<Lba>> = (1..9).map(|tag| append(&dev, tag)).collect();
            ios.into_iter().map(|io| io.wait().expect("fits")).collect::<Vec<_>>()
        };
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
    }

    #[test]
    fn whatever_else_the_zone_is_asked_for_finds_the_appends_landed() {
        for seed in 0..20 {
            let (_, dev) = drive(seed, EmuOptions::tiny());
            let ios: Vec<Io<Lba>> = (1..6).map(|tag| append(&dev, tag)).collect();
            assert_eq!(dev.report(0..1).wait().expect("reports")[0].pointer.0, 5);
            dev.write(Lba(5), block(9), Durability::Cached).wait().expect("at the pointer");
            assert!(ios.into_iter().all(|io| io.wait().expect("landed") < Lba(5)));
            let late = append(&dev, 10);
            let last = append(&dev, 11);
            dev.zone(ZoneId(0), Action::Reset).wait().expect("resets");
            assert!(late.wait().is_ok() && last.wait().is_ok());
            assert_eq!(dev.report(0..1).wait().expect("reports")[0].state, ZoneState::Empty);
        }
    }

    #[test]
    fn a_full_zone_takes_as_many_as_fit() {
        for seed in 0..20 {
            let (_, dev) = drive(seed, EmuOptions::tiny());
            let ios: Vec<Io<Lba>> = (1..20).map(|tag| append(&dev, tag)).collect();
            let got: Vec<bool> = ios.into_iter().map(|io| io.wait().is_ok()).collect();
            assert_eq!(got.iter().filter(|ok| **ok).count(), 14);
            assert_eq!(dev.report(0..1).wait().expect("reports")[0].state, ZoneState::Full);
        }
    }

    #[test]
    fn acknowledged_blocks_stay_at_their_addresses() {
        for seed in 0..60 {
            let (emu, dev) = drive(seed, EmuOptions { volatile_cache: false, ..EmuOptions::tiny() });
            append(&dev, 1).wait().expect("opens the zone");
            let early: Vec<Io<Lba>> = (2..5).map(|tag| append(&dev, tag)).collect();
            let known: Vec<Lba> = early.into_iter().map(|io| io.wait().expect("fits")).collect();
            let _late: Vec<Io<Lba>> = (5..8).map(|tag| append(&dev, tag)).collect();
            let after = tags(&emu.power_cut(&mut Seeded::new(seed)));
            for (at, tag) in known.iter().zip(2..) {
                assert_eq!(after.get(at.0 as usize), Some(&tag), "seed {seed}: {after:?}");
            }
        }
    }

    #[test]
    fn a_power_cut_finds_held_appends_landed_in_any_order_or_not() {
        let options = EmuOptions { volatile_cache: false, ..EmuOptions::tiny() };
        let (emu, dev) = drive(1, options);
        append(&dev, 1).wait().expect("opens the zone");
        let _flying = (append(&dev, 2), append(&dev, 3));
        let mut all = Exhaustive::new();
        let mut seen = BTreeSet::new();
        while all.next() {
            seen.insert(tags(&emu.power_cut(&mut all)));
        }
        for expected in [vec![1], vec![1, 2], vec![1, 3], vec![1, 2, 3], vec![1, 3, 2]] {
            assert!(seen.contains(&expected), "{expected:?} of {seen:?}");
        }
    }
}
