//! Published figures of drives beside what their profiles give, in virtual time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Profile, Timing, ZoneFacts};
use zoned::{
    Action, Blocks, Buf, BufMut, DeviceUrl, Durability, Instant, Lba, Op, ZoneId, ZoneState, ZonedDevice,
};

const KIB: usize = 1024;

/// A published figure, ours, and how far apart they may be.
struct Row {
    what: String,
    unit: &'static str,
    published: f64,
    ours: f64,
    within: f64,
}

#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    fn row(&mut self, what: impl Into<String>, unit: &'static str, published: f64, ours: f64) {
        self.tight(what, unit, published, ours, 0.10);
    }

    fn tight(&mut self, what: impl Into<String>, unit: &'static str, published: f64, ours: f64, within: f64) {
        self.0.push(Row { what: what.into(), unit, published, ours, within });
    }

    /// Prints all rows and fails with those that miss.
    fn check(&self, profile: &str) {
        println!("{profile:<44} {:>11} {:>11}", "published", "ours");
        let mut missed = Vec::new();
        for row in &self.0 {
            let off = row.ours / row.published - 1.0;
            let line = format!(
                "{:<44} {:>11.3} {:>11.3} {:<5} {:>+6.1} %",
                row.what,
                row.published,
                row.ours,
                row.unit,
                off * 100.0
            );
            println!("{line}");
            if off.abs() > row.within {
                missed.push(format!("{line}, {} % allowed", row.within * 100.0));
            }
        }
        assert!(
            missed.is_empty(),
            "{profile}: {} of {} miss:\n{}",
            missed.len(),
            self.0.len(),
            missed.join("\n")
        );
    }
}

/// A drive of the profile and its clock, without power-cut tracking.
fn drive(url: &str) -> (Arc<dyn ZonedDevice>, Arc<dyn Driver>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let url: DeviceUrl = format!("emu:mem?{url}").parse().unwrap();
    (url.open(Arc::clone(&driver)).unwrap(), driver)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Write,
    Append,
    Random,
    Sequential,
}

/// What a closed loop measured.
struct Measured {
    /// Of each operation, sorted, in us.
    latencies: Vec<f64>,
    seconds: f64,
    bytes: usize,
}

impl Measured {
    fn mean(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len() as f64
    }

    fn p95(&self) -> f64 {
        self.latencies[self.latencies.len() * 95 / 100]
    }

    fn kiops(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds / 1e3
    }

    fn mib(&self) -> f64 {
        self.kiops() * 1e3 * self.bytes as f64 / (1024.0 * 1024.0)
    }
}

/// `tasks` tasks with an operation in flight each; task `n` uses zone `n % zones`. The first tenth is not counted:
/// by then zones are open and buffers full.
fn run(url: &str, kind: Kind, bytes: usize, tasks: u32, zones: u32, count: usize) -> Measured {
    let (device, driver) = drive(url);
    closed_loop(&device, &driver, kind, bytes, tasks, zones, count)
}

