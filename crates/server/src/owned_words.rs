//! A copy of a command's words.

use bytes::Bytes;
use kv::{Args, Span};

/// A copy of a command's words. Words in a connection's buffer would keep the whole buffer.
#[derive(Clone, Debug)]
pub(crate) struct OwnedWords {
    bytes: Bytes,
    spans: Box<[Span]>,
}

impl OwnedWords {
    /// A copy of words, which have less than 4 GiB together. `byte_count`: about how many bytes they have.
    pub fn new<'w>(words: impl Iterator<Item = &'w [u8]>, byte_count: usize) -> OwnedWords {
        let (mut bytes, mut spans) = (Vec::with_capacity(byte_count), Vec::new());
        let place = |bytes: &Vec<u8>| u32::try_from(bytes.len()).expect("a command is below 4 GiB");
        for word in words {
            let start = place(&bytes);
            bytes.extend_from_slice(word);
            spans.push(Span { start, end: place(&bytes) });
        }
        OwnedWords { bytes: bytes.into(), spans: spans.into() }
    }

    /// The words.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Number of bytes of all words.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }
}
