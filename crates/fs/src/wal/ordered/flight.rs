//! A log's operations in flight. They belong to the log and not to the tasks that wait: a task that is dropped
//! loses nothing.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use units::sync::Event;
use units::{Instant, Lba};
use zoned::{Done, Io};

/// One operation.
#[derive(Debug)]
struct Flight<T> {
    io: Io,
    tag: T,
    signal: Arc<Signal>,
    /// The signal is set up: there is no use in looking before it comes.
    armed: bool,
}

/// A flush of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushing {
    /// Bytes of the stream, and sequences, that were acknowledged before it was sent.
    pub(super) bytes: u64,
    pub(super) sequence: u64,
}

/// What an operation is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// Which entry.
    pub(super) sequence: u64,
    /// Which part of it.
    pub(super) part: usize,
    /// Where it goes, if it is a write.
    pub(super) write_at: Option<Lba>,
    /// It was all there was to send.
    pub(super) single: bool,
    /// When it was sent.
    pub(super) since: Instant,
}

/// Says that an operation has moved.
#[derive(Debug)]
struct Signal {
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

/// All of them, oldest first, and the flush if there is one.
#[derive(Debug, Default)]
pub(super) struct Flights {
    flying: VecDeque<Flight<Tag>>,
    flush: Option<Flight<Flushing>>,
    spare: Vec<Arc<Signal>>,
    moved: Event,
}

impl Flights {
    /// Happens when an operation whose end somebody waits for is over.
    pub(super) fn moved(&self) -> &Event {
        &self.moved
    }

    pub(super) fn len(&self) -> usize {
        self.flying.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    pub(super) fn add(&mut self, io: Io, tag: Tag) {
        let signal = self.signal();
        self.flying.push_back(Flight { io, tag, signal, armed: false });
    }

    pub(super) fn add_flush(&mut self, io: Io, tag: Flushing) {
        let signal = self.signal();
        self.flush = Some(Flight { io, tag, signal, armed: false });
    }

    pub(super) fn flushes(&self) -> bool {
        self.flush.is_some()
    }

    fn signal(&mut self) -> Arc<Signal> {
        self.spare
            .pop()
            .unwrap_or_else(|| Arc::new(Signal { hit: AtomicBool::new(false), moved: self.moved.clone() }))
    }

    /// The flush, if it is over.
    pub(super) fn flushed(&mut self, wait: bool) -> Option<(Flushing, zoned::Result<Done>)> {
        let Poll::Ready(result) = self.flush.as_mut()?.look(wait, true) else { return None };
        let flight = self.flush.take().expect("it was just looked at");
        self.spare.push(flight.signal);
        Some((flight.tag, result))
    }

    /// An operation that is over, if there is one. `wait`: from now on [`Flights::moved`] happens when any ends.
    pub(super) fn next(&mut self, wait: bool) -> Option<(Tag, zoned::Result<Done>)> {
        let mut at = 0;
        while let Some(flight) = self.flying.get_mut(at) {
            match flight.look(wait, at == 0) {
                Poll::Ready(result) => {
                    let flight = self.flying.remove(at).expect("it was just looked at");
                    self.spare.push(flight.signal);
                    return Some((flight.tag, result));
                }
                // Those behind it hardly end earlier: not worth the look while nobody waits.
                Poll::Pending if !wait && !flight.armed => return None,
                Poll::Pending => at += 1,
            }
        }
        None
    }
}

impl<T> Flight<T> {
    /// `first`: looked at even before its signal, which may be late.
    fn look(&mut self, wait: bool, first: bool) -> Poll<zoned::Result<Done>> {
        if self.armed && !self.signal.hit.swap(false, Ordering::AcqRel) && !first {
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
