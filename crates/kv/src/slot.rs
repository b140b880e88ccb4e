//! The slot of a key in a cluster, as Redis Cluster computes it.

/// The number of slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM's polynomial.
const POLYNOMIAL: u16 = 0x1021;

/// The slot of a key: the CRC of the key, or of its hash tag, the bytes between the first `{` and the first `}` behind it, where there are any.
pub fn key_slot(key: &[u8]) -> u16 {
    let tag = || {
        let (_, behind) = key.split_at_checked(key.iter().position(|byte| *byte == b'{')? + 1)?;
        let (tag, _) = behind.split_at_checked(behind.iter().position(|byte| *byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    let byte = |crc: u16, byte: &u8| {
        let shift = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ POLYNOMIAL };
        (0..8).fold(crc ^ u16::from(*byte) << 8, shift)
    };
    bytes.iter().fold(0, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let slots = [("foo", 12_182), ("bar", 5_061), ("hello", 866), ("", 0)];
        for (key, slot) in slots {
            assert_eq!(key_slot(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_hash_tag_alone_decides_unless_it_is_empty_or_open() {
        assert_eq!(key_slot(b"{user1000}.following"), key_slot(b"user1000"));
        assert_eq!(key_slot(b"x{a}{b}"), key_slot(b"a"));
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
        assert_ne!(key_slot(b"{}foo"), key_slot(b"foo"));
        assert_eq!(key_slot(b"{}{foo}"), crc16(b"{}{foo}") % SLOTS);
        assert_eq!(key_slot(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
    }
}
