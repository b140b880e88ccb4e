//! The cost of stripes: whole stripes are written without a read and without a log record, writes in flight that fill a stripe
//! count as whole, and partly written stripes take bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{BLOCK_BYTES, METADATA_ZONES, blocks, device, verify};
use array::{Array, Counters, CreateOptions, OpenOptions, ScrubOptions, Slot};
use units::{Driver, VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Blocks, Buf, Bytes, Durability, Geometry, Io, Op, ZoneId, ZonedDevice};

/// Blocks in a stripe unit, and data blocks in a stripe of the five drives.
const UNIT_BLOCKS: u64 = 4;
const STRIPE_BLOCKS: u64 = 4 * UNIT_BLOCKS;
/// Most bytes of a zone's writes that are in flight.
const MAX_BYTES_IN_FLIGHT: u64 = 16 << 20;

/// A drive that counts its reads, and the bytes of writes that it has not acknowledged.
#[derive(Debug)]
struct CountingDrive {
    inner: Arc<Emu>,
    reads: AtomicU64,
    /// Writes to data zones.
    writes: AtomicU64,
    /// Bytes of writes to data zones that are in flight, now and at most.
    flying: Arc<AtomicU64>,
    most: AtomicU64,
}

impl ZonedDevice for CountingDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let own = self.geometry().start(ZoneId(METADATA_ZONES));
        match &op {
            Op::Read { .. } => {
                self.reads.fetch_add(1, Ordering::Relaxed);
            }
            Op::Write { at, data, .. } if *at >= own => {
                let bytes = data.len() as u64;
                self.writes.fetch_add(1, Ordering::Relaxed);
                let flying = self.flying.fetch_add(bytes, Ordering::Relaxed) + bytes;
                self.most.fetch_max(flying, Ordering::Relaxed);
                let (io, left) = (self.inner.submit(op), Arc::clone(&self.flying));
                return Io::spawn(self.driver(), &self.geometry().name, async move {
                    let done = io.await;
                    left.fetch_sub(bytes, Ordering::Relaxed);
                    done
                });
            }
            _ => {}
        }
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// Drive `n` of an array with `zones` logical zones: no limits of open and active zones.
fn drive_options(n: u32, zones: u32, capacity: u64) -> EmuOptions {
    EmuOptions {
        name: format!("emu:{n}"),
        block_size: BLOCK_BYTES as u32,
        zones: zones + METADATA_ZONES + crate::RESERVE_ZONES,
        zone_size: Blocks(capacity.next_power_of_two()),
        zone_capacity: Blocks(capacity),
        max_open: None,
        max_active: None,
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::default()
    }
}

/// Five drives of `zones` zones without limits, and their array.
fn array_of_counting_drives(
    zones: u32,
    unit: u64,
    capacity: u64,
) -> (Arc<dyn Driver>, Vec<Arc<CountingDrive>>, Arc<Array>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drives: Vec<Arc<CountingDrive>> = (0..5)
        .map(|n| {
            let inner = Emu::memory(drive_options(n, zones, capacity), Arc::clone(&driver));
            let (reads, writes, most) = Default::default();
            Arc::new(CountingDrive { inner, reads, writes, flying: Arc::default(), most })
        })
        .collect();
    let devices = || drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect::<Vec<_>>();
    let options = CreateOptions {
        stripe_unit: Bytes(unit * BLOCK_BYTES as u64),
        placement: crate::PLACEMENT,
        ..CreateOptions::default()
    };
    let array = block_on(&*driver, async {
        array::create(&devices(), &options).await.expect("created");
        Array::open(devices(), OpenOptions::default()).await.expect("opened")
    });
    (driver, drives, array)
}

/// Writes blocks of a zone in the pieces given by their lengths: all at once, or one after the other. Returns
/// the array's counters.
async fn write(array: &Arc<Array>, zone: u32, from: u64, pieces: &[u64], at_once: bool) -> Counters {
    let (dev, before) = (device(array), array.counters());
    let (mut at, mut flights) = (from, Vec::new());
    for piece in pieces {
        let start = dev.geometry().start(ZoneId(zone)).plus(Blocks(at));
        let io = dev.write(start, blocks(zone, at, at + piece), Durability::Cached);
        at += piece;
        match at_once {
            true => flights.push(io),
            false => io.await.expect("written"),
        }
    }
    for flight in flights {
        flight.await.expect("written");
    }
    let after = array.counters();
    Counters {
        data_bytes: after.data_bytes - before.data_bytes,
        parity_bytes: after.parity_bytes - before.parity_bytes,
        partial_parity_bytes: after.partial_parity_bytes - before.partial_parity_bytes,
        metadata_bytes: after.metadata_bytes - before.metadata_bytes,
        ..after
    }
}

/// The bytes of `blocks` blocks.
fn bytes(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES as u64
}