fn closed_loop(
    device: &Arc<dyn ZonedDevice>,
    driver: &Arc<dyn Driver>,
    kind: Kind,
    bytes: usize,
    tasks: u32,
    zones: u32,
    count: usize,
) -> Measured {
    let results: Arc<Mutex<Vec<(Instant, Instant)>>> = Arc::default();
    let left = Arc::new(Mutex::new(count));
    let data = Buf::copy_from(&vec![7; bytes]);
    let cursor = Arc::new(Mutex::new(0_u64));
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (device, driver, data) = (Arc::clone(device), Arc::clone(driver), data.clone());
            let (results, left, cursor) = (Arc::clone(&results), Arc::clone(&left), Arc::clone(&cursor));
            let work = Arc::clone(&driver);
            spawn(&*work, "load", async move {
                let geometry = device.geometry().clone();
                let blocks = bytes as u64 / u64::from(geometry.block_size);
                let zone = ZoneId(task % zones);
                let mut at = geometry.start(zone);
                loop {
                    {
                        let mut left = left.lock();
                        if *left == 0 {
                            return;
                        }
                        *left -= 1;
                    }
                    let begin = driver.now();
                    match kind {
                        Kind::Write => {
                            device.write(at, data.clone(), Durability::Cached).await.unwrap();
                            at = at.plus(Blocks(blocks));
                        }
                        Kind::Append => {
                            device.append(zone, data.clone(), Durability::Cached).await.unwrap();
                        }
                        Kind::Random => {
                            let slots = geometry.zone_capacity.0 / blocks;
                            let zone = ZoneId((driver.random() % u64::from(geometry.zones)) as u32);
                            let at = geometry.start(zone).plus(Blocks(driver.random() % slots * blocks));
                            device.read(at, BufMut::zeroed(bytes)).await.unwrap();
                        }
                        Kind::Sequential => {
                            let at = {
                                let mut cursor = cursor.lock();
                                *cursor += blocks;
                                Lba(*cursor - blocks)
                            };
                            device.read(at, BufMut::zeroed(bytes)).await.unwrap();
                        }
                    }
                    results.lock().push((begin, driver.now()));
                }
            })
        })
        .collect();
    block_on(&**driver, async {
        for task in tasks {
            task.await;
        }
    });
    let results = std::mem::take(&mut *results.lock());
    let warm = results.len() / 10;
    let (from, to) = (results[warm - 1].1, results[results.len() - 1].1);
    let mut latencies: Vec<f64> =
        results[warm..].iter().map(|(begin, end)| end.since(*begin).as_nanos() as f64 / 1e3).collect();
    latencies.sort_by(f64::total_cmp);
    Measured { latencies, seconds: to.since(from).as_secs_f64(), bytes }
}

/// The time of one operation on a drive that rests, in us.
fn once(profile: &str, op: Op, state: ZoneState, written: u64) -> f64 {
    let options = EmuOptions::of_profile(Profile::load(profile).unwrap());
    let timing = Timing::of(&options, &options.geometry().unwrap());
    let facts = ZoneFacts { state, written: Blocks(written) };
    let end = timing.completion(&mut timing.rested(), Instant(0), &op, Some(facts));
    end.0 as f64 / 1e3
}

fn act(profile: &str, action: Action, state: ZoneState, written: u64) -> f64 {
    once(profile, Op::Zone { zone: ZoneId(0), action }, state, written)
}

#[test]
fn confzns_is_as_the_zwal_artefact_measured() {
    let mut table = Table::default();
    let write = run("profile=confzns", Kind::Write, 8 * KIB, 1, 1, 2000);
    table.tight("write 8K, QD 1", "kIOPS", 2.064, write.kiops(), 0.03);
    for (depth, published) in
        [(1, 2.067), (2, 4.136), (4, 6.420), (8, 12.40), (16, 23.53), (32, 35.55), (64, 35.55)]
    {
        let within = if matches!(depth, 4..=16) { 0.10 } else { 0.03 };
        let fit = if within > 0.03 { " (fitted term)" } else { "" };
        let ours = run("profile=confzns", Kind::Append, 8 * KIB, depth, 1, 10_000);
        table.tight(format!("append 8K, QD {depth}{fit}"), "kIOPS", published, ours.kiops(), within);
        if depth == 1 {
            table.tight("append 8K, QD 1", "us", 483.0, ours.mean(), 0.03);
        }
    }
    let read = run("profile=confzns", Kind::Sequential, 64 * KIB, 1, 1, 1000);
    table.row("sequential read 64K, one at a time", "MiB/s", 417.0, read.mib());
    table.check("confzns");
}

