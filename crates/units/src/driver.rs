//! The one trait through which everything below `rocks` meets time, threads and chance.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::Instant;
use crate::reactor::Sleep;

/// A future that the driver owns.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Clock, reactor, executor and source of random numbers in one.
///
/// Two implementations: [`RealDriver`](crate::RealDriver) for running programs, and
/// [`VirtualDriver`](crate::VirtualDriver), where time stands still until nothing else can run, so that a run is
/// a function of its seed. A device carries its driver ([`ZonedDevice::driver`] in `zoned`), and what lies above
/// takes the driver from there: one program can hold devices on different clocks.
///
/// [`ZonedDevice::driver`]: https://docs.rs/furrow-zoned
pub trait Driver: Send + Sync + Debug {
    /// The time now.
    fn now(&self) -> Instant;

    /// Wakes `waker` at `due` or soon after. A waker that wakes nothing ([`Waker::noop`]) may be dropped.
    fn wake_at(&self, due: Instant, waker: &Waker);

    /// Serves timers and short tasks on this thread until `me` is woken. In virtual time this is what moves the
    /// clock; only the driver's own thread may call it there.
    fn park(&self, me: &Parker);

    /// Runs a long-lived task in the background: a thread of its own in real time, a task in virtual time.
    fn spawn(&self, name: &'static str, task: BoxFuture);

    /// Runs a short task that never blocks (the rest of a composite operation) whether or not anyone polls it:
    /// on the thread that wakes it, or on the driver's keeper thread.
    fn drive(&self, task: BoxFuture);

    /// A random number. In virtual time it comes from the driver's seed.
    fn random(&self) -> u64;

    /// The time of day in milliseconds since 1970, for time stamps and expiry only: it may jump.
    fn unix_millis(&self) -> u64;

    /// Whether time stands still while nothing of its own runs: nothing outside the process can be waited for.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Called by [`block_on`] around a wait, so that the driver may keep this thread's timers on this thread.
    fn enter(&self) {}

    /// The end of what [`enter`](Driver::enter) began.
    fn leave(&self) {}
}

/// A thread that waits for one thing.
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

    /// Whether a wake has come since the last call.
    pub fn take(&self) -> bool {
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

/// Runs `future` to its end on this thread, serving the driver's timers meanwhile.
///
/// A future that is ready at once costs no allocation.
pub fn block_on<F: Future>(driver: &dyn Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    struct Entered<'a>(&'a dyn Driver);
    impl Drop for Entered<'_> {
        fn drop(&mut self) {
            self.0.leave();
        }
    }
    // Before the first look, so that timers which it sets are this thread's.
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
