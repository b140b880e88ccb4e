//! Published numbers of drives beside the numbers of their emulated profiles, in virtual time.
//!
//! The numbers are from the raw data of the ZWAL artefact and of the CLUSTER'23 characterisation of ZNS drives, and for
//! sequential transfers from RAIZN; `crates/zoned/profiles` has the source of each.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Instant, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Profile, Timing, ZoneFacts};
use zoned::{Action, Blocks, Buf, Durability, Lba, Op, Result, ZoneId, ZoneState, ZonedDevice};

use super::closed_loop::{ClosedLoop, Kind, Measured, drive};
use crate::figure::Figure;
use crate::row::{Row, Unit};
use crate::svg::{Panel, Shape};

/// The name of the figure in rows and of its files.
pub const FIGURE: &str = "profiles";

/// The figure with each published number of a drive beside the number of its profile.
pub const PROFILES: Figure = Figure {
    name: FIGURE,
    title: "Drive profiles: how far ours are from what was published",
    panels: &[Panel::new(FIGURE, "", "ours / published - 1, %", "", Shape::Deviation { allowed: 10.0 })],
    measure: |run| {
        let mut rows = Vec::new();
        for (name, measure) in GROUPS {
            (run.progress)(name);
            let group = measure().map_err(|e| crate::Error::new(format!("measuring {name}"), e))?;
            rows.extend(group.into_iter().map(|checked| checked.row));
        }
        Ok(rows)
    },
};

const KIB: usize = 1024;

/// The allowed deviation from a published number, as a share, unless a row has its own.
const ALLOWED_DEVIATION: f64 = 0.10;

/// A row of the figure, and its allowed deviation as a share of the published number.
#[derive(Clone, Debug)]
pub struct CheckedRow {
    /// The row; its published number `paper` is not `None`.
    pub row: Row,
    /// The allowed deviation as a share of the published number: 0.10 for most rows.
    pub within: f64,
}

impl CheckedRow {
    /// Whether the profile's number is within the allowed deviation.
    pub fn holds(&self) -> bool {
        self.row.ratio().is_some_and(|ratio| (ratio - 1.0).abs() <= self.within)
    }
}

