//! The handle of an operation in flight: a future that any executor can poll and a plain thread can wait on.
//!
//! Dropping a handle does not cancel the operation. A caller that drops the handle of a write must treat the zone's
//! write pointer as unknown.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use units::block_on;

use crate::{BufMut, Done, Driver, Error, ErrorKind, Instant, Lba, Result, ZoneInfo};

/// An operation in flight.
#[must_use = "an operation whose handle is dropped has an unknown outcome"]
pub struct Io<T = Done> {
    state: State,
    shape: PhantomData<fn() -> T>,
}

enum State {
    /// The operation's result is known and visible.
    Ready(Result<Done>),
    /// The operation's result is known and becomes visible at `at`.
    Due { at: Instant, result: Result<Done>, driver: Arc<dyn Driver>, armed: Option<Armed> },
    /// The operation's result is set by a [`Completer`].
    Cell(Arc<Cell>),
    /// The operation's result was taken.
    Taken,
}

/// The timer that a poll of the operation has set.
struct Armed {
    waker: Waker,
    /// The thread that polled: a thread's timers run on that thread, which may be busy elsewhere.
    thread: usize,
}

impl Armed {
    /// True if the timer wakes `waker` without another thread's help.
    fn serves(&self, waker: &Waker) -> bool {
        self.waker.will_wake(waker) && self.thread == this_thread()
    }
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

struct Cell {
    slot: Mutex<Slot>,
    driver: Arc<dyn Driver>,
}

/// Called at the end of an operation, with the time.
pub(crate) type AtEnd = Box<dyn FnOnce(Instant) + Send>;

enum Slot {
    Waiting(Option<Waker>, Option<AtEnd>),
    Done(Result<Done>),
    Taken,
}

/// Completes the operation whose handle [`Io::pair`] made. A completer that is dropped completes the
/// operation with [`ErrorKind::Unknown`].
pub struct Completer {
    cell: Option<Arc<Cell>>,
    device: Arc<str>,
}

impl Completer {
    /// Completes the operation with `result`.
    pub fn complete(mut self, result: Result<Done>) {
        if let Some(cell) = self.cell.take() {
            cell.complete(result);
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.complete(Err(Error::new(ErrorKind::Unknown, &self.device, "operation")));
        }
    }
}

impl Cell {
    fn complete(&self, result: Result<Done>) {
        let before = std::mem::replace(&mut *self.slot.lock(), Slot::Done(result));
        if let Slot::Waiting(waker, at_end) = before {
            if let Some(at_end) = at_end {
                at_end(self.driver.now());
            }
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Io {
    /// The handle of a completed operation.
    pub fn ready(result: Result<Done>) -> Io {
        Io { state: State::Ready(result), shape: PhantomData }
    }

    /// The handle of an operation whose result is known and becomes visible at `at` on `driver`'s clock.
    pub fn due(at: Instant, result: Result<Done>, driver: &Arc<dyn Driver>) -> Io {
        let state = State::Due { at, result, driver: Arc::clone(driver), armed: None };
        Io { state, shape: PhantomData }
    }

    /// The handle of an operation, and the operation's completer. `device` is the device's name in the error
    /// of a dropped completer.
    pub fn pair(driver: &Arc<dyn Driver>, device: &Arc<str>) -> (Completer, Io) {
        let slot = Mutex::new(Slot::Waiting(None, None));
        let cell = Arc::new(Cell { slot, driver: Arc::clone(driver) });
        let io = Io { state: State::Cell(Arc::clone(&cell)), shape: PhantomData };
        (Completer { cell: Some(cell), device: Arc::clone(device) }, io)
    }

    /// The handle of a composite operation. `future` runs to its end even if the handle is not polled, driven
    /// by the completions that it awaits.
    pub fn spawn<F>(driver: &Arc<dyn Driver>, device: &Arc<str>, future: F) -> Io
    where
        F: Future<Output = Result<Done>> + Send + 'static,
    {
        let (completer, io) = Io::pair(driver, device);
        driver.drive(Box::pin(async move { completer.complete(future.await) }));
        io
    }

    /// The handle with its result changed by `change`. The result is visible at the same time as before.
    pub(crate) fn map<F>(self, driver: &Arc<dyn Driver>, device: &Arc<str>, change: F) -> Io
    where
        F: FnOnce(Result<Done>) -> Result<Done> + Send + 'static,
    {
        let state = match self.state {
            State::Ready(result) => State::Ready(change(result)),
            State::Due { at, result, driver, armed } => {
                State::Due { at, result: change(result), driver, armed }
            }
            state => {
                let io = Io::<Done> { state, shape: PhantomData };
                return Io::spawn(driver, device, async move { change(io.await) });
            }
        };
        Io { state, shape: PhantomData }
    }

    /// The time at which the operation ends, where that is known. `now` for an operation that has ended.
    pub(crate) fn known_end(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Ready(_) | State::Taken => Some(now),
            State::Due { at, .. } => Some(*at),
            State::Cell(cell) => matches!(*cell.slot.lock(), Slot::Done(..)).then_some(now),
        }
    }

    /// Has `at_end` called when the operation ends, before its waiter is woken. `Err` if the end is known ([`Io::known_end`]) or has come.
    pub(crate) fn when_ended(&mut self, at_end: AtEnd) -> std::result::Result<(), AtEnd> {
        match &self.state {
            State::Cell(cell) => match &mut *cell.slot.lock() {
                Slot::Waiting(_, place) => {
                    assert!(place.is_none(), "an operation has one scheduler");
                    *place = Some(at_end);
                    Ok(())
                }
                Slot::Done(_) | Slot::Taken => Err(at_end),
            },
            State::Ready(_) | State::Due { .. } | State::Taken => Err(at_end),
        }
    }

    /// Converts the handle of an operation to one with a typed result.
    pub fn typed<T: FromDone>(self) -> Io<T> {
        Io { state: self.state, shape: PhantomData }
    }
}

impl<T: FromDone> Io<T> {
    /// Waits for the operation on the calling thread, which processes its own completions.
    pub fn wait(self) -> Result<T> {
        match self.state {
            State::Ready(result) => result.map(T::from_done),
            State::Due { ref driver, .. } => {
                let driver = Arc::clone(driver);
                block_on(&*driver, self)
            }
            State::Cell(ref cell) => {
                let driver = Arc::clone(&cell.driver);
                block_on(&*driver, self)
            }
            State::Taken => unreachable!("a handle gives its result once"),
        }
    }
}

impl<T: FromDone> Future for Io<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.state {
            State::Due { at, driver, armed, .. } if driver.now() < *at => {
                if !armed.as_ref().is_some_and(|armed| armed.serves(cx.waker())) {
                    driver.wake_at(*at, cx.waker());
                    *armed = Some(Armed { waker: cx.waker().clone(), thread: this_thread() });
                }
                return Poll::Pending;
            }
            State::Cell(cell) => {
                let mut slot = cell.slot.lock();
                if let Slot::Waiting(waker, _) = &mut *slot {
                    if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                        *waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
            }
            _ => {}
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) | State::Due { result, .. } => Poll::Ready(result.map(T::from_done)),
            State::Cell(cell) => match std::mem::replace(&mut *cell.slot.lock(), Slot::Taken) {
                Slot::Done(result) => Poll::Ready(result.map(T::from_done)),
                Slot::Waiting(..) | Slot::Taken => unreachable!("checked above"),
            },
            State::Taken => panic!("a handle gives its result once"),
        }
    }
}

impl<T> Unpin for Io<T> {}

impl<T> fmt::Debug for Io<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Ready(_) => "Io(ready)",
            State::Due { .. } => "Io(due)",
            State::Cell(_) => "Io(in flight)",
            State::Taken => "Io(taken)",
        })
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completer({})", self.device)
    }
}

