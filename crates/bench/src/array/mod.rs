//! The throughput and latency of an array beside those of its drives, in virtual time, so that the numbers are the same
//! on every machine. Paper: RAIZN, section 4.4.

mod appends;
mod atomic_writes;
mod bed;
mod joined_zones;
mod mounts;
mod reclaim;
mod spares;
mod stored_maps;
mod two_parities;

use std::sync::Arc;
use std::time::Duration;

use ::array::{Pace, RebuildOptions, Slot};
use serde::Serialize;
use units::{Instant, block_on, sleep_until};
use zoned::{Buf, Bytes, Durability, Lba, Result, ZonedDevice};

pub use bed::{Bed, Kind, Load, Setup, Time, fill_with_zeros, reset};
pub use reclaim::{Order, Overwrite, Pass, Passes};
pub use spares::{LostDrive, Recovered};

use crate::Recorder;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Writes in flight of the load whose limit is the drives' rate in commands.
const MANY_IN_FLIGHT: usize = 512;

/// Number of writes in a mean latency, and the drive's rest between two of them.
const RESTED_WRITES: u64 = 50;
const REST_BETWEEN_WRITES: Duration = Duration::from_millis(1);

/// The throughput and latencies of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The throughput in MiB a second.
    pub mib: f64,
    /// The mean latency in us.
    pub mean: f64,
    /// The median latency in us.
    pub p50: f64,
    /// The 99th percentile of the latencies in us.
    pub p99: f64,
    /// The 99.9th percentile of the latencies in us.
    pub p99_9: f64,
}

impl Summary {
    /// The summary of operations of `size` bytes in the order of their ends. The first tenth is not counted: by then zones are
    /// open and buffers full.
    pub fn of(times: &[Time], size: Bytes) -> Summary {
        let (warm, counted) = times.split_at(times.len() / 10);
        let end = |times: &[Time]| times.last().map_or(Instant::ORIGIN, |(_, end)| *end);
        // The count begins when the last operation of the warm-up ends.
        let begin = warm
            .last()
            .or(counted.first())
            .map_or(Instant::ORIGIN, |(b, e)| if warm.is_empty() { *b } else { *e });
        let mut recorder = Recorder::new();
        counted.iter().for_each(|(begin, end)| recorder.record(end.since(*begin)));
        let summary = recorder.summary(1);
        let seconds = end(counted).since(begin).as_secs_f64();
        let mib =
            if seconds > 0.0 { counted.len() as f64 * size.0 as f64 / MIB as f64 / seconds } else { 0.0 };
        Summary { mib, mean: summary.mean, p50: summary.p50, p99: summary.p99, p99_9: summary.p99_9 }
    }
}

/// A number of an array beside its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// A description of the load.
    pub what: String,
    /// The array's number.
    pub ours: f64,
    /// The unit of both numbers.
    pub unit: &'static str,
    /// The reference number, such as the drives' rate.
    pub against: f64,
    /// A description of the reference number.
    pub which: String,
    /// The array's number over the reference.
    pub ratio: f64,
    /// The goal for the ratio: rates have at least this ratio, latencies and copies at most.
    pub wanted: f64,
}

impl Line {
    fn rate(what: impl Into<String>, ours: f64, against: f64, which: impl Into<String>) -> Line {
        Line {
            what: what.into(),
            ours,
            unit: "MiB/s",
            against,
            which: which.into(),
            ratio: ours / against,
            wanted: 0.98,
        }
    }

    fn latency(what: impl Into<String>, ours: f64, against: f64, which: impl Into<String>) -> Line {
        Line { unit: "us", wanted: 1.1, ..Line::rate(what, ours, against, which) }
    }

    /// The line in words, for the tests.
    #[cfg(test)]
    fn words(&self) -> String {
        format!("{}: {:.1} of {:.1} {}, {:.3}", self.what, self.ours, self.against, self.unit, self.ratio)
    }

