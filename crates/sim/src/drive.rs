//! Builds the emulated drive of a trace, and the scheduler before the drive.

use std::time::Duration;

use zoned::emu::{EmuOptions, Latency, Media};
use zoned::{Blocks, Goal, IoClass};

use crate::trace::Drive;
use crate::{Error, Result, Rng};

/// Virtual latencies of the emulated drive's operations during a workload.
pub(crate) fn latency() -> Latency {
    let micros = Duration::from_micros;
    Latency {
        read: micros(5),
        write: micros(20),
        flush: micros(50),
        reset: micros(40),
        finish: micros(30),
        other: micros(5),
    }
}

/// The goal of the scheduler before the drive of a workload; `None` without a scheduler. Bulk goes at the rate that the scheduler finds, or at a fixed one that holds some writes for
/// milliseconds. The draw has a generator of its own: the other draws of a workload are as they were before there were schedulers.
pub(crate) fn scheduler_goal(seed: u64, workload: u64) -> Option<Goal> {
    let mut rng = Rng::at(seed, &[workload, 0x5c4e]);
    let fixed = |rate: f64| Goal { least_rate: rate, most_rate: Some(rate), ..Goal::default() };
    match rng.below(10) {
        0 | 1 => Some(Goal::default()),
        2 => Some(fixed(4e6)),
        3 => Some(fixed(40e6)),
        _ => None,
    }
}

/// A class of operations: half of the draws are of a class that a scheduler may hold.
pub(crate) fn random_class(rng: &mut Rng) -> IoClass {
    let (unheld, bulk): (Vec<_>, Vec<_>) = IoClass::ALL.into_iter().partition(|class| !class.is_bulk());
    let classes = if rng.chance(50) { bulk } else { unheld };
    classes.get(rng.index(classes.len())).copied().unwrap_or_default()
}

impl Drive {
    /// A drive with tiny zones: a zone is full after a few appends, the metadata log rolls after a dozen commits,
    /// and a workload needs the space of removed files again.
    pub(crate) fn tiny(volatile_cache: bool) -> Drive {
        Drive {
            block_size: 4096,
            zones: 32,
            conventional: 0,
            zone_size: 16,
            zone_capacity: 14,
            max_open: 8,
            max_active: 10,
            max_append: 8,
            atomic_write: 1,
            volatile_cache,
            reorders: true,
        }
    }

    /// The drive of a workload. Some drives have so few open zones that all files share zones.
    pub(crate) fn of_workload(volatile_cache: bool, workload: u64) -> Drive {
        let tiny = Drive::tiny(volatile_cache);
        match workload % 3 {
            0 => tiny,
            1 => Drive { zones: 28, ..tiny },
            _ => Drive { max_open: 5, max_active: 5, ..tiny },
        }
    }

    /// Adds conventional zones to the drives of some workloads: logs lie there and in sequential zones. The draw has a generator of its
    /// own: the other draws of a workload are as they were before drives had such zones.
    pub(crate) fn with_conventional_zones(self, seed: u64, workload: u64) -> Drive {
        let mut rng = Rng::at(seed, &[workload, 0xc0e1]);
        if !rng.chance(30) {
            return self;
        }
        let for_logs = [1, 1, 2, 4].get(rng.index(4)).copied().unwrap_or(1);
        // The superblocks lie in zones 0 and 1.
        let conventional = 2 + for_logs;
        Drive { zones: self.zones + conventional, conventional, ..self }
    }

    /// The emulator's settings for the trace's drive.
    pub(crate) fn options(&self, name: &str, latency: Latency) -> EmuOptions {
        EmuOptions {
            name: name.into(),
            block_size: self.block_size,
            zones: self.zones,
            conventional: self.conventional,
            zone_size: Blocks(self.zone_size.into()),
            zone_capacity: Blocks(self.zone_capacity.into()),
            max_open: Some(self.max_open),
            max_active: Some(self.max_active),
            max_append: Blocks(self.max_append.into()),
            atomic_write: Blocks(self.atomic_write.into()),
            volatile_cache: self.volatile_cache,
            latency,
            reorder: self.reorders,
            track_power_cuts: true,
            ..EmuOptions::default()
        }
    }

    /// The trace's drive as an empty medium.
    pub(crate) fn medium(&self) -> Result<Media> {
        let options = self.options("emu:replay", Latency::NONE);
        options.geometry().map_err(|e| Error::Replay(e.to_string()))?;
        Ok(Media::new(&options))
    }
}
