//! Fixtures for tests of arrays: small emulated drives, and blocks whose content names their address.
#![allow(dead_code, reason = "not every test needs everything")]
#![allow(clippy::indexing_slicing, reason = "a test: a wrong index is a failure like any other")]

use std::sync::Arc;
use std::time::Duration;

use crate::{PLACEMENT, RESERVE_ZONES, SHARES, SPARE_ACTIVE};
use array::{Array, CreateOptions, Layout, OpenOptions, Parity, Rotation, Slot, Stripe};
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Latency, Media, Seeded};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, Lba, ZoneId, ZoneInfo, ZonedDevice};

pub const BLOCK_BYTES: u32 = 512;
pub const METADATA_ZONES: u32 = 3;

/// The drive with the parity of a stripe, in an array of as many drives as a zone has parts.
pub fn parity_slot(layout: &Layout, zone: ZoneId, stripe: Stripe) -> Slot {
    Rotation { drives: layout.width }.slot(zone, layout.parity(stripe, Parity::P))
}

/// The drive with a data unit of a stripe, in an array of as many drives as a zone has parts.
pub fn data_slot(layout: &Layout, zone: ZoneId, stripe: Stripe, index: u64) -> Slot {
    Rotation { drives: layout.width }.slot(zone, layout.data(stripe, index))
}

/// The drives of a test, emulated, and their clock.
pub struct ArrayFixture {
    pub driver: Arc<dyn Driver>,
    pub emus: Vec<Arc<Emu>>,
}

