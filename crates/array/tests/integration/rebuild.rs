//! Rebuilds: their rate, their pace beside clients, and failures, restarts and resets during a rebuild.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use array::{
    Array, CreateOptions, EventKind, Health, MemberState, OpenOptions, Pace, RebuildOptions, ScrubOptions,
    Slot,
};
use parking_lot::Mutex;
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Profile, Seeded};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, ErrorKind, Io, Lba, ZoneId, ZonedDevice};

fn zn540_drive(driver: &Arc<dyn Driver>, name: &str) -> Arc<Emu> {
    let profile = Profile::load("zn540").expect("there");
    let options = EmuOptions { zones: 8, name: name.into(), ..EmuOptions::of_profile(profile) };
    Emu::memory(options, Arc::clone(driver))
}

fn tiny_drive(driver: &Arc<dyn Driver>, name: &str) -> Arc<Emu> {
    let options = EmuOptions {
        name: name.into(),
        block_size: 512,
        zones: 11 + crate::RESERVE_ZONES,
        zone_size: Blocks(128),
        zone_capacity: Blocks(120),
        max_open: Some(9),
        max_active: Some(10),
        // The drives are strict: blocks that are not written cannot be read.
        read_past_pointer: false,
        track_power_cuts: true,
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(driver))
}

type MakeDrive = fn(&Arc<dyn Driver>, &str) -> Arc<Emu>;

/// A test bench: an array of five drives, and the drives.
struct Bench {
    driver: Arc<dyn Driver>,
    drives: Vec<Arc<Emu>>,
    make: MakeDrive,
}

