//! The checksum of everything on a disk.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of several parts, one after the other.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum has 32 bits")
}

#[cfg(test)]
mod tests {
    /// The check value of CRC-32C, so that another algorithm never slips in.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(super::crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
