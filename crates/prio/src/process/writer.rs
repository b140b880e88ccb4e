//! The writer process: a few threads that each take a request, write, and answer.
//!
//! A request wakes one thread of this process, which writes by a system call: an engine would add a thread to wake for each.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown};
use rustix::net::{recv, recvmsg, send, shutdown};
use sys::priority::set_thread_priority;
use sys::{Buf, BufMut, Priority};

use crate::process::message::{HEADER, HERE_IS_THE_FILE, Header, MAX_DATA, MAX_ZEROS, Reply, VERSION};

/// Bytes of a page, to which direct I/O wants data aligned.
const PAGE: usize = 4096;
/// Threads, and so writes in flight. A log has no more writes of entries in flight than twice as many.
const THREADS: usize = 8;

/// Takes the log's file from `socket` and serves requests until the program closes it: the whole life of `furrow-prio-writer`.
///
/// Returns when the program has closed its side: nobody waits for a reply any more.
///
/// # Errors
/// A socket or message that is not a program's of this version.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    // A signal to the program's whole group, such as Ctrl-C, must not end the writer before the program has closed its log.
    sys::ignore_signals_to_end();
    let real_time = matches!(Priority::of_log(), Priority::RealTime(_));
    answer(&socket, Reply { id: 0, errno: VERSION, real_time });
    let Some(file) = receive_file(&socket)? else { return Ok(()) };
    let zeros = Buf::zeroed(MAX_ZEROS);
    let writer = Arc::new(Writer { socket, file, zeros });
    let thread = |n: usize| {
        let writer = Arc::clone(&writer);
        std::thread::Builder::new().name(format!("writer {n}")).spawn(move || writer.run())
    };
    let others = (1..THREADS).map(thread).collect::<io::Result<Vec<_>>>()?;
    let own = writer.run();
    let ends =
        others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())));
    ends.fold(own, Result::and)
}

struct Writer {
    socket: OwnedFd,
    file: File,
    /// The bytes of zeros.
    zeros: Buf,
}

impl Writer {
    /// Serves requests until the socket ends.
    fn run(&self) -> io::Result<()> {
        // The data of a request begins where a page of the buffer begins: direct I/O takes it as it is.
        let mut buffer = BufMut::zeroed(PAGE + MAX_DATA);
        drop(buffer.split_to(PAGE - HEADER));
        let mut present = None;
        loop {
            let (got, _) =
                match retry_on_intr(|| recv(self.socket.as_fd(), &mut buffer[..], RecvFlags::empty())) {
                    Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(()),
                    Ok(got) => got,
                    Err(error) => return Err(error.into()),
                };
            let Some((header, data)) = decode(buffer.get(..got).unwrap_or_default()) else {
                // The other threads end with the socket.
                let _ended = shutdown(&self.socket, Shutdown::Both);
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is no request"));
            };
            let priority = if header.bulk { Priority::of_bulk() } else { Priority::of_log() };
            // Priorities are a matter of speed: a refused one fails no request.
            if present != Some(priority) && set_thread_priority(priority).is_ok() {
                present = Some(priority);
            }
            let data =
                if header.zeros { self.zeros.get(..header.len as usize).unwrap_or_default() } else { data };
            let errno = self.write_all(&header, data).map_or_else(Errno::raw_os_error, |()| 0);
            answer(&self.socket, Reply { id: header.id, errno: errno.unsigned_abs(), real_time: false });
        }
    }

    /// Writes all of the data. Writes the rest after a short write, whose next call tells why it was short: no space, for example.
    fn write_all(&self, header: &Header, mut data: &[u8]) -> Result<(), Errno> {
        let flags = if header.durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let mut at = header.at;
        while !data.is_empty() {
            let written = retry_on_intr(|| pwritev2(&self.file, &[IoSlice::new(data)], at, flags))?;
            data = data.get(written..).filter(|_| written > 0).ok_or(Errno::IO)?;
            at += written as u64;
        }
        Ok(())
    }
}

/// The header and the data of a message. `None` if it is no request.
fn decode(message: &[u8]) -> Option<(Header, &[u8])> {
    let (header, data) = message.split_at_checked(HEADER)?;
    Some((Header::decode(header.try_into().ok()?, data.len())?, data))
}

/// The log's file. `None` if the program has ended instead of sending it.
fn receive_file(socket: &OwnedFd) -> io::Result<Option<File>> {
    let mut text = [0; HERE_IS_THE_FILE.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got = retry_on_intr(|| recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match descriptor {
        Some(descriptor) if &text == HERE_IS_THE_FILE => Ok(Some(File::from(descriptor))),
        None if got.bytes == 0 => Ok(None),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message that brings no file")),
    }
}

/// Sends a reply. The program reads replies at all times; a program that has ended needs none.
fn answer(socket: &OwnedFd, reply: Reply) {
    let _a_program_that_is_gone = send(socket.as_fd(), &reply.encode(), SendFlags::NOSIGNAL);
}
