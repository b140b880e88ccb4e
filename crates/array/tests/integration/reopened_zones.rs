//! Power cuts that reopen full zones: a drive's cache loses the last blocks of a zone, or its finish, after the next zone was begun.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::{ArrayFixture, blocks};
use array::{Array, BrokenRule, OpenOptions};
use units::{SplitMix64, sleep_until, spawn};
use zoned::{Action, Blocks, Durability, ZoneId, ZonedDevice};

const DRIVES: u32 = 4;
const UNIT: u64 = 4;
const PART_ROWS: u64 = 96;
/// Data blocks of a zone, and of one write.
const CAPACITY: u64 = 3 * PART_ROWS;
const WRITE: u64 = 24;
const ZONES: u32 = 12;
/// The array keeps three of a drive's five active zones, so that its users can have two.
const OPEN: u32 = 4;

/// Writes one zone after the other beside a zone that stays half full: whole, or up to a finish. Writes to a zone go out together.
async fn fill_zones(array: Arc<Array>, zones: Vec<ZoneId>, finishes: bool) {
    let device: Arc<dyn ZonedDevice> = array;
    let write = |zone: ZoneId, at: u64| {
        let at_zone = device.geometry().start(zone).plus(Blocks(at));
        device.write(at_zone, blocks(1, at, at + WRITE), Durability::Cached)
    };
    write(ZoneId(0), 0).await.expect("written");
    for zone in zones {
        let end = if finishes { CAPACITY / 2 } else { CAPACITY };
        let writes: Vec<_> = (0..end).step_by(WRITE as usize).map(|at| write(zone, at)).collect();
        // The last writes of a zone that is written whole are in flight when the next zone is begun.
        for io in writes.into_iter().take(if finishes { usize::MAX } else { 1 }) {
            io.await.expect("written");
        }
        if finishes {
            device.zone(zone, Action::Finish).await.expect("finished");
        }
    }
}

/// The mounts that are refused after power cuts with seeds up to `seeds`.
pub fn refused_mounts(seeds: u64, finishes: bool, broken_rule: Option<BrokenRule>) -> Vec<String> {
    let options = || OpenOptions { broken_rule, ..OpenOptions::default() };
    let mut refused = Vec::new();
    for seed in 0..seeds {
        let mut rng = SplitMix64::new(seed);
        let ground = ArrayFixture::with_open(DRIVES, ZONES, PART_ROWS, UNIT, OPEN);
        let array = ground.open(options());
        // In the order of their numbers, or in a random one: where zones share physical ones, the order decides which.
        let mut zones: Vec<ZoneId> = (1..ZONES).map(ZoneId).collect();
        if seed % 2 == 1 {
            zones.sort_by_cached_key(|_| rng.draw());
        }
        let work = spawn(&*ground.driver, "fill zones", fill_zones(array, zones, finishes));
        let cut = ground.driver.now().after(Duration::from_micros(rng.draw() % 4_000));
        ground.wait(sleep_until(&*ground.driver, cut));
        let after = ArrayFixture::of(ground.cut(rng.draw() >> 8).into_iter());
        drop(work);
        if let Err(error) = after.wait(Array::open(after.devices(), options())) {
            refused.push(format!("seed {seed}: {error}"));
        }
    }
    refused
}

#[test]
fn an_array_at_its_limit_of_active_zones_is_opened_after_any_power_cut() {
    for finishes in [false, true] {
        let refused = refused_mounts(400, finishes, None);
        assert!(refused.is_empty(), "finishes: {finishes}; {refused:?}");
    }
}