#[test]
fn zn540_writes_are_as_published() {
    let mut table = Table::default();
    let sizes = [4, 8, 16, 32, 64, 128];
    let writes = [11.4, 11.2, 16.3, 26.4, 53.2, 106.6];
    let appends = [14.8, 14.0, 20.1, 27.9, 53.1, 106.7];
    let small = "profile=zn540&zones=8";
    for (kib, (write, append)) in sizes.into_iter().zip(writes.into_iter().zip(appends)) {
        let count = 5000;
        let ours = run(small, Kind::Write, kib * KIB, 1, 1, count.min(64 * KIB / kib)).mean();
        table.row(format!("write {kib}K, QD 1"), "us", write, ours);
        let ours = run(small, Kind::Append, kib * KIB, 1, 1, count.min(64 * KIB / kib)).mean();
        table.row(format!("append {kib}K, QD 1"), "us", append, ours);
    }
    for (depth, published) in [(1, 65.7), (2, 111.7), (4, 132.2), (8, 132.0)] {
        let ours = run(small, Kind::Append, 4 * KIB, depth, 1, 20_000).kiops();
        table.row(format!("append 4K, one zone, QD {depth}"), "kIOPS", published, ours);
    }
    for (zones, published) in [(1, 85.0), (2, 142.0), (4, 180.0), (8, 186.0)] {
        let ours = run(small, Kind::Write, 4 * KIB, zones, zones, 20_000).kiops();
        table.row(format!("write 4K, QD 1 in each of {zones} zones"), "kIOPS", published, ours);
    }
    let ours = run(small, Kind::Append, 8 * KIB, 4, 1, 20_000).kiops();
    table.row("append 8K, QD 4", "kIOPS", 146.5, ours);
    table.row("sequential write 128K", "MiB/s", 1052.0, run(small, Kind::Write, 128 * KIB, 1, 1, 4000).mib());
    for zones in [1, 2, 8] {
        let ours = run(small, Kind::Append, 128 * KIB, 8, zones, 4000).mib();
        table.row(format!("write cap, 128K appends to {zones} zones"), "MiB/s", 1150.0, ours);
    }
    table.check("zn540: writes");
}

#[test]
fn zn540_under_io_uring_is_as_published() {
    let text = Profile::text("zn540").unwrap().replace("latency = \"0us\"", "latency = \"4.1us\"");
    let options = EmuOptions { zones: 8, ..EmuOptions::of_profile(Profile::parse("zn540", &text).unwrap()) };
    let mut table = Table::default();
    let mut measure = |kind, depth, published| {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let device: Arc<dyn ZonedDevice> = Emu::memory(options.clone(), Arc::clone(&driver));
        let ours = closed_loop(&device, &driver, kind, 8 * KIB, depth, 1, 20_000).kiops();
        let name = if kind == Kind::Write { "write" } else { "append" };
        table.row(format!("{name} 8K, QD {depth}"), "kIOPS", published, ours);
    };
    measure(Kind::Write, 1, 62.0);
    for (depth, published) in [(1, 56.4), (2, 106.0), (4, 149.5), (8, 149.4)] {
        measure(Kind::Append, depth, published);
    }
    table.check("zn540: io_uring");
}

#[test]
fn zn540_reads_are_as_published() {
    let mut table = Table::default();
    let drive = "profile=zn540";
    for (kib, published) in [(4, 72.6), (8, 84.2), (16, 101.6)] {
        let ours = run(drive, Kind::Random, kib * KIB, 1, 1, 5000).mean();
        table.row(format!("random read {kib}K, QD 1"), "us", published, ours);
    }
    for (depth, published) in [(1, 13.7), (8, 98.6), (32, 274.0), (256, 437.0)] {
        let ours = run(drive, Kind::Random, 4 * KIB, depth, 1, 30_000).kiops();
        table.row(format!("random read 4K, QD {depth}"), "kIOPS", published, ours);
    }
    let ours = run(drive, Kind::Sequential, 128 * KIB, 32, 1, 5000).mib();
    table.row("sequential read 128K, QD 32", "MiB/s", 3265.0, ours);
    table.check("zn540: reads");
}

/// Mean and p95 of 4 KiB reads at queue depth 1 beside `rate` MiB/s of writes. (Their size is not published.)
fn reads_beside_writes(rate: u64) -> (f64, f64) {
    const COUNT: usize = 10_000;
    const WRITE: usize = 16 * KIB;
    let (device, driver) = drive("profile=zn540&zones=16");
    let done = Arc::new(Mutex::new(false));
    let writer = (rate > 0).then(|| {
        let (device, driver, done) = (Arc::clone(&device), Arc::clone(&driver), Arc::clone(&done));
        let work = Arc::clone(&driver);
        spawn(&*work, "writer", async move {
            let data = Buf::copy_from(&vec![7; WRITE]);
            let mut due = driver.now();
            // Zones are used again at a quarter: a full one would take the memory of this test.
            for round in 0.. {
                let zone = ZoneId(round % 2);
                for _ in 0..256 * 1024 * KIB / WRITE {
                    if *done.lock() {
                        return;
                    }
                    sleep_until(&*driver, due).await;
                    due = due.after(Duration::from_nanos(1_000_000_000 * WRITE as u64 / (rate << 20)));
                    drop(device.append(zone, data.clone(), Durability::Cached));
                }
                drop(device.zone(zone, Action::Reset));
            }
        })
    });
    // The writes have filled what they fill.
    block_on(&*driver, sleep_until(&*driver, Instant(20_000_000)));
    let reads = closed_loop(&device, &driver, Kind::Random, 4 * KIB, 1, 1, COUNT);
    *done.lock() = true;
    if let Some(writer) = writer {
        block_on(&*driver, writer);
    }
    (reads.mean(), reads.p95())
}

