//! Newtypes for device addresses and lengths, so that bytes and blocks are not confused.

use std::fmt;

/// A logical block address on a device: block 0 is the first block of zone 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lba(pub u64);

/// The index of a zone on its device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ZoneId(pub u32);

/// A number of logical blocks; also an offset within a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Blocks(pub u64);

/// A number of bytes; also an offset within a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

impl Lba {
    /// The address `n` blocks higher, saturating.
    pub fn plus(self, n: Blocks) -> Lba {
        Lba(self.0.saturating_add(n.0))
    }

    /// The distance from `earlier`; zero if `earlier` is not lower.
    pub fn since(self, earlier: Lba) -> Blocks {
        Blocks(self.0.saturating_sub(earlier.0))
    }
}

impl ZoneId {
    /// The zone's number as an index into a table of zones.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Blocks {
    /// No blocks.
    pub const ZERO: Blocks = Blocks(0);

    /// The number of bytes in this many blocks of `block_size` bytes.
    pub fn bytes(self, block_size: u32) -> Bytes {
        Bytes(self.0.saturating_mul(u64::from(block_size)))
    }

    /// The sum, saturating.
    pub fn plus(self, n: Blocks) -> Blocks {
        Blocks(self.0.saturating_add(n.0))
    }

    /// The difference of two numbers of blocks, zero if `n` is larger.
    pub fn minus(self, n: Blocks) -> Blocks {
        Blocks(self.0.saturating_sub(n.0))
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// Number of blocks of `block_size` bytes that hold this many bytes, rounded up.
    pub fn blocks_ceil(self, block_size: u32) -> Blocks {
        Blocks(self.0.div_ceil(u64::from(block_size)))
    }

    /// Number of whole blocks of `block_size` bytes, rounded down.
    pub fn blocks_floor(self, block_size: u32) -> Blocks {
        Blocks(self.0 / u64::from(block_size))
    }

    /// The sum, saturating.
    pub fn plus(self, n: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(n.0))
    }

    /// The difference of two numbers of bytes, zero if `n` is larger.
    pub fn minus(self, n: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(n.0))
    }
}

impl std::iter::Sum for Blocks {
    fn sum<I: Iterator<Item = Blocks>>(iter: I) -> Blocks {
        iter.fold(Blocks::ZERO, Blocks::plus)
    }
}

impl fmt::Debug for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lba {}", self.0)
    }
}

impl fmt::Debug for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {}", self.0)
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks", self.0)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_block_takes_a_whole_block() {
        assert_eq!(Bytes(4097).blocks_ceil(4096), Blocks(2));
        assert_eq!(Bytes(4097).blocks_floor(4096), Blocks(1));
        assert_eq!(Bytes(0).blocks_ceil(4096), Blocks::ZERO);
    }

    #[test]
    fn distances_never_wrap() {
        assert_eq!(Lba(3).since(Lba(5)), Blocks::ZERO);
        assert_eq!(Blocks(u64::MAX).bytes(4096), Bytes(u64::MAX));
    }
}
