//! One zone written by several threads, in each way that keeps its writes in order: the staged queue of Fig. 1 of Lee, Jung and Shin,
//! "Buffered I/O support for Zoned Namespace SSD", section 3, beside a lock, ordered submission and zone append. In virtual time: the
//! results are functions of the load.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use units::sync::Turnstile;
use units::{SplitMix64, VirtualDriver, block_on, spawn};
use zoned::emu::{EmuOptions, Profile};
use zoned::{Blocks, Buf, Bytes, Driver, Durability, Io, Op, Stage, ZoneId, ZonedDevice, emulated};

use crate::{Error, Latencies, Recorder, Result};

/// Zones of the drive, of which one is written.
const ZONES: u32 = 2;

/// A way in which threads write one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// One thread writes in order of addresses, with as many writes in flight as the other ways have threads: the bound of the ways that
    /// write.
    Ordered,
    /// Each thread holds a mutex from the choice of its address to the end of its write: one write is in flight.
    Lock,
    /// Each thread holds a mutex from the choice of its address to the submission of its write. The order of submission is kept by the
    /// queue of the zone, as in `blk:` and `nvme:` where [`StageLoad::one_write`] is set.
    Lane,
    /// Each thread writes at addresses of its own, shuffled among the threads, over a [`Stage`].
    Staged,
    /// Each thread appends, and the drive chooses the addresses.
    Append,
}

impl Way {
    /// All ways, in the order in which they are measured.
    pub const ALL: [Way; 5] = [Way::Ordered, Way::Lock, Way::Lane, Way::Staged, Way::Append];
}

/// A load of several threads on one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLoad {
    /// The profile of the emulated drive. Default `zn540`.
    pub profile: String,
    /// True if the queues of `blk:` and `nvme:` are before the drive: a zone has one write in flight, and neighbours that wait go out as
    /// one. Otherwise the drive takes any number of ordered writes at once, which no interface of the kernel does. Default true.
    pub one_write: bool,
    /// Number of threads. Default 8.
    pub threads: u32,
    /// Bytes of a write: whole blocks. Default 16 KiB.
    pub size: Bytes,
    /// Number of writes in all. Default 2048.
    pub count: u64,
    /// The window of the stage. Default 1 MiB.
    pub window: Bytes,
    /// The seed of the shuffle. Default 1.
    pub seed: u64,
}

impl Default for StageLoad {
    fn default() -> StageLoad {
        StageLoad {
            profile: "zn540".into(),
            one_write: true,
            threads: 8,
            size: Bytes(16 << 10),
            count: 2048,
            window: Bytes(1 << 20),
            seed: 1,
        }
    }
}

/// The outcome of a load written in one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayOutcome {
    /// The way.
    pub way: Way,
    /// The throughput in MiB a second.
    pub mib_per_s: f64,
    /// The throughput over that of [`Way::Ordered`].
    pub of_ordered: f64,
    /// The latencies of the threads' writes, in us: waits for a lock or for other writes included.
    pub latency_us: Latencies,
}