/// A group of published numbers: its name and its measurement.
pub type Group = (&'static str, fn() -> Result<Vec<CheckedRow>>);

/// Every published number of a drive, in the order of the profile files.
pub const GROUPS: [Group; 7] = [
    ("confzns", confzns),
    ("zn540: writes", zn540_writes),
    ("zn540: io_uring", zn540_io_uring),
    ("zn540: reads", zn540_reads),
    ("zn540: reads beside writes", zn540_reads_beside_writes),
    ("zn540: zone commands", zn540_zone_commands),
    ("smallzone", smallzone),
];

/// The rows of one group of published numbers.
struct Table {
    group: &'static str,
    rows: Vec<CheckedRow>,
}

impl Table {
    fn new(group: &'static str) -> Table {
        Table { group, rows: Vec::new() }
    }

    fn row(&mut self, what: impl Into<String>, unit: Unit, published: f64, ours: f64) {
        self.row_within(what, unit, published, ours, ALLOWED_DEVIATION);
    }

    fn row_within(&mut self, what: impl Into<String>, unit: Unit, published: f64, ours: f64, within: f64) {
        let row = Row::new(FIGURE, self.group, what.into(), unit, ours)
            .paper(published)
            .note(format!("within {:.0} %", within * 100.0));
        self.rows.push(CheckedRow { row, within });
    }
}

/// Runs a closed loop on a new drive; task `n` uses zone `n % zones`.
fn run(url: &str, kind: Kind, bytes: usize, depth: u32, zones: u32, count: usize) -> Result<Measured> {
    ClosedLoop { kind, bytes, depth, zones, count }.on(url)
}

/// The time of one operation on an idle drive, in us.
fn idle_drive_latency(profile: &str, op: &Op, state: ZoneState, written: u64) -> Result<f64> {
    let options = EmuOptions::of_profile(Profile::load(profile).expect("the profile is built in"));
    let timing = Timing::of(&options, &options.geometry()?);
    let facts = ZoneFacts { state, written: Blocks(written) };
    let end = timing.completion(&mut timing.rested(), Instant(0), op, Some(facts));
    Ok(end.0 as f64 / 1e3)
}

fn act(profile: &str, action: Action, state: ZoneState, written: u64) -> Result<f64> {
    idle_drive_latency(profile, &Op::Zone { zone: ZoneId(0), action }, state, written)
}

/// Numbers of `confzns`, the drive model of the ZWAL artefact.
pub fn confzns() -> Result<Vec<CheckedRow>> {
    const DRIVE: &str = "profile=confzns";
    let mut table = Table::new("confzns");
    let write = run(DRIVE, Kind::Write, 8 * KIB, 1, 1, 2000)?;
    table.row_within("write 8K, QD 1", Unit::Kiops, 2.064, write.kiops(), 0.03);
    for (depth, published) in CONFZNS_APPEND_8K {
        let within = if matches!(depth, 4..=16) { ALLOWED_DEVIATION } else { 0.03 };
        let fit = if within > 0.03 { " (fitted term)" } else { "" };
        let ours = run(DRIVE, Kind::Append, 8 * KIB, depth, 1, 10_000)?;
        table.row_within(format!("append 8K, QD {depth}{fit}"), Unit::Kiops, published, ours.kiops(), within);
        if depth == 1 {
            table.row_within("append 8K, QD 1", Unit::Us, 483.0, ours.mean(), 0.03);
        }
    }
    let read = run(DRIVE, Kind::Sequential, 64 * KIB, 1, 1, 1000)?;
    table.row("sequential read 64K, one at a time", Unit::MibPerS, 417.0, read.mib());
    Ok(table.rows)
}

/// Published kIOPS of 8 KiB appends to one zone of `confzns`, by queue depth; writes at depth 1: 2.064.
pub(super) const CONFZNS_APPEND_8K: [(u32, f64); 7] =
    [(1, 2.067), (2, 4.136), (4, 6.420), (8, 12.40), (16, 23.53), (32, 35.55), (64, 35.55)];

/// Numbers of writes and appends to `zn540` through SPDK.
pub fn zn540_writes() -> Result<Vec<CheckedRow>> {
    const DRIVE: &str = "profile=zn540&zones=8";
    let mut table = Table::new("zn540: writes");
    let sizes = [4, 8, 16, 32, 64, 128];
    let writes = [11.4, 11.2, 16.3, 26.4, 53.2, 106.6];
    let appends = [14.8, 14.0, 20.1, 27.9, 53.1, 106.7];
    for (kib, (write, append)) in sizes.into_iter().zip(writes.into_iter().zip(appends)) {
        let count = (64 * KIB / kib).min(5000);
        let ours = run(DRIVE, Kind::Write, kib * KIB, 1, 1, count)?.mean();
        table.row(format!("write {kib}K, QD 1"), Unit::Us, write, ours);
        let ours = run(DRIVE, Kind::Append, kib * KIB, 1, 1, count)?.mean();
        table.row(format!("append {kib}K, QD 1"), Unit::Us, append, ours);
    }
    for (depth, published) in [(1, 65.7), (2, 111.7), (4, 132.2), (8, 132.0)] {
        let ours = run(DRIVE, Kind::Append, 4 * KIB, depth, 1, 20_000)?.kiops();
        table.row(format!("append 4K, one zone, QD {depth}"), Unit::Kiops, published, ours);
    }
    for (zones, published) in [(1, 85.0), (2, 142.0), (4, 180.0), (8, 186.0)] {
        let ours = run(DRIVE, Kind::Write, 4 * KIB, zones, zones, 20_000)?.kiops();
        table.row(format!("write 4K, QD 1 in each of {zones} zones"), Unit::Kiops, published, ours);
    }
    let ours = run(DRIVE, Kind::Append, 8 * KIB, 4, 1, 20_000)?.kiops();
    table.row("append 8K, QD 4", Unit::Kiops, 146.5, ours);
    let ours = run(DRIVE, Kind::Write, 128 * KIB, 1, 1, 4000)?.mib();
    table.row("sequential write 128K", Unit::MibPerS, 1052.0, ours);
    for zones in [1, 2, 8] {
        let ours = run(DRIVE, Kind::Append, 128 * KIB, 8, zones, 4000)?.mib();
        table.row(format!("write cap, 128K appends to {zones} zones"), Unit::MibPerS, 1150.0, ours);
    }
    Ok(table.rows)
}

/// Published kIOPS of 8 KiB writes at queue depth 1 to one zone of `zn540`, through io_uring.
pub(super) const ZN540_WRITE_8K: f64 = 62.0;

/// Published kIOPS of 8 KiB appends to one zone of `zn540`, by queue depth, through io_uring.
pub(super) const ZN540_APPEND_8K: [(u32, f64); 4] = [(1, 56.4), (2, 106.0), (4, 149.5), (8, 149.4)];

/// A `zn540` of eight zones with the latency of io_uring instead of SPDK.
pub(super) fn zn540_under_io_uring() -> Arc<dyn ZonedDevice> {
    let text = Profile::text("zn540").expect("the profile is built in");
    let text = text.replace("latency = \"0us\"", "latency = \"4.1us\"");
    let profile = Profile::parse("zn540", &text).expect("one latency for another leaves it well formed");
    let options = EmuOptions { zones: 8, ..EmuOptions::of_profile(profile) };
    Emu::memory(options, VirtualDriver::new(1))
}

/// Numbers of writes and appends to `zn540` through io_uring.
pub fn zn540_io_uring() -> Result<Vec<CheckedRow>> {
    let mut table = Table::new("zn540: io_uring");
    let measure = |kind, depth| {
        let load = ClosedLoop { kind, bytes: 8 * KIB, depth, zones: 1, count: 20_000 };
        load.run(&zn540_under_io_uring()).map(|measured| measured.kiops())
    };
    table.row("write 8K, QD 1", Unit::Kiops, ZN540_WRITE_8K, measure(Kind::Write, 1)?);
    for (depth, published) in ZN540_APPEND_8K {
        let ours = measure(Kind::Append, depth)?;
        table.row(format!("append 8K, QD {depth}"), Unit::Kiops, published, ours);
    }
    Ok(table.rows)
}

/// Numbers of reads of a `zn540` that does nothing else.
pub fn zn540_reads() -> Result<Vec<CheckedRow>> {
    const DRIVE: &str = "profile=zn540";
    let mut table = Table::new("zn540: reads");
    for (kib, published) in [(4, 72.6), (8, 84.2), (16, 101.6)] {
        let ours = run(DRIVE, Kind::Random, kib * KIB, 1, 1, 5000)?.mean();
        table.row(format!("random read {kib}K, QD 1"), Unit::Us, published, ours);
    }
    for (depth, published) in [(1, 13.7), (8, 98.6), (32, 274.0), (256, 437.0)] {
        let ours = run(DRIVE, Kind::Random, 4 * KIB, depth, 1, 30_000)?.kiops();
        table.row(format!("random read 4K, QD {depth}"), Unit::Kiops, published, ours);
    }
    let ours = run(DRIVE, Kind::Sequential, 128 * KIB, 32, 1, 5000)?.mib();
    table.row("sequential read 128K, QD 32", Unit::MibPerS, 3265.0, ours);
    Ok(table.rows)
}

/// Mean and p95 latency in us of reads of `zn540` beside writes.
pub fn zn540_reads_beside_writes() -> Result<Vec<CheckedRow>> {
    let mut table = Table::new("zn540: reads beside writes");
    for (rate, mean, p95) in
        [(0, 72.9, 81.0), (100, 84.0, 169.0), (250, 100.0, 222.0), (500, 129.0, 261.0), (1000, 187.0, 313.0)]
    {
        let ours = reads_beside_writes(rate)?;
        table.row(format!("read 4K, QD 1, writes at {rate} MiB/s: mean"), Unit::Us, mean, ours.mean());
        table.row(format!("read 4K, QD 1, writes at {rate} MiB/s: p95"), Unit::Us, p95, ours.p95());
    }
    Ok(table.rows)
}

/// Runs 4 KiB reads at queue depth 1 beside `rate` MiB/s of writes. (The size of the reads is not published.)
fn reads_beside_writes(rate: u64) -> Result<Measured> {
    const WRITE: usize = 16 * KIB;
    let (device, driver) = drive("profile=zn540&zones=16")?;
    let done = Arc::new(Mutex::new(false));
    let writer = (rate > 0).then(|| {
        let (device, driver, done) = (Arc::clone(&device), Arc::clone(&driver), Arc::clone(&done));
        let work = Arc::clone(&driver);
        spawn(&*work, "writer", async move {
            let data = Buf::copy_from(&vec![7; WRITE]);
            let mut due = driver.now();
            // A zone is reset and used again when a quarter of it is written: full zones would take all memory of this machine.
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
    // The reads begin when the drive's write buffer is full.
    block_on(&*driver, sleep_until(&*driver, Instant(20_000_000)));
    let load = ClosedLoop { kind: Kind::Random, bytes: 4 * KIB, depth: 1, zones: 1, count: 10_000 };
    let reads = load.run(&device)?;
    *done.lock() = true;
    if let Some(writer) = writer {
        block_on(&*driver, writer);
    }
    Ok(reads)
}

/// Times of the zone commands of `zn540`: open, close, reset, finish.
pub fn zn540_zone_commands() -> Result<Vec<CheckedRow>> {
    const DRIVE: &str = "zn540";
    let mut table = Table::new("zn540: zone commands");
    let open = |append: bool| {
        let data = || Buf::copy_from(&[7; 8 * KIB]);
        let op = || match append {
            true => Op::Append { zone: ZoneId(0), data: data(), how: Durability::Cached },
            false => Op::Write { at: Lba(0), data: data(), how: Durability::Cached },
        };
        let open = idle_drive_latency(DRIVE, &op(), ZoneState::ImplicitOpen, 0)?;
        idle_drive_latency(DRIVE, &op(), ZoneState::Empty, 0).map(|empty| empty - open)
    };
    table.row("explicit open", Unit::Us, 9.6, act(DRIVE, Action::Open, ZoneState::Empty, 0)?);
    table.row("implicit open by a write, added", Unit::Us, 2.0, open(false)?);
    table.row("implicit open by an append, added", Unit::Us, 2.8, open(true)?);
    table.row("close", Unit::Us, 11.0, act(DRIVE, Action::Close, ZoneState::ExplicitOpen, 9)?);
    let full = 1077 * 256;
    let fills = [
        ("empty", 0, ZoneState::Empty, 1.6),
        ("one block", 1, ZoneState::Closed, 1.7),
        ("6.25 %", full / 16, ZoneState::Closed, 5.2),
        ("12.5 %", full / 8, ZoneState::Closed, 6.0),
        ("25 %", full / 4, ZoneState::Closed, 7.9),
        ("50 %", full / 2, ZoneState::Closed, 11.3),
        ("full", full, ZoneState::Full, 15.8),
    ];
    for (name, written, state, published) in fills {
        let ours = act(DRIVE, Action::Reset, state, written)? / 1e3;
        table.row(format!("reset, {name}"), Unit::Ms, published, ours);
    }
    let fills = [
        ("one block", 1, 907.0),
        ("25 %", full / 4, 681.0),
        ("50 %", full / 2, 457.0),
        ("all but one", full - 1, 2.6),
    ];
    for (name, written, published) in fills {
        let ours = act(DRIVE, Action::Finish, ZoneState::Closed, written)? / 1e3;
        table.row(format!("finish, {name}"), Unit::Ms, published, ours);
    }
    table.row("finish, empty", Unit::Us, 13.5, act(DRIVE, Action::Finish, ZoneState::Empty, 0)?);
    Ok(table.rows)
}

/// Numbers of `smallzone`, a drive of many small zones, each on one die.
pub fn smallzone() -> Result<Vec<CheckedRow>> {
    const DRIVE: &str = "profile=smallzone&zones=512";
    let mut table = Table::new("smallzone");
    let ours = run(DRIVE, Kind::Append, 4 * KIB, 1, 1, 2000)?.mean();
    table.row("append 4K, QD 1", Unit::Us, 93.0, ours);
    let ours = run(DRIVE, Kind::Append, 128 * KIB, 4, 1, 500)?.mib();
    table.row("appends to one zone", Unit::MibPerS, 87.0, ours);
    let ours = run(DRIVE, Kind::Append, 128 * KIB, 32, 8, 4000)?.mib();
    table.row("appends to eight zones", Unit::MibPerS, 8.0 * 87.0, ours);
    let report = idle_drive_latency("smallzone", &Op::Report { zones: 7..8 }, ZoneState::Empty, 0)?;
    table.row("report of one zone", Unit::Us, 6687.0, report);
    Ok(table.rows)
}
