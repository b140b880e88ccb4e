//! The C functions of open files. Reads and appends are the hot path: a read into the caller's memory and an append
//! that fits the buffer allocate nothing.

use std::ffi::c_char;
use std::slice;
use std::sync::Arc;

use fs::{AccessPattern, Bytes, CreateOptions, FileKind, Reader, SequentialReader, Writer};
use parking_lot::Mutex;
use units::{Driver, Instant, block_on};

use crate::dir::FurrowFs;
use crate::replay::{LogReplay, Replays};
use crate::status::{Failure, FurrowStatus, StatusCode, run_entry, run_infallible_entry};
use crate::strings::{bytes, class_from_priority, lifetime_from_hint, path};

/// The values of `FURROW_KIND_DATA` and `FURROW_KIND_SHORT_LOG` in `furrow_abi.h`.
const KIND_DATA: u8 = 0;
const KIND_SHORT_LOG: u8 = 2;

/// The values of `FURROW_ACCESS_RANDOM`, `FURROW_ACCESS_SEQUENTIAL` and `FURROW_ACCESS_ONCE` in `furrow_abi.h`.
const ACCESS_RANDOM: u8 = 1;
const ACCESS_SEQUENTIAL: u8 = 2;
const ACCESS_ONCE: u8 = 3;

/// A file being written, owned by C++.
#[derive(Debug)]
pub struct FurrowWriter {
    writer: Arc<Writer>,
    driver: Arc<dyn Driver>,
}

/// A file open for reading, owned by C++.
#[derive(Debug)]
pub struct FurrowReader {
    reader: Reader,
    sequential: Option<SequentialReads>,
    driver: Arc<dyn Driver>,
    ino: u64,
}

/// Read-ahead state of a file that is read from its beginning to its end.
#[derive(Debug)]
struct SequentialReads {
    ahead: Mutex<SequentialReader>,
    opened: Instant,
    replays: Replays,
}

impl FurrowReader {
    fn read(&self, offset: Bytes, into: &mut [u8]) -> fs::Result<usize> {
        match &self.sequential {
            // The lock on the read-ahead is held across the wait: one thread at a time uses a sequential file.
            Some(sequential) => block_on(&*self.driver, sequential.ahead.lock().read_at(offset, into)),
            None => block_on(&*self.driver, self.reader.read_at(offset, into)),
        }
    }
}

impl Drop for FurrowReader {
    fn drop(&mut self) {
        let Some(sequential) = &self.sequential else { return };
        let stats = sequential.ahead.lock().stats();
        if stats.bytes > Bytes(0) {
            let took = self.driver.now().0.saturating_sub(sequential.opened.0);
            sequential.replays.add(LogReplay { took: std::time::Duration::from_nanos(took), stats });
        }
    }
}

impl FurrowWriter {
    /// A handle for C++ of the writer of a file of the given kind.
    fn new(fs: &FurrowFs, writer: Writer, kind: FileKind) -> *mut FurrowWriter {
        let writer = Arc::new(writer);
        if kind == FileKind::Log
            && let Some(logs) = fs.logs()
        {
            logs.add(&writer);
        }
        Box::into_raw(Box::new(FurrowWriter { writer, driver: Arc::clone(fs.driver()) }))
    }

    fn wait(&self, call: impl Future<Output = fs::Result<()>>) -> Result<(), Failure> {
        Ok(block_on(&*self.driver, call)?)
    }
}

/// Creates a file for writing. `kind` is one of `FURROW_KIND_*`.
///
/// # Safety
/// `fs` is alive; `name` and `out` are valid; the result goes to [`furrow_writer_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_create(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    kind: u8,
    hint: u8,
    preallocate: u64,
    out: *mut *mut FurrowWriter,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        let kind = match kind {
            KIND_DATA => FileKind::Data,
            KIND_SHORT_LOG if !fs.fs().logs_go_to_conventional_zones() => FileKind::Data,
            _ => FileKind::Log,
        };
        let options =
            CreateOptions { kind, lifetime: lifetime_from_hint(hint), preallocate: Bytes(preallocate) };
        let writer = block_on(&**fs.driver(), fs.fs().create(&name, &options))?;
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = FurrowWriter::new(fs, writer, kind) };
        Ok(())
    })
}

