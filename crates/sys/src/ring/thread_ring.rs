//! The ring of one thread.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use units::Reactor;

use crate::ring::flight::{Completion, Flight};
use crate::ring::reaper::{ReapedRing, Reaper};
use crate::threads::Threads;

/// Entries of the ring's submission queue. A full queue is submitted at once, so this bounds only one system
/// call.
const SUBMISSION_QUEUE_ENTRIES: u32 = 64;
/// Entries of the ring's completion queue: 32 bytes each.
const COMPLETION_QUEUE_ENTRIES: u32 = 1024;
/// Largest number of requests in flight on one ring; further ones wait in `backlog`. Their completions and those of
/// wake-ups fit into the completion queue, which must never overflow, because the kernel signals no eventfd for
/// overflowed completions.
const MAX_IN_FLIGHT: u32 = COMPLETION_QUEUE_ENTRIES - 24;
/// Completions taken from the ring's queue at once, under the lock.
const MAX_COMPLETIONS_TAKEN_AT_ONCE: usize = 32;
/// User data of the poll for wake-ups, different from every address of a flight.
const WAKE_POLL_USER_DATA: u64 = 1;

pub(super) type Uring = IoUring<squeue::Entry128, cqueue::Entry32>;

/// A ring and its requests in flight.
///
/// Any thread may process completions and submit; `sq` and `cq` guard the two queues. Callbacks run outside both
/// locks.
pub(super) struct ThreadRing {
    ring: Uring,
    sq: Mutex<Submissions>,
    cq: Mutex<Reaping>,
    /// Eventfd that the ring polls: writing it ends the owner's sleep in the kernel.
    wake: OwnedFd,
    /// Eventfd that signals completions to the reaper.
    notify: OwnedFd,
    /// True if the poll for `wake` has ended and must be submitted again.
    wake_unarmed: AtomicBool,
    drained: Condvar,
    threads: Arc<Threads>,
    reaper: &'static Reaper,
    id: u64,
}

#[derive(Default)]
struct Submissions {
    in_flight: u32,
    /// Number of entries in the submission queue that the kernel does not have yet.
    pending: u32,
    /// True if the owner thread is about to wait and submits pending entries itself.
    held_back: bool,
    /// True if the owner thread is ending or has ended.
    retired: bool,
    /// Requests beyond [`MAX_IN_FLIGHT`]. Unbounded; callers bound the number of their requests.
    backlog: std::collections::VecDeque<Box<Flight>>,
}

impl Submissions {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.backlog.is_empty()
    }
}

#[derive(Default)]
struct Reaping {
    /// True if the owner thread processes completions; then the eventfd is disabled.
    by_owner: bool,
}

/// Creates a ring.
pub(super) fn new_io_uring() -> io::Result<Uring> {
    Uring::builder().setup_cqsize(COMPLETION_QUEUE_ENTRIES).setup_submit_all().build(SUBMISSION_QUEUE_ENTRIES)
}

impl ThreadRing {
    /// A ring with a ring for the calling thread.
    pub(super) fn new(reaper: &'static Reaper, threads: Arc<Threads>) -> io::Result<Arc<ThreadRing>> {
        let ring = new_io_uring()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (wake, notify) = (eventfd(0, flags)?, eventfd(0, flags)?);
        ring.submitter().register_eventfd(notify.as_raw_fd())?;
        let ring = Arc::new(ThreadRing {
            ring,
            sq: Mutex::default(),
            cq: Mutex::default(),
            wake,
            notify,
            wake_unarmed: AtomicBool::new(true),
            drained: Condvar::new(),
            threads,
            reaper,
            id: reaper.next_id(),
        });
        reaper.add(Arc::clone(&ring) as Arc<dyn ReapedRing>)?;
        Ok(ring)
    }

    /// Starts a request, or queues it until others have completed.
    pub(super) fn start(&self, flight: Box<Flight>) {
        let mut sq = self.sq.lock();
        if sq.in_flight >= MAX_IN_FLIGHT || !sq.backlog.is_empty() {
            sq.backlog.push_back(flight);
            return;
        }
        self.push(&mut sq, flight);
        if !sq.held_back {
            self.submit_and_unlock(sq);
        }
    }

