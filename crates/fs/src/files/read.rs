//! Reads of data files: each goes through [`read`], which takes the bytes from memory or from the device.

use std::ops::Range;

use units::{Blocks, Lba};
use zoned::{BufMut, IoClass};

use crate::cache::{LoadGuard, PageCache, TryLoad};
use crate::device::Purpose;
use crate::error::{Error, Result};
use crate::files::file::File;
use crate::files::pages::PageLookup;
use crate::files::pass_buffer::{PASS_READ, PassBuffer};
use crate::files::streams::{Ahead, Streams};
use crate::shared::Shared;
use crate::zones::pins::Pin;
use crate::zones::pool::MAX_POOLED_BLOCKS;

/// The longest device read of file data, in blocks: as long as a pooled buffer.
const MAX_READ_BLOCKS: u64 = MAX_POOLED_BLOCKS as u64;

/// A device read passes over at most this many bytes of pages in memory: their transfer takes less time than a second read, but a window of a
/// mebibyte with one page missing is no reason to read all of it.
const LONGEST_GAP: u64 = 32 << 10;

/// The next part of a read from a data file.
enum NextPiece<'a> {
    /// This many bytes were filled in from memory or with zeros, without a device read.
    Filled(usize),
    /// The next bytes are on the device.
    Device(Run<'a>),
}

/// File bytes on the device, in blocks one after the other.
struct Run<'a> {
    /// The file offset of the first block.
    from: u64,
    /// The file offset behind the last byte.
    to: u64,
    /// The first block.
    at: Lba,
    /// The file's truncations when the extents were looked up.
    truncations: u64,
    /// Keeps the zone from being reset.
    _pin: Pin<'a>,
}

/// Reads data file `file` at `offset`. Returns the number of bytes read: fewer than asked only at the end of the file. `streams`: the
/// sequential reads of the reader; `None` for a reader whose pages are not kept in the page cache.
pub(super) async fn read(
    shared: &Shared,
    file: &File,
    streams: Option<&Streams>,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let class = streams.map_or(IoClass::Read, |streams| streams.class(offset));
    // Without a page cache the reader itself keeps the bytes ahead of its pass.
    let is_pass = class == IoClass::Compaction && shared.cache.is_none();
    let mut pass = streams.filter(|_| is_pass).map(Streams::pass_buffer);
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let offset = offset.saturating_add(done as u64);
        if let Some(cache) = &shared.cache {
            let copied = cache.copy(file.ino, offset, rest);
            if copied > 0 {
                done += copied;
                continue;
            }
        }
        if let Some(pass) = pass {
            let (copied, used) = pass.copy(file, offset, rest);
            used.into_iter().for_each(|buffer| shared.pool.put(buffer));
            if copied > 0 {
                done += copied;
                continue;
            }
        }
        let window = if pass.is_some() { PASS_READ } else { 0 };
        done += match next_piece(shared, file, offset, rest, window) {
            None => break,
            Some(NextPiece::Filled(len)) => len,
            Some(NextPiece::Device(run)) => match shared.cache.as_ref().zip(streams) {
                None => match run.read(shared, class, offset, rest, pass).await {
                    // The unreadable block may be one ahead: only the bytes asked for are read next.
                    Err(_) if pass.is_some() => {
                        pass = None;
                        continue;
                    }
                    read => read?,
                },
                Some((cache, streams)) => {
                    let at = run.at;
                    drop(run);
                    // The other reader's class may be held.
                    let raise = || shared.device.purpose(Purpose::Read).raise(class, at..at.plus(Blocks(1)));
                    match cache.load(file.ino, offset, raise).await {
                        None => continue,
                        Some(guard) => {
                            let ahead = Ahead::Streams(streams);
                            load(shared, cache, (file, ahead, class), guard, offset, rest).await?
                        }
                    }
                }
            },
        };
    }
    Ok(done)
}

/// Reads the pages with bytes of `range` that are not in the page cache into it. Ends at the first page that cannot be read: the read
/// that needs the page reports why.
pub(super) async fn read_ahead(
    shared: &Shared,
    file: &File,
    class: IoClass,
    range: Range<u64>,
) -> Result<()> {
    let Some(cache) = &shared.cache else { return Ok(()) };
    let mut page = range.start - range.start % cache.page_bytes();
    // An unmount waits for a read that is in flight, not for those that would follow.
    while page < range.end && shared.check_open().is_ok() {
        if let TryLoad::Absent(guard) = cache.try_load(file.ino, page) {
            let ahead = Ahead::UpTo(range.end);
            if load(shared, cache, (file, ahead, class), guard, page, &mut [0]).await? == 0 {
                return Ok(());
            }
        }
        page = page.saturating_add(cache.page_bytes());
    }
    Ok(())
}

