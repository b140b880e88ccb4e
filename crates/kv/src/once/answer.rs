//! A recorded answer: the replies of one command, whatever protocol the client speaks.
//!
//! One reply after the other:
//!
//! | byte | reply | bytes behind the byte |
//! |---|---|---|
//! | 0 | a status | length, 4 bytes; the text |
//! | 1 | an error | length, 4 bytes; the text |
//! | 2 | an integer | 8 |
//! | 3 | a string | length, 4 bytes; the string |
//! | 4 | null | |
//! | 5 | the head of an array | number of its elements, 4 |
//! | 6 | the head of a map | number of its pairs, 4 |
//!
//! Numbers are little-endian.

use bytes::Bytes;

use crate::answer::{Answer, Reply};

/// Longest recorded answer, in bytes of the table above.
pub const ANSWER_MAX: usize = 4096;

const SIMPLE: u8 = 0;
const ERROR: u8 = 1;
const INTEGER: u8 = 2;
const BULK: u8 = 3;
const NULL: u8 = 4;
const ARRAY: u8 = 5;
const MAP: u8 = 6;

/// A recorded answer. As an [`Answer`] it records up to [`ANSWER_MAX`] bytes, and is full from then on until replies are taken back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordedAnswer {
    bytes: Vec<u8>,
    is_full: bool,
}

impl RecordedAnswer {
    /// The answer's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The answer of these bytes; `None` if the bytes are no answer's, or too many.
    pub fn decode(bytes: &[u8]) -> Option<RecordedAnswer> {
        let mut rest = bytes;
        while !rest.is_empty() {
            take_reply(&mut rest)?;
        }
        (bytes.len() <= ANSWER_MAX).then(|| RecordedAnswer { bytes: bytes.to_vec(), is_full: false })
    }

    /// Gives the replies to `out`.
    pub fn repeat(&self, out: &mut dyn Answer) {
        let mut rest = &self.bytes[..];
        while !rest.is_empty() {
            match take_reply(&mut rest).expect("an answer that was recorded or decoded") {
                Reply::Simple(text) => out.simple(&text),
                Reply::Error(text) => out.error(&text),
                Reply::Integer(value) => out.integer(value),
                Reply::Bulk(value) => out.bulk(&value),
                Reply::Null => out.null(),
                Reply::Array(len) => out.array(len),
                Reply::Map(len) => out.map(len),
            }
        }
    }

    fn put(&mut self, kind: u8, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.is_full || self.bytes.len() + 1 + len > ANSWER_MAX {
            self.is_full = true;
            return;
        }
        self.bytes.push(kind);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    fn put_counted(&mut self, kind: u8, value: &[u8]) {
        // A string that does not fit is left out, so that its length fits into 4 bytes.
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.put(kind, &[&len.to_le_bytes(), value]);
    }

    fn put_head(&mut self, kind: u8, len: usize) {
        match u32::try_from(len) {
            Ok(len) => self.put(kind, &[&len.to_le_bytes()]),
            Err(_) => self.is_full = true,
        }
    }
}

/// Takes a reply from the front of `rest`; `None` if there is none.
fn take_reply(rest: &mut &[u8]) -> Option<Reply> {
    let (kind, behind) = rest.split_first()?;
    *rest = behind;
    let mut number = || -> Option<u32> {
        let (number, behind) = rest.split_first_chunk()?;
        *rest = behind;
        Some(u32::from_le_bytes(*number))
    };
    Some(match *kind {
        SIMPLE | ERROR | BULK => {
            let len = usize::try_from(number()?).ok()?;
            let (value, behind) = rest.split_at_checked(len)?;
            *rest = behind;
            let text = || std::str::from_utf8(value).ok().map(str::to_owned);
            match *kind {
                SIMPLE => Reply::Simple(text()?),
                ERROR => Reply::Error(text()?),
                _ => Reply::Bulk(Bytes::copy_from_slice(value)),
            }
        }
        INTEGER => {
            let (value, behind) = rest.split_first_chunk()?;
            *rest = behind;
            Reply::Integer(i64::from_le_bytes(*value))
        }
        NULL => Reply::Null,
        ARRAY => Reply::Array(usize::try_from(number()?).ok()?),
        MAP => Reply::Map(usize::try_from(number()?).ok()?),
        _ => return None,
    })
}

impl Answer for RecordedAnswer {
    fn simple(&mut self, text: &str) {
        self.put_counted(SIMPLE, text.as_bytes());
    }
    fn error(&mut self, text: &str) {
        self.put_counted(ERROR, text.as_bytes());
    }
    fn integer(&mut self, value: i64) {
        self.put(INTEGER, &[&value.to_le_bytes()]);
    }
    fn bulk(&mut self, value: &[u8]) {
        self.put_counted(BULK, value);
    }
    fn null(&mut self) {
        self.put(NULL, &[]);
    }
    fn array(&mut self, len: usize) {
        self.put_head(ARRAY, len);
    }
    fn map(&mut self, len: usize) {
        self.put_head(MAP, len);
    }
    fn mark(&self) -> usize {
        self.bytes.len()
    }
    fn rollback(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.is_full = false;
    }
    fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_repeated_reply_by_reply() {
        let mut recorded = RecordedAnswer::default();
        recorded.map(1);
        recorded.simple("OK");
        recorded.array(3);
        recorded.error("ERR no");
        recorded.integer(-7);
        recorded.bulk(b"a\r\n\0");
        recorded.null();
        let mut replies = Vec::new();
        RecordedAnswer::decode(recorded.as_bytes()).expect("an answer").repeat(&mut replies);
        let expected = [
            Reply::Map(1),
            Reply::Simple("OK".into()),
            Reply::Array(3),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            Reply::Bulk(Bytes::from_static(b"a\r\n\0")),
            Reply::Null,
        ];
        assert_eq!(replies, expected);
    }

    #[test]
    fn an_answer_beyond_the_bound_is_full_until_it_is_taken_back() {
        let mut recorded = RecordedAnswer::default();
        recorded.bulk(&[b'x'; ANSWER_MAX - 5]);
        assert!(!recorded.is_full() && recorded.mark() == ANSWER_MAX);
        recorded.null();
        assert!(recorded.is_full() && recorded.mark() == ANSWER_MAX);
        recorded.rollback(0);
        recorded.bulk(&[b'x'; ANSWER_MAX - 4]);
        assert!(recorded.is_full() && recorded.mark() == 0);
        recorded.null();
        assert_eq!(recorded.mark(), 0, "nothing is recorded behind a reply that is left out");
    }
}
