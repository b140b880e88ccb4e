//! What writers and the keeper of a parallel log may do to each other while one zone follows another: loom goes through the
//! interleavings.
//!
//! The files under test are compiled a second time here, on loom's atomics and locks. What lies below them (devices, segments,
//! the keeper's loop) is a model of a few lines; what they rest on (`arc_swap`, `units::sync::Event`) is a loom mutex, and
//! a condition that is waited for: nobody told means a deadlock, which loom finds.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::unused_async,
    reason = "tests may panic, and use a part of each file"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fs::{Error, Result};
use inner::Inner;
use loom::sync::atomic::Ordering;
use loom::thread;
use zone::Zone;

/// Stands for the mount's `Rules`.
#[derive(Clone, Copy, Debug)]
struct Rules {
    early: bool,
}

impl Rules {
    fn leaves_zones_early(self) -> bool {
        self.early
    }
}

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/wal/parallel/exchange.rs"]
mod exchange;
#[path = "../src/wal/parallel/gate.rs"]
mod gate;
#[path = "../src/wal/parallel/spread.rs"]
mod spread;
#[path = "../src/wal/parallel/tickets.rs"]
mod tickets;

/// What stands for `arc_swap`, `parking_lot` and `units::sync` under loom.
mod sync {
    use std::ops::Deref;
    use std::sync::Arc;

    use loom::sync::{Condvar, MutexGuard};

    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

    #[derive(Debug, Default)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> From<T> for Mutex<T> {
        fn from(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }
    }

    impl<T> Mutex<T> {
        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// What was there when it was looked at.
    pub(super) struct Seen<T>(T);

    impl<T> Deref for Seen<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }

    #[derive(Debug, Default)]
    pub(super) struct ArcSwap<T>(Mutex<Arc<T>>);

    impl<T> ArcSwap<T> {
        pub(super) fn load(&self) -> Seen<Arc<T>> {
            Seen(Arc::clone(&self.0.lock()))
        }
        pub(super) fn store(&self, to: Arc<T>) {
            *self.0.lock() = to;
        }
    }

    #[derive(Debug)]
    pub(super) struct ArcSwapOption<T>(Mutex<Option<Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub(super) fn new(to: Option<Arc<T>>) -> ArcSwapOption<T> {
            ArcSwapOption(Mutex::from(to))
        }
        pub(super) fn load(&self) -> Seen<Option<Arc<T>>> {
            Seen(self.load_full())
        }
        pub(super) fn load_full(&self) -> Option<Arc<T>> {
            self.0.lock().clone()
        }
        pub(super) fn store(&self, to: Option<Arc<T>>) {
            *self.0.lock() = to;
        }
        pub(super) fn swap(&self, to: Option<Arc<T>>) -> Option<Arc<T>> {
            std::mem::replace(&mut self.0.lock(), to)
        }
    }

    #[derive(Debug, Default)]
    pub(super) struct Event {
        version: Mutex<u64>,
        changed: Condvar,
    }

    impl Event {
        pub(super) fn version(&self) -> u64 {
            *self.version.lock()
        }
        pub(super) fn notify(&self) {
            *self.version.lock() += 1;
            self.changed.notify_all();
        }
        /// Blocks the thread: each has one thing to do.
        pub(super) async fn changed_since(&self, seen: u64) {
            let mut version = self.version.lock();
            while *version == seen {
                version = self.changed.wait(version).unwrap();
            }
        }
    }
}

mod zone {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use crate::gate::Gate;
    pub(super) use crate::sync::Mutex;

    /// A zone of a drive, and its gate.
    #[derive(Debug)]
    pub(super) struct Zone {
        pub(super) gate: Gate,
        pub(super) beside: bool,
        pub(super) landed: AtomicUsize,
        /// The device takes no more appends.
        pub(super) finished: AtomicBool,
        /// Above every ticket that went to it.
        pub(super) top: Mutex<u64>,
    }

