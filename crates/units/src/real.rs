//! The driver for real time. Threads wait for their own operations; a background thread runs timers and tasks
//! that belong to no waiting thread.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant as StdInstant};

use parking_lot::{Condvar, Mutex};

use crate::driver::BoxFuture;
use crate::reactor::Sleep;
use crate::{Driver, Instant, Parker, Reactor};

/// A timed wait ends this much early and then yields, because the kernel wakes a thread late by about as much.
const YIELD_TAIL: Duration = Duration::from_micros(20);

/// The driver for real time. A process usually has one.
///
/// Each waiting thread has a list of its timers and of the short tasks that it woke. Tasks woken on a thread that does
/// not wait go to one background thread, started on first use.
pub struct RealDriver {
    origin: StdInstant,
}

struct Timer {
    due: StdInstant,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Timer) -> bool {
        self.due == other.due
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

#[derive(Default)]
struct ThreadWork {
    depth: u32,
    /// True if the thread has waited in its reactor, which holds back submissions until the next wait or
    /// until the last one ends.
    waited: bool,
    /// True while the thread polls a driven task.
    polls_task: bool,
    timers: BinaryHeap<Reverse<Timer>>,
    /// Timers that driven tasks set.
    task_timers: BinaryHeap<Reverse<Timer>>,
    ready: VecDeque<Arc<Task>>,
}

impl ThreadWork {
    /// Takes the timers that the thread does not keep at the end of a wait: all, or after a nested wait those of driven tasks. The others are the outer wait's, or those of
    /// operations that were polled in passing: a task or thread that waits for such an operation sets a timer of its own.
    fn left_timers(&mut self) -> BinaryHeap<Reverse<Timer>> {
        if self.depth == 0 {
            self.task_timers.append(&mut self.timers);
        }
        std::mem::take(&mut self.task_timers)
    }

    /// When the next timer is due.
    fn next_due(&self) -> Option<StdInstant> {
        let due = |timers: &BinaryHeap<Reverse<Timer>>| timers.peek().map(|timer| timer.0.due);
        due(&self.timers).into_iter().chain(due(&self.task_timers)).min()
    }

    /// Takes a timer that is due at `now`.
    fn pop_due(&mut self, now: StdInstant) -> Option<Timer> {
        [&mut self.timers, &mut self.task_timers].into_iter().find_map(|timers| {
            let is_due = timers.peek().is_some_and(|timer| timer.0.due <= now);
            if is_due { timers.pop().map(|timer| timer.0) } else { None }
        })
    }
}

thread_local! {
    static THREAD_WORK: RefCell<ThreadWork> = RefCell::default();
}

#[derive(Default)]
struct BackgroundThread {
    work: Mutex<ThreadWork>,
    changed: Condvar,
}

static BACKGROUND_THREAD: OnceLock<Arc<BackgroundThread>> = OnceLock::new();

struct Task {
    future: Mutex<Option<BoxFuture>>,
    queued: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut task = Some(self);
        // A thread that is ending has no thread-local list any more: the background thread takes the task.
        let _torn_down = THREAD_WORK.try_with(|work| {
            if let Ok(mut work) = work.try_borrow_mut()
                && work.depth > 0
                && let Some(task) = task.take()
            {
                work.ready.push_back(task);
            }
        });
        if let Some(task) = task {
            background_thread().take(&mut BinaryHeap::new(), &mut VecDeque::from([task]));
        }
    }
}

impl Task {
    fn run(self: Arc<Self>) {
        let mut slot = self.future.lock();
        self.queued.store(false, Ordering::Release);
        let Some(mut future) = slot.take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        let set = |polls| THREAD_WORK.with_borrow_mut(|work| std::mem::replace(&mut work.polls_task, polls));
        let before = set(true);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        set(before);
        if polled == Poll::Pending {
            *slot = Some(future);
        }
    }
}

fn background_thread() -> &'static Arc<BackgroundThread> {
    BACKGROUND_THREAD.get_or_init(|| {
        let keeper = Arc::new(BackgroundThread::default());
        let mine = Arc::clone(&keeper);
        std::thread::Builder::new()
            .name("furrow-keeper".into())
            .spawn(move || mine.serve())
            .expect("the system has a thread left for the keeper");
        keeper
    })
}

