//! A reader of a file.

use std::sync::Arc;

use units::{Blocks, Bytes, Lba};

use crate::device::IoClass;
use crate::error::{Error, Result};
use crate::options::FileKind;
use crate::shared::Handle;
use crate::wal::ordered::stream::{LogStream, ReadStats};
use crate::zones::pins::Pin;

/// The longest single device read, in blocks: as long as a pooled buffer.
const MAX_READ: u64 = crate::zones::pool::MAX_BLOCKS as u64;

/// Reads a file: sees what its writer appended so far, and survives the file's removal.
///
/// Cheap to clone; any number of reads may be under way.
#[derive(Clone, Debug)]
pub struct Reader {
    handle: Arc<Handle>,
}

/// The next part of a read.
enum Piece<'a> {
    /// Filled from memory.
    Filled(usize),
    /// On the device: `len` bytes, `skip` bytes behind block `at`.
    Device { at: Lba, skip: usize, len: usize, pin: Pin<'a> },
}

impl Reader {
    pub(crate) fn new(handle: Arc<Handle>) -> Reader {
        Reader { handle }
    }

    /// Reads at `offset`; gives the number of bytes read, less than asked only at the end of the file.
    pub async fn read_at(&self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        self.handle.shared.check_open()?;
        if self.handle.file.kind == FileKind::ParallelLog {
            return Err(Error::new(crate::ErrorKind::Invalid, "reading a file")
                .because("it is a parallel log: `read_parallel_log` gives its records"));
        }
        if self.handle.file.kind == FileKind::Log {
            return self.handle.shared.read_log(&self.handle.file, offset, into).await;
        }
        let shared = &self.handle.shared;
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.piece(offset.0.saturating_add(done as u64), rest) {
                None => break,
                Some(Piece::Filled(len)) => done += len,
                Some(Piece::Device { at, skip, len, pin }) => {
                    let block = shared.device.geometry().block_size as usize;
                    let buffer = shared.pool.get((skip + len).div_ceil(block));
                    let read = shared.device.class(IoClass::Read).read(at, buffer).await;
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

    /// What comes at `offset`: filled in from memory, or where it lies. `None` at the end of the file.
    fn piece(&self, offset: u64, into: &mut [u8]) -> Option<Piece<'_>> {
        let shared = &*self.handle.shared;
        let content = self.handle.file.content.read();
        let mut left = content.size.checked_sub(offset).filter(|left| *left > 0)?.min(into.len() as u64);
        // What is in memory is newer than what an extent says.
        let tail = (content.tail_at, &*content.tail);
        let parts = content.in_flight.iter().map(|(at, data)| (*at, &**data)).chain([tail]);
        for (at, data) in parts.filter(|(_, data)| !data.is_empty()) {
            if at > offset {
                left = left.min(at - offset);
                continue;
            }
            let skip = usize::try_from(offset - at).unwrap_or(usize::MAX);
            if let Some(from) = data.get(skip..).filter(|from| !from.is_empty()) {
                let len = from.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                if let (Some(to), Some(from)) = (into.get_mut(..len), from.get(..len)) {
                    to.copy_from_slice(from);
                }
                return Some(Piece::Filled(len));
            }
        }
        let geometry = shared.device.geometry();
        let block = u64::from(geometry.block_size);
        match content.extents.at_or_after(offset) {
            Some(e) if e.offset <= offset => {
                let skip = offset % block;
                let longest = MAX_READ.min(geometry.max_transfer.0) * block - skip;
                let len = left.min(e.end() - offset).min(longest);
                let at = geometry.start(e.zone).plus(e.start).plus(Blocks((offset - e.offset) / block));
                let pin = shared.pins.pin(e.zone);
                let as_usize = |n: u64| usize::try_from(n).expect("no longer than a transfer");
                Some(Piece::Device { at, skip: as_usize(skip), len: as_usize(len), pin })
            }
            next => {
                let len = next.map_or(left, |e| left.min(e.offset - offset));
                let len = usize::try_from(len).expect("no longer than the buffer");
                into.get_mut(..len)?.fill(0);
                Some(Piece::Filled(len))
            }
        }
    }

    /// The length so far.
    pub fn size(&self) -> Bytes {
        Bytes(self.handle.file.size())
    }
}

/// Reads a file from its beginning to its end: a log is read ahead of who asks, and recovered by the way where nobody
/// read it before. Used by one task at a time.
#[derive(Debug)]
pub struct SequentialReader {
    reader: Reader,
    stream: Option<LogStream>,
    begun: bool,
    stats: ReadStats,
}

impl SequentialReader {
    /// A reading of the file that `reader` reads.
    pub fn new(reader: Reader) -> SequentialReader {
        SequentialReader { reader, stream: None, begun: false, stats: ReadStats::default() }
    }

    /// As [`Reader::read_at`], and faster where each read begins where the one before it ended.
    pub async fn read_at(&mut self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        let handle = &self.reader.handle;
        handle.shared.check_open()?;
        if !std::mem::replace(&mut self.begun, true)
            && offset == Bytes::ZERO
            && handle.file.kind == FileKind::Log
        {
            self.stream = handle.shared.stream_log(handle);
        }
        let mut done = 0;
        if let Some(mut stream) = self.stream.take_if(|stream| stream.position() == offset.0) {
            done = stream.read(into).await?;
            self.stats = stream.stats();
            if done == into.len() {
                self.stream = Some(stream);
                return Ok(done);
            }
        }
        // The end of the log as the stream found it: what was appended since, and what was lost, is known here.
        let rest = into.get_mut(done..).unwrap_or_default();
        Ok(done + self.reader.read_at(Bytes(offset.0.saturating_add(done as u64)), rest).await?)
    }

    /// Where the time of reading ahead went.
    pub fn stats(&self) -> ReadStats {
        self.stream.as_ref().map_or(self.stats, LogStream::stats)
    }

    /// The length so far.
    pub fn size(&self) -> Bytes {
        self.reader.size()
    }
}