impl Bench {
    fn new(seed: u64, make: MakeDrive, unit: u64) -> Bench {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let drives: Vec<Arc<Emu>> = (0..5).map(|n| make(&driver, &format!("emu:{n}"))).collect();
        let bench = Bench { driver, drives, make };
        let options = CreateOptions {
            stripe_unit: Bytes(unit),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        block_on(&*bench.driver, async {
            array::create(&bench.devices(&[]), &options).await.expect("created")
        });
        bench
    }

    fn devices(&self, without: &[usize]) -> Vec<Arc<dyn ZonedDevice>> {
        let all = self.drives.iter().enumerate().filter(|(slot, _)| !without.contains(slot));
        all.map(|(_, emu)| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect()
    }

    fn new_drive(&self) -> Arc<Emu> {
        (self.make)(&self.driver, "emu:new")
    }

    async fn open(&self, without: &[usize]) -> Arc<Array> {
        Array::open(self.devices(without), OpenOptions::default()).await.expect("opened")
    }
}

fn device(array: &Arc<Array>) -> Arc<dyn ZonedDevice> {
    Arc::clone(array) as Arc<dyn ZonedDevice>
}

/// The content of block `n` of a zone in these tests.
fn block(size: usize, zone: u32, n: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(u64::from(zone) << 40 | n);
    (0..size / 8).flat_map(|_| rng.draw().to_le_bytes()).collect()
}

/// Writes the blocks `from..to` of a zone of the array.
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

/// Reads a zone up to block `to` and compares its content.
async fn verify(device: &Arc<dyn ZonedDevice>, zone: u32, to: u64) {
    let geometry = device.geometry().clone();
    let size = geometry.block_size as usize;
    let most = geometry.max_transfer.0;
    for from in (0..to).step_by(most as usize) {
        let count = most.min(to - from);
        let into = BufMut::zeroed(count as usize * size);
        let found = device.read(geometry.start(ZoneId(zone)).plus(Blocks(from)), into).await.expect("read");
        for n in 0..count {
            let place = n as usize * size..(n as usize + 1) * size;
            assert!(found[place] == block(size, zone, from + n)[..], "block {} of zone {zone}", from + n);
        }
    }
}

/// Writes `bytes` of zeros in pieces of 256 KiB, 16 in flight, to a zone of the array or of a drive.
async fn write_zeros(device: &Arc<dyn ZonedDevice>, zone: u32, bytes: u64) {
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

/// Seconds of virtual time that a rebuild of `bytes` on the new drive takes, and that writing `bytes` to one
/// drive takes.
fn rebuild_seconds(bytes: u64) -> (f64, f64) {
    let bench = Bench::new(1, zn540_drive, 64 << 10);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        // The rebuilt content is in two zones: one that is open and one that is full.
        write_zeros(&device(&array), 0, bytes * 4 / 2).await;
        write_zeros(&device(&array), 1, bytes * 4 / 2).await;
        array.fail(Slot(2)).await.expect("failed");
        let start = bench.driver.now();
        array.replace(Slot(2), bench.new_drive()).await.expect("rebuilt");
        let took = bench.driver.now().since(start).as_secs_f64();
        assert_eq!(array.status().health(), Health::Clean);
        assert_eq!(array.counters().rebuilt_bytes, bytes);
        let alone = zn540_drive(&bench.driver, "alone") as Arc<dyn ZonedDevice>;
        let start = bench.driver.now();
        write_zeros(&alone, 0, bytes / 2).await;
        write_zeros(&alone, 1, bytes / 2).await;
        (took, bench.driver.now().since(start).as_secs_f64())
    })
}

#[test]
fn a_rebuild_takes_as_long_as_writing_the_valid_content() {
    let mib = 1 << 20;
    let (short, short_alone) = rebuild_seconds(32 * mib);
    let (long, long_alone) = rebuild_seconds(96 * mib);
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

/// The latency that 999 of 1,000 operations stay below.
fn p999_latency(latencies: &mut [Duration]) -> Duration {
    latencies.sort_unstable();
    latencies[latencies.len() * 999 / 1000]
}

/// A client that now and then reads 4 KiB at random from zone 0, or appends 16 KiB to zone 2, until `end`.
async fn run_client(
    device: Arc<dyn ZonedDevice>,
    reads: bool,
    seed: u64,
    blocks: u64,
    seen: Arc<Mutex<Vec<Duration>>>,
) {
    let driver = Arc::clone(device.driver());
    let mut rng = SplitMix64::new(seed);
    let data = BufMut::zeroed(16 << 10).freeze();
    loop {
        sleep_until(&*driver, driver.now().after(Duration::from_micros(20 + rng.draw() % 80))).await;
        let begun = driver.now();
        if reads {
            let at = Lba(rng.draw() % blocks);
            device.read(at, BufMut::zeroed(4096)).await.expect("read");
        } else {
            device.append(ZoneId(2), data.clone(), Durability::Cached).await.expect("appended");
        }
        seen.lock().push(driver.now().since(begun));
    }
}

/// The clients' tail latency without and beside a rebuild, and the rebuild's rate in MiB/s.
fn run_rebuild_beside_clients(pace: Pace) -> (Duration, Duration, f64) {
    let bench = Bench::new(3, zn540_drive, 64 << 10);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let bytes = 64_u64 << 20;
        write_zeros(&device(&array), 0, bytes * 2).await;
        write_zeros(&device(&array), 1, bytes * 2).await;
        array.fail(Slot(2)).await.expect("failed");
        let seen: Arc<Mutex<Vec<Duration>>> = Arc::default();
        for n in 0..6 {
            let work = run_client(device(&array), n < 5, n, bytes * 2 / 4096, Arc::clone(&seen));
            drop(spawn(&*bench.driver, "client", work));
        }
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(200))).await;
        let mut before = std::mem::take(&mut *seen.lock());
        let start = bench.driver.now();
        let rebuild =
            array.start_replace(Slot(2), bench.new_drive(), RebuildOptions { pace }).await.expect("begun");
        // Two seconds limit how much of the rebuild is measured.
        while !rebuild.is_over() && bench.driver.now().since(start) < Duration::from_secs(2) {
            sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(5))).await;
        }
        let progress = rebuild.progress();
        let mut during = std::mem::take(&mut *seen.lock());
        let rate = progress.bytes.0 as f64 / f64::from(1 << 20) / progress.elapsed.as_secs_f64();
        println!(
            "{pace:?}: p99.9 of {} without {:?}, of {} beside {:?}, {rate:.0} MiB/s, {:?}",
            before.len(),
            p999_latency(&mut before),
            during.len(),
            p999_latency(&mut during),
            progress
        );
        (p999_latency(&mut before), p999_latency(&mut during), rate)
    })
}

