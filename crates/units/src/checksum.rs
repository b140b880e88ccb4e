//! The checksum of all on-disk structures.

use crc_fast::{CrcAlgorithm, Digest};

use crate::SplitMix64;

/// CRC32C of the concatenation of `parts`.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum has 32 bits")
}

/// Eight bytes derived non-linearly from a record's numbers.
///
/// CRC is linear, and an array reconstructs a block of a failed drive as the XOR of the other drives' blocks. If
/// parity was never written, the XOR of three records may be a record with a valid CRC and a plausible number. With
/// these bytes under the CRC the checksum does not match.
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

    /// The published check value of the checksum CRC-32C.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(super::crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