    impl Zone {
        pub(super) fn new(capacity: u64, beside: bool) -> Arc<Zone> {
            Arc::new(Zone {
                gate: Gate::new(capacity),
                beside,
                landed: AtomicUsize::new(0),
                finished: AtomicBool::new(false),
                top: Mutex::default(),
            })
        }
        pub(super) fn turn(&self) -> u64 {
            self.gate.used()
        }
        pub(super) fn begin_at(&self, _: u64) {}
        pub(super) fn land(&self) {
            assert!(!self.finished.load(Ordering::Acquire), "an append lands in a zone that is finished");
            self.landed.fetch_add(1, Ordering::AcqRel);
        }
    }
}

mod inner {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use loom::sync::atomic::{AtomicBool, Ordering};

    use crate::exchange::{Starved, Switch};
    use crate::spread::Spread;
    use crate::sync::{ArcSwapOption, Event, Mutex};
    use crate::tickets::Tickets;
    use crate::zone::Zone;
    use crate::{Result, Rules};

    #[derive(Debug, Default)]
    pub(super) struct Counters {
        pub(super) replaced: AtomicU64,
        pub(super) waits: AtomicU64,
    }

    #[derive(Debug)]
    pub(super) struct Cutting {
        pub(super) longest: u64,
    }

    /// The fields that the exchange knows, by their names; and what there is of a device.
    #[derive(Debug)]
    pub(super) struct Inner {
        pub(super) active: ArcSwapOption<Zone>,
        pub(super) switch: Mutex<Switch>,
        pub(super) spread: Spread,
        pub(super) switched: Event,
        pub(super) work: Event,
        pub(super) behind: AtomicBool,
        pub(super) asked: AtomicBool,
        pub(super) closed: AtomicBool,
        pub(super) starved: Mutex<Starved>,
        pub(super) tickets: Tickets,
        pub(super) volatile: bool,
        pub(super) counters: Counters,
        pub(super) cutting: Cutting,
        pub(super) rules: Rules,
        /// Segments that the keeper can have.
        pub(super) pool: Mutex<Vec<Arc<Zone>>>,
        /// The zones in the order in which records may have gone to them, and which of them were written.
        pub(super) zones: Vec<Arc<Zone>>,
        pub(super) stopping: AtomicBool,
    }

    impl Inner {
        pub(super) fn check_usable(&self) -> Result<()> {
            Ok(())
        }
        pub(super) async fn fill(&self, zone: &Zone) {
            zone.finished.store(true, Ordering::Release);
        }
        pub(super) async fn make_durable(&self) -> Result<()> {
            Ok(())
        }
    }
}

/// A future that never waits: what it waits for blocks its thread.
fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it was left waiting"),
    }
}

/// What is explored.
#[derive(Clone, Copy)]
struct Case {
    /// Records of each of two writers, a block each, and blocks of each zone.
    records: [usize; 2],
    capacity: usize,
    /// What is acknowledged may be lost.
    volatile: bool,
    /// A zone may be written beside the one that is left.
    beside: bool,
    /// Zones at a time.
    wide: usize,
    rules: Rules,
    /// The keeper finishes what was left.
    finishes: bool,
    /// How often threads are preempted, at most.
    preemptions: usize,
}

const PLAIN: Case = Case {
    records: [1, 1],
    capacity: 1,
    volatile: false,
    beside: true,
    wide: 1,
    rules: Rules { early: false },
    finishes: true,
    preemptions: 2,
};

