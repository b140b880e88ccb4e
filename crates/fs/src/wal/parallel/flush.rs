//! Flushes that those who wait share.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use units::sync::Event;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::parallel::inner::Inner;

/// Who flushes, and how often it was done.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    state: Mutex<State>,
    changed: Event,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    /// The last one that is over.
    ended: u64,
    running: bool,
}

impl Inner {
    /// Returns when a flush is over that was submitted after the call: everything acknowledged before it is durable.
    pub(super) async fn make_durable(&self) -> Result<()> {
        self.check()?;
        if !self.volatile || self.rules.skips_flushes() {
            return Ok(());
        }
        let wanted = self.flusher.state.lock().begun + 1;
        loop {
            self.check()?;
            let seen = self.flusher.changed.version();
            let mine = {
                let mut state = self.flusher.state.lock();
                if state.ended >= wanted {
                    return Ok(());
                }
                let mine = !std::mem::replace(&mut state.running, true);
                state.begun += u64::from(mine);
                mine.then_some(state.begun)
            };
            match mine {
                Some(number) => self.flush_for_all(number).await?,
                None => self.flusher.changed.changed_since(seen).await,
            }
        }
    }

    async fn flush_for_all(&self, number: u64) -> Result<()> {
        let running = Running(&self.flusher);
        let low = self.tickets.low();
        match self.dev.flush().await {
            Ok(()) => {
                self.durable.fetch_max(low, Ordering::AcqRel);
                self.counters.flushes.fetch_add(1, Ordering::Relaxed);
                self.flusher.state.lock().ended = number;
                drop(running);
                Ok(())
            }
            Err(error) => {
                // Not a failure for good: what the cache held may be there when the log is opened again.
                let why =
                    "a flush failed: what it was to make durable may be there when the log is opened again";
                let error = Error::device("flush a parallel log", error);
                let unknown = Error::new(ErrorKind::Poisoned, "appending to a parallel log").because(why);
                Err(self.poison(unknown.caused_by(error)))
            }
        }
    }
}

/// A flush is on its way; whoever waits for it hears when it is not, also of a task that was dropped.
struct Running<'a>(&'a Flusher);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running = false;
        self.0.changed.notify();
    }
}