/// The content of block `n` of a zone in one generation of its content.
pub fn block(life: u64, n: u64) -> Vec<u8> {
    let word = (life << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    word.to_le_bytes().repeat(BLOCK_BYTES as usize / 8)
}

pub fn blocks(life: u64, from: u64, to: u64) -> Buf {
    Buf::copy_from(&(from..to).flat_map(|n| block(life, n)).collect::<Vec<u8>>())
}

impl ArrayFixture {
    /// A test ground of `count` drives with `zones` logical zones of `capacity` blocks on each, and an array
    /// in units of `unit` blocks.
    pub fn new(count: u32, zones: u32, capacity: u64, unit: u64) -> ArrayFixture {
        ArrayFixture::with_open(count, zones, capacity, unit, 8)
    }

    /// Like `new`, with drives that may have `open` zones open, and one more active.
    pub fn with_open(count: u32, zones: u32, capacity: u64, unit: u64, open: u32) -> ArrayFixture {
        let stripe_unit = Bytes(unit * u64::from(BLOCK_BYTES));
        let create =
            CreateOptions { stripe_unit, placement: PLACEMENT, shares: SHARES, ..CreateOptions::default() };
        ArrayFixture::created(count, zones, capacity, open, &create)
    }

    /// An array with the settings `create`, of `count` drives with `zones` physical zones of `capacity` blocks beside metadata and
    /// reserve.
    pub fn created(count: u32, zones: u32, capacity: u64, open: u32, create: &CreateOptions) -> ArrayFixture {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let emus: Vec<Arc<Emu>> = (0..count)
            .map(|n| {
                let options = EmuOptions {
                    name: format!("emu:{n}"),
                    block_size: BLOCK_BYTES,
                    zones: zones + METADATA_ZONES + RESERVE_ZONES,
                    zone_size: Blocks(capacity * u64::from(SHARES)),
                    zone_capacity: Blocks(capacity * u64::from(SHARES)),
                    max_open: Some(open + SPARE_ACTIVE),
                    max_active: Some(open + 1 + SPARE_ACTIVE),
                    volatile_cache: true,
                    track_power_cuts: true,
                    latency: Latency::all(Duration::from_micros(10)),
                    ..EmuOptions::default()
                };
                Emu::memory(options, Arc::clone(&driver))
            })
            .collect();
        let ground = ArrayFixture { driver, emus };
        ground.wait(async { array::create(&ground.devices(), create).await.expect("created") });
        ground
    }

    /// Copies of the drives with these images, on a clock of their own.
    pub fn of(images: impl Iterator<Item = Media>) -> ArrayFixture {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let emu =
            |(n, image)| Emu::from_media(image, &format!("emu:{n}"), Latency::NONE, Arc::clone(&driver));
        let emus = (0_u32..).zip(images).map(emu).collect();
        ArrayFixture { driver, emus }
    }

    /// The drives after the power was cut `after` us from now, and once or twice in the mounts that follow.
    pub fn cut_now_and_in_mounts(&self, after: u64, rng: &mut SplitMix64) -> ArrayFixture {
        let latency = Latency::all(Duration::from_micros(10));
        let cut = |drives: &ArrayFixture, after: u64, seed: u64| {
            let until = drives.driver.now().after(Duration::from_micros(after));
            drives.wait(sleep_until(&*drives.driver, until));
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let emu = |(n, image)| Emu::from_media(image, &format!("emu:{n}"), latency, Arc::clone(&driver));
            let emus = (0_u32..).zip(drives.cut(seed)).map(emu).collect();
            ArrayFixture { driver, emus }
        };
        let mut left = cut(self, after, rng.draw() >> 8);
        for _ in 0..=rng.draw() % 2 {
            let open = Array::open(left.devices(), OpenOptions::default());
            let mount = spawn(&*left.driver, "mount", open);
            let next = cut(&left, rng.draw() % 1_000, rng.draw() >> 8);
            drop(mount);
            left = next;
        }
        left
    }

    /// The arrays of copies of these drives, each opened without one of the drives.
    pub fn open_without_each(&self) -> impl Iterator<Item = (usize, ArrayFixture, Arc<Array>)> {
        (0..self.emus.len()).map(|lost| {
            let copy = ArrayFixture::of(self.emus.iter().map(|emu| emu.media()));
            let array = copy.open_without(lost);
            (lost, copy, array)
        })
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&*self.driver, future)
    }

    pub fn devices(&self) -> Vec<Arc<dyn ZonedDevice>> {
        self.emus.iter().map(|emu| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect()
    }

    pub fn open(&self, options: OpenOptions) -> Arc<Array> {
        self.wait(Array::open(self.devices(), options)).expect("opened")
    }

    /// Waits until parts that move by themselves have moved.
    pub fn settle(&self) {
        self.wait(sleep_until(&*self.driver, self.driver.now().after(Duration::from_millis(200))));
    }

    pub fn open_without(&self, lost: usize) -> Arc<Array> {
        let mut devices = self.devices();
        devices.remove(lost);
        self.wait(Array::open(devices, OpenOptions::default())).expect("opened without a drive")
    }

    /// Opens the array, without a drive if one is `lost`.
    pub fn open_perhaps_without(&self, lost: Option<usize>) -> Arc<Array> {
        match lost {
            Some(lost) => self.open_without(lost),
            None => self.open(OpenOptions::default()),
        }
    }

    /// Cuts the power of all drives. Returns the content of their media: `seed` chooses one of the outcomes that the contract allows.
    pub fn cut(&self, seed: u64) -> Vec<Media> {
        (0..).zip(&self.emus).map(|(n, emu)| emu.power_cut(&mut Seeded::new(seed << 8 | n))).collect()
    }

    /// Writes blocks of a zone, with the content of generation `life`, in pieces of `piece`.
    pub fn write(&self, array: &Arc<Array>, zone: ZoneId, life: u64, from: u64, to: u64, piece: u64) {
        let device: &dyn ZonedDevice = &**array;
        self.wait(async {
            let mut at = from;
            while at < to {
                let end = (at + piece).min(to);
                let lba = device.geometry().start(zone).plus(Blocks(at));
                device.write(lba, blocks(life, at, end), Durability::Cached).await.expect("written");
                at = end;
            }
        });
    }

    /// Reads blocks `0..to` of a zone and compares them with the content of generation `life`.
    pub fn check(&self, array: &Arc<Array>, zone: ZoneId, life: u64, to: u64) {
        let device: &dyn ZonedDevice = &**array;
        self.wait(async {
            for n in 0..to {
                let lba = device.geometry().start(zone).plus(Blocks(n));
                let found = device.read(lba, BufMut::zeroed(BLOCK_BYTES as usize)).await.expect("read");
                assert!(*found == *block(life, n), "block {n} of zone {zone}");
            }
        });
    }

    pub fn zone(&self, array: &Arc<Array>, zone: ZoneId) -> ZoneInfo {
        let device: &dyn ZonedDevice = &**array;
        self.wait(device.report(zone.0..zone.0 + 1)).expect("reported")[0]
    }

    /// Writes blocks to a drive behind the array's back, like blocks that were in flight at a power cut.
    pub fn leave_behind(&self, slot: usize, zone: ZoneId, count: u64) {
        let device = Arc::clone(&self.emus[slot]) as Arc<dyn ZonedDevice>;
        self.wait(async {
            let physical = ZoneId(zone.0 + METADATA_ZONES);
            let info = device.report(physical.0..physical.0 + 1).await.expect("reported")[0];
            let at = Lba(device.geometry().start(physical).0 + info.pointer.0);
            device.write(at, blocks(0xbad, 0, count), Durability::Durable).await.expect("written");
        });
    }

    /// Writes a drive's part of a zone again, with garbage in the rows `bad`.
    pub fn rewrite(&self, slot: usize, zone: ZoneId, bad: impl Fn(u64) -> bool) {
        let device = Arc::clone(&self.emus[slot]) as Arc<dyn ZonedDevice>;
        self.wait(async {
            let physical = ZoneId(zone.0 + METADATA_ZONES);
            let count = device.report(physical.0..physical.0 + 1).await.expect("reported")[0].pointer.0;
            let start = device.geometry().start(physical);
            let into = BufMut::zeroed((count * u64::from(BLOCK_BYTES)) as usize);
            let mut data = device.read(start, into).await.expect("read");
            for (row, block) in (0..count).zip(data.chunks_mut(BLOCK_BYTES as usize)) {
                if bad(row) {
                    block.fill(0xee);
                }
            }
            device.zone(physical, Action::Reset).await.expect("reset");
            device.write(start, data.freeze(), Durability::Durable).await.expect("written");
        });
    }
}
