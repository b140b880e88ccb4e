//! A load generator for a drive's zones: closed loops at a queue depth, or an open loop at a rate, on any clock.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use units::{sleep_until, spawn};
use zoned::{
    Action, Blocks, Buf, BufMut, Bytes, Done, Durability, Error, ErrorKind, Geometry, Instant, Io, Op,
    Result, ZoneId, ZonedDevice, join_all,
};

use crate::{Latencies, Recorder};

/// The longest write that [`fill`] makes.
const LONGEST_FILL_WRITE: Bytes = Bytes(1 << 20);

/// The operation of a load on zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes at the zones' pointers.
    Write,
    /// Zone appends.
    Append,
    /// Reads at random. The load writes nothing first.
    Read,
    /// Appends, with a percentage of reads instead.
    Mixed {
        /// The percentage of reads, from 0 to 100.
        reads: u8,
    },
}

impl Kind {
    /// Whether the load overwrites the drive.
    pub fn writes(self) -> bool {
        self != Kind::Read
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        match text.split_once('=') {
            None if text == "write" => Ok(Kind::Write),
            None if text == "append" => Ok(Kind::Append),
            None if text == "read" => Ok(Kind::Read),
            None if text == "mixed" => Ok(Kind::Mixed { reads: 50 }),
            Some(("mixed", share)) => match share.trim_end_matches('%').parse() {
                Ok(reads @ 0..=100) => Ok(Kind::Mixed { reads }),
                _ => Err(format!("mixed={share}: the share of reads is 0 to 100 percent")),
            },
            _ => Err(format!("'{text}' is no operation: write, append, read, mixed or mixed=READ%")),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Write => f.write_str("write"),
            Kind::Append => f.write_str("append"),
            Kind::Read => f.write_str("read"),
            Kind::Mixed { reads } => write!(f, "mixed={reads}"),
        }
    }
}

/// A load on a drive's zones.
#[derive(Clone, Debug)]
pub struct Load {
    /// The operation of the load.
    pub kind: Kind,
    /// Bytes of one operation: whole blocks.
    pub size: Bytes,
    /// Operations in flight. Writes have one in flight for each zone.
    pub depth: u32,
    /// Number of zones written at the same time, or read from: the first ones that are not conventional. A load that writes
    /// uses no more than `depth`.
    pub zones: u32,
    /// Number of operations in all.
    pub count: u64,
    /// Bytes a second to offer; `None` for as much as the depth gives. Latencies then count from when an
    /// operation was due, so that a slow drive cannot hide its queue.
    pub rate: Option<Bytes>,
    /// The factor by which the drive's times are stretched; results are divided by it. 1 for no dilation.
    pub dilation: u32,
}

/// The outcome of a load on zones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The rate in operations a second.
    pub ops_per_s: f64,
    /// The throughput in MiB a second.
    pub mib_per_s: f64,
    /// Latencies of reads, appends and writes.
    pub latency_us: Latencies,
    /// Number of operations done.
    pub operations: u64,
    /// Seconds that the whole run took.
    pub seconds: f64,
    /// The factor by which measured times were divided.
    pub dilation: u32,
}

/// A list of zones that a task fills one after the other.
#[derive(Debug)]
struct ZoneLane {
    zone: u32,
    written: u64,
}

/// State that the load's tasks share.
struct SharedState {
    device: Arc<dyn ZonedDevice>,
    load: Load,
    blocks: u64,
    data: Buf,
    begin: Instant,
    /// The time at which the load stops; `None` if only the count ends it.
    end: Option<Instant>,
    begun: Mutex<u64>,
    lanes: Vec<Mutex<ZoneLane>>,
    latencies: Mutex<Recorder>,
}