    /// Puts a request into the ring's submission queue. Returns false and requeues the request if the queue
    /// does not accept it.
    fn push(&self, sq: &mut Submissions, mut flight: Box<Flight>) -> bool {
        let entry = flight.entry();
        let address = Box::into_raw(flight).expose_provenance() as u64;
        if self.push_entry(sq, &entry.user_data(address)) {
            sq.in_flight += 1;
            return true;
        }
        // SAFETY: the queue did not accept the entry, so no other code knows the flight's address exposed
        // above.
        sq.backlog
            .push_front(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(address as usize)) });
        self.reaper.retry(self.id);
        false
    }

    fn push_entry(&self, sq: &mut Submissions, entry: &squeue::Entry128) -> bool {
        // SAFETY: `sq` is locked, so this is the only view of the submission queue. The memory that the entry
        // refers to is in its flight, which nobody frees before the completion, or in this ring.
        let push = || unsafe { self.ring.submission_shared().push(entry) }.is_ok();
        // If the submission queue is full, its entries are submitted, which fails only if the kernel has no
        // memory.
        let mut pushed = push();
        if !pushed && self.enter(sq.pending).is_ok() {
            sq.pending = 0;
            pushed = push();
        }
        sq.pending += u32::from(pushed);
        pushed
    }

    /// Submits pending entries, after releasing the lock. Entries that another thread adds meanwhile are
    /// submitted by that thread or by this call.
    fn submit_and_unlock(&self, mut sq: parking_lot::MutexGuard<'_, Submissions>) {
        let pending = std::mem::take(&mut sq.pending);
        drop(sq);
        if pending > 0 && self.enter(pending).is_err() {
            // The kernel did not take the entries, usually because it has no memory. The submitting thread
            // must not wait, so the reaper tries again.
            self.reaper.retry(self.id);
        }
    }

    /// Submits the entries of the submission queue, `pending` or more. Fails if the kernel takes none.
    fn enter(&self, pending: u32) -> io::Result<()> {
        let mut taken = 0;
        loop {
            match self.ring.submit() {
                // Another thread has submitted the entries meanwhile.
                Ok(0) => return Ok(()),
                Ok(more) => taken += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if taken >= pending as usize {
                return Ok(());
            }
        }
    }

    /// Processes completions until the ring's completion queue is empty; returns their number. Does nothing
    /// if the caller is not the owner thread and the owner waits: then the owner processes them.
    pub(super) fn reap(&self, owner: bool) -> usize {
        let mut served = 0;
        loop {
            let mut batch = [(0, Completion { result: 0, big: 0 }); MAX_COMPLETIONS_TAKEN_AT_ONCE];
            let taken = self.take(&mut batch, owner);
            let Some(taken) = batch.get(..taken).filter(|taken| !taken.is_empty()) else { return served };
            let mut ended = 0;
            for (user_data, completion) in taken {
                if *user_data != WAKE_POLL_USER_DATA {
                    ended += 1;
                    // SAFETY: every user data but WAKE_POLL_USER_DATA is the address of a flight that `push` gave away. The
                    // kernel completes each flight once, so the flight is owned here again.
                    let flight =
                        unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(*user_data as usize)) };
                    self.finish_flight(flight, *completion);
                }
            }
            served += taken.len();
            self.note_completed(ended, owner);
        }
    }

    /// Takes completions out of the ring's completion queue.
    fn take(&self, batch: &mut [(u64, Completion); MAX_COMPLETIONS_TAKEN_AT_ONCE], owner: bool) -> usize {
        let cq = self.cq.lock();
        if cq.by_owner && !owner {
            return 0;
        }
        // SAFETY: `cq` is locked, so this is the only view of the completion queue.
        let queue = unsafe { self.ring.completion_shared() };
        let mut taken = 0;
        for (slot, entry) in batch.iter_mut().zip(queue) {
            let completion = Completion { result: entry.result(), big: entry.big_cqe()[0] };
            *slot = (entry.user_data(), completion);
            taken += 1;
            if entry.user_data() == WAKE_POLL_USER_DATA && !cqueue::more(entry.flags()) {
                self.wake_unarmed.store(true, Ordering::Release);
            }
        }
        taken
    }

    fn finish_flight(&self, mut flight: Box<Flight>, completion: Completion) {
        if flight.is_undone(completion) || flight.lower_refused_priority(completion) {
            self.sq.lock().backlog.push_back(flight);
        } else if flight.is_unsupported(completion) {
            let (request, finish) = flight.into_request();
            self.threads.submit(request, finish);
        } else {
            flight.complete(completion);
        }
    }

    /// Subtracts completed requests from those in flight, and starts queued ones.
    fn note_completed(&self, count: u32, owner: bool) {
        let mut sq = self.sq.lock();
        sq.in_flight -= count;
        while sq.in_flight < MAX_IN_FLIGHT
            && let Some(flight) = sq.backlog.pop_front()
            && self.push(&mut sq, flight)
        {}
        if sq.retired && sq.is_idle() {
            self.drained.notify_all();
        }
        // The owner thread may already sleep, and submits only entries that it added itself.
        if !(owner && sq.held_back) {
            self.submit_and_unlock(sq);
        }
    }

    /// Called when the owner thread ends. The reaper processes the remaining completions while the owner waits for
    /// them, because a callback must not run on an ending thread.
    pub(super) fn retire(&self) {
        self.hand_completions_to_reaper();
        let mut sq = self.sq.lock();
        sq.retired = true;
        if !sq.is_idle() {
            self.tell_reaper();
        }
        while !sq.is_idle() {
            self.drained.wait(&mut sq);
        }
        drop(sq);
        self.reaper.remove(self);
    }

    /// Hands the ring's completions to the reaper and submits held-back entries.
    fn hand_completions_to_reaper(&self) {
        let mut cq = self.cq.lock();
        cq.by_owner = false;
        // SAFETY: `cq` is locked, so this is the only view of the completion queue.
        unsafe { self.ring.completion_shared() }.enable_eventfd();
        drop(cq);
        let mut sq = self.sq.lock();
        sq.held_back = false;
        self.submit_and_unlock(sq);
    }

    /// Submits the ring's poll of the eventfd `wake`, if no poll is active.
    ///
    /// True if the owner thread may sleep.
    fn arm_wake(&self, sq: &mut Submissions) -> bool {
        if !self.wake_unarmed.swap(false, Ordering::AcqRel) {
            return true;
        }
        let poll = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).multi(true);
        let armed = self.push_entry(sq, &squeue::Entry128::from(poll.build()).user_data(WAKE_POLL_USER_DATA));
        self.wake_unarmed.store(!armed, Ordering::Release);
        armed
    }
}