#[test]
fn a_rebuild_bounds_the_clients_tail_latency_at_a_rate_that_it_finds() {
    let (without, beside, rate) = run_rebuild_beside_clients(Pace::default());
    assert!(beside < without * 2, "{beside:?}, {without:?} without");
    // A chunk of 64 KiB after the other makes 236 MiB/s, at the same tail.
    assert!(rate > 400.0, "{rate:.1} MiB/s");
    let (_, unregarded, fast) = run_rebuild_beside_clients(Pace::UNBOUNDED);
    assert!(fast > rate && unregarded > beside, "{fast:.0} MiB/s, {unregarded:?}");
    // The rebuild keeps its minimum rate whatever the clients' latency.
    let least = Pace { min_rate: Bytes(100 << 20), max_rate: Some(Bytes(100 << 20)), client_target: 100 };
    let (_, _, rate) = run_rebuild_beside_clients(least);
    assert!((60.0..101.0).contains(&rate), "{rate:.0} MiB/s");
}

#[test]
fn a_target_that_no_job_can_reach_is_refused() {
    let bench = Bench::new(1, tiny_drive, 2048);
    block_on(&*bench.driver, async {
        let pace = Pace { client_target: 99, ..Pace::default() };
        let array = bench.open(&[]).await;
        array.fail(Slot(1)).await.expect("failed");
        let rebuild = array.start_replace(Slot(1), bench.new_drive(), RebuildOptions { pace }).await;
        let errors = [
            rebuild.expect_err("refused"),
            array.reclaim(1, pace).await.expect_err("refused"),
            array.restore_parts(pace).await.expect_err("refused"),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("client_target is 99 %: 100 or more"), "{error}");
        }
        drop(array);
        let options = OpenOptions { rebuild: RebuildOptions { pace }, ..OpenOptions::default() };
        let error = Array::open(bench.devices(&[]), options).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    });
}

/// Writes zones of an array of tiny drives that are full, open, finished early, and empty.
async fn write_content(device: &Arc<dyn ZonedDevice>) {
    for (zone, blocks) in BLOCKS_BY_ZONE {
        write(device, zone, 0, blocks).await;
    }
    device.zone(ZoneId(4), Action::Finish).await.expect("finished");
    device.flush().await.expect("flushed");
}

const BLOCKS_BY_ZONE: [(u32, u64); 6] = [(0, 480), (1, 37), (2, 480), (3, 202), (4, 101), (6, 3)];

async fn verify_all(device: &Arc<dyn ZonedDevice>) {
    for (zone, blocks) in BLOCKS_BY_ZONE {
        verify(device, zone, blocks).await;
    }
}

#[test]
fn a_rebuild_resumes_after_a_restart_with_the_missing_zones() {
    for stop in 1..=4 {
        let mut bench = Bench::new(stop, tiny_drive, 2048);
        let new = bench.new_drive();
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            write_content(&device(&array)).await;
            array.fail(Slot(1)).await.expect("failed");
            let rebuild = array
                .start_replace(Slot(1), Arc::clone(&new) as Arc<dyn ZonedDevice>, RebuildOptions::default())
                .await
                .expect("begun");
            while u64::from(rebuild.progress().zones_done) < stop {
                sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(50))).await;
            }
            assert_eq!(array.status().members[1].state, MemberState::Rebuilding);
            assert_eq!(array.status().health(), Health::Degraded);
        });
        // The power is cut at `stop`.
        let driver: Arc<dyn Driver> = VirtualDriver::new(stop);
        bench.drives[1] = new;
        let cut = |(n, emu): (usize, &Arc<Emu>)| {
            let media = emu.power_cut(&mut Seeded::new(stop * 10 + n as u64));
            Emu::from_media(
                media,
                &format!("emu:{n}"),
                Latency::all(Duration::from_micros(10)),
                Arc::clone(&driver),
            )
        };
        bench.drives = bench.drives.iter().enumerate().map(cut).collect();
        bench.driver = driver;
        block_on(&*bench.driver, async {
            let status = array::status(&bench.devices(&[])).await.expect("status");
            assert_eq!(status.members[1].state, MemberState::Rebuilding);
            let array = bench.open(&[]).await;
            let rebuild = array.rebuild().expect("it goes on");
            rebuild.wait().await.expect("rebuilt");
            let (progress, counters) = (rebuild.progress(), array.counters());
            assert_eq!(progress.zones_done, 6);
            assert!(counters.rebuilt_bytes < progress.total.0, "{counters:?} {progress:?}");
            assert_eq!(array.status().health(), Health::Clean);
            verify_all(&device(&array)).await;
        });
        block_on(&*bench.driver, async {
            let array = bench.open(&[3]).await;
            verify_all(&device(&array)).await;
        });
    }
}

