//! The settings of an emulated drive.

use std::sync::Arc;

use crate::emu::{Latency, Profile};
use crate::{Blocks, Error, ErrorKind, Geometry, Result};

/// The settings of an emulated drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmuOptions {
    /// The drive's name in messages. Default `emu:mem`.
    pub name: String,
    /// Bytes in a block: a power of two from 512 to 65,536. Default 4,096.
    pub block_size: u32,
    /// Number of zones, at least one. Default 256.
    pub zones: u32,
    /// Number of conventional zones, from zone 0 on. Default none.
    pub conventional: u32,
    /// The distance between the starts of two zones, in blocks. Default 64 MiB.
    pub zone_size: Blocks,
    /// The writable blocks of a sequential zone. Default the zone size.
    pub zone_capacity: Blocks,
    /// Zones that may be open at once; `None` for no limit. Default 14.
    pub max_open: Option<u32>,
    /// Zones that may be active at once; `None` for no limit. Default 14.
    pub max_active: Option<u32>,
    /// The longest append. Default 128 KiB.
    pub max_append: Blocks,
    /// Size of a write, aligned to its size, that a power cut never tears. Default one block.
    pub atomic_write: Blocks,
    /// Whether acknowledged writes wait for a flush to be durable. Default true.
    pub volatile_cache: bool,
    /// Whether reads past the write pointer give zeros instead of an error. Default true.
    pub read_past_pointer: bool,
    /// Constant delays of operations, where the profile has no times. Default none.
    pub latency: Latency,
    /// The profile with the drive's times. Default none.
    pub profile: Option<Arc<Profile>>,
    /// Factor by which device times are stretched, so that the host's own slowness counts less. Measured
    /// times have to be divided by the factor. Default 1.
    pub dilation: u32,
    /// Whether appends in flight take their addresses in any order, as on real drives; the driver's random
    /// numbers decide. Without effect if operations take no time, because no two are in flight then. Default
    /// false.
    pub reorder: bool,
    /// Whether a zone has one write in flight at a time, and adjacent writes that wait go out as one, as on the drives that the kernel
    /// serves. [`emulated`](crate::emulated) and URLs respect it, [`Emu`](crate::emu::Emu) by itself does not. Default false.
    pub one_write: bool,
    /// Whether the drive remembers which operations are not durable, so that
    /// [`Emu::power_cut`](crate::emu::Emu::power_cut) gives every outcome. Costs an allocation now and then.
    /// Default false.
    pub track_power_cuts: bool,
    /// Seed of the noise that blocks read as which never landed before a power cut. Default 0.
    pub seed: u64,
}

/// The longest read or write of an emulated drive, in bytes.
const MAX_TRANSFER: u64 = 64 << 20;

impl Default for EmuOptions {
    fn default() -> EmuOptions {
        EmuOptions {
            name: "emu:mem".into(),
            block_size: 4096,
            zones: 256,
            conventional: 0,
            zone_size: Blocks(16_384),
            zone_capacity: Blocks(16_384),
            max_open: Some(14),
            max_active: Some(14),
            max_append: Blocks(32),
            atomic_write: Blocks(1),
            volatile_cache: true,
            read_past_pointer: true,
            latency: Latency::NONE,
            profile: None,
            dilation: 1,
            reorder: false,
            one_write: false,
            track_power_cuts: false,
            seed: 0,
        }
    }
}

impl EmuOptions {
    /// Settings of a drive for tests: 32 zones of 16 blocks of which 14 hold data, 6 open, 8 active, power
    /// cuts tracked.
    pub fn tiny() -> EmuOptions {
        EmuOptions {
            name: "emu:tiny".into(),
            zones: 32,
            zone_size: Blocks(16),
            zone_capacity: Blocks(14),
            max_open: Some(6),
            max_active: Some(8),
            max_append: Blocks(8),
            track_power_cuts: true,
            ..EmuOptions::default()
        }
    }

    /// The geometry that the settings describe. Settings that contradict each other are refused.
    pub fn geometry(&self) -> Result<Geometry> {
        let name: Arc<str> = Arc::from(self.name.as_str());
        let problem = if !(self.block_size.is_power_of_two() && (512..=65_536).contains(&self.block_size)) {
            Some(format!("a block has {} bytes: use a power of two from 512 to 65536", self.block_size))
        } else if self.zones == 0 {
            Some("a drive has at least one zone".to_string())
        } else if self.conventional > self.zones {
            Some(format!("{} conventional zones of {} in all", self.conventional, self.zones))
        } else if self.zone_size == Blocks::ZERO || self.zone_capacity == Blocks::ZERO {
            Some("a zone has at least one block".to_string())
        } else if self.zone_capacity > self.zone_size {
            Some(format!("a capacity of {:?} in a zone of {:?}", self.zone_capacity, self.zone_size))
        } else if self.zone_size.0.checked_mul(u64::from(self.zones) * u64::from(self.block_size)).is_none() {
            Some("the drive is larger than 2^64 bytes".to_string())
        } else if self.max_open == Some(0) || self.max_active == Some(0) {
            Some("at least one zone must be allowed to be open".to_string())
        } else if self.max_active.is_some_and(|a| self.max_open.is_none_or(|o| o > a)) {
            Some("every open zone is active: max-open must not be above max-active".to_string())
        } else if self.max_append == Blocks::ZERO || self.atomic_write == Blocks::ZERO {
            Some("the append limit and the atomic write are at least one block".to_string())
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::new(ErrorKind::Invalid, &name, "settings").because(problem));
        }
        let longest = Blocks(MAX_TRANSFER / u64::from(self.block_size)).min(self.zone_size);
        Ok(Geometry {
            name,
            block_size: self.block_size,
            zones: self.zones,
            conventional: self.conventional,
            zone_size: self.zone_size,
            zone_capacity: self.zone_capacity,
            max_open: self.max_open,
            max_active: self.max_active,
            max_append: self.max_append.min(longest),
            max_transfer: longest,
            atomic_write: self.atomic_write,
            optimal_write: Blocks(1),
            volatile_cache: self.volatile_cache,
            ordered_cache: true,
            read_past_pointer: self.read_past_pointer,
        })
    }
}