    /// Whether the ratio reaches the goal.
    pub fn holds(&self) -> bool {
        // Latencies, and what is copied.
        let is_at_most = matches!(self.unit, "us" | "MiB");
        if is_at_most { self.ratio <= self.wanted } else { self.ratio >= self.wanted }
    }
}

/// The settings of an array's measurement.
#[derive(Clone, Copy, Debug)]
pub struct ArrayLoad {
    /// The array to measure.
    pub setup: Setup,
    /// Bytes that each measurement moves.
    pub total: Bytes,
}

impl Default for ArrayLoad {
    fn default() -> ArrayLoad {
        ArrayLoad { setup: Setup::default(), total: Bytes(1 << 30) }
    }
}

/// Takes all measurements of an array. `progress` is called with the name of the next measurement.
pub fn run(load: &ArrayLoad, progress: &dyn Fn(&str)) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    progress("writes");
    lines.extend(load.writes()?);
    progress("one at a time");
    lines.extend(load.one_at_a_time()?);
    progress("atomic writes");
    lines.extend(load.atomic_writes()?);
    progress("appends");
    lines.extend(load.appends()?);
    progress("reads");
    lines.extend(load.reads()?);
    progress("rebuild");
    for zones in [1, 2, 4] {
        lines.push(load.rebuild(zones)?);
    }
    progress("stored maps");
    for shares in [1, 2] {
        lines.extend(load.stored_maps(shares)?);
    }
    progress("joined zones");
    lines.extend(load.joined_zones()?);
    progress("reclaim");
    lines.extend(load.reclaim(Bytes(64 * MIB))?);
    progress("spare room");
    lines.extend(load.spares([64, 128], Bytes(64 * MIB))?);
    progress("two parities");
    lines.extend(load.two_parities()?);
    progress("mounts");
    lines.push(load.mounts()?);
    Ok(lines)
}

impl ArrayLoad {
    fn data_drives(&self) -> f64 {
        f64::from(self.setup.data_drives())
    }

    fn stripe(&self) -> u64 {
        self.setup.stripe_unit.0 * u64::from(self.setup.data_drives())
    }

    fn number_of_operations(&self, size: u64) -> u64 {
        (self.total.0 / size).clamp(200, 40_000)
    }

    fn load(&self, device: &Arc<dyn ZonedDevice>, kind: Kind, size: u64, depth: usize) -> Result<Summary> {
        let load = Load::new(kind, Bytes(size), depth, self.number_of_operations(size));
        Ok(Summary::of(&load.run(device)?, Bytes(size)))
    }

    /// Runs a load on one drive, in operations of a stripe unit, as a member of an array gets them.
    fn drive(&self, kind: Kind, depth: usize) -> Result<Summary> {
        let device = self.setup.alone();
        if kind == Kind::Sequential {
            fill_with_zeros(&device, 1, self.total)?;
        }
        self.load(&device, kind, self.setup.stripe_unit.0, depth)
    }

    fn writes(&self) -> Result<Vec<Line>> {
        let (unit, stripe, depth) = (self.setup.stripe_unit.0, self.stripe(), 32);
        let one = self.drive(Kind::Write, depth)?;
        let all = one.mib * self.data_drives();
        let which = format!("{} drives, {} KiB, depth {depth}", self.data_drives(), unit / KIB);
        let mut lines = Vec::new();
        let bed = self.setup.build()?;
        let whole = self.load(&bed.device, Kind::Write, stripe, depth)?;
        lines.push(Line::rate(format!("whole stripes written, depth {depth}"), whole.mib, all, &which));
        let of_one = format!("one drive, {} KiB, depth {depth}", unit / KIB);
        let tail = "p99.9 of whole stripes";
        lines.push(Line::latency(format!("{tail}, depth {depth}"), whole.p99_9, one.p99_9, &of_one));
        for kind in [Kind::Write, Kind::Append] {
            let bed = self.setup.build()?;
            let units = self.load(&bed.device, kind, 64 * KIB, depth)?;
            let what = if kind == Kind::Append { "appended" } else { "written" };
            lines.push(Line::rate(format!("64 KiB {what}, depth {depth}"), units.mib, all, &which));
        }
        lines.push(self.small_writes_far_ahead()?);
        Ok(lines)
    }