/// Writes one zone of a new drive in memory in each way of [`Way::ALL`], and gives the outcomes in that order.
///
/// # Errors
/// [`Error::Settings`] if the load does not fit a zone, one operation of the drive, or the stage's window, or if the profile is unknown or has
/// no times.
pub fn measure(load: &StageLoad) -> Result<Vec<WayOutcome>> {
    let mut outcomes: Vec<WayOutcome> = Vec::with_capacity(Way::ALL.len());
    for way in Way::ALL {
        let mut outcome = run(load, way)?;
        let ordered = outcomes.first().map_or(outcome.mib_per_s, |ordered| ordered.mib_per_s);
        outcome.of_ordered = outcome.mib_per_s / ordered;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// State that the threads of a run share.
struct SharedState {
    device: Arc<dyn ZonedDevice>,
    way: Way,
    data: Buf,
    /// Blocks of a write.
    blocks: u64,
    /// The numbers of the writes that no thread has taken, in the order in which threads take them.
    order: Mutex<std::vec::IntoIter<u64>>,
    /// The mutex of [`Way::Lock`].
    turns: Turnstile,
    latencies: Mutex<Recorder>,
}

fn run(load: &StageLoad, way: Way) -> Result<WayOutcome> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(load.seed);
    let device = open(load, way, &driver)?;
    let bytes = usize::try_from(load.size.0).unwrap_or(usize::MAX);
    let shared = Arc::new(SharedState {
        way,
        data: Buf::copy_from(&vec![0x5A; bytes]),
        blocks: load.size.0 / u64::from(device.geometry().block_size),
        order: Mutex::new(order(load, way).into_iter()),
        turns: Turnstile::new(),
        latencies: Mutex::new(Recorder::new()),
        device,
    });
    let began = driver.now();
    let tasks: Vec<_> = match way {
        Way::Ordered => {
            vec![spawn(&*driver, "writer", Arc::clone(&shared).write_in_flight(load.threads as usize))]
        }
        _ => (0..load.threads).map(|_| spawn(&*driver, "writer", Arc::clone(&shared).write())).collect(),
    };
    block_on(&*driver, async {
        for task in tasks {
            task.await?;
        }
        Ok::<(), Error>(())
    })?;
    let seconds = driver.now().since(began).as_secs_f64();
    if seconds == 0.0 {
        return Err(Error::settings(format!("the drives of profile {} take no time", load.profile)));
    }
    let mib = (load.count * load.size.0) as f64 / f64::from(1 << 20);
    let latency_us = shared.latencies.lock().summary(1);
    Ok(WayOutcome { way, mib_per_s: mib / seconds, of_ordered: 1.0, latency_us })
}

/// A new drive in memory for the load, with a stage if the way needs one.
fn open(load: &StageLoad, way: Way, driver: &Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    let profile = Profile::load(&load.profile).map_err(|why| Error::settings(format!("profile: {why}")))?;
    let options = EmuOptions { zones: ZONES, one_write: load.one_write, ..EmuOptions::of_profile(profile) };
    let geometry = options.geometry()?;
    let block = u64::from(geometry.block_size);
    let blocks = Blocks(load.size.0 / block);
    if blocks.0 == 0 || !load.size.0.is_multiple_of(block) {
        return Err(Error::settings(format!(
            "a write of {}: whole blocks of {block} bytes are needed",
            load.size
        )));
    }
    if blocks > geometry.max_append.min(geometry.max_transfer) {
        return Err(Error::settings(format!("a write of {} is longer than one of this drive", load.size)));
    }
    if load.threads == 0 || load.count == 0 {
        return Err(Error::settings("threads and count: one at least"));
    }
    if load.count.checked_mul(blocks.0).is_none_or(|all| all > geometry.zone_capacity.0) {
        return Err(Error::settings(format!(
            "a zone of {} blocks has no room for the load",
            geometry.zone_capacity
        )));
    }
    // A thread that is ahead of the others by a whole group of shuffled writes stays within the window.
    if load.window.0 / load.size.0.max(1) < 2 * u64::from(load.threads) {
        return Err(Error::settings(format!(
            "a window of {} is less than two writes of each thread",
            load.window
        )));
    }
    let device = emulated(options, Arc::clone(driver));
    Ok(if way == Way::Staged { Stage::over(device, load.window)? } else { device })
}

/// The numbers of the writes in the order in which threads take them: shuffled in groups of one write of each thread for
/// [`Way::Staged`].
fn order(load: &StageLoad, way: Way) -> Vec<u64> {
    let mut order: Vec<u64> = (0..load.count).collect();
    if way == Way::Staged {
        let mut rng = SplitMix64::new(load.seed);
        for group in order.chunks_mut(load.threads as usize) {
            for n in (1..group.len()).rev() {
                group.swap(n, (rng.draw() % (n as u64 + 1)) as usize);
            }
        }
    }
    order
}

impl SharedState {
    /// Takes writes until none is left, and keeps `depth` in flight.
    async fn write_in_flight(self: Arc<Self>, depth: usize) -> Result<()> {
        let driver = self.device.driver();
        let mut in_flight = VecDeque::with_capacity(depth);
        loop {
            while in_flight.len() < depth
                && let Some(io) = self.submit_next()
            {
                in_flight.push_back((driver.now(), io));
            }
            let Some((began, io)) = in_flight.pop_front() else { return Ok(()) };
            io.await?;
            self.latencies.lock().record(driver.now().since(began));
        }
    }

    /// Takes writes until none is left, one after the other.
    async fn write(self: Arc<Self>) -> Result<()> {
        let driver = self.device.driver();
        loop {
            let began = driver.now();
            if self.way == Way::Lock {
                let _turn = self.turns.acquire().await;
                let Some(io) = self.submit_next() else { return Ok(()) };
                io.await?;
            } else {
                let Some(io) = self.submit_next() else { return Ok(()) };
                io.await?;
            }
            self.latencies.lock().record(driver.now().since(began));
        }
    }

    /// Submits the next write under the lock of the order; `None` if none is left.
    fn submit_next(&self) -> Option<Io> {
        let mut order = self.order.lock();
        let number = order.next()?;
        let (zone, how, data) = (ZoneId(0), Durability::Cached, self.data.clone());
        if self.way == Way::Append {
            return Some(self.device.submit(Op::Append { zone, data, how }));
        }
        let at = self.device.geometry().start(zone).plus(Blocks(number * self.blocks));
        Some(self.device.submit(Op::Write { at, data, how }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(outcomes: &[WayOutcome], way: Way) -> &WayOutcome {
        outcomes.iter().find(|outcome| outcome.way == way).expect("measured")
    }

    /// Virtual time is a function of the load, so that a bound on a rate is no test of this machine's speed.
    #[test]
    fn eight_threads_with_shuffled_addresses_over_a_stage_keep_the_rate_of_one_thread_in_order() {
        for one_write in [true, false] {
            for kib in [4, 16, 64] {
                let load = StageLoad { one_write, size: Bytes(kib << 10), ..StageLoad::default() };
                let outcomes = measure(&load).expect("measured");
                let staged = find(&outcomes, Way::Staged);
                assert!(
                    staged.of_ordered >= 0.95,
                    "{kib} KiB, one write in flight: {one_write}: {outcomes:#?}"
                );
            }
        }
    }

    #[test]
    fn a_lock_has_one_write_in_flight_and_the_rate_of_single_writes() {
        let load = StageLoad { one_write: false, ..StageLoad::default() };
        let outcomes = measure(&load).expect("measured");
        let single = StageLoad { threads: 1, ..load.clone() };
        let single = measure(&single).expect("measured");
        let (lock, alone) = (find(&outcomes, Way::Lock), find(&single, Way::Ordered));
        assert!((lock.mib_per_s / alone.mib_per_s - 1.0).abs() < 0.001, "{lock:?} {alone:?}");
        assert!(lock.of_ordered < 0.95, "a lock costs something: {lock:?}");
    }

    #[test]
    fn the_same_load_has_the_same_outcome() {
        let load = StageLoad { count: 256, ..StageLoad::default() };
        assert_eq!(measure(&load).expect("measured"), measure(&load).expect("measured"));
    }

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        let refusal = |load: StageLoad| measure(&load).expect_err("refused").to_string();
        let load = StageLoad::default;
        assert!(refusal(StageLoad { size: Bytes(5000), ..load() }).contains("whole blocks"));
        assert!(refusal(StageLoad { size: Bytes(64 << 20), ..load() }).contains("longer than one"));
        assert!(refusal(StageLoad { threads: 0, ..load() }).contains("one at least"));
        assert!(refusal(StageLoad { count: 1 << 40, ..load() }).contains("no room"));
        assert!(refusal(StageLoad { window: Bytes(128 << 10), ..load() }).contains("window"));
        assert!(refusal(StageLoad { profile: "fast".into(), ..load() }).contains("fast"));
        assert!(refusal(StageLoad { profile: "null".into(), ..load() }).contains("take no time"));
    }
}
