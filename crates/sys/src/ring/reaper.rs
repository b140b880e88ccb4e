//! The thread that reaps for those who do not wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};

use crate::ring::lane::Lane;

/// How long the kernel is left alone when it had no memory for a submission.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Waits for the lanes' eventfds, and serves a lane whose eventfd says that something has completed.
pub(super) struct Reaper {
    epoll: OwnedFd,
    lanes: Mutex<HashMap<u64, Arc<Lane>>>,
    /// Lanes with entries that the kernel did not take.
    stuck: Mutex<Vec<u64>>,
    ids: AtomicU64,
}

/// The process's reaper; it lives as long as the process.
static SHARED: Mutex<Option<&'static Reaper>> = Mutex::new(None);

impl Reaper {
    /// The process's reaper, started when first asked for.
    pub(super) fn shared() -> io::Result<&'static Reaper> {
        let mut shared = SHARED.lock();
        if let Some(reaper) = *shared {
            return Ok(reaper);
        }
        let reaper: &'static Reaper = Box::leak(Box::new(Reaper {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            lanes: Mutex::default(),
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

    pub(super) fn add(&self, lane: &Arc<Lane>) -> io::Result<()> {
        self.lanes.lock().insert(lane.id, Arc::clone(lane));
        // By edges: nobody reads the eventfd, its events only tell to look.
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let added = epoll::add(&self.epoll, &lane.notify, epoll::EventData::new_u64(lane.id), events);
        if added.is_err() {
            self.lanes.lock().remove(&lane.id);
        }
        Ok(added?)
    }

    pub(super) fn remove(&self, lane: &Lane) {
        let _gone = epoll::delete(&self.epoll, &lane.notify);
        self.lanes.lock().remove(&lane.id);
    }

    /// Has a lane's submissions passed on again later: the kernel did not take them.
    pub(super) fn retry(&self, id: u64) {
        let mut stuck = self.stuck.lock();
        if !stuck.contains(&id) {
            stuck.push(id);
        }
        drop(stuck);
        if let Some(lane) = self.lane(id) {
            lane.tell_reaper();
        }
    }

    fn lane(&self, id: u64) -> Option<Arc<Lane>> {
        self.lanes.lock().get(&id).cloned()
    }

    fn serve(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let stuck = !self.stuck.lock().is_empty();
            let timeout = stuck.then_some(RETRY);
            // An error is an interruption: the kernel uses this thread to complete what this thread submitted.
            let _waited =
                epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            for event in events.drain(..) {
                if let Some(lane) = self.lane(event.data.u64()) {
                    lane.reap(false);
                }
            }
            if stuck {
                let mut stuck = std::mem::take(&mut *self.stuck.lock());
                stuck.retain(|id| self.lane(*id).is_some_and(|lane| !lane.resume()));
                self.stuck.lock().extend(stuck);
            }
        }
    }
}