/// Types of results that a handle can return, one for each variant of [`Done`].
pub trait FromDone: Sized {
    /// Extracts the typed result. Panics if `done` is another variant, which is a defect of the backend.
    fn from_done(done: Done) -> Self;
}

impl FromDone for Done {
    fn from_done(done: Done) -> Done {
        done
    }
}

impl FromDone for () {
    fn from_done(done: Done) {
        assert!(matches!(done, Done::Unit), "the backend answered {done:?} to an operation without a result");
    }
}

impl FromDone for Lba {
    fn from_done(done: Done) -> Lba {
        match done {
            Done::At(at) => at,
            other => panic!("the backend answered {other:?} to an append"),
        }
    }
}

impl FromDone for BufMut {
    fn from_done(done: Done) -> BufMut {
        match done {
            Done::Read(buf) => buf,
            other => panic!("the backend answered {other:?} to a read"),
        }
    }
}

impl FromDone for Vec<ZoneInfo> {
    fn from_done(done: Done) -> Vec<ZoneInfo> {
        match done {
            Done::Zones(zones) => zones,
            other => panic!("the backend answered {other:?} to a report"),
        }
    }
}

/// Waits for all operations `ios` and returns their results in order, also if one fails, because a composite
/// operation must know the outcome of every part.
pub async fn join_all<T: FromDone>(mut ios: Vec<Io<T>>) -> Vec<Result<T>> {
    let mut results = Vec::with_capacity(ios.len());
    for io in &mut ios {
        // Operations progress without being polled, so waiting one by one takes no longer.
        results.push(io.await);
    }
    results
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::{Driver, RealDriver, VirtualDriver};

    use super::*;

    fn virtual_driver() -> Arc<dyn Driver> {
        VirtualDriver::new(1)
    }

    #[test]
    fn a_due_result_is_seen_at_its_time_and_not_before() {
        let driver = virtual_driver();
        let at = driver.now().after(Duration::from_micros(15));
        Io::due(at, Ok(Done::Unit), &driver).typed::<()>().wait().expect("ok");
        assert_eq!(driver.now(), at);
    }

    #[test]
    fn a_dropped_completer_says_that_the_outcome_is_unknown() {
        let (completer, io) = Io::pair(&virtual_driver(), &Arc::from("dev"));
        drop(completer);
        assert_eq!(io.wait().expect_err("unknown").kind(), ErrorKind::Unknown);
    }

    #[test]
    fn a_composite_runs_on_after_its_handle_is_dropped() {
        for driver in [virtual_driver(), RealDriver::new() as Arc<dyn Driver>] {
            let (tx, rx) = std::sync::mpsc::channel();
            let first = Io::due(driver.now().after(Duration::from_micros(50)), Ok(Done::Unit), &driver);
            let io = Io::spawn(&driver, &Arc::from("dev"), async move {
                first.await?;
                tx.send(()).expect("the test listens");
                Ok(Done::Unit)
            });
            drop(io);
            let d = Arc::clone(&driver);
            block_on(&*driver, units::sleep_until(&*d, d.now().after(Duration::from_millis(5))));
            assert_eq!(rx.recv_timeout(Duration::from_secs(10)), Ok(()));
        }
    }

    #[test]
    fn another_thread_completes_the_operation_that_this_thread_waits_for() {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let (completer, io) = Io::pair(&driver, &Arc::from("dev"));
        driver.drive(Box::pin(async move { completer.complete(Ok(Done::At(Lba(9)))) }));
        assert_eq!(io.typed::<Lba>().wait().ok(), Some(Lba(9)));
    }
}
