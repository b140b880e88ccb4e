//! The bytes in a metadata zone: records, one after the other, each beginning a block.
//!
//! A record is a [`header`] of 128 bytes with its payload right behind it, filled up with zeros to whole blocks: a
//! small payload costs no block of its own. Whoever reads a zone looks at every block, for a record torn by a power
//! cut may lie between two good ones.

pub(crate) mod header;
pub(crate) mod record;
pub(crate) mod superblock;
pub(crate) mod zones;

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of several parts.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum has 32 bits")
}

/// The golden file `name`. With `FURROW_BLESS=1` in the environment it is written first: for a new version only.
#[cfg(test)]
pub(crate) fn golden(name: &str, fresh: &[u8]) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FURROW_BLESS").is_some() {
        std::fs::write(&path, fresh).expect("the golden file is writable");
    }
    std::fs::read(&path).expect("the golden file is there")
}

#[cfg(test)]
mod tests {
    /// The check value of CRC-32C, so that another algorithm never slips in.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(super::crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