/// Opens a file to append to it.
///
/// # Safety
/// `fs` is alive; `name` and `out` are valid; the result goes to [`furrow_writer_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_open_append(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    out: *mut *mut FurrowWriter,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        let kind = fs.fs().stat(&name)?.kind;
        let writer = block_on(&**fs.driver(), fs.fs().open_append(&name))?;
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = FurrowWriter::new(fs, writer, kind) };
        Ok(())
    })
}

/// Appends `len` bytes to a file.
///
/// # Safety
/// `writer` is alive and `data` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_append(
    writer: *const FurrowWriter,
    data: *const c_char,
    len: usize,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `writer` is alive and that `data` has `len` readable bytes.
        let (writer, data) = unsafe { (&*writer, bytes(data, len)) };
        writer.wait(writer.writer.append(data))
    })
}

/// Writes out the file's buffer. As with POSIX's write, nothing is durable before [`furrow_sync_file`].
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_flush(writer: *const FurrowWriter) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `writer` is alive.
        let writer = unsafe { &*writer };
        writer.wait(writer.writer.flush())
    })
}

/// Makes all bytes appended to a file durable.
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_sync_file(writer: *const FurrowWriter) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `writer` is alive.
        let writer = unsafe { &*writer };
        writer.wait(writer.writer.sync())
    })
}

/// Writes the file's buffer out and closes the file.
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_close(writer: *const FurrowWriter) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `writer` is alive.
        let writer = unsafe { &*writer };
        writer.wait(writer.writer.close())
    })
}

/// Truncates a file that is being written to `size` bytes.
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_truncate_file(writer: *const FurrowWriter, size: u64) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `writer` is alive.
        let writer = unsafe { &*writer };
        writer.wait(writer.writer.truncate(Bytes(size)))
    })
}

/// The size of a file that is being written in bytes, its unwritten buffer included.
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_written(writer: *const FurrowWriter) -> u64 {
    // SAFETY: the caller guarantees that `writer` is alive.
    run_infallible_entry(0, || unsafe { &*writer }.writer.size().0)
}

/// Sets how long a file is expected to live, as RocksDB's WriteLifeTimeHint.
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_set_lifetime(writer: *const FurrowWriter, hint: u8) {
    // SAFETY: the caller guarantees that `writer` is alive.
    run_infallible_entry((), || unsafe { &*writer }.writer.set_lifetime(lifetime_from_hint(hint)));
}

/// Sets the class of a file's writes for the drive's scheduler, as RocksDB's Env::IOPriority. `IO_TOTAL` and unknown values change nothing.
///
/// # Safety
/// `writer` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_set_priority(writer: *const FurrowWriter, priority: u8) {
    if let Some(class) = class_from_priority(priority) {
        // SAFETY: the caller guarantees that `writer` is alive.
        run_infallible_entry((), || unsafe { &*writer }.writer.set_class(class));
    }
}

/// Frees a file's writer. Closes the file first if the caller did not.
///
/// # Safety
/// `writer` came from this library, is not in use and is not freed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_writer_free(writer: *mut FurrowWriter) {
    run_infallible_entry((), || {
        // SAFETY: the caller guarantees that `writer` came from this library and is freed once.
        let writer = unsafe { Box::from_raw(writer) };
        if let Err(error) = block_on(&*writer.driver, writer.writer.close()) {
            tracing::debug!(%error, "closing a file that was dropped without closing it");
        }
    });
}

/// `FURROW_READ_SEQUENTIAL`: one thread at a time reads the file from its beginning to its end.
const READ_SEQUENTIAL: u8 = 1;
/// `FURROW_READ_DIRECT`: the file is read at any offset, and pages read from the device are not kept in the page cache.
const READ_DIRECT: u8 = 2;