impl Load {
    /// Whether a drive of this geometry can run the load.
    pub fn validate(&self, geometry: &Geometry) -> Result<()> {
        let refuse =
            |why: &str| Err(Error::new(ErrorKind::Invalid, &geometry.name, "device bench").because(why));
        let Load { depth, zones, .. } = *self;
        let blocks = self.size.0 / u64::from(geometry.block_size);
        let most = match self.kind {
            Kind::Append | Kind::Mixed { .. } => geometry.max_append,
            Kind::Write | Kind::Read => geometry.max_transfer,
        };
        let sequential = geometry.zones.saturating_sub(geometry.conventional);
        if blocks == 0 || !self.size.0.is_multiple_of(u64::from(geometry.block_size)) {
            return refuse("the size is not in whole blocks");
        } else if Blocks(blocks) > most.min(geometry.zone_capacity) {
            return refuse("the size is above what one operation of this drive moves");
        } else if depth == 0 || self.count == 0 || zones == 0 || zones > sequential {
            return refuse("depth, count and zones: one at least, and no more zones than the drive has");
        } else if self.kind == Kind::Write && depth > zones {
            return refuse(&format!("a zone takes one write at a time: depth {depth} needs {depth} zones"));
        } else if self.kind.writes() && zones > depth {
            return refuse(&format!(
                "{depth} in flight never write {zones} zones at the same time: raise the depth"
            ));
        } else if self.kind.writes()
            && let Some(most) = [geometry.max_open, geometry.max_active].into_iter().flatten().min()
            && zones > most
        {
            return refuse(&format!(
                "the drive has no more than {most} zones open or active: {zones} are too many"
            ));
        } else if self.kind.writes() && self.count > self.room(geometry) {
            return refuse("the drive has no room for so many writes: use fewer or smaller ones");
        }
        Ok(())
    }

    /// The number of writes that fill an empty drive of this geometry.
    pub fn room(&self, geometry: &Geometry) -> u64 {
        let blocks = self.size.0 / u64::from(geometry.block_size);
        let sequential = u64::from(geometry.zones.saturating_sub(geometry.conventional));
        let lanes = u64::from(self.zones.max(1));
        sequential / lanes * lanes * geometry.zone_capacity.0.checked_div(blocks).unwrap_or(0)
    }
}

/// Runs a load. Loads that write **reset every sequential zone first**, and fill each zone once: one that the drive
/// has no room for is refused.
pub async fn run(device: &Arc<dyn ZonedDevice>, load: &Load) -> Result<Outcome> {
    run_for(device, load, None).await
}

/// Like [`run`], and ends after `time` of the drive's own time, should the operations of the load last longer.
pub async fn run_for(device: &Arc<dyn ZonedDevice>, load: &Load, time: Option<Duration>) -> Result<Outcome> {
    let geometry = device.geometry();
    load.validate(geometry)?;
    let blocks = load.size.0 / u64::from(geometry.block_size);
    if load.kind.writes() {
        reset(device, geometry.conventional..geometry.zones).await?;
    }
    let first = geometry.conventional;
    let driver = Arc::clone(device.driver());
    let begin = driver.now();
    let work = Arc::new(SharedState {
        device: Arc::clone(device),
        load: load.clone(),
        blocks,
        data: Buf::copy_from(&vec![0x5A; usize::try_from(load.size.0).unwrap_or(usize::MAX)]),
        begin,
        end: time.map(|time| begin.after(time.saturating_mul(load.dilation.max(1)))),
        begun: Mutex::new(0),
        lanes: (0..load.zones).map(|n| Mutex::new(ZoneLane { zone: first + n, written: 0 })).collect(),
        latencies: Mutex::default(),
    });
    let tasks: Vec<_> = (0..load.depth)
        .map(|task| {
            let work = Arc::clone(&work);
            spawn(&*driver, "bench", async move { work.task(task).await })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await);
    }
    results.into_iter().collect::<Result<Vec<()>>>()?;
    let elapsed = driver.now().since(work.begin);
    Ok(outcome(load, elapsed, &work.latencies.lock()))
}

