//! The trait through which all crates below `rocks` use time, threads and random numbers.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::Instant;
use crate::reactor::Sleep;

/// A task's future, owned by the driver.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A driver: clock, reactor, executor and source of random numbers in one.
///
/// There are two implementations: [`RealDriver`](crate::RealDriver) for programs, and
/// [`VirtualDriver`](crate::VirtualDriver), whose clock advances only when no task can run, so that a run is a
/// function of its seed. A device carries its driver ([`ZonedDevice::driver`] in `zoned`), from which the layers above
/// take theirs, so one program can use devices on different clocks.
///
/// [`ZonedDevice::driver`]: https://docs.rs/furrow-zoned
pub trait Driver: Send + Sync + Debug {
    /// The current time.
    fn now(&self) -> Instant;

    /// Wakes `waker` at `due` or soon after. [`Waker::noop`] may be dropped.
    fn wake_at(&self, due: Instant, waker: &Waker);

    /// Runs timers and short tasks on this thread until `me`, this thread's parker, is woken. In virtual time
    /// this advances the clock, and only the driver's own thread may call it.
    fn park(&self, me: &Parker);

    /// Runs a long-lived task in the background: on a new thread in real time, as a task in virtual time.
    fn spawn(&self, name: &'static str, task: BoxFuture);

    /// Runs a short, non-blocking task (the rest of a composite operation) to its end without a caller that
    /// polls it, on the thread that wakes the task or on the driver's background thread.
    fn drive(&self, task: BoxFuture);

    /// A random number, in virtual time determined by the driver's seed.
    fn random(&self) -> u64;

    /// Wall-clock time in milliseconds since 1970, for time stamps and expiry only, because it may jump.
    fn unix_millis(&self) -> u64;

    /// True for virtual time, in which no event outside the process can be awaited.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Called by [`block_on`] before a wait, so that the driver can keep this thread's timers on this thread.
    fn enter(&self) {}

    /// Called by [`block_on`] after a wait.
    fn leave(&self) {}
}

/// Blocks and wakes one thread.
#[derive(Debug)]
pub struct Parker {
    woken: AtomicBool,
    pub(crate) sleep: Arc<Sleep>,
}

impl Parker {
    /// A parker for the calling thread.
    pub fn current() -> Arc<Parker> {
        Arc::new(Parker { woken: AtomicBool::new(false), sleep: Sleep::current() })
    }

    /// True if the parked thread was woken since the last call.
    pub fn take_wake(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.sleep.wake();
        }
    }
}

/// Runs `future` to its end on this thread, which also runs the driver's timers meanwhile.
///
/// Allocates nothing if the future is ready at once.
pub fn block_on<F: Future>(driver: &dyn Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    struct Entered<'a>(&'a dyn Driver);
    impl Drop for Entered<'_> {
        fn drop(&mut self) {
            self.0.leave();
        }
    }
    // The driver is told of the wait before the first poll, so that timers which the poll sets belong to this
    // thread.
    driver.enter();
    let _entered = Entered(driver);
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return value;
    }
    let parker = Parker::current();
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        driver.park(&parker);
    }
}

/// Sleeps until `due` on the driver's clock.
pub async fn sleep_until(driver: &dyn Driver, due: Instant) {
    std::future::poll_fn(|cx| {
        if driver.now() >= due {
            return Poll::Ready(());
        }
        driver.wake_at(due, cx.waker());
        Poll::Pending
    })
    .await;
}
