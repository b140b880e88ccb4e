//! The encoder of replies in RESP2 and RESP3.

use std::io::Write;

use kv::Answer;

/// Bytes of an emptied reply buffer that are kept for the next replies.
const KEPT_BUFFER_BYTES: usize = 64 << 10;

/// Encodes replies into a buffer, in the protocol that the client chose.
///
/// The buffer has a limit: a string that exceeds the limit is left out, and the encoder is full until the string's
/// reply is rolled back. Numbers, errors and the heads of arrays are small and always written.
#[derive(Debug)]
pub struct Encoder {
    out: Vec<u8>,
    resp3: bool,
    limit: usize,
    full: bool,
}

impl Encoder {
    /// An encoder whose buffer has a limit of `limit` bytes.
    pub fn new(limit: usize) -> Encoder {
        Encoder { out: Vec::new(), resp3: false, limit, full: false }
    }

    /// Sets the limit on the reply buffer's bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Encodes in RESP3 from now on, or with `false` in RESP2.
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// The encoded replies.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Empties the reply buffer, and frees most of a large one.
    pub fn clear(&mut self) {
        self.out.clear();
        self.out.shrink_to(KEPT_BUFFER_BYTES);
        self.full = false;
    }

    /// Encodes a text for people: in RESP3 a verbatim string (`txt`), in RESP2 a bulk string.
    pub fn verbatim(&mut self, text: &str) {
        if self.resp3 {
            self.push_string(b'=', b"txt:", text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// Encodes the head of a set of the next `len` replies; in RESP2 that of an array.
    pub fn set(&mut self, len: usize) {
        self.push_head(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// Encodes a null array, the reply of a transaction that was not run.
    pub fn null_array(&mut self) {
        if self.resp3 { self.put(b'_', &[]) } else { self.put(b'*', &[b"-1"]) }
    }

    fn put(&mut self, kind: u8, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        self.out.reserve(len + 3);
        self.out.push(kind);
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    fn push_string(&mut self, kind: u8, format: &[u8], value: &[u8]) {
        if self.full || self.out.len() + value.len() > self.limit {
            self.full = true;
            return;
        }
        let mut digits = [0u8; 24];
        let digits = format_decimal(&mut digits, (format.len() + value.len()) as i64);
        self.put(kind, &[digits, b"\r\n", format, value]);
    }

    fn push_head(&mut self, kind: u8, len: usize) {
        let mut digits = [0u8; 24];
        let digits = format_decimal(&mut digits, len as i64);
        self.put(kind, &[digits]);
    }

    /// Encodes a status or an error. Line breaks become blanks, since a line break would end the reply.
    fn push_line(&mut self, kind: u8, text: &str) {
        if text.bytes().any(|b| b == b'\r' || b == b'\n') {
            let text = text.replace(['\r', '\n'], " ");
            self.put(kind, &[text.as_bytes()]);
        } else {
            self.put(kind, &[text.as_bytes()]);
        }
    }
}

fn format_decimal(into: &mut [u8; 24], value: i64) -> &[u8] {
    let mut rest = &mut into[..];
    write!(rest, "{value}").expect("a 64-bit number has at most 20 characters");
    let left = rest.len();
    let len = into.len() - left;
    into.get(..len).unwrap_or_default()
}

impl Answer for Encoder {
    fn simple(&mut self, text: &str) {
        self.push_line(b'+', text);
    }

    fn error(&mut self, text: &str) {
        self.push_line(b'-', text);
    }

    fn integer(&mut self, value: i64) {
        let mut digits = [0u8; 24];
        let digits = format_decimal(&mut digits, value);
        self.put(b':', &[digits]);
    }

    fn bulk(&mut self, value: &[u8]) {
        self.push_string(b'$', b"", value);
    }

    fn null(&mut self) {
        if self.resp3 { self.put(b'_', &[]) } else { self.put(b'$', &[b"-1"]) }
    }

    fn array(&mut self, len: usize) {
        self.push_head(b'*', len);
    }

    fn map(&mut self, len: usize) {
        if self.resp3 { self.push_head(b'%', len) } else { self.push_head(b'*', 2 * len) }
    }

    fn mark(&self) -> usize {
        self.out.len()
    }

    fn rollback(&mut self, mark: usize) {
        self.out.truncate(mark);
        self.full = false;
    }

    fn is_full(&self) -> bool {
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_look_as_each_protocol_says() {
        let mut out = Encoder::new(1 << 20);
        for resp3 in [false, true] {
            out.set_resp3(resp3);
            out.simple("OK");
            out.error("ERR two\r\nlines");
            out.integer(i64::MIN);
            out.bulk(b"a\0b");
            out.null();
            out.array(2);
            out.map(1);
            out.set(3);
            out.null_array();
            out.verbatim("Some text");
        }
        let expected = "+OK\r\n-ERR two  lines\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n$-1\r\n*2\r\n*2\r\n*3\r\n*-1\r\n$9\r\nSome text\r\n\
             +OK\r\n-ERR two  lines\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n_\r\n*2\r\n%1\r\n~3\r\n_\r\n=13\r\ntxt:Some text\r\n";
        assert_eq!(String::from_utf8_lossy(out.bytes()), expected);
    }

    #[test]
    fn strings_beyond_the_limit_are_left_out_until_the_reply_is_rolled_back() {
        let mut out = Encoder::new(100);
        out.bulk(b"0123456789");
        let mark = out.mark();
        for _ in 0..1000 {
            out.bulk(b"0123456789");
        }
        assert!(out.is_full() && out.bytes().len() <= 120);
        out.rollback(mark);
        assert!(!out.is_full());
        out.error("ERR too long");
        assert!(out.bytes().ends_with(b"-ERR too long\r\n"));
    }
}
