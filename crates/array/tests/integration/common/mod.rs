//! A drive with injected faults: unreadable blocks, wrong blocks, an unplugged drive.
#![allow(dead_code, reason = "not every test needs everything")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use array::{Array, CreateOptions, OpenOptions};
use parking_lot::Mutex;
use units::{Driver, SplitMix64, VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency, Media, Seeded};
use zoned::{
    Action, Blocks, Buf, BufMut, Bytes, Done, Durability, Error, ErrorKind, Geometry, Io, Lba, Op, ZoneId,
    ZonedDevice,
};

/// Bytes in a block of the test drives.
pub const BLOCK_BYTES: usize = 512;
/// The number of metadata zones of a drive, and so the physical zone of logical zone 0.
pub const METADATA_ZONES: u32 = 3;

/// A drive that injects faults between the array and an emulated drive.
#[derive(Debug)]
pub struct Flaky {
    pub inner: Arc<Emu>,
    pub unreadable: Mutex<BTreeSet<Lba>>,
    /// The error kind of reads of unreadable blocks.
    pub says: Mutex<ErrorKind>,
    /// How many reads of unreadable blocks fail before one succeeds.
    pub fails: AtomicI64,
    pub flipped: Mutex<BTreeSet<Lba>>,
    /// The error kind of refused writes, flushes and zone commands.
    pub refuses: Mutex<Option<ErrorKind>>,
    /// Operations until the drive is unplugged; the drive is unplugged if it is negative.
    pub left: AtomicI64,
}

impl Flaky {
    pub fn over(inner: Arc<Emu>) -> Arc<Flaky> {
        let left = AtomicI64::new(i64::MAX);
        Arc::new(Flaky {
            inner,
            unreadable: Mutex::default(),
            says: Mutex::new(ErrorKind::Media),
            fails: AtomicI64::new(i64::MAX),
            flipped: Mutex::default(),
            refuses: Mutex::default(),
            left,
        })
    }

    /// Unplugs the drive after `operations` operations.
    pub fn unplug(&self, after: i64) {
        self.left.store(after, Ordering::Relaxed);
    }

    /// The address of a row of a logical zone's physical zone.
    pub fn row(&self, zone: u32, row: u64) -> Lba {
        self.inner.geometry().start(ZoneId(zone + METADATA_ZONES)).plus(Blocks(row))
    }
}

