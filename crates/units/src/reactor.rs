//! Blocking and waking of a thread: the thread is parked, or waits in its own reactor.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// A source of completions that belongs to one thread, such as an io_uring. A thread with a reactor waits in the
/// reactor instead of being parked, so that a completion needs no other thread.
///
/// All methods except [`interrupt`](Reactor::interrupt) are called by [`RealDriver::park`](crate::RealDriver) only, on
/// the thread that installed the reactor.
pub trait Reactor: Send + Sync {
    /// Processes completions without sleeping; true if there were any. Until [`leave`](Reactor::leave) only
    /// this thread processes the reactor's completions, and the reactor may hold back submissions until the
    /// thread waits.
    fn poll(&self) -> bool;

    /// Submits held-back operations, then sleeps until a completion, the timeout or
    /// [`interrupt`](Reactor::interrupt). Processes no completions; may wake spuriously. With a timeout of
    /// zero it only submits.
    fn wait(&self, timeout: Option<Duration>);

    /// Ends the thread's waiting: submits held-back operations, and lets another thread process later
    /// completions.
    fn leave(&self);

    /// Ends the thread's current or next wait. Called from other threads.
    fn interrupt(&self);
}

/// Running, not woken.
const RUNNING: u8 = 0;
/// Woken while running.
const NOTIFIED: u8 = 1;
/// The thread sleeps in `thread::park`.
const PARKED: u8 = 2;
/// The thread sleeps in `Reactor::wait`.
const WAITING: u8 = 3;

/// Sleep state of a thread. A waker swaps `state` to NOTIFIED and ends the sleep that the previous state names. The
/// thread goes to sleep only from RUNNING, so a wake is either seen before the sleep or ends the sleep.
pub(crate) struct Sleep {
    state: AtomicU8,
    thread: Thread,
    reactor: OnceLock<Arc<dyn Reactor>>,
}

thread_local! {
    static SLEEP: RefCell<Option<Arc<Sleep>>> = const { RefCell::new(None) };
}

/// Installs `reactor` for the calling thread; false if the thread already has one.
pub fn install_reactor(reactor: Arc<dyn Reactor>) -> bool {
    Sleep::current().reactor.set(reactor).is_ok()
}

/// Removes the calling thread's reactor. Later waits park the thread.
pub fn remove_reactor() {
    // The thread-local may already be destroyed if the thread is ending.
    let _torn_down = SLEEP.try_with(|sleep| sleep.take());
}

impl Sleep {
    /// The sleep state of the calling thread.
    pub(crate) fn current() -> Arc<Sleep> {
        let made = SLEEP.try_with(|sleep| Arc::clone(sleep.borrow_mut().get_or_insert_with(Sleep::new)));
        // A thread that is ending may still wait, without a reactor.
        made.unwrap_or_else(|_| Sleep::new())
    }

    fn new() -> Arc<Sleep> {
        let thread = std::thread::current();
        Arc::new(Sleep { state: AtomicU8::new(RUNNING), thread, reactor: OnceLock::new() })
    }

    pub(crate) fn reactor(&self) -> Option<&dyn Reactor> {
        self.reactor.get().map(|reactor| &**reactor)
    }

    /// Wakes the thread, or prevents its next sleep.
    pub(crate) fn wake(&self) {
        match self.state.swap(NOTIFIED, Ordering::AcqRel) {
            PARKED => self.thread.unpark(),
            WAITING => {
                if let Some(reactor) = self.reactor.get() {
                    reactor.interrupt();
                }
            }
            _ => {}
        }
    }

    /// Clears earlier wakes of the thread; the caller checks its wait condition afterwards.
    pub(crate) fn rouse(&self) {
        if self.state.load(Ordering::Relaxed) != RUNNING {
            self.state.swap(RUNNING, Ordering::AcqRel);
        }
    }

