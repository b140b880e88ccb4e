//! The bytes ahead of a reader's pass over a file, in mounts without a page cache: a pass reads the device [`PASS_READ`] at a time, whatever the reader
//! asks for.

use parking_lot::Mutex;
use zoned::BufMut;

use crate::files::file::File;

/// Bytes of a device read of a pass: as many as the pieces into which a drive's scheduler cuts bulk writes.
pub(super) const PASS_READ: u64 = 256 << 10;

/// The last device read of a reader's pass, until the pass has used all of the read.
#[derive(Debug, Default)]
pub(super) struct PassBuffer(Mutex<Option<Filled>>);

#[derive(Debug)]
struct Filled {
    /// The file offset of the first byte.
    from: u64,
    /// The file offset behind the last byte.
    to: u64,
    /// The file's truncations when its extents were looked up.
    truncations: u64,
    /// The device's blocks, from the one with the first byte on.
    blocks: BufMut,
}

impl PassBuffer {
    /// Copies the bytes of `file` at `offset` that the buffer holds. Returns the number of bytes copied, and the device's blocks once
    /// the pass has used them all, or a truncation has made them void.
    pub(super) fn copy(&self, file: &File, offset: u64, into: &mut [u8]) -> (usize, Option<BufMut>) {
        let mut place = self.0.lock();
        let Some(filled) = place.as_ref() else { return (0, None) };
        let (truncations, size) = {
            let content = file.content.read();
            (content.truncations, content.size)
        };
        if filled.truncations != truncations {
            return (0, place.take().map(|filled| filled.blocks));
        }
        let end = filled.to.min(size).min(offset.saturating_add(into.len() as u64));
        let bytes = filled.bytes(offset, end);
        if let Some(into) = into.get_mut(..bytes.len()) {
            into.copy_from_slice(bytes);
        }
        let (len, is_used) = (bytes.len(), end >= filled.to);
        (len, if is_used { place.take().map(|filled| filled.blocks) } else { None })
    }

    /// Forgets the bytes: another pass begins, or none.
    pub(super) fn clear(&self) {
        self.0.lock().take();
    }

    /// Keeps `blocks`, which hold the file's bytes from `from` to `to`, looked up after `truncations` of the file. Returns the buffer that was kept before.
    pub(super) fn keep(&self, from: u64, to: u64, truncations: u64, blocks: BufMut) -> Option<BufMut> {
        self.0.lock().replace(Filled { from, to, truncations, blocks }).map(|filled| filled.blocks)
    }
}

impl Filled {
    /// The file's bytes from `offset` to `end`; empty if the buffer has not the first one.
    fn bytes(&self, offset: u64, end: u64) -> &[u8] {
        let place = |offset: u64| offset.checked_sub(self.from).and_then(|at| usize::try_from(at).ok());
        place(offset).zip(place(end)).and_then(|(from, to)| self.blocks.get(from..to)).unwrap_or_default()
    }
}