/// Reads the file at `offset` from the device, and stores the pages read in the cache. `guard` is the page's with the byte at
/// `offset`. Returns the number of bytes copied to `into`; 0 only at the end of the file.
async fn load(
    shared: &Shared,
    cache: &PageCache,
    (file, ahead, class): (&File, Ahead<'_>, IoClass),
    guard: LoadGuard<'_>,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let first = offset - offset % cache.page_bytes();
    let longest = longest_read(shared).min(cache.longest_window());
    let to = match next_piece(shared, file, offset, into, ahead.window(first, longest)) {
        None => return Ok(0),
        Some(NextPiece::Filled(len)) => return Ok(len),
        Some(NextPiece::Device(run)) => run.to,
    };
    let mut guards = vec![(first, guard)];
    let (mut page, mut last) = (first, first);
    while let Some(next) = page.checked_add(cache.page_bytes()).filter(|next| *next < to) {
        match cache.try_load(file.ino, next) {
            TryLoad::Absent(guard) => {
                guards.push((next, guard));
                last = next;
            }
            TryLoad::InMemory if next - last <= LONGEST_GAP => {}
            TryLoad::InMemory | TryLoad::ReadByAnother => break,
        }
        page = next;
    }
    let end = last.saturating_add(cache.page_bytes());
    // Extents are looked up again behind all guards: a truncation removes pages after it has cut the extents, so that bytes read by older
    // extents are not stored.
    let mut run = match next_piece(shared, file, offset, into, end - first) {
        None => return Ok(0),
        Some(NextPiece::Filled(len)) => return Ok(len),
        Some(NextPiece::Device(run)) => run,
    };
    if run.from > first {
        // The page begins in another extent.
        drop(guards);
        return run.read(shared, class, offset, into, None).await;
    }
    run.to = run.to.min(end);
    ahead.note(first, run.to, longest);
    let buffer = run.read_blocks(shared, class).await?;
    for (page, guard) in guards {
        let bytes = run.to.saturating_sub(page).min(cache.page_bytes());
        let from = as_usize(page - run.from);
        if let Some(bytes) = buffer.get(from..from + as_usize(bytes)).filter(|bytes| !bytes.is_empty()) {
            cache.loaded(guard, bytes);
        }
    }
    let len = run.copy(&buffer, offset, into);
    shared.pool.put(buffer);
    Ok(len)
}

impl Run<'_> {
    /// Reads the run's blocks from the device.
    async fn read_blocks(&self, shared: &Shared, class: IoClass) -> Result<BufMut> {
        let device = shared.device.purpose(Purpose::Read);
        let blocks = as_usize((self.to - self.from).div_ceil(shared.block()));
        let read = device.read_as(class, self.at, shared.pool.get(blocks)).await;
        read.map_err(|e| Error::device("reading file data", e))
    }

    /// Reads the run's blocks, and copies the file's bytes at `offset` to `into`. Returns the number of bytes copied. `pass`: the buffer
    /// that keeps the other bytes of the run.
    async fn read(
        &self,
        shared: &Shared,
        class: IoClass,
        offset: u64,
        into: &mut [u8],
        pass: Option<&PassBuffer>,
    ) -> Result<usize> {
        let buffer = self.read_blocks(shared, class).await?;
        let len = self.copy(&buffer, offset, into);
        let unneeded = match pass {
            Some(pass) if offset.saturating_add(len as u64) < self.to => {
                pass.keep(self.from, self.to, self.truncations, buffer)
            }
            _ => Some(buffer),
        };
        unneeded.into_iter().for_each(|buffer| shared.pool.put(buffer));
        Ok(len)
    }

    /// Copies the file's bytes at `offset` from `blocks`, the content of the run, to `into`. Returns the number of bytes copied.
    fn copy(&self, blocks: &[u8], offset: u64, into: &mut [u8]) -> usize {
        let from = as_usize(offset - self.from);
        let len = as_usize(self.to - offset).min(into.len());
        if let (Some(from), Some(to)) = (blocks.get(from..from + len), into.get_mut(..len)) {
            to.copy_from_slice(from);
        }
        len
    }
}

/// Bytes of the longest device read of file data.
fn longest_read(shared: &Shared) -> u64 {
    MAX_READ_BLOCKS.min(shared.device.geometry().max_transfer.0) * shared.block()
}

/// The file's bytes at `offset`: filled in, or their place on the device. `None` at the end of the file. A run holds whole
/// blocks, and with a page cache whole pages, as far as the extent does; it is at least `window` bytes long where the extent is.
fn next_piece<'a>(
    shared: &'a Shared,
    file: &File,
    offset: u64,
    into: &mut [u8],
    window: u64,
) -> Option<NextPiece<'a>> {
    let content = file.content.read();
    let left = content.size.checked_sub(offset).filter(|left| *left > 0)?.min(into.len() as u64);
    // A read asks the pages in memory first: they are newer than the extents.
    let left = match content.pages.read(offset, into.get_mut(..as_usize(left))?) {
        PageLookup::Hit(len) => return Some(NextPiece::Filled(len)),
        PageLookup::Miss(len) => len,
    };
    let geometry = shared.device.geometry();
    let block = u64::from(geometry.block_size);
    match content.extents.at_or_after(offset) {
        Some(e) if e.offset <= offset => {
            let longest = longest_read(shared);
            let page = shared.cache.as_ref().map(PageCache::page_bytes);
            let unit = page.filter(|page| *page <= longest).unwrap_or(block);
            let from = (offset - offset % unit).max(e.offset);
            let to = offset.saturating_add(left).max(from.saturating_add(window));
            let to = to.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            let to = to.min(e.end()).min(from.saturating_add(longest));
            let at = geometry.start(e.zone).plus(e.start).plus(Blocks((from - e.offset) / block));
            Some(NextPiece::Device(Run {
                from,
                to,
                at,
                truncations: content.truncations,
                _pin: shared.pins.pin(e.zone),
            }))
        }
        next => {
            let len = as_usize(next.map_or(left, |e| left.min(e.offset - offset)));
            into.get_mut(..len)?.fill(0);
            Some(NextPiece::Filled(len))
        }
    }
}

/// A number of bytes no longer than a buffer in memory.
fn as_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
