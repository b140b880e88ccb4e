//! The program's side of a writer process.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, recv, send, sendmsg, shutdown, socketpair};
use sys::Buf;
use units::{Driver, RealDriver};

use crate::process::message::{HEADER, HERE_IS_THE_FILE, Header, MAX_DATA, MAX_ZEROS, REPLY, Reply, VERSION};
use crate::{Finish, Request, Storage};

/// Longest wait for a new writer's first message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The file of a log behind a writer process. Dropping it ends the process and waits for the end, so that the file is free for another log.
pub(crate) struct ProcessStorage {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    real_time: bool,
    /// The process that started the writer.
    process: u32,
}

struct Shared {
    socket: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    /// Messages that the socket had no room for.
    unsent: VecDeque<Vec<u8>>,
    /// The request of each message that has no reply yet.
    waiting: BTreeMap<u64, Arc<Flight>>,
    /// True once the writer is dead.
    dead: bool,
}

/// A request, which goes as one message or several.
struct Flight {
    missing: AtomicUsize,
    end: Mutex<(Option<Finish>, io::Result<()>)>,
}

impl Flight {
    /// Ends a request of which no message was sent.
    fn fail(&self) {
        let finish = self.end.lock().0.take();
        if let Some(finish) = finish {
            finish(Err(dead_writer()));
        }
    }

    /// Notes the result of one of the flight's messages; the last one ends the request with the first error.
    fn message_done(&self, result: io::Result<()>) {
        let mut end = self.end.lock();
        if end.1.is_ok() {
            end.1 = result;
        }
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(finish) = end.0.take()
        {
            let result = std::mem::replace(&mut end.1, Ok(()));
            drop(end);
            finish(result);
        }
    }
}

fn dead_writer() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the log's writer process is dead")
}

impl ProcessStorage {
    /// Starts `program` as the writer of `file`.
    ///
    /// # Errors
    /// A program that cannot be started, or is no writer of this version.
    pub(crate) fn start(program: &Path, file: &File) -> io::Result<ProcessStorage> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut child = Command::new(program).stdin(theirs).stdout(Stdio::null()).spawn()?;
        let started =
            first_message(&socket).and_then(|real_time| send_file(&socket, file).map(|()| real_time));
        let real_time = started.inspect_err(|_| {
            let _it_may_have_ended = child.kill();
            let _reaped = child.wait();
        })?;
        let shared = Arc::new(Shared { socket, state: Mutex::default() });
        let mine = Arc::clone(&shared);
        let reader =
            std::thread::Builder::new().name("furrow-prio".into()).spawn(move || mine.read_replies(child))?;
        Ok(ProcessStorage { shared, reader: Some(reader), real_time, process: std::process::id() })
    }

    /// True if the writer's requests are real-time.
    pub(crate) fn is_real_time(&self) -> bool {
        self.real_time
    }
}

/// Waits for the first message of a writer. Returns whether its requests are real-time.
fn first_message(socket: &OwnedFd) -> io::Result<bool> {
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    let clock = RealDriver::new();
    let until = clock.now().after(PATIENCE);
    let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        // A signal may interrupt the wait.
        let left = until.since(clock.now());
        let timeout = Timespec::try_from(left).map_err(|_| odd("no time is left"))?;
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) => return Err(odd("the program does not answer as a log's writer")),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut bytes = [0; REPLY];
    let (got, _) = retry_on_intr(|| recv(socket.as_fd(), &mut bytes[..], RecvFlags::empty()))?;
    match Reply::decode(bytes.get(..got).unwrap_or_default()) {
        Some(Reply { id: 0, errno: VERSION, real_time }) => Ok(real_time),
        Some(Reply { id: 0, .. }) => Err(odd("the log's writer is of another version")),
        _ => Err(odd("the program is no log's writer")),
    }
}

/// Gives the writer the log's file.
fn send_file(socket: &OwnedFd, file: &File) -> io::Result<()> {
    let descriptors = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space for a descriptor"));
    }
    retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(HERE_IS_THE_FILE)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

