//! What threads may do to the two counters of a parallel log, all of it: loom goes through the interleavings.
//!
//! The files under test are compiled a second time here, on loom's atomics.
#![allow(dead_code, clippy::unwrap_used, reason = "tests may panic, and use a part of each file")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/log/parallel/gate.rs"]
mod gate;
#[path = "../src/log/parallel/tickets.rs"]
mod tickets;

use gate::Gate;
use tickets::Tickets;

/// Two preemptions of each thread find what two writers and a closer can do to each other, in seconds.
fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

/// A zone as the threads of a log use it.
struct Zone {
    gate: Gate,
    /// Appends that the device has, and what it had when somebody heard that the zone is drained.
    landed: AtomicUsize,
    heard: AtomicUsize,
    found: AtomicUsize,
}

impl Zone {
    fn new(capacity: u64) -> Arc<Zone> {
        let zero = || AtomicUsize::new(0);
        Arc::new(Zone { gate: Gate::new(capacity), landed: zero(), heard: zero(), found: zero() })
    }

    fn drained(&self) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        self.found.store(self.landed.load(Ordering::Acquire), Ordering::Release);
    }

    /// One append; whether it got in.
    fn append(&self, blocks: u64) -> bool {
        if !self.gate.enter(blocks) {
            return false;
        }
        self.landed.fetch_add(1, Ordering::AcqRel);
        if self.gate.leave() {
            self.drained();
        }
        true
    }
}

#[test]
fn an_append_that_races_the_replacement_is_in_the_old_zone_before_it_is_drained_or_in_the_new_one() {
    explore(|| {
        let (old, new) = (Zone::new(8), Zone::new(8));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (old, new) = (old.clone(), new.clone());
                thread::spawn(move || assert!(old.append(2) || new.append(2), "an append is lost"))
            })
            .collect();
        if old.gate.close() {
            old.drained();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let (in_old, in_new) = (old.landed.load(Ordering::Acquire), new.landed.load(Ordering::Acquire));
        assert_eq!(in_old + in_new, 2);
        assert_eq!(old.heard.load(Ordering::Acquire), 1, "the zone is drained once");
        assert_eq!(old.found.load(Ordering::Acquire), in_old, "nothing lands in a zone that is drained");
        assert_eq!(old.gate.used(), 2 * in_old as u64);
        assert!(old.gate.is_drained() && !old.gate.enter(1));
    });
}

/// The race of the paper's code, put in: a writer that looks whether its zone is in use, and takes no place in it.
#[test]
#[should_panic(expected = "nothing lands in a zone that is drained")]
fn a_writer_that_only_looks_at_the_gate_is_found() {
    explore(|| {
        let (old, new) = (Zone::new(8), Zone::new(8));
        let (looking, next) = (old.clone(), new.clone());
        let writer = thread::spawn(move || {
            let zone = if looking.gate.is_closed() { next } else { looking };
            zone.landed.fetch_add(1, Ordering::AcqRel);
        });
        if old.gate.close() {
            old.drained();
        }
        writer.join().unwrap();
        let in_old = old.landed.load(Ordering::Acquire);
        assert_eq!(old.found.load(Ordering::Acquire), in_old, "nothing lands in a zone that is drained");
    });
}

#[test]
fn appends_never_overrun_a_zone() {
    explore(|| {
        let zone = Zone::new(5);
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
fn whoever_turns_back_gives_its_blocks_back_and_may_be_the_last_one_out() {
    explore(|| {
        let zone = Zone::new(4);
        let other = zone.clone();
        let writer = thread::spawn(move || {
            if other.gate.enter(3) && other.gate.turn_back(3) {
                other.drained();
            }
        });
        if zone.gate.close() {
            zone.drained();
        }
        writer.join().unwrap();
        assert_eq!((zone.heard.load(Ordering::Acquire), zone.gate.used()), (1, 0));
    });
}

#[test]
fn the_lowest_open_ticket_moves_past_all_that_are_done_whoever_is_last() {
    explore(|| {
        let tickets = Arc::new(Tickets::new(7, 4));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let tickets = tickets.clone();
                thread::spawn(move || {
                    let ticket = tickets.take(1).unwrap();
                    assert!(tickets.low() <= ticket, "nobody else is done with it");
                    tickets.done(ticket, 1);
                })
            })
            .collect();
        let mine = tickets.take(1).unwrap();
        tickets.done(mine, 1);
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
                other.done(ticket, 1);
            }
            got.is_some()
        });
        let second = tickets.take(1);
        if let Some(ticket) = second {
            assert!(ticket < tickets.low() + 2);
            tickets.done(ticket, 1);
        }
        tickets.done(first, 1);
        let other = writer.join().unwrap();
        let all = 1 + u64::from(second.is_some()) + u64::from(other);
        assert_eq!((tickets.low(), tickets.next()), (all, all));
    });
}
