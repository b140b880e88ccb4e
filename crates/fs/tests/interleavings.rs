//! What threads may do to the two counters of a parallel log, all of it: loom goes through the interleavings.
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
    /// Somebody writes at the pointer.
    writing: AtomicBool,
}

impl Zone {
    fn new(capacity: u64) -> Arc<Zone> {
        let zero = || AtomicUsize::new(0);
        Arc::new(Zone {
            gate: Gate::new(capacity),
            landed: zero(),
            heard: zero(),
            found: zero(),
            writing: AtomicBool::new(false),
        })
    }

    fn drained(&self) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        self.found.store(self.landed.load(Ordering::Acquire), Ordering::Release);
    }

    /// One append; whether it got in. Where somebody has the zone to itself, it waits.
    fn append(&self, blocks: u64) -> bool {
        loop {
            match self.gate.enter(blocks) {
                Entered::In => break,
                Entered::Shut => return false,
                Entered::Taken => loom::thread::yield_now(),
            }
        }
        assert!(!self.writing.load(Ordering::Acquire), "nothing goes beside a write at the pointer");
        self.landed.fetch_add(1, Ordering::AcqRel);
        if self.gate.leave() {
            self.drained();
        }
        true
    }
}

impl Zone {
    /// One write at the pointer, if nobody is in; gives where it went. `turns_back`: it gets no ticket.
    fn write(&self, blocks: u64, turns_back: bool) -> Option<u64> {
        let at = self.gate.enter_alone(blocks)?;
        assert!(!self.writing.swap(true, Ordering::AcqRel), "one has the zone to itself");
        assert_eq!(
            at,
            2 * self.landed.load(Ordering::Acquire) as u64,
            "the pointer is behind all that landed"
        );
        if !turns_back {
            self.landed.fetch_add(1, Ordering::AcqRel);
        }
        self.writing.store(false, Ordering::Release);
        let drained = if turns_back { self.gate.turn_back_alone(blocks) } else { self.gate.leave_alone() };
        if drained {
            self.drained();
        }
        (!turns_back).then_some(at)
    }
}

#[test]
fn a_write_at_the_pointer_has_the_zone_to_itself_and_knows_where_the_pointer_is() {
    explore(|| {
        let zone = Zone::new(6);
        let appender = zone.clone();
        let appends = thread::spawn(move || usize::from(appender.append(2)));
        let writer = zone.clone();
        let writes = thread::spawn(move || usize::from(writer.write(2, false).is_some()));
        let mine = usize::from(zone.write(2, true).is_some() || zone.append(2));
        let all = mine + appends.join().unwrap() + writes.join().unwrap();
        assert_eq!((zone.gate.used(), zone.landed.load(Ordering::Acquire)), (2 * all as u64, all));
        assert!(all >= 2 && zone.gate.is_idle(), "who does not get the zone appends");
    });
}

#[test]
fn a_zone_that_is_closed_beside_a_write_at_the_pointer_is_drained_once_and_after_it() {
    for turns_back in [false, true] {
        explore(move || {
            let (old, new) = (Zone::new(8), Zone::new(8));
            let writer = old.clone();
            let write = thread::spawn(move || usize::from(writer.write(2, turns_back).is_some()));
            let (from, to) = (old.clone(), new.clone());
            let append = thread::spawn(move || assert!(from.append(2) || to.append(2), "an append is lost"));
            if old.gate.close() {
                old.drained();
            }
            let written = write.join().unwrap();
            append.join().unwrap();
            let (in_old, in_new) = (old.landed.load(Ordering::Acquire), new.landed.load(Ordering::Acquire));
            assert_eq!(in_old + in_new, 1 + written);
            assert_eq!(old.heard.load(Ordering::Acquire), 1, "the zone is drained once");
            assert_eq!(old.found.load(Ordering::Acquire), in_old, "nothing lands in a zone that is drained");
            assert!(old.gate.is_drained() && old.gate.enter_alone(1).is_none());
        });
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
        assert!(old.gate.is_drained() && old.gate.enter(1) == Entered::Shut);
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
            if other.gate.enter(3) == Entered::In && other.gate.turn_back(3) {
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