#[test]
fn after_a_new_drive_fails_another_one_can_replace_it() {
    for after in [0, 1, 9, 14] {
        let mut bench = Bench::new(after, tiny_drive, 2048);
        let (bad, good) = (bench.new_drive(), bench.new_drive());
        bad.fail(FaultSpec { after, ..FaultSpec::all(FaultOp::Write) });
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let events = array.events();
            write_content(&device(&array)).await;
            array.fail(Slot(0)).await.expect("failed");
            let error = array.replace(Slot(0), bad).await.expect_err("it fails");
            let state = array.status();
            assert_eq!(
                (state.health(), state.members[0].state),
                (Health::Degraded, MemberState::Failed),
                "{error}"
            );
            assert!(!array.is_broken());
            verify_all(&device(&array)).await;
            write(&device(&array), 5, 0, 50).await;
            array.replace(Slot(0), Arc::clone(&good) as Arc<dyn ZonedDevice>).await.expect("rebuilt");
            assert_eq!(array.status().health(), Health::Clean);
            let names: Vec<&str> =
                std::iter::from_fn(|| events.try_next()).map(|event| event.kind.name()).collect();
            let wanted =
                ["drive-failed", "rebuild-started", "rebuild-ended", "rebuild-started", "rebuild-ended"];
            assert_eq!(names, wanted);
            device(&array).flush().await.expect("flushed");
        });
        bench.drives[0] = good;
        block_on(&*bench.driver, async {
            let array = bench.open(&[4]).await;
            verify_all(&device(&array)).await;
            verify(&device(&array), 5, 50).await;
        });
    }
}

#[test]
fn the_failure_of_another_drive_ends_a_rebuild_with_an_error_that_names_it() {
    for after in [0, 1, 4] {
        let bench = Bench::new(after, tiny_drive, 2048);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let events = array.events();
            write_content(&device(&array)).await;
            array.fail(Slot(2)).await.expect("failed");
            let rebuild = array
                .start_replace(Slot(2), bench.new_drive(), RebuildOptions::default())
                .await
                .expect("begun");
            for op in [FaultOp::Read, FaultOp::Write, FaultOp::Flush] {
                bench.drives[4].fail(FaultSpec { after, ..FaultSpec::all(op) });
            }
            let error = rebuild.wait().await.expect_err("two drives are lost").to_string();
            assert!(error.contains("two drives") || error.contains("cannot read what drive 2"), "{error}");
            // A read without the new drive returns the right content or an error.
            let dev = device(&array);
            let size = dev.geometry().block_size as usize;
            for (zone, blocks) in BLOCKS_BY_ZONE {
                for n in 0..blocks {
                    let at = dev.geometry().start(ZoneId(zone)).plus(Blocks(n));
                    if let Ok(found) = dev.read(at, BufMut::zeroed(size)).await {
                        assert!(found[..] == block(size, zone, n)[..], "block {n} of zone {zone}");
                    }
                }
            }
            let at = dev.geometry().start(ZoneId(7));
            let data = BufMut::zeroed(4 * 2048).freeze();
            let error = dev.write(at, data, Durability::Cached).await.expect_err("nothing more is written");
            assert_eq!(error.kind(), ErrorKind::Gone);
            assert!(error.to_string().contains("two drives of the array failed"), "{error}");
            let status = array.status();
            assert_eq!((status.health(), status.broken), (Health::Failed, true));
            assert!(status.advice()[0].contains("More than one drive"), "{:?}", status.advice());
            let published = std::iter::from_fn(|| events.try_next());
            assert!(published.into_iter().any(|event| matches!(event.kind, EventKind::SecondFailure { .. })));
        });
    }
}

