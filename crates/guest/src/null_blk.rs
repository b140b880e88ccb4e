//! Zoned null_blk devices, created through configfs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::guest::job::NullBlk;

use crate::{clock, text};

/// Creates a null_blk device; returns its device node.
pub fn make(name: &str, what: &NullBlk) -> Result<PathBuf> {
    let home = Path::new("/sys/kernel/config/nullb").join(name);
    fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
    for (setting, value) in [
        ("size", what.size_mb),
        ("memory_backed", 1),
        ("blocksize", what.block_size),
        ("zoned", 1),
        ("zone_size", what.zone_size_mb),
        ("zone_capacity", what.zone_capacity_mb),
        ("zone_nr_conv", what.conventional),
        ("zone_max_open", what.max_open),
        ("zone_max_active", what.max_active),
        ("power", 1),
    ] {
        text::put(home.join(setting), value)?;
    }
    let sectors = u64::from(what.zone_size_mb) << 11;
    for (setting, zones) in [("zone_readonly", &what.read_only), ("zone_offline", &what.offline)] {
        for zone in zones {
            text::put(home.join(setting), sectors * u64::from(*zone))?;
        }
    }
    let node = Path::new("/dev").join(name);
    clock::wait_for(&format!("{}", node.display()), || node.exists().then_some(()))?;
    Ok(node)
}
