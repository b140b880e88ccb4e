//! The engine without io_uring: blocking system calls on helper threads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::blocking::perform;
use crate::request::call_back;
use crate::{Finish, Request};

/// Largest number of helper threads, and so of requests in flight; further requests are queued.
pub(crate) const MAX_HELPER_THREADS: usize = 64;
/// A helper thread that is idle for this long ends, except the first one.
const IDLE_HELPER_LIFETIME: Duration = Duration::from_secs(10);

/// Helper threads, started on demand.
///
/// The queue is unbounded; callers bound the number of their requests in flight.
#[derive(Default)]
pub(crate) struct Threads {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Request, Finish)>,
    idle: usize,
    helpers: usize,
}

impl Threads {
    /// The process's pool of helper threads, started on first use.
    pub(crate) fn shared() -> io::Result<Arc<Threads>> {
        static SHARED: Mutex<Option<Arc<Threads>>> = Mutex::new(None);
        let mut shared = SHARED.lock();
        if let Some(threads) = &*shared {
            return Ok(Arc::clone(threads));
        }
        Ok(Arc::clone(shared.insert(Threads::start()?)))
    }

    /// A pool with one helper thread. Fails if no thread can be started.
    fn start() -> io::Result<Arc<Threads>> {
        let threads = Arc::new(Threads::default());
        threads.queue.lock().helpers = 1;
        threads.spawn(true)?;
        Ok(threads)
    }

    pub(crate) fn submit(self: &Arc<Threads>, request: Request, finish: Finish) {
        let mut queue = self.queue.lock();
        queue.jobs.push_back((request, finish));
        // A helper thread that was woken but has not run yet still counts as idle, and its job as queued.
        let more = queue.jobs.len() > queue.idle && queue.helpers < MAX_HELPER_THREADS;
        if more {
            queue.helpers += 1;
        }
        drop(queue);
        if !more {
            self.work.notify_one();
        } else if let Err(error) = self.spawn(false) {
            self.queue.lock().helpers -= 1;
            tracing::warn!(%error, "no further helper thread: operations wait for those there are");
        }
    }

    fn spawn(self: &Arc<Threads>, stays: bool) -> io::Result<()> {
        let mine = Arc::clone(self);
        std::thread::Builder::new().name("furrow-io".into()).spawn(move || mine.serve(stays)).map(drop)
    }

    fn serve(&self, stays: bool) {
        let mut queue = self.queue.lock();
        loop {
            if let Some((request, finish)) = queue.jobs.pop_front() {
                drop(queue);
                call_back(finish, perform(request));
                queue = self.queue.lock();
                continue;
            }
            queue.idle += 1;
            let timed_out = self.work.wait_for(&mut queue, IDLE_HELPER_LIFETIME).timed_out();
            queue.idle -= 1;
            if timed_out && queue.jobs.is_empty() && !stays {
                queue.helpers -= 1;
                return;
            }
        }
    }
}
