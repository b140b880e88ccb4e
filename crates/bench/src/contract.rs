//! The cost of the device contract: a drive in memory without delay, beside plain copies of the same buffers.

use std::hint::black_box;
use std::sync::Arc;

use serde::Serialize;
use units::{Driver, RealDriver};
use zoned::emu::{Emu, EmuOptions};
use zoned::{Action, Blocks, Buf, BufMut, Durability, Goal, IoClass, Lba, Share, ZoneId, ZonedDevice};

/// Number of source buffers, used in turn: as many as a busy program has.
const SOURCE_BUFFERS: usize = 64;
/// Blocks written to a zone before it is reset: 16 MiB over all zones, more than a core's own cache.
const ZONE_BLOCKS: u64 = 1024;
const ZONES: u32 = 4;
const BLOCK: usize = 4096;
/// Bytes of a block so small that its copy takes next to no time.
const SMALL_BLOCK: usize = 512;

/// The numbers of one run of the device contract's measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Numbers {
    /// 4 KiB copied from the source buffers, ns each.
    pub copy_ns: f64,
    /// 4 KiB appended from the same buffers, resets included, ns each.
    pub append_ns: f64,
    /// The copies' time over the appends': the goal is 0.8.
    pub append_rate: f64,
    /// 4 KiB written at the pointer, ns each.
    pub write_ns: f64,
    /// 4 KiB read into one buffer, ns each.
    pub read_ns: f64,
    /// An append's time without its copy, ns: the goal is below 1,000.
    pub overhead_ns: f64,
    /// 512 bytes appended on a drive of 512-byte blocks, ns each.
    pub small_append_ns: f64,
    /// A flush with nothing to do: submit and completion alone, ns.
    pub flush_ns: f64,
    /// 4 KiB appended through a scheduler as a log's and as a flush's, with nothing to hold, less the same without a scheduler, ns: the goal is below 100.
    pub scheduler_ns: [f64; 2],
    /// Allocations per 4 KiB append.
    pub append_allocations: f64,
    /// Allocations per 4 KiB read.
    pub read_allocations: f64,
    /// 4 KiB appends a second of two threads, each in its own zones, over the rate of one thread.
    pub two_threads: f64,
}

/// Measures the device contract in `rounds` rounds; each number is a median. `allocations` returns the process's allocations so
/// far.
pub fn measure(rounds: usize, allocations: &dyn Fn() -> u64) -> Numbers {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let dev = drive(BLOCK, Arc::clone(&driver));
    let small = drive(SMALL_BLOCK, Arc::clone(&driver));
    let scheduled = |class| -> Arc<dyn ZonedDevice> {
        let share: Arc<dyn ZonedDevice> = Share::over(drive(BLOCK, Arc::clone(&driver)), Goal::default());
        share.class(class)
    };
    // A drive for each: beside the log, the flush's appends would be held.
    let [as_log, as_flush] = [IoClass::Log, IoClass::Flush].map(scheduled);
    let sources = sources(BLOCK);
    // The second thread has buffers of its own: threads that share reference counts slow each other down.
    let other_sources = self::sources(BLOCK);
    let small_sources = self::sources(SMALL_BLOCK);
    let mut memory = vec![0_u8; BLOCK * (ZONE_BLOCKS * u64::from(ZONES)) as usize];
    let mut buffer = Some(BufMut::zeroed(BLOCK));
    let mut columns: [Vec<f64>; 10] = Default::default();
    let count = (ZONE_BLOCKS * u64::from(ZONES)) as f64;
    let mut allocated = [0; 2];
    for round in 0..=rounds {
        let mut results = [0.0; 10];
        let [copy, append, write, read, small_append, flush, both, one, log, unheld] = &mut results;
        let mut copies = || {
            for (to, from) in memory.chunks_exact_mut(BLOCK).zip(sources.iter().cycle()) {
                to.copy_from_slice(black_box(from));
            }
            black_box(&mut memory);
        };
        // Copies and appends run once without the clock, so that the memory of both is equally warm.
        copies();
        *copy = ns_of(&*driver, copies);
        append_to_zones(&dev, &sources, 0..ZONES);
        let before = allocations();
        *append = ns_of(&*driver, || append_to_zones(&dev, &sources, 0..ZONES));
        allocated = [allocations() - before, allocated[1]];
        let before = allocations();
        *read = ns_of(&*driver, || read_zones(&dev, &mut buffer));
        allocated = [allocated[0], allocations() - before];
        *write = ns_of(&*driver, || write_zones(&dev, &sources));
        *small_append = ns_of(&*driver, || append_to_zones(&small, &small_sources, 0..ZONES));
        *flush = ns_of(&*driver, || {
            (0..ZONE_BLOCKS * u64::from(ZONES)).for_each(|_| dev.flush().wait().expect("nothing to do"));
        });
        *unheld = ns_of(&*driver, || append_to_zones(&as_flush, &sources, 0..ZONES));
        *log = ns_of(&*driver, || append_to_zones(&as_log, &sources, 0..ZONES));
        *one = ns_of(&*driver, || append_to_zones(&dev, &sources, 0..ZONES));
        *both = ns_of(&*driver, || {
            std::thread::scope(|scope| {
                for (half, sources) in [(0..ZONES / 2, &sources), (ZONES / 2..ZONES, &other_sources)] {
                    let dev = &dev;
                    scope.spawn(move || (0..2).for_each(|_| append_to_zones(dev, sources, half.clone())));
                }
            });
        });
        // The first round is not counted: it warms up memory and code.
        if round > 0 {
            columns.iter_mut().zip(results).for_each(|(column, ns)| column.push(ns / count));
        }
    }
    // The ratio is taken within each round: another program's load then slows both sides.
    let ratio = |a: &[f64], b: &[f64]| median(a.iter().zip(b).map(|(a, b)| a / b).collect());
    let [copies, appended, .., both, one, log, unheld] = &columns;
    let more = |times: &[f64]| median(times.iter().zip(one).map(|(a, b)| a - b).collect());
    let scheduler_ns = [log, unheld].map(|times| more(times));
    let (append_rate, two_threads) = (ratio(copies, appended), 2.0 * ratio(one, both));
    let overhead = median(appended.iter().zip(copies).map(|(a, c)| (a - c).max(0.0)).collect());
    let [copy, append, write, read, small_append, flush, ..] = columns.map(median);
    Numbers {
        copy_ns: copy,
        append_ns: append,
        append_rate,
        write_ns: write,
        read_ns: read,
        overhead_ns: overhead,
        small_append_ns: small_append,
        flush_ns: flush,
        scheduler_ns,
        append_allocations: allocated[0] as f64 / count,
        read_allocations: allocated[1] as f64 / count,
        two_threads,
    }
}

