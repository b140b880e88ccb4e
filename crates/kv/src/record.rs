//! The value of a key in the store.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `expires_ms` | little-endian; milliseconds since 1970 from which on the key is gone; 0: never |
//! | 8 | 1 | `kind` | what follows: 1 is a string. A new layout gets a new number |
//! | 9 | - | `value` | the string's bytes, to the end of the record |
//!
//! The expiry comes first so that the compaction filter needs to know nothing else. RocksDB's blocks and logs carry
//! checksums, so a record has none of its own.

use bytes::Bytes;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a stored record before the value.
pub const HEADER_LEN: usize = size_of::<RecordHeader>();

/// `kind` of a plain string.
const KIND_STRING: u8 = 1;

/// The header of a stored record, before the value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    expires_ms: U64,
    kind: u8,
}

const _: () = assert!(size_of::<RecordHeader>() == 9);
const _: () = assert!(std::mem::offset_of!(RecordHeader, kind) == 8);

/// The time from which a key is gone, if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expiry(u64);

impl Expiry {
    /// The expiry of a key that stays.
    pub const NEVER: Expiry = Expiry(0);

    /// The expiry at `unix_ms`, milliseconds since 1970. A time before 1970 counts as long past.
    pub fn at(unix_ms: i64) -> Expiry {
        Expiry(u64::try_from(unix_ms).unwrap_or(0).max(1))
    }

    /// The expiry in milliseconds since 1970; `None` if the key stays.
    pub fn unix_ms(self) -> Option<u64> {
        (self.0 != 0).then_some(self.0)
    }

    /// Whether a key with this expiry is gone at `now_ms`.
    pub fn is_past(self, now_ms: u64) -> bool {
        self.0 != 0 && self.0 <= now_ms
    }
}

/// A decoded record that owns its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The key's expiry.
    pub expires: Expiry,
    /// The value, a string.
    pub value: Bytes,
}

impl Record {
    /// The header that is stored before the value.
    pub fn header(&self) -> RecordHeader {
        self.as_ref().header()
    }

    /// The record's bytes as the store has them.
    pub fn encode(&self) -> Vec<u8> {
        self.as_ref().encode()
    }

    /// A borrowed view of the record.
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef { expires: self.expires, value: &self.value }
    }
}

/// A decoded record that borrows its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRef<'a> {
    /// The key's expiry.
    pub expires: Expiry,
    /// The value, a string.
    pub value: &'a [u8],
}

impl<'a> RecordRef<'a> {
    /// The header that is stored before the value.
    pub fn header(&self) -> RecordHeader {
        RecordHeader { expires_ms: U64::new(self.expires.0), kind: KIND_STRING }
    }

    /// The record's bytes as the store has them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + self.value.len());
        out.extend_from_slice(self.header().as_bytes());
        out.extend_from_slice(self.value);
        out
    }

    /// Decodes a stored record. The decoder is total: any bytes give a record or a message.
    pub fn decode(stored: &'a [u8]) -> Result<RecordRef<'a>, String> {
        let Ok((header, value)) = RecordHeader::ref_from_prefix(stored) else {
            return Err(format!("{} bytes, the header alone has {HEADER_LEN}", stored.len()));
        };
        if header.kind != KIND_STRING {
            return Err(format!("kind {} is unknown to this build", header.kind));
        }
        Ok(RecordRef { expires: Expiry(header.expires_ms.get()), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_encodes_as_the_golden_file() {
        let golden = include_bytes!("../tests/golden/record-v1.bin");
        let record =
            Record { expires: Expiry::at(1_795_294_357_811), value: Bytes::from_static(b"furrow\r\n\0") };
        assert_eq!(record.encode(), golden);
        assert_eq!(RecordRef::decode(golden), Ok(record.as_ref()));
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_refused() {
        let mut stored = Record { expires: Expiry::NEVER, value: Bytes::from_static(b"x") }.encode();
        stored[8] = 2;
        assert!(RecordRef::decode(&stored).is_err());
        assert!(RecordRef::decode(&stored[..8]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_a_record_that_encodes_to_them_or_to_an_error(stored: Vec<u8>) {
            if let Ok(r) = RecordRef::decode(&stored) {
                let record = Record { expires: r.expires, value: Bytes::copy_from_slice(r.value) };
                prop_assert_eq!(record.encode(), stored);
            }
        }
    }
}
