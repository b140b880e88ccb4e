//! The checksum of everything on a disk.

use crc_fast::{CrcAlgorithm, Digest};

use crate::SplitMix64;

/// CRC32C of several parts, one after the other.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum has 32 bits")
}

/// Bytes that are a function of a record's number, and no linear one.
///
/// A CRC is linear, and what an array puts together for a lost drive is the XOR of the blocks of the others: where its parity
/// never landed, the XOR of three records is a record again, its checksum fits, and its number may even be the next
/// one. With this under the checksum it does not.
pub fn scrambled(numbers: &[u64]) -> [u8; 8] {
    let mix = |sum: u64, number: &u64| SplitMix64::new(sum ^ number).draw();
    numbers.iter().fold(0, mix).to_le_bytes()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_xor_of_three_records_is_none() {
        let record = |number: u64| {
            let body = [number.to_le_bytes(), (number * 77).to_le_bytes()].concat();
            (super::crc32c(&[&super::scrambled(&[number]), &body]), super::crc32c(&[&body]), body)
        };
        let three = [48, 52, 56].map(record);
        let xor = three[1..].iter().fold(three[0].clone(), |(a, b, mut body), (x, y, other)| {
            body.iter_mut().zip(other).for_each(|(to, from)| *to ^= from);
            (a ^ x, b ^ y, body)
        });
        let number = u64::from_le_bytes(*xor.2.first_chunk().expect("eight bytes"));
        assert_eq!(number, 60, "the number that comes next");
        assert_eq!(xor.1, super::crc32c(&[&xor.2]), "a checksum alone is taken in");
        assert_ne!(xor.0, super::crc32c(&[&super::scrambled(&[number]), &xor.2]));
    }

    /// The check value of CRC-32C, so that another algorithm never slips in.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(super::crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
