//! The words of one Redis command, as parts of the buffer that the socket was read into.

use bytes::Bytes;

/// The place of a command's word in its buffer. 32 bits are enough: a request is far below 4 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Offset of the word's first byte.
    pub start: u32,
    /// Offset after the word's last byte.
    pub end: u32,
}

/// The words of one command, borrowed from its buffer; the first word is the command's name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buffer: &'a Bytes,
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The words at `spans` of `buffer`. A span outside `buffer` is an empty word.
    pub fn new(buffer: &'a Bytes, spans: &'a [Span]) -> Args<'a> {
        Args { buffer, spans }
    }

    /// Number of words, the command's name included.
    #[expect(clippy::len_without_is_empty, reason = "a command has at least its name")]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The `n`th word; empty if the command has fewer words.
    pub fn get(&self, n: usize) -> &'a [u8] {
        self.spans.get(n).and_then(|s| self.buffer.get(s.start as usize..s.end as usize)).unwrap_or_default()
    }

    /// The `n`th word as [`Bytes`] that refer to the whole buffer.
    pub fn bytes(&self, n: usize) -> Bytes {
        self.buffer.slice_ref(self.get(n))
    }

    /// The words from the `from`th on, as those of a command of their own.
    pub fn tail(&self, from: usize) -> Args<'a> {
        Args { buffer: self.buffer, spans: self.spans.get(from..).unwrap_or_default() }
    }

    /// The words from the `from`th on.
    pub fn rest(&self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        let args = *self;
        (from..self.len()).map(move |n| args.get(n))
    }
}