#[test]
fn whole_stripes_are_written_without_a_read_and_without_a_log() {
    let (driver, drives, array) = array_of_counting_drives(4, UNIT_BLOCKS, 480);
    assert_eq!(array.geometry().optimal_write, Blocks(STRIPE_BLOCKS), "the recommended write is a stripe");
    block_on(&*driver, async {
        let reads = |drives: &[Arc<CountingDrive>]| -> u64 {
            drives.iter().map(|drive| drive.reads.load(Ordering::Relaxed)).sum()
        };
        let before = reads(&drives);
        for (zone, stripes) in [(0, 1), (1, 3), (2, 7)] {
            let counted = write(&array, zone, 0, &[stripes * STRIPE_BLOCKS; 10], zone == 2).await;
            assert_eq!(counted.data_bytes, bytes(10 * stripes * STRIPE_BLOCKS));
            assert_eq!(counted.parity_bytes * 4, counted.data_bytes);
            assert_eq!((counted.partial_parity_bytes, counted.metadata_bytes), (0, 0));
        }
        // A write that begins in the middle of a stripe reads nothing either.
        let counted = write(&array, 3, 0, &[5, 3, 8, 20, 12, 1, 31], false).await;
        assert_eq!(counted.data_bytes, bytes(80));
        assert_eq!(counted.parity_bytes, bytes(20));
        assert_eq!(reads(&drives), before, "a write reads nothing");
        verify(&device(&array), 3, 0, 80).await;
    });
}

#[test]
fn neighbours_in_flight_that_fill_a_stripe_log_no_parity() {
    let cases: [&[u64]; 4] = [&[16, 1, 15], &[16, 5, 6, 5], &[32, 7, 2, 7, 15, 1], &[48, 4, 4, 4, 4, 3, 13]];
    for (zone, pieces) in (0..).zip(cases) {
        let (driver, _, array) = array_of_counting_drives(4, UNIT_BLOCKS, 480);
        block_on(&*driver, async {
            let counted = write(&array, zone, 0, pieces, true).await;
            let blocks: u64 = pieces.iter().sum();
            assert_eq!(counted.parity_bytes, bytes(blocks / 4));
            assert_eq!(counted.partial_parity_bytes, 0, "in flight: {pieces:?}");
            // The pieces written one after the other log partial parity.
            let counted = write(&array, zone, blocks, pieces, false).await;
            assert!(counted.partial_parity_bytes > 0, "one after the other: {pieces:?}");
            verify(&device(&array), zone, 0, 2 * blocks).await;
        });
    }
}

#[test]
fn partly_written_stripes_hold_one_unit_of_memory_for_each_zone() {
    const ZONES: u32 = 60;
    let (driver, _, array) = array_of_counting_drives(ZONES, UNIT_BLOCKS, 640);
    block_on(&*driver, async {
        assert_eq!(array.stripe_buffers(), Bytes(0));
        let mut expected = 0;
        for zone in 0..ZONES {
            // The writes have every possible length, some of them beyond the first stripe.
            let len = 1 + u64::from(zone) % (3 * STRIPE_BLOCKS);
            write(&array, zone, 0, &[len], false).await;
            expected += bytes((len % STRIPE_BLOCKS).min(UNIT_BLOCKS));
            assert_eq!(array.stripe_buffers(), Bytes(expected), "zones 0 to {zone}");
        }
        assert!(array.stripe_buffers() <= Bytes(bytes(UNIT_BLOCKS) * u64::from(ZONES)));
        // More writes to the partly written stripes take no more memory; filling the stripes releases the
        // memory.
        for zone in 0..ZONES {
            let len = 1 + u64::from(zone) % (3 * STRIPE_BLOCKS);
            write(&array, zone, len, &vec![1; (len.next_multiple_of(STRIPE_BLOCKS) - len) as usize], false)
                .await;
            assert!(array.stripe_buffers() <= Bytes(bytes(UNIT_BLOCKS) * u64::from(ZONES)));
        }
        assert_eq!(array.stripe_buffers(), Bytes(0));
    });
}

#[test]
fn no_more_than_a_window_of_a_zones_writes_is_in_flight() {
    // 48 MiB are submitted at once, in transfers of a MiB.
    const TRANSFER_BLOCKS: u64 = 2048;
    let (driver, drives, array) = array_of_counting_drives(1, 128, 24 << 10);
    let dev = device(&array);
    block_on(&*driver, async {
        let data = Buf::zeroed(TRANSFER_BLOCKS as usize * BLOCK_BYTES);
        let write = |n: u64| {
            let at = dev.geometry().start(ZoneId(0)).plus(Blocks(n * TRANSFER_BLOCKS));
            dev.write(at, data.clone(), Durability::Cached)
        };
        let flights: Vec<Io<()>> = (0..48).map(write).collect();
        for flight in flights {
            flight.await.expect("written");
        }
    });
    let most: u64 = drives.iter().map(|drive| drive.most.load(Ordering::Relaxed)).sum();
    assert!(most > MAX_BYTES_IN_FLIGHT / 2, "{most} bytes: many are in flight");
    assert!(
        most <= MAX_BYTES_IN_FLIGHT / 4 * 5,
        "{most} bytes with parity, the window is {MAX_BYTES_IN_FLIGHT}"
    );
    assert_eq!(array.counters().partial_parity_bytes, 0);
    assert_eq!(drives[0].flying.load(Ordering::Relaxed), 0);
}

