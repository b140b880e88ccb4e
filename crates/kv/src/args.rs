//! The words of one command, in the buffer that the socket was read into.

use bytes::Bytes;

/// Where a word lies in its buffer. 32 bits: a request is far below 4 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where it begins.
    pub start: u32,
    /// One past its last byte.
    pub end: u32,
}

/// The words of one command, borrowed; the first is its name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buffer: &'a Bytes,
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The words at `spans` of `buffer`. A span outside of the buffer is an empty word.
    pub fn new(buffer: &'a Bytes, spans: &'a [Span]) -> Args<'a> {
        Args { buffer, spans }
    }

    /// How many words, the name included.
    #[expect(clippy::len_without_is_empty, reason = "a command has at least its name")]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// A word; empty if there are fewer.
    pub fn get(&self, n: usize) -> &'a [u8] {
        self.spans.get(n).and_then(|s| self.buffer.get(s.start as usize..s.end as usize)).unwrap_or_default()
    }

    /// A word that owns its bytes, by a reference to the whole buffer.
    pub fn bytes(&self, n: usize) -> Bytes {
        self.buffer.slice_ref(self.get(n))
    }

    /// The words from the `from`th on.
    pub fn rest(&self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        let args = *self;
        (from..self.len()).map(move |n| args.get(n))
    }
}
