//! Flushes of a parallel log's device, shared by all callers of `sync`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use units::sync::Event;
use zoned::ZonedDevice;

use crate::error::{Error, ErrorKind, Result};
use crate::rules::Rules;
use crate::wal::parallel::counters::Counters;
use crate::wal::parallel::health::Health;
use crate::wal::parallel::order::Order;

#[derive(Debug)]
pub(super) struct Durability {
    dev: Arc<dyn ZonedDevice>,
    /// The device has a volatile cache: an acknowledged write is not durable.
    pub(super) volatile: bool,
    /// Every ticket below this one is durable, if the device's cache is volatile.
    below: AtomicU64,
    flushes: Mutex<Flushes>,
    flushed: Event,
    order: Arc<Order>,
    health: Arc<Health>,
    counters: Arc<Counters>,
    rules: Rules,
}

/// The last device flush that began and the last one that ended. Flushes are numbered from 1.
#[derive(Debug, Default)]
struct Flushes {
    begun: u64,
    ended: u64,
    running: bool,
}

impl Durability {
    pub(super) fn new(
        dev: Arc<dyn ZonedDevice>,
        order: Arc<Order>,
        health: Arc<Health>,
        counters: Arc<Counters>,
        rules: Rules,
    ) -> Durability {
        Durability {
            volatile: dev.geometry().volatile_cache,
            dev,
            below: AtomicU64::new(order.first),
            flushes: Mutex::default(),
            flushed: Event::new(),
            order,
            health,
            counters,
            rules,
        }
    }

    /// Every ticket below the returned one is durable. `low`: the lowest open ticket; without a volatile
    /// cache every acknowledged ticket is durable.
    pub(super) fn below(&self, low: u64) -> u64 {
        if self.volatile { self.below.load(Ordering::Acquire) } else { low }
    }

    /// Returns once a device flush is over that was submitted after the call: everything acknowledged before
    /// the call is durable.
    pub(super) async fn make_durable(&self) -> Result<()> {
        self.health.check()?;
        if !self.volatile || self.rules.skips_flushes() {
            return Ok(());
        }
        let wanted = self.flushes.lock().begun + 1;
        loop {
            self.health.check()?;
            let seen = self.flushed.version();
            let mine = {
                let mut flushes = self.flushes.lock();
                if flushes.ended >= wanted {
                    return Ok(());
                }
                let mine = !std::mem::replace(&mut flushes.running, true);
                flushes.begun += u64::from(mine);
                mine.then_some(flushes.begun)
            };
            match mine {
                Some(number) => self.flush(number).await?,
                None => self.flushed.changed_since(seen).await,
            }
        }
    }

    async fn flush(&self, number: u64) -> Result<()> {
        let running = RunningFlush(self);
        let low = self.order.low();
        match self.dev.flush().await {
            Ok(()) => {
                self.below.fetch_max(low, Ordering::AcqRel);
                self.counters.flushes.fetch_add(1, Ordering::Relaxed);
                self.flushes.lock().ended = number;
                drop(running);
                Ok(())
            }
            Err(error) => {
                // The error's kind is Poisoned and not final: what the device's cache held may be on the
                // medium at the next opening.
                let why =
                    "a flush failed: what it was to make durable may be there when the log is opened again";
                let error = Error::device("flush a parallel log", error);
                let unknown = Error::new(ErrorKind::Poisoned, "appending to a parallel log").because(why);
                Err(self.health.poison(unknown.caused_by(error)))
            }
        }
    }
}

/// A device flush in flight. Dropping it, also with a task that is dropped, lets a waiting caller flush.
struct RunningFlush<'a>(&'a Durability);

impl Drop for RunningFlush<'_> {
    fn drop(&mut self) {
        self.0.flushes.lock().running = false;
        self.0.flushed.notify();
    }
}
