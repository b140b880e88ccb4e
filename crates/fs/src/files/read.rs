//! Reads of data files: each goes through [`read`], which takes the bytes from the pages in memory or from the device.

use units::{Blocks, Lba};

use crate::device::IoClass;
use crate::error::{Error, Result};
use crate::files::file::File;
use crate::files::pages::PageLookup;
use crate::shared::Shared;
use crate::zones::pins::Pin;
use crate::zones::pool::MAX_POOLED_BLOCKS;

/// The longest device read of file data, in blocks: as long as a pooled buffer.
const MAX_READ_BLOCKS: u64 = MAX_POOLED_BLOCKS as u64;

/// The next part of a read from a data file.
enum NextPiece<'a> {
    /// This many bytes were filled in from memory or with zeros, without a device read.
    Filled(usize),
    /// The next bytes are on the device: `len` bytes, `skip` bytes behind the start of block `at`.
    Device { at: Lba, skip: usize, len: usize, pin: Pin<'a> },
}

/// Reads data file `file` at `offset`. Returns the number of bytes read: fewer than asked only at the end of the file.
pub(super) async fn read(shared: &Shared, file: &File, offset: u64, into: &mut [u8]) -> Result<usize> {
    let device = shared.device.class(IoClass::Read);
    let block = device.geometry().block_size as usize;
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match next_piece(shared, file, offset.saturating_add(done as u64), rest) {
            None => break,
            Some(NextPiece::Filled(len)) => done += len,
            Some(NextPiece::Device { at, skip, len, pin }) => {
                let read = device.read(at, shared.pool.get((skip + len).div_ceil(block))).await;
                drop(pin);
                let buffer = read.map_err(|e| Error::device("reading file data", e))?;
                if let (Some(from), Some(to)) = (buffer.get(skip..skip + len), rest.get_mut(..len)) {
                    to.copy_from_slice(from);
                }
                shared.pool.put(buffer);
                done += len;
            }
        }
    }
    Ok(done)
}

/// The file's bytes at `offset`: filled in, or their place on the device. `None` at the end of the file.
fn next_piece<'a>(shared: &'a Shared, file: &File, offset: u64, into: &mut [u8]) -> Option<NextPiece<'a>> {
    let content = file.content.read();
    let left = content.size.checked_sub(offset).filter(|left| *left > 0)?.min(into.len() as u64);
    // A read copies no more bytes than the caller's buffer holds.
    let as_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    // A read asks the pages in memory first: they are newer than the extents.
    let left = match content.pages.read(offset, into.get_mut(..as_usize(left))?) {
        PageLookup::Hit(len) => return Some(NextPiece::Filled(len)),
        PageLookup::Miss(len) => len,
    };
    let geometry = shared.device.geometry();
    let block = u64::from(geometry.block_size);
    match content.extents.at_or_after(offset) {
        Some(e) if e.offset <= offset => {
            let skip = offset % block;
            let longest = MAX_READ_BLOCKS.min(geometry.max_transfer.0) * block - skip;
            let len = left.min(e.end() - offset).min(longest);
            let at = geometry.start(e.zone).plus(e.start).plus(Blocks((offset - e.offset) / block));
            let pin = shared.pins.pin(e.zone);
            Some(NextPiece::Device { at, skip: as_usize(skip), len: as_usize(len), pin })
        }
        next => {
            let len = as_usize(next.map_or(left, |e| left.min(e.offset - offset)));
            into.get_mut(..len)?.fill(0);
            Some(NextPiece::Filled(len))
        }
    }
}
