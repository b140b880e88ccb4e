//! Writers and maintenance of a parallel log during zone replacement: loom explores the interleavings.
//!
//! The files under test are compiled a second time here, on loom's atomics and locks. The modules below them
//! (devices, segments, the maintenance loop) are models of a few lines. Mutexes and condition variables of
//! loom stand in for `arc_swap` and `units::sync::Event`: a missing notification is a deadlock, which loom
//! finds.
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

use loom::sync::atomic::Ordering;
use loom::thread;
use replacement::Replacement;
use zone::LogZone;

mod error {
    pub(super) use fs::{Error, Result};
}

mod rules {
    /// A model of the safety rules that a mount breaks.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Rules {
        pub(super) early: bool,
    }

    impl Rules {
        pub(super) fn leaves_zones_early(self) -> bool {
            self.early
        }
    }
}

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/wal/parallel/gate.rs"]
mod gate;
#[path = "../src/wal/parallel/replacement.rs"]
mod replacement;
#[path = "../src/wal/parallel/stripe.rs"]
mod stripe;
#[path = "../src/wal/parallel/tickets.rs"]
mod tickets;

mod counters {
    use std::sync::atomic::AtomicU64;

    #[derive(Debug, Default)]
    pub(super) struct Counters {
        pub(super) replaced: AtomicU64,
        pub(super) waits: AtomicU64,
    }
}

mod health {
    use fs::Result;

    /// A model of the log's health: the log never fails and is not closed.
    #[derive(Debug)]
    pub(super) struct Health;

    impl Health {
        pub(super) fn check_usable(&self) -> Result<()> {
            Ok(())
        }
        pub(super) fn is_closed(&self) -> bool {
            false
        }
    }
}

mod order {
    use crate::tickets::Tickets;

    #[derive(Debug)]
    pub(super) struct Order(pub(super) Tickets);

    impl Order {
        pub(super) fn all_complete(&self) -> bool {
            self.0.low() == self.0.next()
        }
    }
}

/// Models of `arc_swap`, `parking_lot` and `units::sync`.
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

    /// A loaded value.
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

    #[derive(Clone, Debug, Default)]
    pub(super) struct Event(Arc<Versions>);

    #[derive(Debug, Default)]
    struct Versions {
        version: Mutex<u64>,
        changed: Condvar,
    }

    impl Event {
        pub(super) fn version(&self) -> u64 {
            *self.0.version.lock()
        }
        pub(super) fn notify(&self) {
            *self.0.version.lock() += 1;
            self.0.changed.notify_all();
        }
        /// Blocks the thread until the future is ready: every thread runs one future.
        pub(super) async fn changed_since(&self, seen: u64) {
            let mut version = self.0.version.lock();
            while *version == seen {
                version = self.0.changed.wait(version).unwrap();
            }
        }
    }
}

mod zone {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use crate::gate::Gate;
    pub(super) use crate::sync::Mutex;

    /// A model of a zone of a drive, with its gate.
    #[derive(Debug)]
    pub(super) struct LogZone {
        pub(super) gate: Gate,
        pub(super) beside: bool,
        pub(super) landed: AtomicUsize,
        /// True once the zone is finished: the device takes no more appends.
        pub(super) finished: AtomicBool,
        /// A ticket above all tickets in the zone.
        pub(super) top: Mutex<u64>,
    }