async fn reset(device: &Arc<dyn ZonedDevice>, zones: std::ops::Range<u32>) -> Result<()> {
    let resets = zones.map(|zone| device.zone(ZoneId(zone), Action::Reset));
    join_all(resets.collect()).await.into_iter().collect::<Result<Vec<()>>>().map(drop)
}

/// **Resets** the zones that a load reads from and fills them, one after the other: some drives refuse to read blocks that were
/// never written.
pub async fn fill(device: &Arc<dyn ZonedDevice>, load: &Load) -> Result<()> {
    let geometry = device.geometry();
    let (first, end) = (geometry.conventional, geometry.conventional.saturating_add(load.zones));
    let zones = first..end.min(geometry.zones);
    reset(device, zones.clone()).await?;
    let longest =
        LONGEST_FILL_WRITE.blocks_floor(geometry.block_size).min(geometry.max_transfer).max(Blocks(1));
    let data =
        Buf::copy_from(&vec![0x5A; usize::try_from(longest.bytes(geometry.block_size).0).unwrap_or(0)]);
    for zone in zones.map(ZoneId) {
        let mut written = Blocks::ZERO;
        while written < geometry.zone_capacity {
            let part = longest.min(geometry.zone_capacity.minus(written));
            let bytes = usize::try_from(part.bytes(geometry.block_size).0).unwrap_or(0);
            let at = geometry.start(zone).plus(written);
            device.write(at, data.slice(0..bytes), Durability::Cached).await?;
            written = written.plus(part);
        }
    }
    Ok(())
}

impl SharedState {
    async fn task(&self, task: u32) -> Result<()> {
        let driver = self.device.driver();
        // An operation's number that a task takes counts as done, so a task without a zone takes none.
        while !self.has_no_zone_left(task)
            && let Some(number) = self.next()
        {
            let mut begin = driver.now();
            if let Some(rate) = self.load.rate {
                let after = u128::from(number) * u128::from(self.load.size.0) * 1_000_000_000;
                let after = after * u128::from(self.load.dilation.max(1)) / u128::from(rate.0.max(1));
                begin = self.begin.after(Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX)));
                sleep_until(&**driver, begin).await;
            }
            let reads = match self.load.kind {
                Kind::Read => true,
                Kind::Mixed { reads } => driver.random() % 100 < u64::from(reads),
                Kind::Write | Kind::Append => false,
            };
            if reads {
                self.read().await?;
                self.record_latency(begin);
                continue;
            }
            let (io, rest) = self.put(task);
            io.await?;
            self.record_latency(begin);
            if let Some(rest) = rest {
                rest.await?;
            }
        }
        Ok(())
    }

    /// Whether the task has no zone left to write: its own are full, and a zone of another task takes one write at a time.
    fn has_no_zone_left(&self, task: u32) -> bool {
        let zones = self.device.geometry().zones;
        self.load.kind == Kind::Write
            && self.lanes.get(task as usize).is_none_or(|lane| lane.lock().zone >= zones)
    }

    fn record_latency(&self, begin: Instant) {
        let took = self.device.driver().now().since(begin);
        self.latencies.lock().record(took);
    }

    /// The number of the next operation; `None` if all are taken.
    fn next(&self) -> Option<u64> {
        if self.end.is_some_and(|end| self.device.driver().now() >= end) {
            return None;
        }
        let mut begun = self.begun.lock();
        (*begun < self.load.count).then(|| {
            *begun += 1;
            *begun - 1
        })
    }

    fn read(&self) -> Io {
        let (geometry, driver) = (self.device.geometry(), self.device.driver());
        let zone = geometry.conventional + (driver.random() % u64::from(self.load.zones)) as u32;
        let slot = driver.random() % (geometry.zone_capacity.0 / self.blocks);
        let at = geometry.start(ZoneId(zone)).plus(Blocks(slot * self.blocks));
        let into = BufMut::zeroed(self.data.len());
        self.device.submit(Op::Read { at, into })
    }

    /// Submits a write or an append to the task's lane, and the finish of the zone where no operation more fits. Runs under the
    /// lane's lock: a zone's operations take effect in the order of submission.
    fn put(&self, task: u32) -> (Io, Option<Io>) {
        let geometry = self.device.geometry();
        let slots = geometry.zone_capacity.0 / self.blocks;
        let lanes = self.lanes.len().max(1);
        // The lane is the task's own or, if its zones are full, another task's.
        for turn in 0..lanes {
            let lane = self.lanes.get((task as usize + turn) % lanes).expect("below their number");
            let mut lane = lane.lock();
            if lane.zone >= geometry.zones {
                continue;
            }
            let zone = ZoneId(lane.zone);
            let (data, how) = (self.data.clone(), Durability::Cached);
            let io = self.device.submit(match self.load.kind {
                Kind::Write => {
                    let at = geometry.start(zone).plus(Blocks(lane.written * self.blocks));
                    Op::Write { at, data, how }
                }
                _ => Op::Append { zone, data, how },
            });
            lane.written += 1;
            if lane.written < slots {
                return (io, None);
            }
            let full = slots * self.blocks == geometry.zone_capacity.0;
            let rest = (!full).then(|| self.device.submit(Op::Zone { zone, action: Action::Finish }));
            *lane = ZoneLane { zone: lane.zone.saturating_add(self.load.zones), written: 0 };
            return (io, rest);
        }
        // All lanes are full: impossible where the load's count was checked against the room.
        (Io::ready(Ok(Done::Unit)), None)
    }
}