impl BackgroundThread {
    /// Moves timers and tasks to the background thread. The background thread is woken only if one of them is
    /// due before its next timer.
    fn take(&self, timers: &mut BinaryHeap<Reverse<Timer>>, ready: &mut VecDeque<Arc<Task>>) {
        let mut work = self.work.lock();
        let due = |timers: &BinaryHeap<Reverse<Timer>>| timers.peek().map(|timer| timer.0.due);
        let (before, first) = (due(&work.timers), due(timers));
        let sooner = first.is_some_and(|first| before.is_none_or(|before| first < before));
        let wake = sooner || !ready.is_empty();
        work.timers.append(timers);
        work.ready.append(ready);
        drop(work);
        if wake {
            self.changed.notify_one();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    fn serve(&self) {
        let mut work = self.work.lock();
        loop {
            if let Some(task) = work.ready.pop_front() {
                drop(work);
                task.run();
                work = self.work.lock();
                continue;
            }
            let now = StdInstant::now();
            match work.timers.peek() {
                Some(Reverse(timer)) if timer.due <= now => {
                    let timer = work.timers.pop();
                    drop(work);
                    if let Some(Reverse(timer)) = timer {
                        timer.waker.wake();
                    }
                    work = self.work.lock();
                }
                Some(Reverse(timer)) => {
                    let due = timer.due;
                    self.changed.wait_until(&mut work, due);
                }
                None => self.changed.wait(&mut work),
            }
        }
    }
}

/// Held-back submissions are submitted however a wait ends.
struct LeaveAtEnd<'a>(&'a Sleep);

impl Drop for LeaveAtEnd<'_> {
    fn drop(&mut self) {
        if let Some(reactor) = self.0.reactor() {
            reactor.leave();
        }
    }
}

impl RealDriver {
    /// A driver whose clock starts at zero now.
    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    pub fn new() -> Arc<RealDriver> {
        Arc::new(RealDriver { origin: StdInstant::now() })
    }

    fn std_instant(&self, at: Instant) -> StdInstant {
        self.origin + Duration::from_nanos(at.0)
    }
}

