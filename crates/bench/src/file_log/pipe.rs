//! The paper's log writer: a process to which a program sends its log's bytes through a pipe ("Mitigating Write-ahead Log Contention on Shared Storage Devices", section 4.2).
//! `furrow bench prio` alone uses the writer, to measure it beside [`prio::LogFile`].
//!
//! ```text
//!   program                                                       writer: one thread, real-time
//!     append ---- number of bytes (4, little-endian), bytes ----> stdin
//!        ^                                                          | one direct, durable write
//!        +------- last position written (8, little-endian) <----- stdout
//! ```
//!
//! The writer's first message is 1 if its writes are real-time, else 0. Direct I/O wants whole blocks, so the writer keeps the bytes of the last block and writes them again.
//!
//! The paper's writer differs in two things, which would make the comparison one of file systems: its writes are direct and not durable, and no room is made for them. These are durable
//! (`RWF_DSYNC`), and the file is zeroed ahead of them, both as [`prio::LogFile`]'s.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, IoSlice, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr};
use sys::priority::set_thread_priority;
use sys::{BufMut, Priority};

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Bytes of a record, at most.
const MAX_RECORD: usize = 1 << 20;
/// Bytes that are zeroed ahead, as much as [`prio::Options::room`] by default; and of one write of zeros.
const ROOM: u64 = 16 << 20;
const ZEROS: usize = 1 << 20;

/// The program's side: a log behind a writer process.
pub(super) struct PipeLog {
    child: Child,
    pipes: Pipes<ChildStdin, ChildStdout>,
    real_time: bool,
}

impl PipeLog {
    /// Starts the writer of a new file: a program and its arguments, to which `path` is added.
    pub(super) fn start(writer: &[OsString], path: &Path) -> io::Result<PipeLog> {
        let (program, arguments) = writer
            .split_first()
            .ok_or_else(|| io::Error::other("no program is named as the pipe's writer"))?;
        let mut command = Command::new(program);
        command.args(arguments).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a child lacks its pipes"));
        };
        let mut pipes = Pipes { to, from, message: Vec::new() };
        let answer = pipes.answer().inspect_err(|_| {
            let _it_may_have_ended = child.kill();
            let _reaped = child.wait();
        })?;
        Ok(PipeLog { child, pipes, real_time: answer == 1 })
    }

    /// True if the writer's writes are real-time.
    pub(super) fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// Appends a record and waits until it is durable. Returns where it ends.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<u64> {
        self.pipes.append(record)
    }

    /// Ends the writer.
    pub(super) fn close(mut self) -> io::Result<()> {
        drop(self.pipes);
        if self.child.wait()?.success() { Ok(()) } else { Err(io::Error::other("the pipe's writer failed")) }
    }
}

/// The program's ends of the two pipes.
struct Pipes<W, R> {
    to: W,
    from: R,
    message: Vec<u8>,
}

impl<W: Write, R: Read> Pipes<W, R> {
    fn append(&mut self, record: &[u8]) -> io::Result<u64> {
        let bytes = u32::try_from(record.len()).ok().filter(|bytes| *bytes as usize <= MAX_RECORD);
        let bytes = bytes.ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        // One system call: the length and the record.
        self.message.clear();
        self.message.extend_from_slice(&bytes.to_le_bytes());
        self.message.extend_from_slice(record);
        self.to.write_all(&self.message)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<u64> {
        let mut answer = [0; 8];
        self.from.read_exact(&mut answer)?;
        Ok(u64::from_le_bytes(answer))
    }
}

/// Makes the file `path` and writes to it what comes from `from`, until that ends: the whole life of the writer process.
///
/// # Errors
/// A file that exists, a file system without direct I/O, a failed write, a record that is cut off or too long.
pub fn serve_pipe(path: &Path, from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut file = LogBlocks::create(path)?;
    let real_time = matches!(file.priority, Priority::RealTime(_));
    to.write_all(&u64::from(real_time).to_le_bytes())?;
    to.flush()?;
    // One read brings a short record with its length.
    let mut from = BufReader::with_capacity(64 << 10, from);
    let mut length = [0; 4];
    loop {
        // A pipe that ends between two records is the program's end.
        if from.read(length.get_mut(..1).unwrap_or_default())? == 0 {
            return Ok(());
        }
        from.read_exact(length.get_mut(1..).unwrap_or_default())?;
        let end = file.append(u32::from_le_bytes(length) as usize, &mut from)?;
        to.write_all(&end.to_le_bytes())?;
        to.flush()?;
    }
}

/// The log's file, as its writer has it.
struct LogBlocks {
    file: File,
    priority: Priority,
    /// The bytes of the last block, and room for a record behind them.
    buffer: BufMut,
    /// Number of bytes of the last block.
    tail: usize,
    /// Where the last block begins.
    at: u64,
    /// Where the zeroed part of the file ends.
    room: u64,
}

impl LogBlocks {
    fn create(path: &Path) -> io::Result<LogBlocks> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        let buffer = BufMut::zeroed(BLOCK + MAX_RECORD + BLOCK);
        let mut log = LogBlocks { file, priority: Priority::of_log(), buffer, tail: 0, at: 0, room: 0 };
        log.make_room(1)?;
        Ok(log)
    }