impl Case {
    fn explore(self) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.check(move || self.once());
    }

    fn once(self) {
        let all = self.records.iter().sum::<usize>();
        let zones: Vec<_> = (0..all.div_ceil(self.capacity) + self.wide - 1)
            .map(|_| Zone::new(self.capacity as u64, self.beside))
            .collect();
        let mut pool = zones.clone();
        let first = pool.remove(0);
        pool.reverse();
        let log = Arc::new(Inner {
            active: sync::ArcSwapOption::new(Some(first)),
            switch: Default::default(),
            spread: spread::Spread::new(self.wide, 99, 99, self.volatile),
            switched: Default::default(),
            work: Default::default(),
            behind: sync::AtomicBool::new(false),
            asked: sync::AtomicBool::new(false),
            closed: sync::AtomicBool::new(false),
            starved: Default::default(),
            tickets: tickets::Tickets::new(0, 8),
            volatile: self.volatile,
            counters: inner::Counters::default(),
            cutting: inner::Cutting { longest: 1 },
            rules: self.rules,
            pool: sync::Mutex::from(pool),
            zones,
            stopping: sync::AtomicBool::new(false),
        });
        let writers = self.records.map(|records| {
            let log = Arc::clone(&log);
            thread::spawn(move || (0..records).for_each(|_| log.append()))
        });
        let kept = Arc::clone(&log);
        let keeper = thread::spawn(move || kept.keep_on(self.finishes));
        for writer in writers {
            writer.join().unwrap();
        }
        log.stopping.store(true, Ordering::Release);
        log.work.notify();
        keeper.join().unwrap();
        let in_zones: usize = log.zones.iter().map(|zone| zone.landed.load(Ordering::Acquire)).sum();
        let given: u64 = log.zones.iter().map(|zone| zone.gate.used()).sum();
        assert_eq!((in_zones, given), (all, all as u64), "every record is in one zone");
        assert_eq!((log.tickets.low(), log.tickets.next()), (all as u64, all as u64));
    }
}

impl Inner {
    /// One record, as `submit` does it.
    fn append(&self) {
        let zone = match self.try_enter(1) {
            Ok(zone) => zone,
            Err(_) => run(self.enter(1)).unwrap(),
        };
        let low = self.tickets.low();
        let ticket = self.tickets.take(1).unwrap();
        if self.volatile {
            // The order of what lies in two zones: by what the later one says that it follows.
            for before in self.zones.iter().take_while(|other| !Arc::ptr_eq(other, &zone)) {
                assert!(*before.top.lock() <= low, "a record follows those of the zones before its own");
            }
        }
        {
            let mut top = zone.top.lock();
            *top = (ticket + 1).max(*top);
        }
        zone.land();
        self.tickets.done(ticket, 1);
        if zone.gate.leave() {
            self.drained(&zone);
        }
    }

    /// The keeper's loop; with nothing to void, nor to retire.
    fn keep_on(&self, finishes: bool) {
        loop {
            let seen = self.work.version();
            if self.keep(finishes) {
                continue;
            }
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            run(self.work.changed_since(seen));
        }
    }

    fn keep(&self, finishes: bool) -> bool {
        if let Some(zone) = self.take_left() {
            if finishes {
                run(self.fill(&zone));
            }
            return true;
        }
        let wants = {
            let switch = self.switch.lock();
            switch.next.is_none() && switch.old.is_empty()
        };
        if wants && let Some(zone) = self.pool.lock().pop() {
            self.give(zone);
            self.switched.notify();
            return true;
        }
        run(self.turn_late()).unwrap()
    }
}

#[test]
fn each_record_is_in_one_zone_and_none_in_one_that_is_finished() {
    PLAIN.explore();
}

#[test]
fn a_zone_that_cannot_be_written_beside_another_waits_until_that_is_full() {
    Case { beside: false, ..PLAIN }.explore();
}

#[test]
fn what_follows_acknowledged_records_of_another_zone_says_so() {
    Case { volatile: true, ..PLAIN }.explore();
    Case { volatile: true, records: [2, 1], preemptions: 1, ..PLAIN }.explore();
}

#[test]
fn zones_that_are_written_at_a_time_are_left_one_by_one() {
    Case { wide: 2, ..PLAIN }.explore();
}

/// The rule broken: zones are left with appends in flight.
#[test]
#[should_panic(expected = "an append lands in a zone that is finished")]
fn a_keeper_that_does_not_wait_for_appends_in_flight_is_found() {
    Case { rules: Rules { early: true }, ..PLAIN }.explore();
}

/// Likewise, and on a volatile cache the next zone is written before the one before it is drained.
#[test]
#[should_panic(expected = "a record follows those of the zones before its own")]
fn a_switch_that_does_not_wait_for_acknowledgements_is_found() {
    Case { rules: Rules { early: true }, volatile: true, finishes: false, ..PLAIN }.explore();
}
