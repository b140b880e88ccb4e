//! A log's device operations in flight. The log owns them: dropping a task that waits for one cancels none.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use units::sync::Event;
use units::{Instant, Lba};
use zoned::{Done, Io};

/// One operation in flight.
#[derive(Debug)]
struct Operation<T> {
    io: Io,
    tag: T,
    signal: Arc<Signal>,
    /// True once the device wakes `signal`: from then on a poll before the signal is useless.
    armed: bool,
}

/// The end of the log when a device flush was submitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushTag {
    /// Bytes of the stream that were acknowledged by then.
    pub(super) bytes: u64,
    /// Every sequence below this was acknowledged by then.
    pub(super) sequence: u64,
}

/// The part of an entry that an operation carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartTag {
    /// The entry's sequence.
    pub(super) sequence: u64,
    /// The part's number within the entry.
    pub(super) part: usize,
    /// The address of a write; `None` for an append.
    pub(super) write_at: Option<Lba>,
    /// True if the log had nothing else to send.
    pub(super) single: bool,
    /// When the operation was submitted.
    pub(super) since: Instant,
}

/// The waker of an operation.
#[derive(Debug)]
struct Signal {
    /// The device has woken this operation since its last poll.
    hit: AtomicBool,
    moved: Event,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.hit.store(true, Ordering::Release);
        self.moved.notify();
    }
}

/// A log's operations in flight: parts of entries, oldest first, and at most one flush.
#[derive(Debug, Default)]
pub(super) struct Operations {
    parts: VecDeque<Operation<PartTag>>,
    flush: Option<Operation<FlushTag>>,
    /// Signals to use again.
    spare: Vec<Arc<Signal>>,
    moved: Event,
}

impl Operations {
    /// The event that is notified when an operation ends that was polled with `wait`.
    pub(super) fn moved(&self) -> &Event {
        &self.moved
    }

    /// The number of parts in flight.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if no part is in flight; a flush may be.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn add(&mut self, io: Io, tag: PartTag) {
        let signal = self.signal();
        self.parts.push_back(Operation { io, tag, signal, armed: false });
    }

    pub(super) fn add_flush(&mut self, io: Io, tag: FlushTag) {
        let signal = self.signal();
        self.flush = Some(Operation { io, tag, signal, armed: false });
    }

    /// True while a flush is in flight.
    pub(super) fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    fn signal(&mut self) -> Arc<Signal> {
        self.spare
            .pop()
            .unwrap_or_else(|| Arc::new(Signal { hit: AtomicBool::new(false), moved: self.moved.clone() }))
    }

    /// Takes the flush if it has ended. `wait` as in [`Operations::take_ended`].
    pub(super) fn take_ended_flush(&mut self, wait: bool) -> Option<(FlushTag, zoned::Result<Done>)> {
        let Poll::Ready(result) = self.flush.as_mut()?.poll(wait, true) else { return None };
        let ended = self.flush.take().expect("the flush was just polled");
        self.spare.push(ended.signal);
        Some((ended.tag, result))
    }

    /// Takes a part's operation that has ended. `wait`: notify [`Operations::moved`] from now on when an operation ends.
    pub(super) fn take_ended(&mut self, wait: bool) -> Option<(PartTag, zoned::Result<Done>)> {
        let mut at = 0;
        while let Some(operation) = self.parts.get_mut(at) {
            match operation.poll(wait, at == 0) {
                Poll::Ready(result) => {
                    let ended = self.parts.remove(at).expect("the operation was just polled");
                    self.spare.push(ended.signal);
                    return Some((ended.tag, result));
                }
                // Younger operations rarely end earlier: polling them is worth its cost only for a task that waits.
                Poll::Pending if !wait && !operation.armed => return None,
                Poll::Pending => at += 1,
            }
        }
        None
    }
}

impl<T> Operation<T> {
    /// Polls the operation if its signal came. `oldest`: polls without the signal too, because the signal may be late.
    fn poll(&mut self, wait: bool, oldest: bool) -> Poll<zoned::Result<Done>> {
        if self.armed && !self.signal.hit.swap(false, Ordering::AcqRel) && !oldest {
            return Poll::Pending;
        }
        let waker;
        let waker = if wait || self.armed {
            self.armed = true;
            waker = Waker::from(Arc::clone(&self.signal));
            &waker
        } else {
            Waker::noop()
        };
        Pin::new(&mut self.io).poll(&mut Context::from_waker(waker))
    }
}
