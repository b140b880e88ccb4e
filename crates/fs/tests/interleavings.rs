//! The gate of a zone and the ticket counters of a parallel log: loom explores the interleavings of threads.
//!
//! The files under test are compiled a second time here, on loom's atomics.
#![allow(dead_code, clippy::unwrap_used, reason = "tests may panic, and use a part of each file")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/wal/parallel/gate.rs"]
mod gate;
#[path = "../src/wal/parallel/tickets.rs"]
mod tickets;

use gate::{Entered, Gate};
use tickets::Tickets;

/// Two preemptions are enough to find races of two writers and a closer, and take seconds.
fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

/// A model of a log zone and its gate, as threads use them.
struct ModelZone {
    gate: Gate,
    /// Number of appends that ended, of calls that were told that the zone is drained, and of appends that
    /// had ended at the last such call.
    ended: AtomicUsize,
    notified: AtomicUsize,
    found: AtomicUsize,
    /// True while a write at the pointer is in flight.
    writing: AtomicBool,
}

impl ModelZone {
    fn new(capacity: u64) -> Arc<ModelZone> {
        let zero = || AtomicUsize::new(0);
        Arc::new(ModelZone {
            gate: Gate::new(capacity),
            ended: zero(),
            notified: zero(),
            found: zero(),
            writing: AtomicBool::new(false),
        })
    }

    fn drained(&self) {
        self.notified.fetch_add(1, Ordering::AcqRel);
        self.found.store(self.ended.load(Ordering::Acquire), Ordering::Release);
    }

    /// Appends once to the zone; false if its gate is closed. Waits while a write has the zone exclusively.
    fn append(&self, blocks: u64) -> bool {
        loop {
            match self.gate.enter(blocks) {
                Entered::In => break,
                Entered::Shut => return false,
                Entered::Exclusive => loom::thread::yield_now(),
            }
        }
        assert!(
            !self.writing.load(Ordering::Acquire),
            "no operation is in flight beside a write at the pointer"
        );
        self.ended.fetch_add(1, Ordering::AcqRel);
        if self.gate.leave() {
            self.drained();
        }
        true
    }
}

impl ModelZone {
    /// Writes once at the zone's pointer, if nothing is in flight; returns the address. `cancels`: gives the
    /// blocks back instead.
    fn write(&self, blocks: u64, cancels: bool) -> Option<u64> {
        let at = self.gate.enter_exclusive(blocks)?;
        assert!(!self.writing.swap(true, Ordering::AcqRel), "one write has the zone exclusively");
        assert_eq!(
            at,
            2 * self.ended.load(Ordering::Acquire) as u64,
            "the write pointer is after all blocks that were written"
        );
        if !cancels {
            self.ended.fetch_add(1, Ordering::AcqRel);
        }
        self.writing.store(false, Ordering::Release);
        let drained = if cancels { self.gate.cancel_exclusive(blocks) } else { self.gate.leave_exclusive() };
        if drained {
            self.drained();
        }
        (!cancels).then_some(at)
    }
}

#[test]
fn a_write_at_the_pointer_has_the_zone_exclusively_and_knows_the_write_pointer() {
    explore(|| {
        let zone = ModelZone::new(6);
        let appender = zone.clone();
        let appends = thread::spawn(move || usize::from(appender.append(2)));
        let writer = zone.clone();
        let writes = thread::spawn(move || usize::from(writer.write(2, false).is_some()));
        let mine = usize::from(zone.write(2, true).is_some() || zone.append(2));
        let all = mine + appends.join().unwrap() + writes.join().unwrap();
        assert_eq!((zone.gate.used(), zone.ended.load(Ordering::Acquire)), (2 * all as u64, all));
        assert!(all >= 2 && zone.gate.is_idle(), "a writer that does not get the zone exclusively appends");
    });
}

#[test]
fn a_zone_that_is_closed_beside_a_write_at_the_pointer_is_drained_once_and_after_it() {
    for cancels in [false, true] {
        explore(move || {
            let (old, new) = (ModelZone::new(8), ModelZone::new(8));
            let writer = old.clone();
            let write = thread::spawn(move || usize::from(writer.write(2, cancels).is_some()));
            let (from, to) = (old.clone(), new.clone());
            let append = thread::spawn(move || {
                assert!(from.append(2) || to.append(2), "an append found both gates closed")
            });
            if old.gate.close() {
                old.drained();
            }
            let written = write.join().unwrap();
            append.join().unwrap();
            let (in_old, in_new) = (old.ended.load(Ordering::Acquire), new.ended.load(Ordering::Acquire));
            assert_eq!(in_old + in_new, 1 + written);
            assert_eq!(old.notified.load(Ordering::Acquire), 1, "the zone is drained once");
            assert_eq!(old.found.load(Ordering::Acquire), in_old, "no append ends in a drained zone");
            assert!(old.gate.is_drained() && old.gate.enter_exclusive(1).is_none());
        });
    }
}