    /// Writes of 4 KiB with so many in flight that the drives' rate in commands is the limit: each stripe has one command of
    /// parity beside those of data.
    fn small_writes_far_ahead(&self) -> Result<Line> {
        let (size, drives) = (4 * KIB, self.setup.drives);
        let depth = MANY_IN_FLIGHT / drives as usize;
        let one = self.load(&self.setup.alone(), Kind::Write, size, depth)?;
        let bed = self.setup.build()?;
        let ours = self.load(&bed.device, Kind::Write, size, MANY_IN_FLIGHT)?;
        let data = self.stripe() as f64 / size as f64;
        let all = one.mib * f64::from(drives) * data / (data + 1.0);
        let which = format!("{drives} drives, 4 KiB, depth {depth}, one command of parity a stripe");
        Ok(Line::rate(format!("4 KiB written, depth {MANY_IN_FLIGHT}"), ours.mib, all, which))
    }

    /// The mean latency of writes of `bytes` on one drive, which rests between two of them.
    fn one_drive_write_latency(&self, bytes: u64) -> Result<f64> {
        let device = self.setup.alone();
        let driver = Arc::clone(device.driver());
        let data = Buf::copy_from(&vec![0; usize::try_from(bytes).expect("fits memory")]);
        let blocks = bytes / u64::from(device.geometry().block_size);
        let mut recorder = Recorder::new();
        block_on(&*driver, async {
            for n in 0..RESTED_WRITES {
                let begin = driver.now();
                device.write(Lba(n * blocks), data.clone(), Durability::Cached).await?;
                // The first write opens the zone, and is not counted.
                if n > 0 {
                    recorder.record(driver.now().since(begin));
                }
                sleep_until(&*driver, driver.now().after(REST_BETWEEN_WRITES)).await;
            }
            Ok::<(), zoned::Error>(())
        })?;
        Ok(recorder.summary(1).mean)
    }

    /// One write at a time to the array, against a ceiling. Drives work in parallel, so a write takes as long as a rested drive
    /// takes for the longest of its parts, and the rate never exceeds the bandwidth of the drives that hold data. The parts of
    /// a write shorter than a stripe: a unit of data at most, and parity as long as the rows that changed. That parity is
    /// logged with a header of one block, unless the write completes its stripe. A longer write has an equal share of its data
    /// on each drive.
    fn one_at_a_time(&self) -> Result<Vec<Line>> {
        let (unit, stripe) = (self.setup.stripe_unit.0, self.stripe());
        let all = self.drive(Kind::Write, 32)?.mib * self.data_drives();
        let block = 4 * KIB;
        let mut lines = Vec::new();
        for size in [stripe, 64 * KIB, 16 * KIB, 4 * KIB] {
            let bed = self.setup.build()?;
            let ours = self.load(&bed.device, Kind::Write, size, 1)?;
            let time = if size >= stripe {
                self.one_drive_write_latency(
                    (size / u64::from(self.setup.data_drives())).next_multiple_of(block),
                )?
            } else {
                let part = size.min(unit);
                let data = self.one_drive_write_latency(part)?;
                let logged = data.max(self.one_drive_write_latency(part + block)?);
                let completes = size.max(unit) as f64 / stripe as f64;
                logged * (1.0 - completes) + data * completes
            };
            let ceiling = (size as f64 / MIB as f64 / (time / 1e6)).min(all);
            let which = "ceiling: data and parity at the same time";
            let what = format!("{} KiB written, one at a time", size / KIB);
            lines.push(Line::rate(what, ours.mib, ceiling, which));
        }
        Ok(lines)
    }

