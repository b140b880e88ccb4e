//! A device's geometry: properties that do not change while the device is open.

use std::sync::Arc;

use crate::{Blocks, Lba, ZoneId};

/// A device's geometry: its fixed properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Name of the device in messages: its URL without parameters.
    pub name: Arc<str>,
    /// Bytes in a logical block: a power of two from 512 to 65,536.
    pub block_size: u32,
    /// Number of the device's zones.
    pub zones: u32,
    /// Number of conventional zones, which come first: written at any address, never reset.
    pub conventional: u32,
    /// The distance between the starts of two zones, in blocks.
    pub zone_size: Blocks,
    /// The writable blocks at the start of a sequential zone: `zone_size` or fewer.
    pub zone_capacity: Blocks,
    /// Most zones that may be open at once; `None` if the device has no limit.
    pub max_open: Option<u32>,
    /// Most zones that may be active (open or closed) at once; `None` if the device has no limit.
    pub max_active: Option<u32>,
    /// The longest append, in blocks (ZASL).
    pub max_append: Blocks,
    /// The longest read or write, in blocks.
    pub max_transfer: Blocks,
    /// A write of this many blocks, aligned to its length, is never torn by a power cut. An array with atomic writes gives its
    /// longest transfer: it tears no shorter write or append either, wherever that begins.
    pub atomic_write: Blocks,
    /// A write should end at a multiple of this many blocks from the zone's start, or at the zone's end. An array logs
    /// partial parity for any other write. One block if the device has no preference; at most `max_transfer`.
    pub optimal_write: Blocks,
    /// True if a power cut may lose an acknowledged write that no flush covers.
    pub volatile_cache: bool,
    /// True if a power cut that loses a block of a zone also loses all higher blocks of the zone. False for
    /// an array whose drives have volatile caches: only a flush orders the blocks of an array.
    pub ordered_cache: bool,
    /// True if a read past the write pointer succeeds (with unspecified content); false if it is refused.
    pub read_past_pointer: bool,
}

impl Geometry {
    /// The first block of `zone`.
    pub fn start(&self, zone: ZoneId) -> Lba {
        Lba(u64::from(zone.0) * self.zone_size.0)
    }

    /// The zone that contains `at`; `None` past the end of the device.
    pub fn zone_of(&self, at: Lba) -> Option<ZoneId> {
        let zone = at.0.checked_div(self.zone_size.0)?;
        (zone < u64::from(self.zones)).then(|| ZoneId(u32::try_from(zone).unwrap_or(u32::MAX)))
    }

    /// True if `zone` is conventional.
    pub fn is_conventional(&self, zone: ZoneId) -> bool {
        zone.0 < self.conventional
    }

    /// The number of bytes that can be written to the whole device.
    pub fn capacity_bytes(&self) -> u64 {
        let sequential = u64::from(self.zones.saturating_sub(self.conventional)) * self.zone_capacity.0;
        let conventional = u64::from(self.conventional) * self.zone_size.0;
        (sequential + conventional) * u64::from(self.block_size)
    }
}
