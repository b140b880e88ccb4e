//! Logs over a storage whose requests end when the test says so, and as it says.
#![allow(clippy::disallowed_methods, reason = "a test")]

use std::io;
use std::sync::{Arc, Mutex};

use prio::{Error, Finish, Log, Options, Request, Storage};
use units::{RealDriver, block_on};

/// Requests in flight.
#[derive(Default, Clone)]
struct Held(Arc<Mutex<Vec<(Request, Finish)>>>);

impl Storage for Held {
    fn start(&self, request: Request, finish: Finish) {
        self.0.lock().expect("no panic").push((request, finish));
    }
}

impl Held {
    /// Ends the request of that place among those in flight.
    fn end(&self, place: usize, result: io::Result<()>) {
        let (_, finish) = self.0.lock().expect("no panic").remove(place);
        finish(result);
    }

    fn in_flight(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

fn failure() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(5))
}

fn log(room: u64) -> (Log, Held) {
    let held = Held::default();
    let options = Options { block: 512, room, buffer: 4096, ..Options::default() };
    (Log::new(Arc::new(held.clone()), &options, 0, &[]).expect("valid options"), held)
}

/// Syncs on a thread of its own.
fn sync(log: &Log, upto: u64) -> std::thread::JoinHandle<prio::Result<()>> {
    let log = log.clone();
    std::thread::Builder::new()
        .spawn(move || block_on(&*RealDriver::new(), log.sync(upto)))
        .expect("a thread")
}

fn append(log: &Log, len: usize) -> u64 {
    block_on(&*RealDriver::new(), log.append(&vec![1; len])).expect("appends")
}

/// Waits until so many requests are in flight.
fn until(held: &Held, requests: usize) {
    while held.in_flight() != requests {
        std::thread::yield_now();
    }
}

#[test]
fn nothing_becomes_durable_after_a_failure_that_was_told() {
    let (log, held) = log(0);
    let first = sync(&log, append(&log, 512));
    until(&held, 1);
    let second = sync(&log, append(&log, 512));
    until(&held, 2);
    held.end(1, failure());
    let error = second.join().expect("no panic").expect_err("its write failed");
    assert!(matches!(error, Error::Poisoned { durable: 0, errno: Some(5), .. }), "{error}");
    let error = first.join().expect("no panic").expect_err("the log is poisoned");
    assert!(matches!(error, Error::Poisoned { durable: 0, .. }), "{error}");
    held.end(0, Ok(()));
    assert_eq!(log.durable(), 0, "the caller may have opened the log again at 0");
    let driver = RealDriver::new();
    assert!(block_on(&*driver, log.sync(512)).is_err() && block_on(&*driver, log.append(b"x")).is_err());
    assert!(block_on(&*driver, log.sync(0)).is_ok());
    let closed = block_on(&*driver, log.close()).expect_err("a poisoned log");
    assert!(matches!(closed, Error::Poisoned { .. }), "{closed}");
}

#[test]
fn a_log_goes_on_without_room_and_says_so() {
    let (log, held) = log(4096);
    assert_eq!((held.in_flight(), log.room_failure()), (1, None));
    let synced = sync(&log, append(&log, 100));
    held.end(0, Err(io::Error::from_raw_os_error(28)));
    until(&held, 1);
    held.end(0, Ok(()));
    synced.join().expect("no panic").expect("syncs");
    assert!(log.room_failure().expect("told").contains("No space"));
    assert_eq!((log.durable(), held.in_flight()), (100, 0));
}

#[test]
fn an_append_waits_while_the_buffer_is_full_and_fails_with_the_log() {
    for succeeds in [true, false] {
        let (log, held) = log(0);
        // The longest write has an eighth of the buffer, one block: 16 go out without a sync, and no more are in flight together.
        append(&log, 9000);
        assert_eq!(held.in_flight(), 16);
        let waiting = {
            let log = log.clone();
            let append = move || block_on(&*RealDriver::new(), log.append(&[2; 5000]));
            std::thread::Builder::new().spawn(append).expect("a thread")
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished(), "808 bytes are pending: 5,000 more do not fit into 4,096");
        if succeeds {
            held.end(0, Ok(()));
            held.end(0, Ok(()));
            assert_eq!(waiting.join().expect("no panic").expect("appends"), 14_000);
        } else {
            held.end(0, failure());
            let error = waiting.join().expect("no panic").expect_err("the log is poisoned");
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
    }
}
