//! A thread's ring.

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
use crate::ring::reaper::Reaper;
use crate::threads::Threads;

/// Entries of the submission queue. A full one is passed on at once, so this bounds only what goes in one call.
const SUBMISSIONS: u32 = 64;
/// Entries of the completion queue: 32 bytes each.
const COMPLETIONS: u32 = 1024;
/// In flight on one ring at most; the rest waits in the lane. As many completions fit the queue, together with those
/// of the wake-ups, so the queue never overflows: what the kernel keeps of an overflow, it tells nobody about.
const MAX_IN_FLIGHT: u32 = COMPLETIONS - 24;
/// Completions that are taken at once, under the lock.
const BATCH: usize = 32;
/// The user data of the poll for wake-ups. No flight has this address.
const WAKE: u64 = 1;

pub(super) type Uring = IoUring<squeue::Entry128, cqueue::Entry32>;

/// A ring, its owner and its operations in flight.
///
/// Any thread may reap and submit: `sq` and `cq` guard the two queues. Finishes run outside both.
pub(super) struct Lane {
    ring: Uring,
    sq: Mutex<Submissions>,
    cq: Mutex<Reaping>,
    /// Ends the owner's sleep in the kernel: the ring polls it.
    wake: OwnedFd,
    /// Tells the reaper of completions.
    pub(super) notify: OwnedFd,
    /// The poll for `wake` is over, and must be asked for again.
    wake_unarmed: AtomicBool,
    drained: Condvar,
    threads: Arc<Threads>,
    reaper: &'static Reaper,
    pub(super) id: u64,
}

#[derive(Default)]
struct Submissions {
    in_flight: u32,
    /// Entries in the queue that the kernel has not been told of.
    pending: u32,
    /// The owner waits: it passes on what is pending itself.
    held_back: bool,
    /// The owner is gone, or about to go.
    retired: bool,
    /// What waits for a place in flight. It has no bound of its own: those who submit have theirs.
    backlog: std::collections::VecDeque<Box<Flight>>,
}

impl Submissions {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.backlog.is_empty()
    }
}

#[derive(Default)]
struct Reaping {
    /// The owner reaps, and the eventfd is off.
    by_owner: bool,
}

/// A ring, for whichever thread.
pub(super) fn build() -> io::Result<Uring> {
    Uring::builder().setup_cqsize(COMPLETIONS).setup_submit_all().build(SUBMISSIONS)
}

impl Lane {
    /// A ring for the calling thread.
    pub(super) fn new(reaper: &'static Reaper, threads: Arc<Threads>) -> io::Result<Arc<Lane>> {
        let ring = build()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (wake, notify) = (eventfd(0, flags)?, eventfd(0, flags)?);
        ring.submitter().register_eventfd(notify.as_raw_fd())?;
        let lane = Arc::new(Lane {
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
        reaper.add(&lane)?;
        Ok(lane)
    }

    /// Starts an operation, or puts it where it starts when others have ended.
    pub(super) fn start(&self, flight: Box<Flight>) {
        let mut sq = self.sq.lock();
        if sq.in_flight >= MAX_IN_FLIGHT || !sq.backlog.is_empty() {
            sq.backlog.push_back(flight);
            return;
        }
        self.push(&mut sq, flight);
        if !sq.held_back {
            self.pass_on(sq);
        }
    }

    /// Puts an operation into the queue, for which there is room in flight. Says whether the queue took it: it goes
    /// back to where it waits otherwise.
    fn push(&self, sq: &mut Submissions, mut flight: Box<Flight>) -> bool {
        let entry = flight.entry();
        let address = Box::into_raw(flight).expose_provenance() as u64;
        if self.push_entry(sq, &entry.user_data(address)) {
            sq.in_flight += 1;
            return true;
        }
        // SAFETY: nobody else has learned of the address that was given away above.
        sq.backlog
            .push_front(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(address as usize)) });
        self.reaper.retry(self.id);
        false
    }

    fn push_entry(&self, sq: &mut Submissions, entry: &squeue::Entry128) -> bool {
        // SAFETY: `sq` is locked, so this is the only view of the queue. What the entry refers to lives in its flight,
        // which nobody frees before its completion, or in this lane.
        let push = || unsafe { self.ring.submission_shared().push(entry) }.is_ok();
        // If it is full, the kernel takes what there is; it does not only when it has no memory.
        let mut pushed = push();
        if !pushed && self.enter(sq.pending).is_ok() {
            sq.pending = 0;
            pushed = push();
        }
        sq.pending += u32::from(pushed);
        pushed
    }

    /// Tells the kernel of what is pending. Without the lock: another thread that adds more meanwhile tells it again,
    /// or this call takes that too.
    fn pass_on(&self, mut sq: parking_lot::MutexGuard<'_, Submissions>) {
        let pending = std::mem::take(&mut sq.pending);
        drop(sq);
        if pending > 0 && self.enter(pending).is_err() {
            // No memory, as a rule. Whoever submits must not wait for it: the reaper tries again.
            self.reaper.retry(self.id);
        }
    }

