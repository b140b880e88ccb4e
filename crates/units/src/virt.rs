//! Virtual time: a deterministic executor whose clock advances only when no task can run.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;

use parking_lot::Mutex;

use crate::driver::BoxFuture;
use crate::{Driver, Instant, Parker, SplitMix64};

/// The driver for virtual time. A run is a function of the seed and the tasks.
///
/// Only the thread that created the driver may wait on it. A blocking wait inside a task would stop all other tasks,
/// so it panics. `park` panics on a deadlock, which is when every task waits and no timer is set, and on a livelock, which is when tasks
/// run [`MAX_RUNS`] times and wait for no timer.
pub struct VirtualDriver {
    owner: ThreadId,
    shared: Arc<Shared>,
    epoch_millis: u64,
}

/// The most times that tasks run at one instant.
const MAX_RUNS: u64 = 20_000_000;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Instant,
    /// How many times tasks have run since time advanced last.
    runs: u64,
    sequence: u64,
    timers: BinaryHeap<Reverse<Timer>>,
    ready: VecDeque<Arc<Task>>,
    /// Number of spawned tasks, except those found to be finished.
    tasks: Vec<Weak<Task>>,
    /// Number of tasks at which finished ones are removed from the list.
    many: usize,
    random: SplitMix64,
}

struct Timer {
    due: Instant,
    sequence: u64,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Timer) -> bool {
        (self.due, self.sequence) == (other.due, other.sequence)
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
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

struct Task {
    name: &'static str,
    future: Mutex<Option<BoxFuture>>,
    queued: AtomicBool,
    home: Weak<Shared>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel)
            && let Some(home) = self.home.upgrade()
        {
            home.state.lock().ready.push_back(self);
        }
    }
}