/// Opens a file for reading. `how`: `FURROW_READ_RANDOM`, `FURROW_READ_SEQUENTIAL` or `FURROW_READ_DIRECT`.
///
/// # Safety
/// `fs` is alive; `name` and `out` are valid; the result goes to [`furrow_reader_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_open(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    how: u8,
    out: *mut *mut FurrowReader,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        let ino = fs.fs().stat(&name)?.ino;
        let reader = fs.fs().open(&name)?;
        let driver = Arc::clone(fs.driver());
        let reader = if how == READ_DIRECT { reader.without_admission() } else { reader };
        let sequential = (how == READ_SEQUENTIAL).then(|| SequentialReads {
            ahead: Mutex::new(SequentialReader::new(reader.clone())),
            opened: driver.now(),
            replays: fs.replays().clone(),
        });
        let handle = Box::new(FurrowReader { reader, sequential, driver, ino });
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = Box::into_raw(handle) };
        Ok(())
    })
}

/// Reads `n` bytes of a file at `offset`, fewer only at the file's end.
///
/// # Safety
/// `reader` is alive, `into` has `n` writable bytes that nothing else uses, and `got` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_read(
    reader: *const FurrowReader,
    offset: u64,
    n: usize,
    into: *mut c_char,
    got: *mut usize,
) -> FurrowStatus {
    run_entry(|| {
        if n == 0 {
            return Ok(());
        }
        if into.is_null() {
            return Err(Failure::new(StatusCode::Invalid, "a read without memory to read into"));
        }
        // SAFETY: the caller guarantees that `reader` is alive and that `into` has `n` writable bytes that nothing else
        // uses. The bytes may be uninitialised; u8 has no invalid values, the file system only writes to them, and the
        // compiler cannot see across this call where they came from.
        let (reader, into) = unsafe { (&*reader, slice::from_raw_parts_mut(into.cast::<u8>(), n)) };
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = Bytes(offset.saturating_add(done as u64));
            match reader.read(at, rest)? {
                0 => break,
                more => done += more,
            }
            if done < n && offset.saturating_add(done as u64) >= reader.reader.size().0 {
                break;
            }
        }
        // SAFETY: the caller guarantees that `got` can be written.
        unsafe { *got = done };
        Ok(())
    })
}

/// Drops the pages of the page cache that have no bytes but of the `len` bytes at `offset`; `len` is 0 for the rest of the file.
///
/// # Safety
/// `reader` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_drop_cached(reader: *const FurrowReader, offset: u64, len: u64) {
    let len = if len == 0 { u64::MAX } else { len };
    // SAFETY: the caller guarantees that `reader` is alive.
    run_infallible_entry((), || unsafe { &*reader }.reader.drop_cached(Bytes(offset), Bytes(len)));
}

/// Begins to read the `len` bytes at `offset` into the page cache. Returns 1; 0 where nothing is read ahead: without a page cache, or of a file that
/// keeps nothing there.
///
/// # Safety
/// `reader` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_read_ahead(reader: *const FurrowReader, offset: u64, len: u64) -> u8 {
    // SAFETY: the caller guarantees that `reader` is alive.
    run_infallible_entry(0, || u8::from(unsafe { &*reader }.reader.read_ahead(Bytes(offset), Bytes(len))))
}

/// Announces the order in which a file will be read: one of `FURROW_ACCESS_*`; any other value stands for an order that is
/// not known.
///
/// # Safety
/// `reader` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_expect_access(reader: *const FurrowReader, pattern: u8) {
    let pattern = match pattern {
        ACCESS_RANDOM => AccessPattern::Random,
        ACCESS_SEQUENTIAL => AccessPattern::Sequential,
        ACCESS_ONCE => AccessPattern::Once,
        _ => AccessPattern::Unknown,
    };
    // SAFETY: the caller guarantees that `reader` is alive.
    run_infallible_entry((), || unsafe { &*reader }.reader.expect(pattern));
}

/// The inode number of an open file, unique while the file is open.
///
/// # Safety
/// `reader` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_reader_ino(reader: *const FurrowReader) -> u64 {
    // SAFETY: the caller guarantees that `reader` is alive.
    run_infallible_entry(0, || unsafe { &*reader }.ino)
}

/// Frees a file's reader.
///
/// # Safety
/// `reader` came from [`furrow_open`], is not in use and is not freed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_reader_free(reader: *mut FurrowReader) {
    // SAFETY: the caller guarantees that `reader` came from this library and is freed once.
    run_infallible_entry((), || drop(unsafe { Box::from_raw(reader) }));
}