#[test]
fn an_append_that_races_the_replacement_is_in_the_old_zone_before_it_is_drained_or_in_the_new_one() {
    explore(|| {
        let (old, new) = (ModelZone::new(8), ModelZone::new(8));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (old, new) = (old.clone(), new.clone());
                thread::spawn(move || {
                    assert!(old.append(2) || new.append(2), "an append found both gates closed")
                })
            })
            .collect();
        if old.gate.close() {
            old.drained();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let (in_old, in_new) = (old.ended.load(Ordering::Acquire), new.ended.load(Ordering::Acquire));
        assert_eq!(in_old + in_new, 2);
        assert_eq!(old.notified.load(Ordering::Acquire), 1, "the zone is drained once");
        assert_eq!(old.found.load(Ordering::Acquire), in_old, "no append ends in a drained zone");
        assert_eq!(old.gate.used(), 2 * in_old as u64);
        assert!(old.gate.is_drained() && old.gate.enter(1) == Entered::Shut);
    });
}

/// The race of the WALTZ paper's code: a writer checks that its zone is open without being counted as in
/// flight.
#[test]
#[should_panic(expected = "no append ends in a drained zone")]
fn a_writer_that_checks_the_gate_without_entering_is_found() {
    explore(|| {
        let (old, new) = (ModelZone::new(8), ModelZone::new(8));
        let (looking, next) = (old.clone(), new.clone());
        let writer = thread::spawn(move || {
            let zone = if looking.gate.is_closed() { next } else { looking };
            zone.ended.fetch_add(1, Ordering::AcqRel);
        });
        if old.gate.close() {
            old.drained();
        }
        writer.join().unwrap();
        let in_old = old.ended.load(Ordering::Acquire);
        assert_eq!(old.found.load(Ordering::Acquire), in_old, "no append ends in a drained zone");
    });
}

#[test]
fn appends_never_overrun_a_zone() {
    explore(|| {
        let zone = ModelZone::new(5);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let zone = zone.clone();
                thread::spawn(move || usize::from(zone.append(2)))
            })
            .collect();
        let mine = usize::from(zone.append(2));
        let all: usize = mine + writers.into_iter().map(|w| w.join().unwrap()).sum::<usize>();
        assert_eq!((all, zone.gate.used(), zone.gate.left()), (2, 4, 1));
        assert!(zone.gate.is_idle() && !zone.gate.is_drained());
    });
}

#[test]
fn a_cancelled_operation_gives_its_blocks_back_and_may_drain_the_zone() {
    explore(|| {
        let zone = ModelZone::new(4);
        let other = zone.clone();
        let writer = thread::spawn(move || {
            if other.gate.enter(3) == Entered::In && other.gate.cancel(3) {
                other.drained();
            }
        });
        if zone.gate.close() {
            zone.drained();
        }
        writer.join().unwrap();
        assert_eq!((zone.notified.load(Ordering::Acquire), zone.gate.used()), (1, 0));
    });
}

#[test]
fn the_lowest_open_ticket_passes_all_completed_tickets_in_any_order_of_completion() {
    explore(|| {
        let tickets = Arc::new(Tickets::new(7, 4));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let tickets = tickets.clone();
                thread::spawn(move || {
                    let ticket = tickets.take(1).unwrap();
                    assert!(tickets.low() <= ticket, "this thread's ticket is still open");
                    tickets.complete(ticket, 1);
                })
            })
            .collect();
        let mine = tickets.take(1).unwrap();
        tickets.complete(mine, 1);
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!((tickets.low(), tickets.next()), (10, 10));
    });
}

#[test]
fn no_more_tickets_are_open_than_the_ring_holds() {
    explore(|| {
        let tickets = Arc::new(Tickets::new(0, 2));
        let first = tickets.take(1).unwrap();
        let other = tickets.clone();
        let writer = thread::spawn(move || {
            let got = other.take(1);
            if let Some(ticket) = got {
                other.complete(ticket, 1);
            }
            got.is_some()
        });
        let second = tickets.take(1);
        if let Some(ticket) = second {
            assert!(ticket < tickets.low() + 2);
            tickets.complete(ticket, 1);
        }
        tickets.complete(first, 1);
        let other = writer.join().unwrap();
        let all = 1 + u64::from(second.is_some()) + u64::from(other);
        assert_eq!((tickets.low(), tickets.next()), (all, all));
    });
}