#[test]
fn a_replaced_drive_that_comes_back_is_left_out() {
    let mut bench = Bench::new(8, tiny_drive, 2048);
    let new = bench.new_drive();
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        array.fail(Slot(3)).await.expect("failed");
        write(&device(&array), 5, 0, 80).await;
        array.replace(Slot(3), Arc::clone(&new) as Arc<dyn ZonedDevice>).await.expect("rebuilt");
        device(&array).flush().await.expect("flushed");
    });
    let old = std::mem::replace(&mut bench.drives[3], new);
    block_on(&*bench.driver, async {
        let mut devices = bench.devices(&[]);
        devices.insert(0, Arc::clone(&old) as Arc<dyn ZonedDevice>);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        assert_eq!(array.status().health(), Health::Clean);
        verify_all(&device(&array)).await;
        verify(&device(&array), 5, 80).await;
    });
    block_on(&*bench.driver, async {
        // The old drive is missing in the place of the new drive.
        let mut devices = bench.devices(&[3]);
        devices.push(old as Arc<dyn ZonedDevice>);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        assert_eq!(array.status().members[3].state, MemberState::Failed);
        verify(&device(&array), 5, 80).await;
    });
}

#[test]
fn a_cancelled_rebuild_leaves_the_array_without_the_drive() {
    let bench = Bench::new(5, tiny_drive, 2048);
    let new = bench.new_drive();
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        assert_eq!(array.fail(Slot(9)).await.expect_err("none").kind(), ErrorKind::Invalid);
        array.fail(Slot(1)).await.expect("failed");
        assert!(
            array
                .fail(Slot(2))
                .await
                .expect_err("one is lacking")
                .to_string()
                .contains("replace that one first")
        );
        let begin = || {
            array.start_replace(Slot(1), Arc::clone(&new) as Arc<dyn ZonedDevice>, RebuildOptions::default())
        };
        let rebuild = begin().await.expect("begun");
        assert!(begin().await.expect_err("one runs").to_string().contains("runs already"));
        rebuild.cancel();
        let error = rebuild.wait().await.expect_err("cancelled");
        assert!(error.to_string().contains("cancelled"), "{error}");
        assert_eq!(array.status().members[1].state, MemberState::Failed);
        begin().await.expect("begun again").wait().await.expect("rebuilt");
        assert_eq!(array.status().health(), Health::Clean);
    });
}

/// Resets a zone and writes it anew, again and again; the zone has `blocks` blocks at the end.
async fn rewrite_zone_repeatedly(
    device: Arc<dyn ZonedDevice>,
    zone: u32,
    seed: u64,
    blocks: u64,
    over: Arc<Mutex<bool>>,
) {
    let mut rng = SplitMix64::new(seed);
    loop {
        device.zone(ZoneId(zone), Action::Reset).await.expect("reset");
        if *over.lock() {
            return write(&device, zone, 0, blocks).await;
        }
        write(&device, zone, 0, 1 + rng.draw() % 480).await;
    }
}