fn outcome(load: &Load, elapsed: Duration, latencies: &Recorder) -> Outcome {
    let (seconds, count) = (elapsed.as_secs_f64() / f64::from(load.dilation.max(1)), latencies.count());
    // A drive without times takes no time on the virtual clock.
    let ops_per_s = if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    Outcome {
        ops_per_s,
        mib_per_s: ops_per_s * load.size.0 as f64 / f64::from(1 << 20),
        latency_us: latencies.summary(load.dilation),
        operations: count,
        seconds,
        dilation: load.dilation.max(1),
    }
}

#[cfg(test)]
mod tests {
    use units::{Driver, VirtualDriver, block_on};

    use super::*;

    const LOAD: Load = Load {
        kind: Kind::Append,
        size: Bytes(8192),
        depth: 4,
        zones: 2,
        count: 1000,
        rate: None,
        dilation: 1,
    };

    fn measure(url: &str, load: &Load) -> Result<Outcome> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let device = zoned::open(&format!("emu:mem?{url}"), Arc::clone(&driver))?;
        block_on(&*driver, run(&device, load))
    }

    #[test]
    fn rates_and_latencies_are_those_of_the_drive() {
        for kind in [Kind::Write, Kind::Append, Kind::Read, Kind::Mixed { reads: 50 }] {
            let result = measure("delay=100us", &Load { kind, zones: 4, ..LOAD }).unwrap();
            assert_eq!((result.ops_per_s, result.latency_us.max), (40_000.0, 100.0), "{kind:?}");
        }
    }

    #[test]
    fn zones_of_an_odd_size_are_filled_one_after_the_other_within_the_limits() {
        let url = "zones=8&zone-size=64KiB&max-open=2&max-active=2&delay=1us";
        for (kind, depth) in [(Kind::Write, 2), (Kind::Append, 4)] {
            let load = Load { kind, depth, size: Bytes(12_288), count: 8 * 5, ..LOAD };
            assert_eq!(measure(url, &load).unwrap().latency_us.max, 1.0);
            let load = Load { count: 8 * 5 + 1, ..load };
            assert!(measure(url, &load).unwrap_err().to_string().contains("no room"));
        }
    }

    #[test]
    fn a_load_that_zones_cannot_take_is_refused() {
        let refusal = |load: Load| {
            let error = measure("zones=16&max-open=3&max-active=5&delay=1us", &load).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            error.to_string()
        };
        assert!(refusal(Load { kind: Kind::Write, depth: 3, ..LOAD }).contains("one write at a time"));
        for kind in [Kind::Write, Kind::Append, Kind::Mixed { reads: 50 }] {
            assert!(refusal(Load { kind, depth: 1, ..LOAD }).contains("raise the depth"));
            assert!(refusal(Load { kind, depth: 4, zones: 4, ..LOAD }).contains("no more than 3 zones"));
        }
        assert!(
            measure("zones=16&max-open=3&delay=1us", &Load { kind: Kind::Read, zones: 9, ..LOAD }).is_ok()
        );
    }

    #[test]
    fn a_zone_takes_one_write_at_a_time_to_the_end_of_the_drive() {
        // The test has seven zones on two lanes: one lane has a zone more than the other.
        let load = Load { kind: Kind::Write, depth: 2, count: 6 * 8, ..LOAD };
        let result = measure("zones=7&zone-size=64KiB&delay=1us", &load).unwrap();
        assert_eq!((result.operations, result.seconds), (48, 24e-6));
        let rate = Load { rate: Some(Bytes(8192)), count: 6 * 8, ..load };
        assert_eq!(measure("zones=7&zone-size=64KiB&delay=1us", &rate).unwrap().operations, 48);
    }

    #[test]
    fn an_offered_rate_is_kept_and_a_queue_is_seen() {
        let load = Load { rate: Some(Bytes(8192 * 1000)), ..LOAD };
        let kept = measure("delay=100us", &load).unwrap();
        assert!((kept.ops_per_s - 1000.0).abs() < 2.0 && kept.latency_us.max == 100.0, "{kept:?}");
        let slow = measure("delay=100ms", &load).unwrap();
        assert!(slow.latency_us.max > 20_000_000.0, "{slow:?}");
    }

    #[test]
    fn a_load_ends_with_its_time() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let device = zoned::open("emu:mem?delay=100us", Arc::clone(&driver)).unwrap();
        let time = Some(Duration::from_millis(1));
        let load = Load { kind: Kind::Read, count: u64::MAX, ..LOAD };
        let result = block_on(&*driver, run_for(&device, &load, time)).unwrap();
        assert_eq!((result.operations, result.seconds), (40, 1e-3));
    }

    #[test]
    fn a_filled_zone_is_full_and_its_neighbour_is_not_touched() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let url = "emu:mem?delay=1us&zones=8&zone-size=4MiB&zone-capacity=3MiB";
        let device = zoned::open(url, Arc::clone(&driver)).unwrap();
        block_on(&*driver, fill(&device, &LOAD)).unwrap();
        let pointers: Vec<u64> = device.report_all().unwrap().iter().map(|z| z.pointer.0).collect();
        assert_eq!(pointers.get(..3), Some([768, 768, 0].as_slice()));
    }

    #[test]
    fn an_operation_reads_back_as_it_is_shown() {
        for text in ["write", "append", "read", "mixed=70"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!("mixed=30%".parse(), Ok(Kind::Mixed { reads: 30 }));
        assert!("mixed=101".parse::<Kind>().unwrap_err().contains("0 to 100"));
        assert!("erase".parse::<Kind>().is_err());
    }

    #[test]
    fn a_dilated_drive_has_the_numbers_of_the_drive() {
        let plain = measure("profile=zn540&zones=8", &LOAD).unwrap();
        let slow = measure("profile=zn540&zones=8&dilated=10", &Load { dilation: 10, ..LOAD }).unwrap();
        assert!((plain.ops_per_s / slow.ops_per_s - 1.0).abs() < 1e-6, "{plain:?} {slow:?}");
        assert!((135_000.0..150_000.0).contains(&plain.ops_per_s), "{plain:?}");
    }
}