    /// Sleeps until a wake, the timeout or a completion of the reactor. May wake spuriously.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let reactor = self.reactor();
        let asleep = if reactor.is_some() { WAITING } else { PARKED };
        let fell_asleep = self.state.compare_exchange(RUNNING, asleep, Ordering::AcqRel, Ordering::Acquire);
        if fell_asleep.is_ok() {
            match (reactor, timeout) {
                (Some(reactor), timeout) => reactor.wait(timeout),
                (None, Some(timeout)) => std::thread::park_timeout(timeout),
                (None, None) => std::thread::park(),
            }
        }
        self.state.swap(RUNNING, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sleep of {:?}", self.thread)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use parking_lot::{Condvar, Mutex};

    use super::*;
    use crate::{Driver, RealDriver, block_on, sleep_until, spawn};

    /// A test reactor that counts calls; its wait ends by an interrupt or the timeout.
    #[derive(Default)]
    struct Counting {
        waits: AtomicU32,
        interrupts: AtomicU32,
        held_back: AtomicBool,
        interrupted: Mutex<bool>,
        changed: Condvar,
    }

    impl Reactor for Counting {
        fn poll(&self) -> bool {
            self.held_back.store(true, Ordering::Relaxed);
            false
        }

        fn wait(&self, timeout: Option<Duration>) {
            self.waits.fetch_add(1, Ordering::Relaxed);
            let mut interrupted = self.interrupted.lock();
            if !*interrupted {
                let timeout = timeout.unwrap_or(Duration::from_secs(30));
                self.changed.wait_for(&mut interrupted, timeout);
            }
            *interrupted = false;
        }

        fn leave(&self) {
            self.held_back.store(false, Ordering::Relaxed);
        }

        fn interrupt(&self) {
            self.interrupts.fetch_add(1, Ordering::Relaxed);
            *self.interrupted.lock() = true;
            self.changed.notify_one();
        }
    }

    #[test]
    fn a_thread_with_a_reactor_waits_there_for_timers_and_for_other_threads() {
        let reactor = Arc::new(Counting::default());
        assert!(install_reactor(Arc::clone(&reactor) as Arc<dyn Reactor>));
        assert!(!install_reactor(Arc::new(Counting::default())), "it has one");
        let driver = RealDriver::new();
        // The timeouts increase: on a busy machine a short one may elapse before the wait begins.
        let waits = || reactor.waits.load(Ordering::Relaxed);
        let tries = (0..14).map(|n| Duration::from_millis(5 << n)).take_while(|time| {
            block_on(&*driver, sleep_until(&*driver, driver.now().after(*time)));
            waits() == 0
        });
        assert!(tries.count() < 14, "the timer was waited for in the reactor");
        let timed = waits();

        let r = Arc::clone(&reactor);
        let other = spawn(&*driver, "other", async move {
            while r.waits.load(Ordering::Relaxed) == timed {
                std::thread::yield_now();
            }
        });
        block_on(&*driver, other);
        assert!(reactor.waits.load(Ordering::Relaxed) > timed);
        assert_eq!(reactor.interrupts.load(Ordering::Relaxed), 1, "one wake interrupts once");
        assert!(!reactor.held_back.load(Ordering::Relaxed), "nothing is held back after a wait");

        remove_reactor();
        let waits = reactor.waits.load(Ordering::Relaxed);
        block_on(&*driver, sleep_until(&*driver, driver.now().after(Duration::from_millis(1))));
        assert_eq!(reactor.waits.load(Ordering::Relaxed), waits, "parked again");
    }

    #[test]
    fn a_wake_before_the_sleep_ends_it() {
        let sleep = Sleep::current();
        sleep.wake();
        // Without the wake this sleep would never end.
        sleep.sleep(None);
        assert_eq!(sleep.state.load(Ordering::Relaxed), RUNNING);
    }

    #[test]
    fn no_wake_is_lost_among_two_threads_that_wake_each_other() {
        let driver = RealDriver::new();
        let (there, back) = (crate::sync::Event::new(), crate::sync::Event::new());
        let (t, b) = (there.clone(), back.clone());
        let other = spawn(&*driver, "other", async move {
            for n in 0..2000 {
                t.changed_since(n).await;
                b.notify();
            }
        });
        block_on(&*driver, async {
            for n in 0..2000 {
                there.notify();
                back.changed_since(n).await;
            }
            other.await;
        });
        assert_eq!((there.version(), back.version()), (2000, 2000));
    }
}
