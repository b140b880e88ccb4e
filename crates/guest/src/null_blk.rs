//! null_blk devices, created through configfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use xtask::guest::job::NullBlk;

use crate::{clock, text};

/// Creates a zoned null_blk device; returns its device node.
pub fn make(name: &str, what: &NullBlk) -> Result<PathBuf> {
    let home = configure(
        name,
        &[
            ("size", what.size_mb),
            ("blocksize", what.block_size),
            ("zoned", 1),
            ("zone_size", what.zone_size_mb),
            ("zone_capacity", what.zone_capacity_mb),
            ("zone_nr_conv", what.conventional),
            ("zone_max_open", what.max_open),
            ("zone_max_active", what.max_active),
        ],
    )?;
    let sectors = u64::from(what.zone_size_mb) << 11;
    for (setting, zones) in [("zone_readonly", &what.read_only), ("zone_offline", &what.offline)] {
        for zone in zones {
            text::put(home.join(setting), sectors * u64::from(*zone))?;
        }
    }
    node(name)
}

/// Creates an ordinary null_blk device, of so many MiB and with blocks of 4 KiB; returns its device node.
pub fn make_ordinary(name: &str, size_mb: u32) -> Result<PathBuf> {
    configure(name, &[("size", size_mb), ("blocksize", 4096)])?;
    node(name)
}

/// Creates an ordinary null_blk device, of so many MiB, that works on a few requests at once and takes its time for each. Requests beyond wait in the
/// kernel's queue. Returns its device node.
pub fn make_slow(name: &str, size_mb: u32, slow: &Slow) -> Result<PathBuf> {
    /// `NULL_IRQ_TIMER` of the module: a request ends after `completion_nsec`.
    const ENDS_BY_TIMER: u32 = 2;
    let settings = [
        ("size", size_mb),
        // The module copies block by block: smaller ones would cost the emulated processor more than the drive's time.
        ("blocksize", 4096),
        ("irqmode", ENDS_BY_TIMER),
        ("completion_nsec", u32::try_from(slow.time.as_nanos())?),
        ("hw_queue_depth", slow.depth),
        ("submit_queues", 1),
        ("max_sectors", slow.longest_kib * 2),
    ];
    configure(name, &settings)?;
    node(name)
}

/// The speed of a slow null_blk device.
pub struct Slow {
    /// The time of each request.
    pub time: Duration,
    /// Number of requests at once.
    pub depth: u32,
    /// KiB of the longest request.
    pub longest_kib: u32,
}

/// Creates a null_blk device with these settings, which keeps its data in memory; returns its directory in configfs.
fn configure(name: &str, settings: &[(&str, u32)]) -> Result<PathBuf> {
    let home = Path::new("/sys/kernel/config/nullb").join(name);
    fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
    for (setting, value) in [("memory_backed", 1)].iter().chain(settings).chain(&[("power", 1)]) {
        text::put(home.join(setting), value)?;
    }
    Ok(home)
}

/// Waits for the device node of a null_blk device.
fn node(name: &str) -> Result<PathBuf> {
    let node = Path::new("/dev").join(name);
    clock::wait_for(&format!("{}", node.display()), || node.exists().then_some(()))?;
    Ok(node)
}
