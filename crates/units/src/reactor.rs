//! How a thread sleeps and is woken: parked, or within a reactor of its own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// What a thread has to do with completions of its own: an io_uring, say. Where a thread has one, it waits there
/// instead of being parked, so that a completion reaches it without a hop through another thread.
///
/// All but [`interrupt`](Reactor::interrupt) are called by the thread that installed it, by
/// [`RealDriver::park`](crate::RealDriver) only.
pub trait Reactor: Send + Sync {
    /// Serves what has completed, without sleeping; says whether there was anything. From here on until
    /// [`leave`](Reactor::leave) this thread serves its completions alone, and the reactor may hold back what the thread
    /// submits until it waits.
    fn poll(&self) -> bool;

    /// Passes on what was held back, and sleeps until something has completed, the timeout is over, or
    /// [`interrupt`](Reactor::interrupt) is called. It serves nothing, and may wake for no reason. With a timeout of
    /// zero it only passes on.
    fn wait(&self, timeout: Option<Duration>);

    /// The thread has waited enough: passes on what was held back, and sees to it that what completes from now on is
    /// served by somebody else.
    fn leave(&self);

    /// Ends the wait that the thread is in or about to begin. Called from other threads.
    fn interrupt(&self);
}

/// Not asleep, and nothing to look at.
const RUNNING: u8 = 0;
/// Woken while it was not asleep.
const NOTIFIED: u8 = 1;
/// In `thread::park`.
const PARKED: u8 = 2;
/// In `Reactor::wait`.
const WAITING: u8 = 3;

/// A thread's sleep. Wakers swap `state` to NOTIFIED, and do what that state before asks for; the thread goes to sleep
/// only from RUNNING. So a wake is either seen before the sleep or ends it.
pub(crate) struct Sleep {
    state: AtomicU8,
    thread: Thread,
    reactor: OnceLock<Arc<dyn Reactor>>,
}

thread_local! {
    static SLEEP: RefCell<Option<Arc<Sleep>>> = const { RefCell::new(None) };
}

/// Makes `reactor` the calling thread's, if it has none yet; says whether it did.
pub fn install_reactor(reactor: Arc<dyn Reactor>) -> bool {
    Sleep::current().reactor.set(reactor).is_ok()
}

/// Takes the calling thread's reactor away: whoever waits on this thread later is parked.
pub fn remove_reactor() {
    // In a thread that is being torn down there may be nothing left to take it from.
    let _torn_down = SLEEP.try_with(|sleep| sleep.take());
}

impl Sleep {
    /// The calling thread's.
    pub(crate) fn current() -> Arc<Sleep> {
        let made = SLEEP.try_with(|sleep| Arc::clone(sleep.borrow_mut().get_or_insert_with(Sleep::new)));
        // A thread that is being torn down may still wait, without a reactor.
        made.unwrap_or_else(|_| Sleep::new())
    }

    fn new() -> Arc<Sleep> {
        let thread = std::thread::current();
        Arc::new(Sleep { state: AtomicU8::new(RUNNING), thread, reactor: OnceLock::new() })
    }

    pub(crate) fn reactor(&self) -> Option<&dyn Reactor> {
        self.reactor.get().map(|reactor| &**reactor)
    }

    /// Wakes the thread, or keeps it from going to sleep the next time.
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

    /// Forgets earlier wakes: what they were for is looked at after this.
    pub(crate) fn rouse(&self) {
        if self.state.load(Ordering::Relaxed) != RUNNING {
            self.state.swap(RUNNING, Ordering::AcqRel);
        }
    }

    /// Sleeps until woken, at most `timeout`, or until the reactor has something to serve. May wake for no reason.
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

    /// Counts what it is asked to do; a wait ends by an interrupt or its timeout.
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
        // Longer and longer: on a busy machine one may be over before it is waited for.
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
        // Without the wake this would sleep for good.
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
