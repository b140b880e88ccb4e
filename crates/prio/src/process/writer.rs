//! The writer process.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use sys::{Buf, BufMut, Engine, Priority};

use crate::file::{Write, write_all};
use crate::process::message::{HEADER, HERE_IS_THE_FILE, Header, MAX_DATA, MAX_ZEROS, Reply, VERSION};

/// Bytes of a page, to which direct I/O wants data aligned.
const PAGE: usize = 4096;

/// Takes the log's file from `socket` and serves requests until the program closes it: the whole life of `furrow-prio-writer`.
///
/// Returns when the program has closed its side: nobody waits for a reply any more.
///
/// # Errors
/// A socket or message that is not a program's of this version.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    // A signal to the program's whole group, such as Ctrl-C, must not end the writer before the program has closed its log.
    sys::ignore_signals_to_end();
    let engine = Engine::shared(None)?;
    let socket = Arc::new(socket);
    let real_time = matches!(Priority::of_log(), Priority::RealTime(_));
    answer(&socket, Reply { id: 0, errno: VERSION, real_time });
    let Some(file) = receive_file(&socket)?.map(Arc::new) else { return Ok(()) };
    let zeros = Buf::zeroed(MAX_ZEROS);
    loop {
        let mut first = [0; HEADER];
        let waiting = match recv(socket.as_fd(), &mut first[..], RecvFlags::PEEK | RecvFlags::TRUNC) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(()),
            Ok((_, waiting)) => waiting.min(HEADER + MAX_DATA),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // The data begins where a page of the buffer begins: direct I/O takes it as it is.
        let mut message = BufMut::zeroed(PAGE - HEADER + waiting);
        drop(message.split_to(PAGE - HEADER));
        let (got, _) = retry_on_intr(|| recv(socket.as_fd(), &mut message[..], RecvFlags::empty()))?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "a message that is no request");
        if got < HEADER {
            return Err(odd());
        }
        drop(message.split_to(HEADER));
        let header = Header::decode(&first, message.len()).ok_or_else(odd)?;
        let data = if header.zeros { zeros.slice(..header.len as usize) } else { message.freeze() };
        let priority = if header.bulk { Priority::of_bulk() } else { Priority::of_log() };
        let write = Write { file: Arc::clone(&file), at: header.at, data, durable: header.durable, priority };
        let socket = Arc::clone(&socket);
        let finish = move |result: io::Result<()>| {
            let unknown = Errno::IO.raw_os_error();
            let errno = result.map_or_else(|error| error.raw_os_error().unwrap_or(unknown), |()| 0);
            answer(&socket, Reply { id: header.id, errno: errno.unsigned_abs(), real_time: false });
        };
        write_all(Arc::clone(&engine), write, Box::new(finish));
    }
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
