//! The space of an array with stored maps: how much of the drives holds content, and how much room is left.

use zoned::Bytes;

/// The space of the physical zones of an array's drives, without metadata zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Bytes that the parts of logical zones with content take: whole parts, parities included.
    pub live: Bytes,
    /// Bytes of the physical zones with content, reset parts and room behind parts included.
    pub committed: Bytes,
    /// Bytes of all physical zones that take writes.
    pub usable: Bytes,
    /// Empty physical zones of the drive with the fewest.
    pub empty_zones: u32,
    /// Physical zones of each drive beside those that the parts of all logical zones fill.
    pub reserve_zones: u32,
    /// True while a reclaim or another move of a part runs, or is ordered.
    pub moving: bool,
}