thread_local! {
    static IN_TASK: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// A task runs on this thread until this is dropped, also by a panic.
struct Running;

impl Running {
    fn begin(name: &'static str) -> Running {
        IN_TASK.set(Some(name));
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IN_TASK.set(None);
    }
}

impl VirtualDriver {
    /// A driver at time zero with random numbers from `seed`.
    pub fn new(seed: u64) -> Arc<VirtualDriver> {
        let shared = Arc::new(Shared::default());
        shared.state.lock().random = SplitMix64::new(seed);
        Arc::new(VirtualDriver {
            owner: std::thread::current().id(),
            shared,
            epoch_millis: 1_700_000_000_000,
        })
    }

    /// Drops all tasks and timers, at the end of a simulation. Tasks and driver reference each other, so they would
    /// never be freed otherwise.
    pub fn drop_all_tasks(&self) {
        loop {
            let (tasks, ready, timers) = {
                let mut state = self.shared.state.lock();
                let state = &mut *state;
                let tasks = std::mem::take(&mut state.tasks);
                (tasks, std::mem::take(&mut state.ready), std::mem::take(&mut state.timers))
            };
            if tasks.is_empty() && ready.is_empty() && timers.is_empty() {
                return;
            }
            // Tasks are dropped outside the driver's locks, because dropping a task may wake or spawn others.
            for task in tasks.iter().filter_map(Weak::upgrade) {
                let future = task.future.lock().take();
                drop(future);
            }
        }
    }

    /// When the next task runs: now, if one can run at once; `None` if every task waits for what is outside.
    pub fn next_due(&self) -> Option<Instant> {
        let state = self.shared.state.lock();
        let timer = state.timers.peek().map(|Reverse(timer)| timer.due.max(state.now));
        if state.ready.is_empty() { timer } else { Some(state.now) }
    }

    /// Runs tasks and timers up to the time `end`, which is then the driver's. For simulations with several drivers.
    pub fn run_until(&self, end: Instant) {
        while self.run_next(end) {}
        let mut state = self.shared.state.lock();
        if end > state.now {
            (state.now, state.runs) = (end, 0);
        }
    }

    /// Runs a task that can run, or else advances the clock to the next timer that is due at `end` or before. False if there is neither.
    fn run_next(&self, end: Instant) -> bool {
        let mut state = self.shared.state.lock();
        if let Some(task) = state.ready.pop_front() {
            state.runs += 1;
            let is_livelock = state.runs > MAX_RUNS;
            drop(state);
            assert!(
                !is_livelock,
                "livelock in virtual time: task '{}' and others wake each other",
                task.name
            );
            VirtualDriver::run(&task);
            return true;
        }
        let is_due = state.timers.peek().is_some_and(|Reverse(timer)| timer.due <= end);
        let Some(Reverse(timer)) = is_due.then(|| state.timers.pop()).flatten() else { return false };
        state.runs = if timer.due > state.now { 0 } else { state.runs };
        state.now = state.now.max(timer.due);
        drop(state);
        timer.waker.wake();
        true
    }

    fn run(task: &Arc<Task>) {
        task.queued.store(false, Ordering::Release);
        let Some(mut future) = task.future.lock().take() else { return };
        let waker = Waker::from(Arc::clone(task));
        let poll = {
            let _running = Running::begin(task.name);
            future.as_mut().poll(&mut Context::from_waker(&waker))
        };
        if poll == Poll::Pending {
            *task.future.lock() = Some(future);
        }
    }
}

impl Driver for VirtualDriver {
    fn is_virtual(&self) -> bool {
        true
    }

    fn now(&self) -> Instant {
        self.shared.state.lock().now
    }

    fn wake_at(&self, due: Instant, waker: &Waker) {
        if waker.will_wake(Waker::noop()) {
            return;
        }
        let mut state = self.shared.state.lock();
        state.sequence += 1;
        let sequence = state.sequence;
        state.timers.push(Reverse(Timer { due, sequence, waker: waker.clone() }));
    }

    fn park(&self, me: &Parker) {
        assert_eq!(
            self.owner,
            std::thread::current().id(),
            "only the virtual driver's own thread may wait on it"
        );
        if let Some(name) = IN_TASK.get() {
            panic!("task '{name}' blocks in virtual time: it must use .await");
        }
        while !me.take_wake() {
            let runs = self.run_next(Instant(u64::MAX));
            assert!(runs, "deadlock in virtual time: every task waits, and no timer is set");
        }
    }

    fn spawn(&self, name: &'static str, task: BoxFuture) {
        let task = Task {
            name,
            future: Mutex::new(Some(task)),
            queued: AtomicBool::new(false),
            home: Arc::downgrade(&self.shared),
        };
        let task = Arc::new(task);
        {
            let mut state = self.shared.state.lock();
            if state.tasks.len() >= state.many {
                state.tasks.retain(|task| task.strong_count() > 0);
                state.many = (2 * state.tasks.len()).max(64);
            }
            state.tasks.push(Arc::downgrade(&task));
        }
        task.wake();
    }

    fn drive(&self, task: BoxFuture) {
        self.spawn("io", task);
    }

    fn random(&self) -> u64 {
        self.shared.state.lock().random.draw()
    }

    fn unix_millis(&self) -> u64 {
        self.epoch_millis + self.now().0 / 1_000_000
    }
}

impl fmt::Debug for VirtualDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virtual clock at {:?}", self.now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{block_on, sleep_until, spawn};

    #[test]
    fn what_is_abandoned_is_freed_whatever_it_waits_for() {
        let driver = VirtualDriver::new(1);
        let event = Arc::new(crate::sync::Event::default());
        for sleeps in [false, true] {
            let (d, event) = (Arc::clone(&driver), Arc::clone(&event));
            drop(spawn(&*driver, "waits", async move {
                if sleeps {
                    sleep_until(&*d, Instant::ORIGIN.after(Duration::from_secs(9))).await;
                }
                event.changed_since(event.version()).await;
                drop(d);
            }));
        }
        let before = Arc::clone(&driver);
        block_on(&*driver, sleep_until(&*before, Instant::ORIGIN.after(Duration::from_millis(1))));
        assert_eq!((Arc::strong_count(&driver), Arc::strong_count(&event)), (4, 3));
        driver.drop_all_tasks();
        assert_eq!((Arc::strong_count(&driver), Arc::strong_count(&event)), (2, 1));
    }

    #[test]
    fn a_driver_runs_to_a_time_and_no_further() {
        let driver = VirtualDriver::new(1);
        let at = |ms| Instant::ORIGIN.after(Duration::from_millis(ms));
        let ran = Arc::new(Mutex::new(Vec::new()));
        for ms in [7, 3, 5] {
            let (d, ran) = (Arc::clone(&driver), Arc::clone(&ran));
            drop(spawn(&*driver, "sleeps", async move {
                sleep_until(&*d, at(ms)).await;
                ran.lock().push(ms);
            }));
        }
        assert_eq!(driver.next_due(), Some(Instant::ORIGIN));
        driver.run_until(at(1));
        assert_eq!((driver.next_due(), driver.now()), (Some(at(3)), at(1)));
        driver.run_until(at(5));
        assert_eq!((ran.lock().clone(), driver.next_due(), driver.now()), (vec![3, 5], Some(at(7)), at(5)));
        driver.run_until(at(9));
        assert_eq!((ran.lock().clone(), driver.next_due(), driver.now()), (vec![3, 5, 7], None, at(9)));
        driver.drop_all_tasks();
    }

    #[test]
    fn time_moves_only_when_nothing_can_run() {
        let driver = VirtualDriver::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = [30_u64, 10, 20]
            .into_iter()
            .map(|ms| {
                let (d, order) = (Arc::clone(&driver), Arc::clone(&order));
                spawn(&*driver, "sleeper", async move {
                    sleep_until(&*d, Instant::ORIGIN.after(Duration::from_millis(ms))).await;
                    order.lock().push(ms);
                    ms
                })
            })
            .collect();
        let sum = block_on(&*driver, async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        });
        assert_eq!((sum, order.lock().as_slice()), (60, [10, 20, 30].as_slice()));
        assert_eq!(driver.now(), Instant::ORIGIN.after(Duration::from_millis(30)));
    }

    #[test]
    #[should_panic(expected = "deadlock in virtual time")]
    fn a_deadlock_is_reported() {
        block_on(&*VirtualDriver::new(1), std::future::pending::<()>());
    }

    #[test]
    #[should_panic(expected = "livelock in virtual time: task 'spin'")]
    fn a_livelock_is_reported() {
        let driver = VirtualDriver::new(1);
        let spin = std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        driver.spawn("spin", Box::pin(spin));
        block_on(&*driver, std::future::pending::<()>());
    }

    #[test]
    fn the_seed_decides_the_random_numbers() {
        let draw = |seed| VirtualDriver::new(seed).random();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
