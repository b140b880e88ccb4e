//! The model of a conventional drive: the time model of `zn540`, a little faster, with writes at any address; and its garbage
//! collection.

use std::sync::Arc;

use parking_lot::Mutex;
use units::Instant;
use zoned::emu::{EmuOptions, Profile, Timing, TimingState};
use zoned::{Buf, BufMut, Durability, Geometry, Lba, Op};

use super::ftl::Ftl;
use super::published::{PROFILE_WRITE, READ};

/// The unit of the map of a drive that collects garbage: a chunk of md's array.
pub(super) const PAGE_BYTES: u64 = 64 << 10;

/// The longest transfer of the drive's time model: the largest chunk.
const MAX_TRANSFER_BYTES: usize = 128 << 10;

/// The model of a conventional drive.
#[derive(Debug)]
pub(super) struct Drive {
    geometry: Geometry,
    timing: Timing,
    state: Mutex<(TimingState, Option<Ftl>)>,
    zeros: Buf,
}

/// The profile of `zn540` with the bandwidths of the paper's conventional drives: 2 % more writes and 4 % more reads.
fn profile() -> Profile {
    let text = Profile::text("zn540").expect("the profile is built in");
    let rate = |mib: f64| format!("bandwidth = \"{}B\"", (mib * 1048576.0) as u64);
    let text = text
        .replace("bandwidth = \"1145MiB\"", &rate(PROFILE_WRITE))
        .replace("bandwidth = \"3265MiB\"", &rate(READ));
    Profile::parse("a conventional drive", &text).expect("a number for a number")
}

impl Drive {
    /// A conventional drive as large as a `zn540` of `zones` zones.
    pub(super) fn new(zones: u32, collects: bool) -> Drive {
        let profile = profile();
        let options = EmuOptions { zones, ..EmuOptions::of_profile(profile.clone()) };
        let geometry = options.geometry().expect("that of zn540");
        let timing = Timing::model(&profile, &geometry);
        let bytes = u64::from(zones) * geometry.zone_capacity.bytes(geometry.block_size).0;
        let ftl = collects.then(|| Ftl::new(bytes / PAGE_BYTES));
        let state = Mutex::new((timing.rested(), ftl));
        Drive { geometry, timing, state, zeros: Buf::zeroed(MAX_TRANSFER_BYTES) }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The time at which a read ends that is submitted now.
    pub(super) fn read(&self, now: Instant, at: Lba, bytes: u64) -> Instant {
        let into = BufMut::zeroed(usize::try_from(bytes).expect("a chunk at most"));
        let (timing, _) = &mut *self.state.lock();
        self.timing.completion(timing, now, &Op::Read { at, into }, None)
    }

    /// The time at which a write ends that is submitted now. Pages that are moved to make room are written before it.
    pub(super) fn write(&self, now: Instant, at: Lba, bytes: u64) -> Instant {
        let (timing, ftl) = &mut *self.state.lock();
        let mut put = |at: Lba, bytes: u64| {
            let data = self.zeros.slice(..usize::try_from(bytes).expect("a chunk at most"));
            self.timing.completion(timing, now, &Op::Write { at, data, how: Durability::Cached }, None)
        };
        let moved = ftl.as_mut().map_or(0, |ftl| ftl.write(self.page(at)));
        for _ in 0..moved {
            put(at, PAGE_BYTES);
        }
        put(at, bytes)
    }

    /// The host's page that begins at a block: addresses have gaps after each zone's capacity, pages have none.
    fn page(&self, at: Lba) -> u64 {
        let zone = self.geometry.zone_of(at).expect("within the drive");
        let before = u64::from(zone.0) * self.geometry.zone_capacity.0;
        let blocks = before + at.since(self.geometry.start(zone)).0;
        blocks * u64::from(self.geometry.block_size) / PAGE_BYTES
    }
}

/// Makes `count` conventional drives.
pub(super) fn drives(count: usize, zones: u32, collects: bool) -> Arc<[Drive]> {
    (0..count).map(|_| Drive::new(zones, collects)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_for_the_relocation_of_live_blocks() {
        let drive = Drive::new(1, true);
        let per_page = PAGE_BYTES / u64::from(drive.geometry().block_size);
        let pages = drive.geometry().zone_capacity.0 / per_page;
        let mut now = Instant::ORIGIN;
        let mut times = Vec::new();
        // The test fills the drive with five streams, then overwrites a fifth with one.
        let each = pages / 5;
        let streams = (0..pages / 5 * 5).map(|n| n % 5 * each + n / 5);
        for (n, page) in (0..).zip(streams.chain(0..each)) {
            if n % each == 0 {
                times.push(now);
            }
            now = drive.write(now, Lba(page * per_page), PAGE_BYTES);
        }
        times.push(now);
        let took: Vec<f64> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
        assert!(took[1..5].iter().all(|time| (time / took[1] - 1.0).abs() < 0.01), "{took:?}");
        assert!(took[5] > 2.0 * took[1], "{took:?}");
        let mib = (each * PAGE_BYTES) as f64 / 1048576.0 / took[1];
        assert!((mib / (1145.0 / 0.98) - 1.0).abs() < 0.01, "{mib}");
    }
}