    impl LogZone {
        pub(super) fn new(capacity: u64, beside: bool) -> Arc<LogZone> {
            Arc::new(LogZone {
                gate: Gate::new(capacity),
                beside,
                landed: AtomicUsize::new(0),
                finished: AtomicBool::new(false),
                top: Mutex::default(),
            })
        }
        pub(super) fn load(&self) -> u64 {
            self.gate.used()
        }
        pub(super) fn set_base(&self, _: u64) {}
        pub(super) fn set_failed(&self) {}
        pub(super) fn finish(&self) {
            self.finished.store(true, Ordering::Release);
        }
        pub(super) fn land(&self) {
            assert!(!self.finished.load(Ordering::Acquire), "an append ends in a finished zone");
            self.landed.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The replacement under test, and a model of the device.
#[derive(Debug)]
struct Log {
    replacement: Replacement,
    /// The number of segments that maintenance can still fetch.
    pool: sync::Mutex<Vec<Arc<LogZone>>>,
    /// All zones of the log, in the order in which they become active.
    zones: Vec<Arc<LogZone>>,
    stopping: sync::AtomicBool,
}

/// Runs a future that blocks its thread instead of waiting.
fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

/// A case to explore: the shape of a log, and the work of its writers.
#[derive(Clone, Copy)]
struct ReplacementCase {
    /// Number of records of each of two writers, of a block each, and of blocks in each zone.
    records: [usize; 2],
    capacity: usize,
    /// True if the device has a volatile cache.
    volatile: bool,
    /// True if a zone may be written while the zone that the log leaves is not full.
    beside: bool,
    /// Number of zones written side by side.
    width: usize,
    rules: rules::Rules,
    /// True if maintenance finishes zones that the log has left.
    finishes: bool,
    /// The most preemptions that loom explores.
    preemptions: usize,
}

const PLAIN_CASE: ReplacementCase = ReplacementCase {
    records: [1, 1],
    capacity: 1,
    volatile: false,
    beside: true,
    width: 1,
    rules: rules::Rules { early: false },
    finishes: true,
    preemptions: 2,
};

impl ReplacementCase {
    fn explore(self) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.check(move || self.once());
    }

    fn once(self) {
        let all = self.records.iter().sum::<usize>();
        let zones: Vec<_> = (0..all.div_ceil(self.capacity) + self.width - 1)
            .map(|_| LogZone::new(self.capacity as u64, self.beside))
            .collect();
        let mut pool = zones.clone();
        let first = pool.remove(0);
        pool.reverse();
        let (work, order) = (sync::Event::default(), order::Order(tickets::Tickets::new(0, 8)));
        let log = Arc::new(Log {
            replacement: Replacement {
                active: sync::ArcSwapOption::new(Some(first)),
                spare: Default::default(),
                stripe: stripe::Stripe::new(self.width, 99, 99, self.volatile),
                changed: Default::default(),
                blocked: sync::AtomicBool::new(false),
                wanted: sync::AtomicBool::new(false),
                shortage: Default::default(),
                order: Arc::new(order),
                health: Arc::new(health::Health),
                counters: Arc::default(),
                work,
                volatile: self.volatile,
                longest: 1,
                rules: self.rules,
            },
            pool: sync::Mutex::from(pool),
            zones,
            stopping: sync::AtomicBool::new(false),
        });
        let writers = self.records.map(|records| {
            let log = Arc::clone(&log);
            thread::spawn(move || (0..records).for_each(|_| log.append()))
        });
        let maintained = Arc::clone(&log);
        let maintenance = thread::spawn(move || maintained.maintain(self.finishes));
        for writer in writers {
            writer.join().unwrap();
        }
        log.stopping.store(true, Ordering::Release);
        log.replacement.work.notify();
        maintenance.join().unwrap();
        let in_zones: usize = log.zones.iter().map(|zone| zone.landed.load(Ordering::Acquire)).sum();
        let given: u64 = log.zones.iter().map(|zone| zone.gate.used()).sum();
        assert_eq!((in_zones, given), (all, all as u64), "every record is in one zone");
        let tickets = &log.replacement.order.0;
        assert_eq!((tickets.low(), tickets.next()), (all as u64, all as u64));
    }
}

impl Log {
    /// Appends one record to the modelled log, as `append` does.
    fn append(&self) {
        let (replacement, tickets) = (&self.replacement, &self.replacement.order.0);
        let zone = match replacement.try_enter(1) {
            Ok(zone) => zone,
            Err(_) => run(replacement.enter(1)).unwrap(),
        };
        let low = tickets.low();
        let ticket = tickets.take(1).unwrap();
        if replacement.volatile {
            // Records in two zones are ordered by the `needs` of the later record.
            for before in self.zones.iter().take_while(|other| !Arc::ptr_eq(other, &zone)) {
                assert!(*before.top.lock() <= low, "a record follows those of the zones before its own");
            }
        }
        {
            let mut top = zone.top.lock();
            *top = (ticket + 1).max(*top);
        }
        zone.land();
        tickets.complete(ticket, 1);
        if zone.gate.leave() {
            replacement.drained(&zone);
        }
    }

    /// A model of the maintenance loop, without void entries and retirement.
    fn maintain(&self, finishes: bool) {
        let work = &self.replacement.work;
        loop {
            let seen = work.version();
            if self.step(finishes) {
                continue;
            }
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            run(work.changed_since(seen));
        }
    }

    fn step(&self, finishes: bool) -> bool {
        let replacement = &self.replacement;
        if let Some(zone) = replacement.take_drained_left_zone() {
            if finishes {
                zone.finish();
            }
            return true;
        }
        let wants = {
            let spare = replacement.spare.lock();
            spare.next.is_none() && spare.left.is_empty()
        };
        if wants && let Some(zone) = self.pool.lock().pop() {
            replacement.give_next_zone(zone);
            replacement.changed.notify();
            return true;
        }
        let Some((active, beside)) = replacement.drained_active() else { return false };
        if !beside {
            active.finish();
        }
        replacement.install_next();
        true
    }
}

#[test]
fn each_record_is_in_one_zone_and_none_is_appended_to_a_finished_zone() {
    PLAIN_CASE.explore();
}

#[test]
fn a_zone_that_may_not_be_open_beside_another_is_written_when_that_one_is_full() {
    ReplacementCase { beside: false, ..PLAIN_CASE }.explore();
}

#[test]
fn a_record_names_the_acknowledged_records_of_another_zone_that_it_follows() {
    ReplacementCase { volatile: true, ..PLAIN_CASE }.explore();
    ReplacementCase { volatile: true, records: [2, 1], preemptions: 1, ..PLAIN_CASE }.explore();
}

#[test]
fn zones_of_a_stripe_are_replaced_one_by_one() {
    ReplacementCase { width: 2, ..PLAIN_CASE }.explore();
}

/// Broken rule: the log leaves zones with appends in flight.
#[test]
#[should_panic(expected = "an append ends in a finished zone")]
fn maintenance_that_does_not_wait_for_appends_in_flight_is_found() {
    ReplacementCase { rules: rules::Rules { early: true }, ..PLAIN_CASE }.explore();
}

/// Broken rule on a volatile cache: the next zone is written before the old zone is drained.
#[test]
#[should_panic(expected = "a record follows those of the zones before its own")]
fn a_replacement_that_does_not_wait_for_acknowledgements_is_found() {
    ReplacementCase { rules: rules::Rules { early: true }, volatile: true, finishes: false, ..PLAIN_CASE }
        .explore();
}
