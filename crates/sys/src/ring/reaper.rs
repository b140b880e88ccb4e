//! The reaper: the thread that processes I/O completions of threads that do not wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};

/// Pause before entries are submitted again for which the kernel had no memory.
const RETRY_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A thread's ring, as far as the reaper uses it.
pub(super) trait ReapedRing: Send + Sync {
    /// Number of the ring.
    fn id(&self) -> u64;

    /// The eventfd that the kernel signals for each completion of the ring.
    fn notify(&self) -> &OwnedFd;

    /// Processes the ring's completions, unless the owner thread waits and does so itself.
    fn reap_for_owner(&self);

    /// Submits again the entries that the kernel had no memory for; true if the kernel took them.
    fn submit_stuck_entries(&self) -> bool;

    /// Signals the ring's eventfd `notify`, so that the reaper checks the ring.
    fn tell_reaper(&self);
}

/// Waits for the rings' eventfds and processes the completions of signalled rings.
pub(super) struct Reaper {
    epoll: OwnedFd,
    rings: Mutex<HashMap<u64, Arc<dyn ReapedRing>>>,
    /// Lanes with entries for which the kernel had no memory.
    stuck: Mutex<Vec<u64>>,
    ids: AtomicU64,
}

/// The reaper of this process, which lives until the process ends.
static SHARED: Mutex<Option<&'static Reaper>> = Mutex::new(None);

impl Reaper {
    /// The reaper of this process, started on first use.
    pub(super) fn shared() -> io::Result<&'static Reaper> {
        let mut shared = SHARED.lock();
        if let Some(reaper) = *shared {
            return Ok(reaper);
        }
        let reaper: &'static Reaper = Box::leak(Box::new(Reaper {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            rings: Mutex::default(),
            stuck: Mutex::default(),
            ids: AtomicU64::new(0),
        }));
        std::thread::Builder::new().name("furrow-reaper".into()).spawn(|| reaper.serve())?;
        *shared = Some(reaper);
        Ok(reaper)
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add(&self, ring: Arc<dyn ReapedRing>) -> io::Result<()> {
        self.rings.lock().insert(ring.id(), Arc::clone(&ring));
        // The eventfd is polled edge-triggered, because the reaper never reads it.
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let added = epoll::add(&self.epoll, ring.notify(), epoll::EventData::new_u64(ring.id()), events);
        if added.is_err() {
            self.rings.lock().remove(&ring.id());
        }
        Ok(added?)
    }

    pub(super) fn remove(&self, ring: &dyn ReapedRing) {
        let _gone = epoll::delete(&self.epoll, ring.notify());
        self.rings.lock().remove(&ring.id());
    }

    /// Schedules another attempt to submit a ring's entries.
    pub(super) fn retry(&self, id: u64) {
        let mut stuck = self.stuck.lock();
        if !stuck.contains(&id) {
            stuck.push(id);
        }
        drop(stuck);
        if let Some(ring) = self.ring(id) {
            ring.tell_reaper();
        }
    }

    fn ring(&self, id: u64) -> Option<Arc<dyn ReapedRing>> {
        self.rings.lock().get(&id).cloned()
    }

    fn serve(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let stuck = !self.stuck.lock().is_empty();
            let timeout = stuck.then_some(RETRY_PAUSE);
            // A wait that a signal interrupted is repeated.
            let _waited =
                epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            for event in events.drain(..) {
                if let Some(ring) = self.ring(event.data.u64()) {
                    ring.reap_for_owner();
                }
            }
            if stuck {
                let mut stuck = std::mem::take(&mut *self.stuck.lock());
                stuck.retain(|id| self.ring(*id).is_some_and(|ring| !ring.submit_stuck_entries()));
                self.stuck.lock().extend(stuck);
            }
        }
    }
}