impl Driver for RealDriver {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_at(&self, due: Instant, waker: &Waker) {
        if waker.will_wake(Waker::noop()) {
            return;
        }
        let timer = Timer { due: self.std_instant(due), waker: waker.clone() };
        let mut timer = Some(timer);
        THREAD_WORK.with_borrow_mut(|work| {
            if work.depth > 0
                && let Some(timer) = timer.take()
            {
                let timers = if work.polls_task { &mut work.task_timers } else { &mut work.timers };
                timers.push(Reverse(timer));
            }
        });
        if let Some(timer) = timer {
            background_thread().take(&mut BinaryHeap::from([Reverse(timer)]), &mut VecDeque::new());
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    fn park(&self, me: &Parker) {
        // Within `block_on`, operations that are submitted between two waits reach the kernel with the second
        // wait.
        let inside = THREAD_WORK.with_borrow_mut(|work| {
            work.waited |= work.depth > 0;
            work.depth > 0
        });
        let _leave = (!inside).then(|| LeaveAtEnd(&me.sleep));
        loop {
            while let Some(task) = THREAD_WORK.with_borrow_mut(|work| work.ready.pop_front()) {
                task.run();
            }
            // The clock is read only if there is a timer, because reading is slow on some machines.
            let due = || THREAD_WORK.with_borrow(ThreadWork::next_due);
            let now = due().map(|_| StdInstant::now());
            while let Some(timer) = now.and_then(|now| THREAD_WORK.with_borrow_mut(|work| work.pop_due(now)))
            {
                timer.waker.wake();
            }
            // The wake flag is cleared before the check, so that a wake is seen by the check or ends the
            // sleep.
            me.sleep.rouse();
            if me.take_wake() {
                return;
            }
            let idle = THREAD_WORK.with_borrow(|work| work.ready.is_empty());
            let next = due().map(|due| due.saturating_duration_since(now.unwrap_or_else(StdInstant::now)));
            if !idle || me.sleep.reactor().is_some_and(Reactor::poll) {
                continue;
            }
            match next {
                None => me.sleep.sleep(None),
                Some(left) if left > YIELD_TAIL => me.sleep.sleep(Some(left - YIELD_TAIL)),
                Some(_) => {
                    if let Some(reactor) = me.sleep.reactor() {
                        reactor.wait(Some(Duration::ZERO));
                    }
                    std::thread::yield_now();
                }
            }
        }
    }

    fn spawn(&self, name: &'static str, task: BoxFuture) {
        let driver = RealDriver { origin: self.origin };
        std::thread::Builder::new()
            .name(format!("furrow-{name}"))
            .spawn(move || crate::block_on(&driver, task))
            .expect("the system has a thread left for a background task");
    }

    fn drive(&self, task: BoxFuture) {
        Arc::new(Task { future: Mutex::new(Some(task)), queued: AtomicBool::new(false) }).wake();
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the system gives random numbers")
    }

    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    fn unix_millis(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn enter(&self) {
        THREAD_WORK.with_borrow_mut(|work| work.depth += 1);
    }

    fn leave(&self) {
        let (left, waited) = THREAD_WORK.with_borrow_mut(|work| {
            work.depth -= 1;
            let (timers, ready) = (work.left_timers(), std::mem::take(&mut work.ready));
            let left = (!(timers.is_empty() && ready.is_empty())).then_some((timers, ready));
            (left, std::mem::take(&mut work.waited))
        });
        // The end of a nested wait also submits held-back operations and hands over driven tasks, because the outer code may
        // block elsewhere: in RocksDB, until another thread's operation ends, which may be one of these tasks.
        if waited {
            drop(LeaveAtEnd(&Sleep::current()));
        }
        if let Some((mut timers, mut ready)) = left {
            background_thread().take(&mut timers, &mut ready);
        }
    }
}

impl fmt::Debug for RealDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "real clock at {:?}", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{block_on, sleep_until, spawn};

    #[test]
    fn a_sleep_ends_no_earlier_than_it_should() {
        let driver = RealDriver::new();
        let due = driver.now().after(Duration::from_millis(3));
        block_on(&*driver, sleep_until(&*driver, due));
        assert!(driver.now() >= due);
    }

    #[test]
    fn a_spawned_task_wakes_the_thread_that_waits_for_it() {
        let driver = RealDriver::new();
        let d = Arc::clone(&driver);
        let task = spawn(&*driver, "test", async move {
            sleep_until(&*d, d.now().after(Duration::from_millis(2))).await;
            42
        });
        assert_eq!(block_on(&*driver, task), 42);
    }

    /// As a task that calls RocksDB, which appends to a log and then waits for another thread's append.
    #[test]
    fn tasks_of_a_nested_wait_run_on_while_the_outer_code_blocks_elsewhere() {
        let driver = RealDriver::new();
        block_on(&*driver, async {
            for sleeps in [false, true] {
                let (tx, rx) = std::sync::mpsc::channel();
                let d = Arc::clone(&driver);
                let task = Box::pin(async move {
                    if sleeps {
                        sleep_until(&*d, d.now().after(Duration::from_millis(2))).await;
                    }
                    tx.send(7).expect("the test waits");
                });
                block_on(&*driver, async { driver.drive(task) });
                assert_eq!(rx.recv_timeout(Duration::from_secs(20)), Ok(7));
            }
        });
    }

    #[test]
    fn a_driven_task_runs_on_though_nobody_polls_it() {
        let driver = RealDriver::new();
        let (tx, rx) = std::sync::mpsc::channel();
        let d = Arc::clone(&driver);
        driver.drive(Box::pin(async move {
            sleep_until(&*d, d.now().after(Duration::from_millis(2))).await;
            tx.send(7).expect("the test waits");
        }));
        assert_eq!(rx.recv_timeout(Duration::from_secs(120)), Ok(7));
    }
}
