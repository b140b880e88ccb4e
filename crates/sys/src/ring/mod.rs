//! The engine on io_uring: one ring for each thread that submits.
//!
//! ```text
//!   thread ── submit ──> its ring ──────────> kernel
//!     │                        │
//!     │ waits (RealDriver)     │ completions
//!     └── reaps its own <──────┤
//!                              └──eventfd──> reaper thread: where the owner does not wait
//! ```
//!
//! While the owner thread waits, the ring's eventfd is disabled and the owner processes completions; at all other
//! times the reaper thread does.

pub(crate) mod bare;
mod flight;
pub(crate) mod probe;
mod reaper;
mod thread_ring;

use std::cell::{Cell, OnceCell};
use std::io;
use std::sync::Arc;

use crate::ring::flight::Flight;
use crate::ring::reaper::Reaper;
use crate::ring::thread_ring::ThreadRing;
use crate::threads::Threads;
use crate::{Finish, Request};

/// The engine on io_uring. A process has one; each thread has its own ring.
pub(crate) struct Ring {
    reaper: &'static Reaper,
    /// Helper threads for blocking calls, and for threads without a ring.
    threads: Arc<Threads>,
}

/// A thread's ring. Dropped when the thread ends; the drop waits for all requests in flight,
/// because the kernel would cancel some of them otherwise.
struct Slot {
    ring: OnceCell<Option<Arc<ThreadRing>>>,
    /// True while the thread creates its ring.
    making: Cell<bool>,
}

thread_local! {
    static SLOT: Slot = const { Slot { ring: OnceCell::new(), making: Cell::new(false) } };
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(Some(ring)) = self.ring.get() {
            units::remove_reactor();
            ring.retire();
        }
    }
}

impl Ring {
    /// The io_uring engine, if this kernel supports and permits it. The error names what the kernel lacks.
    pub(crate) fn start(threads: Arc<Threads>) -> io::Result<Ring> {
        let reaper = Reaper::shared()?;
        probe::probe()?;
        Ok(Ring { reaper, threads })
    }

    pub(crate) fn submit(&self, request: Request, finish: Finish) {
        let flight = match Flight::new(request, finish) {
            Ok(flight) => flight,
            // Runs a blocking call on a helper thread. A request that the helper does not take fails.
            Err((request, finish)) => return self.threads.submit(request, finish),
        };
        let mut flight = Some(flight);
        // A thread that is ending has no ring any more.
        let _torn_down = SLOT.try_with(|slot| {
            if let Some(ring) = self.ring(slot)
                && let Some(flight) = flight.take()
            {
                ring.start(flight);
            }
        });
        if let Some(flight) = flight {
            let (request, finish) = flight.into_request();
            self.threads.submit(request, finish);
        }
    }

    fn ring<'a>(&self, slot: &'a Slot) -> Option<&'a Arc<ThreadRing>> {
        if slot.making.replace(true) && slot.ring.get().is_none() {
            return None;
        }
        let ring = slot.ring.get_or_init(|| match ThreadRing::new(self.reaper, Arc::clone(&self.threads)) {
            Ok(ring) => {
                units::install_reactor(Arc::clone(&ring) as Arc<dyn units::Reactor>);
                Some(ring)
            }
            Err(error) => {
                tracing::warn!(%error, "no ring for this thread: its operations go through helper threads");
                None
            }
        });
        ring.as_ref()
    }
}