    /// Reads a record of `bytes`, and makes it durable. Returns where it ends.
    fn append(&mut self, bytes: usize, from: &mut impl Read) -> io::Result<u64> {
        let end = self.tail + bytes;
        let padded = end.next_multiple_of(BLOCK);
        let too_long = || io::Error::new(ErrorKind::InvalidData, "a record that is too long");
        let record = self.buffer.get_mut(self.tail..end).filter(|_| bytes <= MAX_RECORD);
        from.read_exact(record.ok_or_else(too_long)?)?;
        self.buffer.get_mut(end..padded).ok_or_else(too_long)?.fill(0);
        self.make_room(self.at + padded as u64)?;
        let blocks = self.buffer.get(..padded).ok_or_else(too_long)?;
        write_all(&self.file, blocks, self.at, ReadWriteFlags::DSYNC)?;
        let full = end - end % BLOCK;
        self.buffer.copy_within(full..end, 0);
        self.tail = end - full;
        self.at += full as u64;
        Ok(self.at + self.tail as u64)
    }

    /// Zeroes the file in bulk class until it reaches `end`, and [`ROOM`] at a time. What comes then has the log's class.
    fn make_room(&mut self, end: u64) -> io::Result<()> {
        if end <= self.room {
            return Ok(());
        }
        set_thread_priority(Priority::of_bulk())?;
        let zeros = BufMut::zeroed(ZEROS);
        while self.room < end.next_multiple_of(ROOM) {
            write_all(&self.file, &zeros, self.room, ReadWriteFlags::empty())?;
            self.room += zeros.len() as u64;
        }
        self.file.sync_data()?;
        set_thread_priority(self.priority)
    }
}

fn write_all(file: &File, mut data: &[u8], mut at: u64, flags: ReadWriteFlags) -> io::Result<()> {
    while !data.is_empty() {
        let written = retry_on_intr(|| pwritev2(file, &[IoSlice::new(data)], at, flags))?;
        data = data.get(written..).filter(|_| written > 0).ok_or(Errno::IO)?;
        at += written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's on a file system with direct I/O.
    fn folder(name: &str) -> std::path::PathBuf {
        let program = std::env::current_exe().expect("has a path");
        let folder = program.parent().expect("lies in a folder").join(name);
        let _left_by_a_failed_test = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("makes it");
        folder
    }

    #[test]
    fn each_answered_record_is_in_the_file_behind_the_ones_before() {
        let folder = folder("bench-pipe-records");
        let path = folder.join("log");
        std::thread::scope(|scope| {
            let (from_program, to) = io::pipe().expect("makes a pipe");
            let (from, to_program) = io::pipe().expect("makes a pipe");
            let writer = scope.spawn(|| serve_pipe(&path, from_program, to_program));
            let mut pipes = Pipes { to, from, message: Vec::new() };
            assert!(pipes.answer().expect("starts") <= 1);
            let mut expected = Vec::new();
            for (n, bytes) in [1, 512, 3583, 4096, 5000, 70_000, 0, MAX_RECORD].into_iter().enumerate() {
                let record = vec![n as u8 + 1; bytes];
                expected.extend_from_slice(&record);
                assert_eq!(pipes.append(&record).expect("appends"), expected.len() as u64);
                let file = std::fs::read(&path).expect("reads");
                assert!(file.len() as u64 >= ROOM && file[..expected.len()] == expected, "record {n}");
                assert!(file[expected.len()..].iter().all(|byte| *byte == 0), "record {n}");
            }
            drop(pipes);
            writer.join().expect("ends").expect("serves");
        });
        std::fs::remove_dir_all(folder).expect("removes it");
    }

    #[test]
    fn a_record_that_is_too_long_or_cut_off_ends_the_writer() {
        let folder = folder("bench-pipe-errors");
        let serve = |name: &str, input: &[u8]| serve_pipe(&folder.join(name), input, io::sink());
        serve("whole", b"\x01\0\0\0x").expect("a record");
        serve("none", b"").expect("no record");
        let too_long = u32::try_from(MAX_RECORD + 1).expect("fits").to_le_bytes();
        assert_eq!(serve("long", &too_long).expect_err("too long").kind(), ErrorKind::InvalidData);
        for cut in [&b"\x02\0\0\0x"[..], b"\x02\0"] {
            let name = format!("cut-{}", cut.len());
            assert_eq!(serve(&name, cut).expect_err("cut off").kind(), ErrorKind::UnexpectedEof);
        }
        assert_eq!(serve("whole", b"").expect_err("exists").kind(), ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(folder).expect("removes it");
    }

    #[test]
    fn a_program_that_is_no_writer_is_an_error() {
        assert!(PipeLog::start(&[], Path::new("log")).is_err());
        assert!(PipeLog::start(&["/nonexistent/writer".into()], Path::new("log")).is_err());
        assert!(PipeLog::start(&["true".into()], Path::new("log")).is_err());
    }
}
