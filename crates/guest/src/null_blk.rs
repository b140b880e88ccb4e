//! null_blk devices, created through configfs.

use std::fs;
use std::path::{Path, PathBuf};

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