#[test]
fn zones_reset_and_written_during_a_rebuild_have_their_newest_content() {
    for seed in 0..12 {
        let mut bench = Bench::new(seed, tiny_drive, 2048);
        let new = bench.new_drive();
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            write_content(&device(&array)).await;
            array.fail(Slot(2)).await.expect("failed");
            let over = Arc::new(Mutex::new(false));
            let clients: Vec<_> = BLOCKS_BY_ZONE[..4]
                .iter()
                .map(|(zone, blocks)| {
                    let work = rewrite_zone_repeatedly(
                        device(&array),
                        *zone,
                        seed + u64::from(*zone),
                        *blocks,
                        Arc::clone(&over),
                    );
                    spawn(&*bench.driver, "client", work)
                })
                .collect();
            let pace = if seed % 2 == 0 { Pace::default() } else { Pace::UNBOUNDED };
            let drive = Arc::clone(&new) as Arc<dyn ZonedDevice>;
            let rebuild = array.start_replace(Slot(2), drive, RebuildOptions { pace }).await.expect("begun");
            rebuild.wait().await.expect("rebuilt");
            *over.lock() = true;
            for client in clients {
                client.await;
            }
            assert_eq!(array.status().health(), Health::Clean);
            verify_all(&device(&array)).await;
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.read_errors, report.mismatch_count), (0, 0), "{report:?}");
        });
        bench.drives[2] = new;
        block_on(&*bench.driver, async {
            let array = bench.open(&[seed as usize % 2]).await;
            verify_all(&device(&array)).await;
        });
    }
}

/// A drive with a single data zone, of 8 MiB.
fn drive_with_one_zone(driver: &Arc<dyn Driver>, name: &str) -> Arc<Emu> {
    let options = EmuOptions {
        name: name.into(),
        block_size: 512,
        zones: 4 + crate::RESERVE_ZONES,
        zone_size: Blocks(16_384),
        zone_capacity: Blocks(16_384),
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(driver))
}

/// The last rows of a zone that a client writes as fast as the rebuild copies are copied at the same pace as
/// earlier rows.
#[test]
fn the_last_rows_of_a_busy_zone_are_copied_no_faster_than_the_others() {
    // Numbers of blocks: in two stripes (eight rows on each drive); in the zone at first (more than one
    // chunk); in the zone at the end.
    const BLOCKS_OF_TWO_STRIPES: u64 = 32;
    const BLOCKS_AT_FIRST: u64 = 2048 * 4;
    const BLOCKS_AT_END: u64 = 16_384 * 4;
    // A rebuild may copy 8192 rows in a second; the client writes 8000.
    let most = Bytes(4 << 20);
    let bench = Bench::new(1, drive_with_one_zone, 2048);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        array.fail(Slot(2)).await.expect("failed");
        write(&device(&array), 0, 0, BLOCKS_AT_FIRST).await;
        let over = Arc::new(Mutex::new(false));
        let client = spawn(&*bench.driver, "client", {
            let (device, over) = (device(&array), Arc::clone(&over));
            async move {
                let (driver, start) = (Arc::clone(device.driver()), device.geometry().start(ZoneId(0)));
                let mut at = BLOCKS_AT_FIRST;
                // The client reads until the rebuild ends, so that the pace holds to the end.
                while !*over.lock() {
                    if at < BLOCKS_AT_END {
                        write(&device, 0, at, at + BLOCKS_OF_TWO_STRIPES).await;
                        at += BLOCKS_OF_TWO_STRIPES;
                    } else {
                        device.read(start, BufMut::zeroed(512)).await.expect("read");
                    }
                    sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
                }
                at
            }
        });
        let pace = Pace { max_rate: Some(most), ..Pace::default() };
        let rebuild =
            array.start_replace(Slot(2), bench.new_drive(), RebuildOptions { pace }).await.expect("begun");
        rebuild.wait().await.expect("rebuilt");
        *over.lock() = true;
        let (progress, written) = (rebuild.progress(), client.await);
        let bytes = progress.bytes.0 as f64;
        // The rebuild's last turn, a chunk or two stripes, is not waited for.
        let least = (bytes - 96.0 * 1024.0) / most.0 as f64;
        let took = progress.elapsed.as_secs_f64();
        assert!(took >= least, "{progress:?}, at least {least:.3} s");
        assert!(bytes > f64::from(6 << 20), "{progress:?}");
        assert!(written > 3 * BLOCKS_AT_END / 4, "{written} blocks: the zone was to be busy until then");
        assert_eq!(array.status().health(), Health::Clean);
        verify(&device(&array), 0, written).await;
    });
}
