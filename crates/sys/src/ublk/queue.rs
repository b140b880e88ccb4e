//! One queue of a ublk device, served by one thread.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags};
use units::Reactor;

use super::abi::{Descriptor, IoCommand, MAX_DEPTH, Outcome, Request, Tag, descriptors, io as code};
use super::char_device::CharDevice;

/// User data of the poll for wake-ups; those of requests are tags.
const WAKE_POLL_USER_DATA: u64 = u64::MAX;

/// One queue of a ublk device. The thread that makes it is the one that the kernel takes commands from.
///
/// The queue is the thread's [`Reactor`]: a thread that waits for operations of a device waits for new requests too.
/// Each request comes out of [`poll_requests`](Queue::poll_requests) once and goes back by
/// [`commit`](Queue::commit) once. The queue ends when the block device is stopped.
pub struct Queue {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    descriptors: Descriptors,
    device: Arc<CharDevice>,
    number: u16,
    depth: u16,
    /// Eventfd that the ring polls: writing it ends the thread's sleep in the kernel.
    wake: OwnedFd,
    state: Mutex<State>,
}

struct State {
    /// Requests that no one has taken yet, in the order of their arrival.
    arrived: Vec<Request>,
    /// Number of tags whose commands ended: the kernel sends no requests by them any more.
    ended: u16,
    /// The reason why a command failed other than by a stop of the device.
    failure: Option<i32>,
    waker: Option<Waker>,
    /// True if the ring polls `wake`.
    wake_armed: bool,
}

impl Queue {
    /// A queue of the calling thread. `number` and `depth` are those of the device.
    pub fn new(device: &Arc<CharDevice>, number: u16, depth: u16) -> io::Result<Arc<Queue>> {
        if depth == 0 || depth > MAX_DEPTH {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a queue has from 1 to 4096 requests"));
        }
        let entries = u32::from(depth) + 8;
        let ring = IoUring::builder()
            .setup_cqsize(entries * 2)
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(entries)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let arrived = Vec::with_capacity(depth.into());
        let state = State { arrived, ended: 0, failure: None, waker: None, wake_armed: false };
        Ok(Arc::new(Queue {
            ring,
            descriptors: Descriptors::map(device, number, depth)?,
            device: Arc::clone(device),
            number,
            depth,
            wake,
            state: Mutex::new(state),
        }))
    }

    /// The queue's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The device, for the data of requests.
    pub fn device(&self) -> &Arc<CharDevice> {
        &self.device
    }

    /// Asks the kernel for the first request of each tag. Called once, before the device is started.
    pub fn fetch(&self) -> io::Result<()> {
        for tag in 0..self.depth {
            let command = IoCommand { queue: self.number, tag, ..IoCommand::default() };
            self.push(&self.command(code::FETCH_REQ, &command))?;
        }
        self.submit()?;
        self.reap();
        match self.state.lock().failure {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }

    /// Gives the kernel a request's outcome and asks for the next request of the same tag. The kernel learns of it when
    /// the thread waits.
    pub fn commit(&self, tag: Tag, outcome: Outcome) -> io::Result<()> {
        let command = IoCommand::commit(self.number, tag, outcome);
        self.push(&self.command(code::COMMIT_AND_FETCH_REQ, &command))
    }

    /// Takes the requests that have arrived, in the order of arrival; false at the queue's end, when the device was stopped.
    ///
    /// # Errors
    /// The kernel's, if it refused a command: the device has to be stopped.
    pub fn poll_requests(&self, cx: &mut Context<'_>, into: &mut Vec<Request>) -> Poll<io::Result<bool>> {
        let mut state = self.state.lock();
        if !state.arrived.is_empty() {
            into.append(&mut state.arrived);
            return Poll::Ready(Ok(true));
        }
        if let Some(errno) = state.failure {
            return Poll::Ready(Err(io::Error::from_raw_os_error(errno)));
        }
        if state.ended == self.depth {
            return Poll::Ready(Ok(false));
        }
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn command(&self, code: u32, command: &IoCommand) -> squeue::Entry {
        opcode::UringCmd16::new(types::Fd(self.device.as_raw_fd()), code)
            .cmd(command.bytes())
            .build()
            .user_data(command.tag.into())
    }

    fn push(&self, entry: &squeue::Entry) -> io::Result<()> {
        let state = self.state.lock();
        // SAFETY: `state` is locked, so this is the only view of the submission queue. The entry refers to no memory.
        let push = || unsafe { self.ring.submission_shared().push(entry) };
        if push().is_err() {
            self.submit()?;
            push().map_err(|_| io::Error::other("the queue of a ublk ring is full"))?;
        }
        drop(state);
        Ok(())
    }

    fn submit(&self) -> io::Result<()> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Processes completions; returns their number.
    fn reap(&self) -> usize {
        let mut state = self.state.lock();
        // SAFETY: `state` is locked, so this is the only view of the completion queue.
        let completions = unsafe { self.ring.completion_shared() };
        let mut count = 0;
        for done in completions {
            count += 1;
            if done.user_data() == WAKE_POLL_USER_DATA {
                state.wake_armed &= cqueue::more(done.flags());
                continue;
            }
            let tag = Tag(u16::try_from(done.user_data()).expect("a tag was the command's user data"));
            match -done.result() {
                0 => state.arrived.push(Request::decode(tag, &self.descriptors.read(tag))),
                // The device was stopped.
                libc::ENODEV => state.ended += 1,
                errno => {
                    state.ended += 1;
                    state.failure = Some(errno);
                }
            }
        }
        let waker = if count > 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        count
    }

    /// Has the ring poll the eventfd, if it does not.
    fn arm_wake(&self) -> io::Result<()> {
        if !self.state.lock().wake_armed {
            let poll =
                opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).multi(true);
            self.push(&poll.build().user_data(WAKE_POLL_USER_DATA))?;
            self.state.lock().wake_armed = true;
        }
        Ok(())
    }
}

impl Reactor for Queue {
    fn poll(&self) -> bool {
        self.reap() > 0
    }

    fn wait(&self, timeout: Option<Duration>) {
        if timeout == Some(Duration::ZERO) || self.arm_wake().is_err() {
            let _tried_again_at_the_next_wait = self.submit();
            return;
        }
        // One system call submits the ring's entries and sleeps. A wait that fails ends like one that was woken: the caller
        // waits again.
        let _woken = match timeout {
            Some(timeout) => {
                let timeout = types::Timespec::from(timeout);
                let until = types::SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &until)
            }
            None => self.ring.submit_and_wait(1),
        };
    }

    fn leave(&self) {
        let _tried_again_at_the_next_wait = self.submit();
    }

    fn interrupt(&self) {
        let _wakes = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The kernel's descriptors of a queue's requests, mapped read-only.
struct Descriptors {
    start: NonNull<Descriptor>,
    length: usize,
    count: u16,
}

// SAFETY: the mapping is read-only memory of the process, which any thread may read.
unsafe impl Send for Descriptors {}
// SAFETY: as for `Send`; reads are volatile copies.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn map(device: &CharDevice, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let (offset, length) = descriptors(queue, depth, rustix::param::page_size());
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, device, offset)
        }?;
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        Ok(Descriptors { start, length, count: depth })
    }

    /// The descriptor of a request that the kernel gave to this process.
    fn read(&self, tag: Tag) -> Descriptor {
        assert!(tag.0 < self.count, "the kernel uses tags below the queue's depth");
        // SAFETY: the mapping holds `count` descriptors, and all bit patterns are values. The kernel does not change the
        // descriptor of a request that this process has; the read is volatile because the kernel changed it before.
        unsafe { self.start.add(tag.0.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}
