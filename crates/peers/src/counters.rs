//! Counters of a network.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a network since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NetworkCounters {
    /// Messages that were written to connections.
    pub messages_sent: u64,
    /// Frames that were written to connections.
    pub frames_sent: u64,
    /// Bytes of frames that were written to connections, before TLS.
    pub bytes_sent: u64,
    /// Messages that the receiver got.
    pub messages_received: u64,
    /// Messages that were given up: their replica's node or its address is not known, their queue was full, or their connection failed.
    pub messages_dropped: u64,
    /// Connections of others that were closed because of a frame that was refused, or their certificate.
    pub frames_refused: u64,
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters as they grow.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) messages_sent: Counter,
    pub(crate) frames_sent: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) messages_received: Counter,
    pub(crate) messages_dropped: Counter,
    pub(crate) frames_refused: Counter,
}

impl Counters {
    pub(crate) fn get(&self) -> NetworkCounters {
        NetworkCounters {
            messages_sent: self.messages_sent.get(),
            frames_sent: self.frames_sent.get(),
            bytes_sent: self.bytes_sent.get(),
            messages_received: self.messages_received.get(),
            messages_dropped: self.messages_dropped.get(),
            frames_refused: self.frames_refused.get(),
        }
    }
}