fn drive(block: usize, driver: Arc<dyn Driver>) -> Arc<dyn ZonedDevice> {
    // Zones have the same bytes whatever the block size: the emulator stores small zones in another way.
    let zone_size = Blocks(ZONE_BLOCKS * BLOCK as u64 / block as u64);
    Emu::memory(
        EmuOptions {
            block_size: block as u32,
            zones: ZONES,
            zone_size,
            zone_capacity: zone_size,
            ..EmuOptions::default()
        },
        driver,
    )
}

fn sources(block: usize) -> Vec<Buf> {
    (0..SOURCE_BUFFERS).map(|n| Buf::copy_from(&vec![n as u8 + 1; block])).collect()
}

/// Resets and fills each zone by appends.
fn append_to_zones(dev: &Arc<dyn ZonedDevice>, sources: &[Buf], zones: std::ops::Range<u32>) {
    let mut sources = sources.iter().cycle();
    for zone in zones.map(ZoneId) {
        dev.zone(zone, Action::Reset).wait().expect("legal");
        for _ in 0..ZONE_BLOCKS {
            let source = sources.next().expect("endless").clone();
            black_box(dev.append(zone, source, Durability::Cached).wait().expect("fits"));
        }
    }
}

fn write_zones(dev: &Arc<dyn ZonedDevice>, sources: &[Buf]) {
    let mut sources = sources.iter().cycle();
    for zone in (0..ZONES).map(ZoneId) {
        dev.zone(zone, Action::Reset).wait().expect("legal");
        let start = dev.geometry().start(zone);
        for at in 0..ZONE_BLOCKS {
            let source = sources.next().expect("endless").clone();
            dev.write(start.plus(Blocks(at)), source, Durability::Cached).wait().expect("at the pointer");
        }
    }
}

fn read_zones(dev: &Arc<dyn ZonedDevice>, buffer: &mut Option<BufMut>) {
    for at in 0..ZONE_BLOCKS * u64::from(ZONES) {
        let into = buffer.take().expect("given back");
        *buffer = Some(black_box(dev.read(Lba(at), into).wait().expect("written")));
    }
}

fn ns_of(driver: &dyn Driver, work: impl FnOnce()) -> f64 {
    let start = driver.now();
    work();
    driver.now().since(start).as_nanos() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_gives_every_number() {
        let numbers = measure(1, &|| 0);
        let times = [numbers.copy_ns, numbers.append_ns, numbers.write_ns, numbers.read_ns, numbers.flush_ns];
        assert!(times.iter().all(|ns| *ns > 0.0), "{numbers:?}");
        assert!(numbers.two_threads > 0.0 && numbers.append_rate > 0.0);
    }
}
