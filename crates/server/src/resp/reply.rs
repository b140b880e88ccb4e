//! Replies in RESP2 and RESP3.

use std::io::Write;

use kv::Answer;

/// Writes replies into a buffer, in the protocol that the client chose.
#[derive(Debug)]
pub struct Encoder {
    out: Vec<u8>,
    resp3: bool,
    limit: usize,
    full: bool,
}

impl Encoder {
    /// An empty buffer that takes about `limit` bytes: what is beyond is dropped and remembered as an overflow.
    pub fn new(limit: usize) -> Encoder {
        Encoder { out: Vec::new(), resp3: false, limit, full: false }
    }

    /// From now on in RESP3 or in RESP2.
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Empties it; a buffer that has grown large is given back.
    pub fn clear(&mut self) {
        const KEEP: usize = 1 << 20;
        self.out.clear();
        self.out.shrink_to(KEEP);
        self.full = false;
    }

    fn put(&mut self, kind: u8, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        if self.full || self.out.len() + len > self.limit {
            self.full = true;
            return;
        }
        self.out.reserve(len + 3);
        self.out.push(kind);
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    fn head(&mut self, kind: u8, len: usize) {
        let mut digits = [0u8; 24];
        let digits = decimal(&mut digits, len as i64);
        self.put(kind, &[digits]);
    }

    /// A line must not break in two.
    fn line(&mut self, kind: u8, text: &str) {
        if text.bytes().any(|b| b == b'\r' || b == b'\n') {
            let text = text.replace(['\r', '\n'], " ");
            self.put(kind, &[text.as_bytes()]);
        } else {
            self.put(kind, &[text.as_bytes()]);
        }
    }
}

fn decimal(into: &mut [u8; 24], value: i64) -> &[u8] {
    let mut rest = &mut into[..];
    write!(rest, "{value}").expect("a 64-bit number has at most 20 characters");
    let left = rest.len();
    let len = into.len() - left;
    into.get(..len).unwrap_or_default()
}

impl Answer for Encoder {
    fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    fn integer(&mut self, value: i64) {
        let mut digits = [0u8; 24];
        let digits = decimal(&mut digits, value);
        self.put(b':', &[digits]);
    }

    fn bulk(&mut self, value: &[u8]) {
        let mut digits = [0u8; 24];
        let digits = decimal(&mut digits, value.len() as i64);
        self.put(b'$', &[digits, b"\r\n", value]);
    }

    fn null(&mut self) {
        if self.resp3 { self.put(b'_', &[]) } else { self.put(b'$', &[b"-1"]) }
    }

    fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    fn map(&mut self, len: usize) {
        if self.resp3 { self.head(b'%', len) } else { self.head(b'*', 2 * len) }
    }

    fn mark(&self) -> usize {
        self.out.len()
    }

    fn rollback(&mut self, mark: usize) {
        self.out.truncate(mark);
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
        }
        let expected = "+OK\r\n-ERR two  lines\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n$-1\r\n*2\r\n*2\r\n\
             +OK\r\n-ERR two  lines\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n_\r\n*2\r\n%1\r\n";
        assert_eq!(String::from_utf8_lossy(out.bytes()), expected);
    }

    #[test]
    fn nothing_is_kept_beyond_the_limit() {
        let mut out = Encoder::new(100);
        for _ in 0..1000 {
            out.bulk(b"0123456789");
        }
        assert!(out.is_full() && out.bytes().len() <= 120);
        out.clear();
        assert!(!out.is_full());
    }
}