impl ReapedRing for ThreadRing {
    fn id(&self) -> u64 {
        self.id
    }

    fn notify(&self) -> &OwnedFd {
        &self.notify
    }

    fn reap_for_owner(&self) {
        self.reap(false);
    }

    fn submit_stuck_entries(&self) -> bool {
        let submitted = self.enter(u32::MAX).is_ok();
        if submitted {
            self.note_completed(0, false);
        }
        submitted
    }

    fn tell_reaper(&self) {
        let _signalled = rustix::io::write(&self.notify, &1u64.to_ne_bytes());
    }
}

impl Reactor for ThreadRing {
    fn poll(&self) -> bool {
        let mut cq = self.cq.lock();
        if !cq.by_owner {
            cq.by_owner = true;
            // SAFETY: `cq` is locked, so this is the only view of the completion queue.
            unsafe { self.ring.completion_shared() }.disable_eventfd();
            drop(cq);
            self.sq.lock().held_back = true;
        } else {
            drop(cq);
        }
        self.reap(true) > 0
    }

    fn wait(&self, timeout: Option<Duration>) {
        let mut sq = self.sq.lock();
        if timeout == Some(Duration::ZERO) || !self.arm_wake(&mut sq) {
            return self.submit_and_unlock(sq);
        }
        sq.pending = 0;
        drop(sq);
        // One system call submits the ring's entries and sleeps.
        let ended = match timeout {
            Some(timeout) => {
                let timeout = types::Timespec::from(timeout);
                let until = types::SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &until)
            }
            None => self.ring.submit_and_wait(1),
        };
        match ended.map_err(|error| error.raw_os_error()) {
            // The kernel may have taken only a part of the submitted entries.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR)) => {
                let _sq = self.sq.lock();
                // SAFETY: `sq` is locked, so this is the only view of the submission queue.
                if !unsafe { self.ring.submission_shared() }.is_empty() {
                    self.reaper.retry(self.id);
                }
            }
            // The kernel has no memory for the entries until a request completes.
            Err(_) => self.reaper.retry(self.id),
        }
    }

    fn leave(&self) {
        if self.cq.lock().by_owner {
            self.hand_completions_to_reaper();
            // Processes completions that arrived while the eventfd was disabled.
            self.reap(true);
        }
    }

    fn interrupt(&self) {
        let _wakes = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