#[test]
fn zn540_reads_beside_writes_are_as_published() {
    let mut table = Table::default();
    for (rate, mean, p95) in
        [(0, 72.9, 81.0), (100, 84.0, 169.0), (250, 100.0, 222.0), (500, 129.0, 261.0), (1000, 187.0, 313.0)]
    {
        let ours = reads_beside_writes(rate);
        table.row(format!("read 4K, QD 1, writes at {rate} MiB/s: mean"), "us", mean, ours.0);
        table.row(format!("read 4K, QD 1, writes at {rate} MiB/s: p95"), "us", p95, ours.1);
    }
    table.check("zn540: reads beside writes");
}

#[test]
fn zn540_zone_commands_are_as_published() {
    let mut table = Table::default();
    let open = |append: bool| {
        let data = Buf::copy_from(&[7; 8 * KIB]);
        let op = |data: Buf| match append {
            true => Op::Append { zone: ZoneId(0), data, how: Durability::Cached },
            false => Op::Write { at: Lba(0), data, how: Durability::Cached },
        };
        once("zn540", op(data.clone()), ZoneState::Empty, 0)
            - once("zn540", op(data), ZoneState::ImplicitOpen, 0)
    };
    table.row("explicit open", "us", 9.6, act("zn540", Action::Open, ZoneState::Empty, 0));
    table.row("implicit open by a write, added", "us", 2.0, open(false));
    table.row("implicit open by an append, added", "us", 2.8, open(true));
    table.row("close", "us", 11.0, act("zn540", Action::Close, ZoneState::ExplicitOpen, 9));
    let full = 1077 * 256;
    let fills = [
        ("empty", 0, 1.6),
        ("one block", 1, 1.7),
        ("6.25 %", full / 16, 5.2),
        ("12.5 %", full / 8, 6.0),
        ("25 %", full / 4, 7.9),
        ("50 %", full / 2, 11.3),
        ("full", full, 15.8),
    ];
    for (name, written, published) in fills {
        let state = match written {
            0 => ZoneState::Empty,
            w if w == full => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        let ours = act("zn540", Action::Reset, state, written) / 1e3;
        table.row(format!("reset, {name}"), "ms", published, ours);
    }
    let fills = [
        ("one block", 1, 907.0),
        ("25 %", full / 4, 681.0),
        ("50 %", full / 2, 457.0),
        ("all but one", full - 1, 2.6),
    ];
    for (name, written, published) in fills {
        let ours = act("zn540", Action::Finish, ZoneState::Closed, written) / 1e3;
        table.row(format!("finish, {name}"), "ms", published, ours);
    }
    table.row("finish, empty", "us", 13.5, act("zn540", Action::Finish, ZoneState::Empty, 0));
    table.check("zn540: zone commands");
}

#[test]
fn smallzone_is_as_published() {
    let mut table = Table::default();
    let drive = "profile=smallzone&zones=512";
    table.row("append 4K, QD 1", "us", 93.0, run(drive, Kind::Append, 4 * KIB, 1, 1, 2000).mean());
    let ours = run(drive, Kind::Append, 128 * KIB, 4, 1, 500).mib();
    table.row("appends to one zone", "MiB/s", 87.0, ours);
    let ours = run(drive, Kind::Append, 128 * KIB, 32, 8, 4000).mib();
    table.row("appends to eight zones", "MiB/s", 8.0 * 87.0, ours);
    let report = once("smallzone", Op::Report { zones: 7..8 }, ZoneState::Empty, 0);
    table.row("report of one zone", "us", 6687.0, report);
    table.check("smallzone");
}

#[test]
fn an_url_says_more_than_the_profile_and_the_profile_more_than_the_default() {
    let options = |url: &str| url.parse::<DeviceUrl>().unwrap().options().unwrap();
    let mib = |n: u64| Blocks(n * 256);
    let plain = options("emu:mem?profile=zn540");
    assert_eq!((plain.zones, plain.zone_size, plain.zone_capacity), (904, mib(2048), mib(1077)));
    assert_eq!((plain.max_open, plain.max_append, plain.volatile_cache), (Some(14), mib(1), false));
    let own = options("emu:mem?profile=zn540&zones=8&zone-size=64MiB&max-open=4&cache=volatile");
    assert_eq!((own.zones, own.zone_size, own.zone_capacity), (8, mib(64), mib(64)));
    assert_eq!((own.max_open, own.max_active, own.volatile_cache), (Some(4), Some(14), true));
    let small = options("emu:mem?profile=smr&zones=400&zone-size=1MiB");
    assert_eq!((small.zones, small.conventional), (400, 4));
    let big = options("emu:mem?profile=zn540&block-size=16384");
    assert_eq!((big.zone_size, big.max_append), (Blocks(2048 * 64), Blocks(64)));
}

#[test]
fn a_profile_of_ones_own_is_read_from_its_file_and_a_bad_line_is_named() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let url = format!("emu:mem?profile={}&zones=4", file.path().display());
    std::fs::write(file.path(), Profile::text("confzns").unwrap().replace("8.8us", "108.8us")).unwrap();
    let (device, driver) = drive(url.trim_start_matches("emu:mem?"));
    device.append(ZoneId(0), Buf::copy_from(&[1; 8 * KIB]), Durability::Cached).wait().unwrap();
    assert_eq!(driver.now().0, 583_800);
    std::fs::write(file.path(), "[geometry]\nzones = 4\n\n[flush]\nlatency = \"1us\"\nlatncy = \"1us\"\n")
        .unwrap();
    let refusal = url.parse::<DeviceUrl>().unwrap_err().to_string();
    assert!(refusal.contains(&format!("{}:6: ", file.path().display())), "{refusal}");
    assert!(refusal.contains("latncy"), "{refusal}");
}