impl Storage for ProcessStorage {
    fn start(&self, request: Request, finish: Finish) {
        let (at, data, len, durable, bulk) = match request {
            Request::Entries { at, data } => (at, Some(data.clone()), data.len(), true, false),
            Request::Zeros { at, len, durable, urgent } => {
                (at, None, usize::try_from(len).expect("zeros of one write are few"), durable, !urgent)
            }
        };
        let longest = if data.is_some() { MAX_DATA } else { MAX_ZEROS };
        let parts = len.div_ceil(longest).max(1);
        let flight =
            Arc::new(Flight { missing: AtomicUsize::new(parts), end: Mutex::new((Some(finish), Ok(()))) });
        let mut state = self.shared.state.lock();
        if state.dead {
            drop(state);
            flight.fail();
            return;
        }
        for part in 0..parts {
            let from = part * longest;
            let to = (from + longest).min(len);
            let header = |id| Header {
                id,
                at: at + from as u64,
                len: u32::try_from(to - from).expect("a message is short"),
                durable,
                zeros: data.is_none(),
                bulk,
            };
            let data = data.as_ref().map(|data| data.slice(from..to));
            state.push(Arc::clone(&flight), header, data);
        }
        self.shared.send_unsent(&mut state);
    }
}

impl Drop for ProcessStorage {
    fn drop(&mut self) {
        // A forked child has a copy of the parent's storage, whose writer and thread are the parent's.
        if self.process != std::process::id() {
            return;
        }
        let _a_dead_writer = shutdown(&self.shared.socket, Shutdown::Write);
        if let Some(reader) = self.reader.take()
            && reader.thread().id() != std::thread::current().id()
        {
            let _its_panic_was_reported = reader.join();
        }
    }
}

impl State {
    /// Queues one message. `header` makes its header from its number.
    fn push(&mut self, flight: Arc<Flight>, header: impl FnOnce(u64) -> Header, data: Option<Buf>) {
        self.next_id += 1;
        let header = header(self.next_id);
        let mut message = Vec::with_capacity(HEADER + data.as_ref().map_or(0, |data| data.len()));
        message.extend_from_slice(&header.encode());
        message.extend_from_slice(data.as_deref().unwrap_or_default());
        self.waiting.insert(header.id, flight);
        self.unsent.push_back(message);
    }
}

impl Shared {
    /// Sends what the socket takes. The rest goes when the writer has answered: it has read messages then.
    fn send_unsent(&self, state: &mut State) {
        while let Some(message) = state.unsent.front() {
            match send(self.socket.as_fd(), message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => drop(state.unsent.pop_front()),
                Err(Errno::INTR) => {}
                // The writer has messages that it has not read, and answers each of them.
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // The reader then ends, and fails all requests.
                    state.unsent.clear();
                    let _the_socket_is_connected = shutdown(&self.socket, Shutdown::Both);
                    return;
                }
            }
        }
    }

    /// Reads replies until the writer has ended; the requests left then fail.
    fn read_replies(&self, mut child: Child) {
        let mut bytes = [0; REPLY];
        loop {
            let got = match recv(self.socket.as_fd(), &mut bytes[..], RecvFlags::empty()) {
                Ok((got, _)) if got > 0 => got,
                Err(Errno::INTR) => continue,
                _ => break,
            };
            let Some(reply) = Reply::decode(bytes.get(..got).unwrap_or_default()) else { break };
            let flight = {
                let mut state = self.state.lock();
                self.send_unsent(&mut state);
                state.waiting.remove(&reply.id)
            };
            let Some(flight) = flight else { break };
            flight.message_done(match i32::try_from(reply.errno) {
                Ok(0) => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno.unwrap_or(Errno::IO.raw_os_error()))),
            });
        }
        // A writer ends when its socket ends. Its program may have waited for it already, as programs do that wait for any child.
        let _the_socket_may_have_ended = shutdown(&self.socket, Shutdown::Both);
        let _another_may_have_waited = child.wait();
        self.fail_waiting();
    }

    /// Fails all requests that wait for a dead writer.
    fn fail_waiting(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.dead = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(|flight| flight.message_done(Err(dead_writer())));
    }
}
