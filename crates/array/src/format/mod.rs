//! The bytes in a metadata zone: records, one after the other, each beginning a block.
//!
//! A record is a [`header`] of 128 bytes followed by its payload, padded with zeros to whole blocks: a small payload takes no
//! block of its own. A reader of a zone tries every block, because a record torn by a power cut may lie between two good
//! ones.

pub(crate) mod frames;
pub(crate) mod header;
pub(crate) mod record;
pub(crate) mod reorder;
pub(crate) mod row_ranges;
pub(crate) mod shape;
pub(crate) mod superblock;
pub(crate) mod zone_entries;
pub(crate) mod zone_maps;

pub(crate) use units::crc32c;

/// The highest epoch, sequence number and superblock change that a mount accepts. No array counts that far: a higher number is
/// damage. Numbers above leave room to count on.
pub(crate) const HIGHEST_COUNTER: u64 = u64::MAX >> 1;

/// The golden file `name`. With `FURROW_BLESS=1` in the environment it is written first: for a new version only.
#[cfg(test)]
pub(crate) fn golden_file(name: &str, fresh: &[u8]) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FURROW_BLESS").is_some() {
        std::fs::write(&path, fresh).expect("the golden file is writable");
    }
    std::fs::read(&path).expect("the golden file is there")
}
