//! The record of an id of FURROW.ONCE in a store: the number and the answer of the id's last command.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 8 | the number of the last command, little-endian; 0 before the first |
//! | 9 | - | the answer ([`RecordedAnswer`]), to the end of the record; empty before the first command |

use super::answer::RecordedAnswer;

const VERSION: u8 = 1;

/// The number and the answer of an id's last command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OnceRecord {
    /// The number of the last command; 0 before the first.
    pub last: u64,
    /// The answer of the last command; empty before the first.
    pub answer: RecordedAnswer,
}

impl OnceRecord {
    /// The record's bytes in a store.
    pub fn encode(&self) -> Vec<u8> {
        let answer = self.answer.as_bytes();
        let mut stored = Vec::with_capacity(1 + 8 + answer.len());
        stored.push(VERSION);
        stored.extend(self.last.to_le_bytes());
        stored.extend_from_slice(answer);
        stored
    }

    /// Decodes a stored record. The decoder is total: any bytes give a record or a message.
    ///
    /// # Errors
    /// The fault of the bytes, for people.
    pub fn decode(stored: &[u8]) -> Result<OnceRecord, String> {
        let (version, rest) = stored.split_first().ok_or("the record is empty")?;
        if *version != VERSION {
            return Err(format!(
                "the record is of version {version}, and this program reads version {VERSION}"
            ));
        }
        let (last, answer) = rest.split_first_chunk().ok_or("the record has no number")?;
        let answer = RecordedAnswer::decode(answer).ok_or("the answer is damaged")?;
        Ok(OnceRecord { last: u64::from_le_bytes(*last), answer })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Answer as _;

    #[test]
    fn a_record_encodes_as_the_golden_file() {
        let mut record = OnceRecord { last: 17, ..OnceRecord::default() };
        record.answer.array(6);
        record.answer.simple("OK");
        record.answer.error("ERR no");
        record.answer.integer(-2);
        record.answer.bulk(b"v");
        record.answer.null();
        record.answer.map(0);
        let encoded = record.encode();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/once-record-v1.bin");
        if std::env::var_os("FURROW_BLESS").is_some() {
            std::fs::write(path, &encoded).expect("writes");
        }
        assert_eq!(std::fs::read(path).expect("reads"), encoded);
        assert_eq!(OnceRecord::decode(&encoded), Ok(record));
        for len in [0, 1, 8, encoded.len() - 1] {
            assert!(OnceRecord::decode(&encoded[..len]).is_err(), "{len} bytes");
        }
        let other = [&[2][..], &encoded[1..]].concat();
        assert!(OnceRecord::decode(&other).unwrap_err().contains("version 2"));
    }

    /// Bytes that decode to a record are the bytes of that record, and its answer can be repeated.
    fn check(bytes: &[u8]) {
        if let Ok(record) = OnceRecord::decode(bytes) {
            assert_eq!(record.encode(), bytes);
            let mut again = RecordedAnswer::default();
            record.answer.repeat(&mut again);
            assert_eq!(again, record.answer);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_that_encodes_to_them_or_none(bytes: Vec<u8>, kinds in proptest::collection::vec(0..8u8, 0..40)) {
            check(&bytes);
            check(&[&[VERSION, 1, 0, 0, 0, 0, 0, 0, 0][..], &kinds].concat());
            check(&[&[VERSION, 1, 0, 0, 0, 0, 0, 0, 0][..], &bytes].concat());
        }
    }
}
