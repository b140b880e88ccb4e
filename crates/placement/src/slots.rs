//! The slot of a key, as Redis cluster computes it.

/// Number of slots of a Redis cluster.
pub const SLOTS: u16 = 16_384;

/// A slot of a Redis cluster: 0 to 16,383.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number; `None` from 16,384 on.
    pub fn new(number: u16) -> Option<Slot> {
        (number < SLOTS).then_some(Slot(number))
    }

    /// The slot's number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The slot of a key: CRC-16/XMODEM of its hash tag, modulo 16,384.
    pub fn of_key(key: &[u8]) -> Slot {
        Slot(crc16(hash_tag(key)) % SLOTS)
    }
}

/// The part of a key that its slot is computed from: what lies between the first `{` and the first `}` behind that, if it is not empty; otherwise the key.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let behind = key.get(open + 1..).unwrap_or_default();
    match behind.iter().position(|byte| *byte == b'}') {
        Some(close) if close > 0 => behind.get(..close).unwrap_or(key),
        _ => key,
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, begins with 0, no reflection.
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let row = TABLE.get(usize::from((crc >> 8) as u8 ^ byte)).expect("256 rows for 256 values of a byte");
        (crc << 8) ^ row
    })
}

/// The checksum's change for each value of its high byte.
const TABLE: [u16; 256] = table();

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index out of bounds")]
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut row = 0;
    while row < 256 {
        let mut crc = (row as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[row] = crc;
        row += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_xmodem_s() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn known_keys_have_the_slots_that_redis_gives_them() {
        for (key, slot) in [("foo", 12_182), ("123456789", 12_739), ("", 0), ("bar", 5061), ("hello", 866)] {
            assert_eq!(Slot::of_key(key.as_bytes()).number(), slot, "{key}");
        }
    }

    #[test]
    fn a_hash_tag_ends_at_the_first_closing_brace_behind_the_first_opening_one() {
        for (key, tag) in [
            ("{user1000}.following", "user1000"),
            ("user1000", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo}{bar}", "bar"),
            ("foo{bar", "foo{bar"),
            ("foo}bar{", "foo}bar{"),
            ("{}", "{}"),
            ("{a}", "a"),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
        assert_eq!(Slot::of_key(b"{user1000}.following"), Slot::of_key(b"user1000"));
    }

    #[test]
    fn a_slot_is_below_16384() {
        assert_eq!(Slot::new(16_383).map(Slot::number), Some(16_383));
        assert_eq!(Slot::new(16_384), None);
    }
}