#[test]
fn final_rows_of_parity_behind_writes_in_flight_go_to_their_place_together() {
    let stripes = 6;
    let (driver, drives, array) = array_of_counting_drives(4, UNIT_BLOCKS, 96);
    let written = || drives.iter().map(|drive| drive.writes.load(Ordering::Relaxed)).sum::<u64>();
    block_on(&*driver, async {
        let pieces = vec![1; (stripes * STRIPE_BLOCKS) as usize];
        let after = write(&array, 0, 0, &pieces, true).await;
        // Nothing is in flight below the first stripe, so its four rows of parity go one by one. Each other stripe has
        // one command of parity.
        assert_eq!(written(), stripes * STRIPE_BLOCKS + UNIT_BLOCKS + (stripes - 1));
        assert_eq!(after.parity_bytes, stripes * UNIT_BLOCKS * BLOCK_BYTES as u64);
        verify(&device(&array), 0, 0, stripes * STRIPE_BLOCKS).await;

        // The last stripe does not become whole: its three final rows go in one command when the stripe below has landed.
        let before = written();
        let pieces = vec![1; (2 * STRIPE_BLOCKS - 1) as usize];
        write(&array, 1, 0, &pieces, true).await;
        assert_eq!(written() - before, 2 * STRIPE_BLOCKS - 1 + UNIT_BLOCKS + 1);
        // The stripe's last row follows the others.
        write(&array, 1, 2 * STRIPE_BLOCKS - 1, &[1], true).await;
        assert_eq!(written() - before, 2 * STRIPE_BLOCKS + UNIT_BLOCKS + 2);
        verify(&device(&array), 1, 0, 2 * STRIPE_BLOCKS).await;
        for lost in 0..5 {
            let left = drives.iter().enumerate().filter(|(slot, _)| *slot != lost);
            let images = left.map(|(n, drive)| (n, drive.inner.media()));
            let again: Vec<Arc<dyn ZonedDevice>> = images
                .map(|(n, media)| {
                    Emu::from_media(media, &format!("emu:{n}"), Latency::NONE, Arc::clone(&driver))
                        as Arc<dyn ZonedDevice>
                })
                .collect();
            let array = Array::open(again, OpenOptions::default()).await.expect("opened");
            verify(&device(&array), 0, 0, stripes * STRIPE_BLOCKS).await;
            verify(&device(&array), 1, 0, 2 * STRIPE_BLOCKS).await;
        }
    });
}

#[test]
fn final_rows_of_parity_that_wait_are_in_their_place_before_a_drive_is_replaced() {
    // Drive 3 has the parity of stripe 1 of zone 0, and of stripe 0 of zone 6.
    const ROWS: u64 = 96;
    let mut rolled = 0;
    // In every eighth round the drive fails while the writes are in flight.
    for (round, records) in (0..200).step_by(2).enumerate() {
        let (driver, _, array) = array_of_counting_drives(7, UNIT_BLOCKS, ROWS);
        block_on(&*driver, async {
            // Records of partial parity fill the logs, so that a record of zone 6 makes drive 3's log roll in some rounds.
            write(&array, 1, 0, &vec![1; records], false).await;
            let before = array.counters().metadata_bytes;
            let dev = device(&array);
            let submit = |zone: u32, n: u64| {
                let at = dev.geometry().start(ZoneId(zone)).plus(Blocks(n));
                dev.write(at, blocks(zone, n, n + 1), Durability::Cached)
            };
            // Rows 0 and 1 of the parity of stripe 1 are final while stripe 0 is in flight.
            let mut flights: Vec<_> = (0..STRIPE_BLOCKS + 14).map(|n| submit(0, n)).collect();
            flights.push(submit(6, 0));
            if round % 8 == 0 {
                array.fail(Slot(3)).await.expect("failed");
            }
            for flight in flights {
                flight.await.expect("written");
            }
            if round % 8 != 0 {
                rolled += u32::from(array.counters().metadata_bytes > before);
                array.fail(Slot(3)).await.expect("failed");
            }
            let spare = Emu::memory(drive_options(5, 7, ROWS), Arc::clone(&driver));
            array.replace(Slot(3), spare).await.expect("replaced");
            for n in STRIPE_BLOCKS + 14..2 * STRIPE_BLOCKS {
                submit(0, n).await.expect("written above the rebuilt rows");
            }
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.mismatch_count, report.lost), (0, 0), "{records} records before");
            array.fail(Slot(0)).await.expect("failed");
            verify(&dev, 0, 0, 2 * STRIPE_BLOCKS).await;
        });
    }
    assert!(rolled > 0, "a log rolled beside the writes in some rounds");
}
