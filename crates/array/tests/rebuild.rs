//! A new drive in the place of a lost one: how fast, beside which clients, and what happens to it on the way.
#![expect(clippy::indexing_slicing, reason = "a test: a wrong index is a failure like any other")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use array::{Array, CreateOptions, EventKind, Health, MemberState, OpenOptions, Pace, RebuildOptions, Slot};
use parking_lot::Mutex;
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Profile, Seeded};
use zoned::{
    Action, Blocks, Buf, BufMut, Bytes, Durability, ErrorKind, Io, Lba, ZoneId, ZoneState, ZonedDevice,
};

fn zn540(driver: &Arc<dyn Driver>, name: &str) -> Arc<Emu> {
    let profile = Profile::load("zn540").expect("there");
    let options = EmuOptions { zones: 8, name: name.into(), ..EmuOptions::of_profile(profile) };
    Emu::memory(options, Arc::clone(driver))
}

fn tiny(driver: &Arc<dyn Driver>, name: &str) -> Arc<Emu> {
    let options = EmuOptions {
        name: name.into(),
        block_size: 512,
        zones: 11,
        zone_size: Blocks(128),
        zone_capacity: Blocks(120),
        max_open: Some(9),
        max_active: Some(10),
        track_power_cuts: true,
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(driver))
}

type Make = fn(&Arc<dyn Driver>, &str) -> Arc<Emu>;

/// An array of five drives, and what it is made of.
struct Bench {
    driver: Arc<dyn Driver>,
    drives: Vec<Arc<Emu>>,
    make: Make,
}

impl Bench {
    fn new(seed: u64, make: Make, unit: u64) -> Bench {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let drives: Vec<Arc<Emu>> = (0..5).map(|n| make(&driver, &format!("emu:{n}"))).collect();
        let bench = Bench { driver, drives, make };
        let options = CreateOptions { stripe_unit: Bytes(unit), ..CreateOptions::default() };
        block_on(&*bench.driver, async {
            array::create(&bench.devices(&[]), &options).await.expect("created")
        });
        bench
    }

    fn devices(&self, without: &[usize]) -> Vec<Arc<dyn ZonedDevice>> {
        let all = self.drives.iter().enumerate().filter(|(slot, _)| !without.contains(slot));
        all.map(|(_, emu)| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect()
    }

    fn fresh(&self) -> Arc<Emu> {
        (self.make)(&self.driver, "emu:new")
    }

    async fn open(&self, without: &[usize]) -> Arc<Array> {
        Array::open(self.devices(without), OpenOptions::default()).await.expect("opened")
    }
}

fn device(array: &Arc<Array>) -> Arc<dyn ZonedDevice> {
    Arc::clone(array) as Arc<dyn ZonedDevice>
}

/// The content of block `n` of a zone's life.
fn block(size: usize, zone: u32, n: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(u64::from(zone) << 40 | n);
    (0..size / 8).flat_map(|_| rng.draw().to_le_bytes()).collect()
}

/// Writes the blocks `from..to` of a zone.
async fn write(device: &Arc<dyn ZonedDevice>, zone: u32, from: u64, to: u64) {
    let geometry = device.geometry().clone();
    let size = geometry.block_size as usize;
    let mut at = from;
    while at < to {
        let count = (to - at).min(37);
        let data: Vec<u8> = (at..at + count).flat_map(|n| block(size, zone, n)).collect();
        let start = geometry.start(ZoneId(zone)).plus(Blocks(at));
        device.write(start, Buf::copy_from(&data), Durability::Cached).await.expect("written");
        at += count;
    }
}

/// Reads a zone up to `to` and compares.
async fn verify(device: &Arc<dyn ZonedDevice>, zone: u32, to: u64) {
    let geometry = device.geometry().clone();
    let size = geometry.block_size as usize;
    let into = BufMut::zeroed(to as usize * size);
    let found = device.read(geometry.start(ZoneId(zone)), into).await.expect("read");
    for n in 0..to {
        let place = n as usize * size..(n as usize + 1) * size;
        assert!(found[place] == block(size, zone, n)[..], "block {n} of zone {zone}");
    }
}

/// Pieces of 256 KiB of zeros, 16 in flight, to a zone of the array or of a drive.
async fn fill(device: &Arc<dyn ZonedDevice>, zone: u32, bytes: u64) {
    let data = BufMut::zeroed(256 << 10).freeze();
    let start = device.geometry().start(ZoneId(zone));
    let mut flying: VecDeque<Io<()>> = VecDeque::new();
    for at in (0..bytes / 4096).step_by(64) {
        if flying.len() == 16 {
            flying.pop_front().expect("some").await.expect("written");
        }
        flying.push_back(device.write(start.plus(Blocks(at)), data.clone(), Durability::Cached));
    }
    for io in flying {
        io.await.expect("written");
    }
}

/// Seconds that a rebuild of `bytes` on the new drive takes in virtual time, and those of writing them to a drive.
fn repair_time(bytes: u64) -> (f64, f64) {
    let bench = Bench::new(1, zn540, 64 << 10);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        // Two zones: one that is open and one that is full.
        fill(&device(&array), 0, bytes * 4 / 2).await;
        fill(&device(&array), 1, bytes * 4 / 2).await;
        array.fail(Slot(2)).await.expect("failed");
        let start = bench.driver.now();
        array.replace(Slot(2), bench.fresh()).await.expect("rebuilt");
        let took = bench.driver.now().since(start).as_secs_f64();
        assert_eq!(array.status().health(), Health::Clean);
        assert_eq!(array.counters().rebuilt_bytes, bytes);
        let alone = zn540(&bench.driver, "alone") as Arc<dyn ZonedDevice>;
        let start = bench.driver.now();
        fill(&alone, 0, bytes / 2).await;
        fill(&alone, 1, bytes / 2).await;
        (took, bench.driver.now().since(start).as_secs_f64())
    })
}

#[test]
fn a_rebuild_takes_as_long_as_writing_what_is_valid() {
    let mib = 1 << 20;
    let (short, short_alone) = repair_time(32 * mib);
    let (long, long_alone) = repair_time(96 * mib);
    let rate = 64.0 / (long - short);
    let bandwidth = 64.0 / (long_alone - short_alone);
    println!(
        "32 MiB in {short:.4} s, 96 MiB in {long:.4} s; written alone {short_alone:.4} and {long_alone:.4} s"
    );
    println!(
        "{rate:.0} MiB/s of {bandwidth:.0}: {:.3}; of 96 MiB as a whole {:.3}",
        rate / bandwidth,
        long_alone / long
    );
    assert!(rate > 0.98 * bandwidth, "{rate:.0} MiB/s, the drive writes {bandwidth:.0}");
    assert!(long_alone > 0.95 * long, "{long:.4} s, {long_alone:.4} s alone");
}