    fn reads(&self) -> Result<Vec<Line>> {
        let depth = 32;
        let one = self.drive(Kind::Sequential, depth)?;
        let drives = f64::from(self.setup.drives);
        let bed = self.setup.build()?;
        fill_with_zeros(&bed.device, 1, self.total)?;
        let all = self.load(&bed.device, Kind::Sequential, MIB, depth)?;
        let which = format!("{drives} drives, {} KiB, depth {depth}", self.setup.stripe_unit.0 / KIB);
        let mut lines =
            vec![Line::rate(format!("1 MiB read, depth {depth}"), all.mib, one.mib * drives, which)];
        let bed = bed.without(0)?;
        let degraded = self.load(&bed.device, Kind::Sequential, MIB, depth)?;
        let which = "the same with all drives";
        let mut line =
            Line::rate(format!("1 MiB read, depth {depth}, a drive is lost"), degraded.mib, all.mib, which);
        // Each unit of the other drives is read once, parity included, so that whole stripes are read at the rate of the drives
        // that are left. A read that ends inside a stripe may need the rest of the stripe too.
        let more = if MIB.is_multiple_of(self.stripe()) { 0 } else { self.stripe() };
        line.wanted = 0.975 * self.data_drives() / drives * MIB as f64 / (MIB + more) as f64;
        lines.push(line);
        Ok(lines)
    }

    /// The rate of a rebuild of `zones` full zones.
    fn rebuild(&self, zones: u32) -> Result<Line> {
        let rebuilt = rebuild(&self.setup, zones)?;
        let one = self.load(&self.setup.alone(), Kind::Write, MIB, 8)?;
        let what = format!(
            "rebuild of {:.2} GiB: {:.3} s",
            rebuilt.bytes as f64 / (1 << 30) as f64,
            rebuilt.seconds
        );
        Ok(Line::rate(what, rebuilt.mib(), one.mib, "one drive, 1 MiB, depth 8"))
    }
}

/// The outcome of a measured rebuild.
#[derive(Clone, Copy, Debug)]
pub struct RebuildOutcome {
    /// Bytes of data and parity of the zones on the failed drive.
    pub bytes: u64,
    /// Seconds from the call to the end of the rebuild.
    pub seconds: f64,
}

impl RebuildOutcome {
    /// The rate of the rebuild in MiB a second.
    pub fn mib(&self) -> f64 {
        self.bytes as f64 / MIB as f64 / self.seconds
    }
}

/// Fills `zones` zones of an array, drops a drive, and rebuilds on a new drive without other load.
pub fn rebuild(setup: &Setup, zones: u32) -> Result<RebuildOutcome> {
    let bed = setup.build()?;
    let geometry = bed.device.geometry().clone();
    let capacity = geometry.zone_capacity.bytes(geometry.block_size);
    for first in 0..zones {
        let count = capacity.0.div_ceil(MIB);
        Load { first, ..Load::new(Kind::Write, Bytes(MIB), 8, count) }.run(&bed.device)?;
        if setup.parities > 1 {
            // The emulator keeps parity that no flush covers in memory.
            block_on(&*bed.driver, bed.device.flush())?;
        }
    }
    block_on(&*bed.driver, bed.device.flush())?;
    let bed = bed.without(0)?;
    let spare = bed.spare();
    let start = bed.driver.now();
    block_on(&*bed.driver, async {
        let options = RebuildOptions { pace: Pace::UNBOUNDED };
        bed.array.start_replace(Slot(0), spare, options).await?.wait().await
    })?;
    let seconds = bed.driver.now().since(start).as_secs_f64();
    let bytes = capacity.0 / u64::from(setup.data_drives()) * u64::from(zones);
    Ok(RebuildOutcome { bytes, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_alone_exceeds_its_ceiling() {
        for (drives, unit) in [(3, 16), (5, 64), (9, 16)] {
            let setup = Setup { drives, stripe_unit: Bytes(unit * KIB), ..Setup::default() };
            let lines = ArrayLoad { setup, total: Bytes(1 << 30) }.one_at_a_time().expect("measured");
            for line in &lines {
                assert!(line.ratio < 1.01, "{drives} drives, units of {unit} KiB: {line:?}");
            }
        }
    }
}