    /// Has the kernel take the submission queue's entries, `pending` or more. An error if it does not take any.
    fn enter(&self, pending: u32) -> io::Result<()> {
        let mut taken = 0;
        loop {
            match self.ring.submit() {
                // None: another thread told the kernel of them.
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

    /// Tries again what the kernel had no memory for. Says whether that worked.
    pub(super) fn resume(&self) -> bool {
        let resumed = self.enter(u32::MAX).is_ok();
        if resumed {
            self.ended(0, false);
        }
        resumed
    }

    /// Serves what has completed, until the queue is empty. Says how much that was. Who is not the owner leaves to an
    /// owner that waits what is the owner's.
    pub(super) fn reap(&self, owner: bool) -> usize {
        let mut served = 0;
        loop {
            let mut batch = [(0, Completion { result: 0, big: 0 }); BATCH];
            let taken = self.take(&mut batch, owner);
            let Some(taken) = batch.get(..taken).filter(|taken| !taken.is_empty()) else { return served };
            let mut ended = 0;
            for (user_data, completion) in taken {
                if *user_data != WAKE {
                    ended += 1;
                    // SAFETY: every user data but WAKE is the address of a flight that `push` gave away, and the
                    // kernel completes each once, so the flight is ours again.
                    let flight =
                        unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(*user_data as usize)) };
                    self.land(flight, *completion);
                }
            }
            served += taken.len();
            self.ended(ended, owner);
        }
    }

    /// Takes completions out of the queue.
    fn take(&self, batch: &mut [(u64, Completion); BATCH], owner: bool) -> usize {
        let cq = self.cq.lock();
        if cq.by_owner && !owner {
            return 0;
        }
        // SAFETY: `cq` is locked, so this is the only view of the queue.
        let queue = unsafe { self.ring.completion_shared() };
        let mut taken = 0;
        for (slot, entry) in batch.iter_mut().zip(queue) {
            let completion = Completion { result: entry.result(), big: entry.big_cqe()[0] };
            *slot = (entry.user_data(), completion);
            taken += 1;
            if entry.user_data() == WAKE && !cqueue::more(entry.flags()) {
                self.wake_unarmed.store(true, Ordering::Release);
            }
        }
        taken
    }

    fn land(&self, flight: Box<Flight>, completion: Completion) {
        if flight.is_undone(completion) {
            self.sq.lock().backlog.push_back(flight);
        } else if flight.is_unsupported(completion) {
            let (request, finish) = flight.into_request();
            self.threads.submit(request, finish);
        } else {
            flight.complete(completion);
        }
    }

    /// So many operations have ended: others take their places.
    fn ended(&self, count: u32, owner: bool) {
        let mut sq = self.sq.lock();
        sq.in_flight -= count;
        while sq.in_flight < MAX_IN_FLIGHT
            && let Some(flight) = sq.backlog.pop_front()
            && self.push(&mut sq, flight)
        {}
        if sq.retired && sq.is_idle() {
            self.drained.notify_all();
        }
        // The owner may sleep already: it passes on only what it submitted itself.
        if !(owner && sq.held_back) {
            self.pass_on(sq);
        }
    }

    /// The owner goes: what is in flight is served by the reaper, and the owner stays until there is nothing left. A
    /// finish must not run on a thread that is being torn down.
    pub(super) fn retire(&self) {
        self.serve_elsewhere();
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

    /// Has the reaper look at this lane.
    pub(super) fn tell_reaper(&self) {
        let _told = rustix::io::write(&self.notify, &1u64.to_ne_bytes());
    }

    /// From now on the reaper serves, and nothing is held back.
    fn serve_elsewhere(&self) {
        let mut cq = self.cq.lock();
        cq.by_owner = false;
        // SAFETY: `cq` is locked, so this is the only view of the queue.
        unsafe { self.ring.completion_shared() }.enable_eventfd();
        drop(cq);
        let mut sq = self.sq.lock();
        sq.held_back = false;
        self.pass_on(sq);
    }

    /// Asks for the poll of the wake-ups, if it is not under way.
    ///
    /// Says whether the owner may sleep.
    fn arm_wake(&self, sq: &mut Submissions) -> bool {
        if !self.wake_unarmed.swap(false, Ordering::AcqRel) {
            return true;
        }
        let poll = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).multi(true);
        let armed = self.push_entry(sq, &squeue::Entry128::from(poll.build()).user_data(WAKE));
        self.wake_unarmed.store(!armed, Ordering::Release);
        armed
    }
}

impl Reactor for Lane {
    fn poll(&self) -> bool {
        let mut cq = self.cq.lock();
        if !cq.by_owner {
            cq.by_owner = true;
            // SAFETY: `cq` is locked, so this is the only view of the queue.
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
            return self.pass_on(sq);
        }
        sq.pending = 0;
        drop(sq);
        // One call for both: what is in the submission queue, and the sleep.
        let ended = match timeout {
            Some(timeout) => {
                let timeout = types::Timespec::from(timeout);
                let until = types::SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &until)
            }
            None => self.ring.submit_and_wait(1),
        };
        match ended.map_err(|error| error.raw_os_error()) {
            // It may have taken a part only.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR)) => {
                let _sq = self.sq.lock();
                // SAFETY: `sq` is locked, so this is the only view of the queue.
                if !unsafe { self.ring.submission_shared() }.is_empty() {
                    self.reaper.retry(self.id);
                }
            }
            // The kernel has no memory to take more: something in flight must end first.
            Err(_) => self.reaper.retry(self.id),
        }
    }

    fn leave(&self) {
        if self.cq.lock().by_owner {
            self.serve_elsewhere();
            // What came while the eventfd was off.
            self.reap(true);
        }
    }

    fn interrupt(&self) {
        let _wakes = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