#[test]
fn dilation_stretches_every_time_and_nothing_else() {
    for kind in [Kind::Append, Kind::Random] {
        let plain = run("profile=zn540&zones=4", kind, 8 * KIB, 4, 1, 2000);
        let slow = run("profile=zn540&zones=4&dilated=10", kind, 8 * KIB, 4, 1, 2000);
        assert_eq!((plain.kiops() * 1e3).round(), (slow.kiops() * 1e4).round());
        assert_eq!((plain.mean() * 10.0).round(), slow.mean().round());
    }
    let (device, driver) = drive("delay=15us&dilated=3");
    device.flush().wait().unwrap();
    assert_eq!(driver.now().0, 45_000);
}

#[test]
fn on_the_real_clock_operations_take_at_least_their_time() {
    let driver: Arc<dyn Driver> = units::RealDriver::new();
    let device = zoned::open("emu:mem?profile=confzns&dilated=2", Arc::clone(&driver)).unwrap();
    let begin = driver.now();
    let data = Buf::copy_from(&[1; 8 * KIB]);
    let ios: Vec<_> = (0..2).map(|_| device.append(ZoneId(0), data.clone(), Durability::Cached)).collect();
    for io in ios {
        io.wait().unwrap();
    }
    // The second's turn at the controller comes after the first's.
    assert!(driver.now().since(begin) >= Duration::from_nanos(2 * (483_800 + 28_120)));
}

#[test]
fn the_same_run_takes_the_same_time() {
    let time = || run("profile=zn540&zones=4", Kind::Random, 4 * KIB, 16, 1, 2000).seconds.to_bits();
    assert_eq!(time(), time());
}

#[test]
fn a_drive_without_times_completes_at_once() {
    let (device, driver) = drive("profile=null&dilated=7");
    let append = device.append(ZoneId(0), Buf::copy_from(&[1; 4 * KIB]), Durability::Cached);
    assert_eq!(format!("{append:?}"), "Io(ready)");
    append.wait().unwrap();
    assert_eq!(driver.now(), Instant::ORIGIN);
}