impl ZonedDevice for Flaky {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let name = op.name();
        let error = |kind| Error::new(kind, &self.inner.geometry().name, name);
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            self.left.store(0, Ordering::Relaxed);
            return Io::ready(Err(error(ErrorKind::Gone)));
        }
        let refuses = self.refuses.lock().filter(|_| !matches!(op, Op::Read { .. } | Op::Report { .. }));
        if let Some(kind) = refuses {
            return Io::ready(Err(error(kind)));
        }
        let Op::Read { at, into } = op else { return self.inner.submit(op) };
        let end = at.plus(Blocks((into.len() / BLOCK_BYTES) as u64));
        let bad = self.unreadable.lock().range(at..end).next().is_some();
        if bad && self.fails.fetch_sub(1, Ordering::Relaxed) > 0 {
            return Io::ready(Err(error(*self.says.lock()).at(at).with_buffer(into)));
        }
        let flipped: Vec<usize> =
            self.flipped.lock().range(at..end).map(|lba| lba.since(at).0 as usize * BLOCK_BYTES).collect();
        let io = self.inner.submit(Op::Read { at, into });
        if flipped.is_empty() {
            return io;
        }
        Io::spawn(self.driver(), &self.inner.geometry().name, async move {
            match io.await? {
                Done::Read(mut buf) => {
                    flipped.iter().for_each(|at| buf[*at] ^= 1);
                    Ok(Done::Read(buf))
                }
                other => Ok(other),
            }
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// A test bench: five small drives, and an array of them with stripe units of 2 KiB.
pub struct Bench {
    pub driver: Arc<dyn Driver>,
    pub drives: Vec<Arc<Flaky>>,
}

impl Bench {
    pub fn new(seed: u64) -> Bench {
        Bench::with_parities(seed, 1)
    }

    /// Like `new`, with `parities` units of parity in a stripe.
    pub fn with_parities(seed: u64, parities: u32) -> Bench {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let drives = (0..5).map(|n| Bench::drive(&driver, n)).collect();
        let bench = Bench { driver, drives };
        let stripe_unit = Bytes(2048);
        let options = CreateOptions {
            stripe_unit,
            parities,
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        block_on(&*bench.driver, async {
            array::create(&bench.devices(&[]), &options).await.expect("created")
        });
        bench
    }

    pub fn drive(driver: &Arc<dyn Driver>, n: u32) -> Arc<Flaky> {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES as u32,
            zones: 11 + crate::RESERVE_ZONES,
            zone_size: Blocks(512 * u64::from(crate::SHARES)),
            zone_capacity: Blocks(480 * u64::from(crate::SHARES)),
            max_open: Some(9 + crate::SPARE_ACTIVE),
            max_active: Some(10 + crate::SPARE_ACTIVE),
            track_power_cuts: true,
            latency: Latency::all(std::time::Duration::from_micros(10)),
            ..EmuOptions::default()
        };
        Flaky::over(Emu::memory(options, Arc::clone(driver)))
    }

    pub fn devices(&self, without: &[usize]) -> Vec<Arc<dyn ZonedDevice>> {
        let all = self.drives.iter().enumerate().filter(|(slot, _)| !without.contains(slot));
        all.map(|(_, drive)| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect()
    }

    /// Cuts the power of all drives and returns the drives afterwards, with the same injected faults.
    pub fn cut(&self, seed: u64) -> Bench {
        self.of(seed, |n, emu| emu.power_cut(&mut Seeded::new(seed << 8 | n)))
    }

    /// Copies of the bench's drives, with the same injected faults.
    pub fn copy(&self) -> Bench {
        self.of(1, |_, emu| emu.media())
    }

    fn of(&self, seed: u64, media: impl Fn(u64, &Emu) -> Media) -> Bench {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let latency = Latency::all(std::time::Duration::from_micros(10));
        let again = |(n, drive): (u64, &Arc<Flaky>)| {
            let media = media(n, &drive.inner);
            let emu = Emu::from_media(media, &format!("emu:{n}"), latency, Arc::clone(&driver));
            let again = Flaky::over(emu);
            again.unreadable.lock().clone_from(&drive.unreadable.lock());
            again
        };
        let drives = (0..).zip(&self.drives).map(again).collect();
        Bench { driver, drives }
    }

    pub async fn open(&self, without: &[usize]) -> Arc<Array> {
        Array::open(self.devices(without), OpenOptions::default()).await.expect("opened")
    }
}

pub fn device(array: &Arc<Array>) -> Arc<dyn ZonedDevice> {
    Arc::clone(array) as Arc<dyn ZonedDevice>
}

/// The content of block `n` of a zone in these tests.
pub fn block(zone: u32, n: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(u64::from(zone) << 40 | n);
    (0..BLOCK_BYTES / 8).flat_map(|_| rng.draw().to_le_bytes()).collect()
}

pub fn blocks(zone: u32, from: u64, to: u64) -> Buf {
    Buf::copy_from(&(from..to).flat_map(|n| block(zone, n)).collect::<Vec<u8>>())
}

/// Writes the blocks `from..to` of a zone, a few at a time.
pub async fn write(device: &Arc<dyn ZonedDevice>, zone: u32, from: u64, to: u64) {
    let mut at = from;
    while at < to {
        let next = (at + 37).min(to);
        let start = device.geometry().start(ZoneId(zone)).plus(Blocks(at));
        device.write(start, blocks(zone, at, next), Durability::Cached).await.expect("written");
        at = next;
    }
}

/// Reads the blocks `from..to` of a zone and compares them with what was written.
pub async fn verify(device: &Arc<dyn ZonedDevice>, zone: u32, from: u64, to: u64) {
    let start = device.geometry().start(ZoneId(zone)).plus(Blocks(from));
    let into = BufMut::zeroed((to - from) as usize * BLOCK_BYTES);
    let found = device.read(start, into).await.expect("read");
    for (n, found) in (from..to).zip(found.chunks(BLOCK_BYTES)) {
        assert!(*found == block(zone, n)[..], "block {n} of zone {zone}");
    }
}

/// The zones that the tests write, with their numbers of blocks: full, open, finished early.
pub const BLOCKS_BY_ZONE: [(u32, u64); 5] = [(0, 1920), (1, 37), (3, 802), (4, 101), (6, 3)];

pub async fn write_content(device: &Arc<dyn ZonedDevice>) {
    for (zone, end) in BLOCKS_BY_ZONE {
        write(device, zone, 0, end).await;
    }
    device.zone(ZoneId(4), Action::Finish).await.expect("finished");
    device.flush().await.expect("flushed");
}

pub async fn verify_all(device: &Arc<dyn ZonedDevice>) {
    for (zone, end) in BLOCKS_BY_ZONE {
        verify(device, zone, 0, end).await;
    }
}
