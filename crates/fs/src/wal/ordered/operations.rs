//! A log's device operations in flight. The log owns the operations: dropping a task that waits for one
//! cancels none.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use units::sync::Event;
use units::{Instant, Lba, ZoneId};
use zoned::{Done, Io};

/// A device operation of a log in flight.
#[derive(Debug)]
struct Operation<T> {
    io: Io,
    tag: T,
    signal: Arc<Signal>,
    /// True once the device wakes `signal`: from then on a poll before the signal is useless.
    armed: bool,
}

/// The entries that a device flush or a durable write makes durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurableTag {
    /// Bytes of the log's stream that are durable then.
    pub(super) bytes: u64,
    /// Every entry below this sequence is durable then.
    pub(super) sequence: u64,
}

/// The part of a log entry that a device operation carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartTag {
    /// The sequence of the entry that the operation carries.
    pub(super) sequence: u64,
    /// The number of the carried part within its entry.
    pub(super) part: usize,
    /// The zone that the operation goes to.
    pub(super) zone: ZoneId,
    /// The address that the operation writes to; `None` for an append.
    pub(super) write_at: Option<Lba>,
    /// True if the log had nothing else to send when the operation was submitted.
    pub(super) single: bool,
    /// What a durable write makes durable; `None` for a write that the device may keep in its cache.
    pub(super) makes_durable: Option<DurableTag>,
    /// The time at which the operation was submitted.
    pub(super) since: Instant,
}

/// The waker with which a log polls a device operation.
#[derive(Debug)]
struct Signal {
    /// True if the device has woken the operation since its last poll.
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
    flush: Option<Operation<DurableTag>>,
    /// Signals of ended operations, kept for new ones.
    spare: Vec<Arc<Signal>>,
    moved: Event,
}

impl Operations {
    /// The event that is notified when an operation ends that was polled with `wait`.
    pub(super) fn moved(&self) -> &Event {
        &self.moved
    }

    /// The number of entry parts in flight.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if no entry part is in flight; a flush may be.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn add(&mut self, io: Io, tag: PartTag) {
        let signal = self.signal();
        self.parts.push_back(Operation { io, tag, signal, armed: false });
    }

    pub(super) fn add_flush(&mut self, io: Io, tag: DurableTag) {
        let signal = self.signal();
        self.flush = Some(Operation { io, tag, signal, armed: false });
    }

    /// True while a device flush of the log is in flight.
    pub(super) fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// True while a durable write of the log is in flight.
    pub(super) fn makes_durable(&self) -> bool {
        // A durable write is submitted while nothing else is in flight: it is the oldest.
        self.parts.front().is_some_and(|part| part.tag.makes_durable.is_some())
    }

    fn signal(&mut self) -> Arc<Signal> {
        self.spare
            .pop()
            .unwrap_or_else(|| Arc::new(Signal { hit: AtomicBool::new(false), moved: self.moved.clone() }))
    }

    /// Takes the log's flush if it has ended. `wait` as in [`Operations::take_ended`].
    pub(super) fn take_ended_flush(&mut self, wait: bool) -> Option<(DurableTag, zoned::Result<Done>)> {
        let Poll::Ready(result) = self.flush.as_mut()?.poll(wait, true) else { return None };
        let ended = self.flush.take().expect("the flush was just polled");
        self.spare.push(ended.signal);
        Some((ended.tag, result))
    }

    /// Takes an ended operation that carried a part. `wait`: notify [`Operations::moved`] when an operation
    /// ends from now on.
    pub(super) fn take_ended(&mut self, wait: bool) -> Option<(PartTag, zoned::Result<Done>)> {
        let mut at = 0;
        while let Some(operation) = self.parts.get_mut(at) {
            match operation.poll(wait, at == 0) {
                Poll::Ready(result) => {
                    let ended = self.parts.remove(at).expect("the operation was just polled");
                    self.spare.push(ended.signal);
                    return Some((ended.tag, result));
                }
                // Younger operations rarely end before the oldest: polling them is worth its cost only for a
                // task that waits.
                Poll::Pending if !wait && !operation.armed => return None,
                Poll::Pending => at += 1,
            }
        }
        None
    }
}

impl<T> Operation<T> {
    /// Polls the device operation if its signal came. `oldest`: polls without the signal too, because the
    /// signal may be late.
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
