//! Tests of which thread processes a completion, and that no wake-up is lost.

mod common;

use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use common::{Op, engines, file, pattern, read, within_ten_minutes, write};
use sys::{Buf, BufMut, Engine, EngineKind, Finished};
use units::sync::Event;
use units::{Driver, RealDriver, block_on, sleep_until, spawn};

const BLOCK: usize = 4096;

fn ring() -> Option<Arc<Engine>> {
    engines().into_iter().find(|engine| engine.kind() == EngineKind::Ring)
}

/// Polls two futures concurrently to completion.
async fn join_both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut x, mut y) = (None, None);
    std::future::poll_fn(|cx| {
        if x.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            x = Some(value);
        }
        if y.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            y = Some(value);
        }
        if x.is_some() && y.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (x.expect("polled to its end"), y.expect("polled to its end"))
}

#[test]
fn a_thread_that_waits_serves_its_own_completions() {
    within_ten_minutes(|| {
        let Some(engine) = ring() else { return };
        let driver = RealDriver::new();
        let me = std::thread::current().id();
        let own = Arc::new(AtomicU32::new(0));
        // The reaper may process operations that complete before the thread waits. So the test reads a pipe,
        // and writes to it once the thread sleeps in its ring.
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let pipe = Arc::new(File::from(OwnedFd::from(reader)));
        let waits = ring_wait_of_this_thread();
        let (round, rounds) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for () in rounds {
                    while !waits() {
                        std::thread::yield_now();
                    }
                    writer.write_all(&[7; BLOCK]).expect("it is read");
                }
            });
            for _ in 0..100 {
                let (op, finish) = Op::pair();
                let own = Arc::clone(&own);
                let finish = Box::new(move |finished: Finished| {
                    own.fetch_add(u32::from(std::thread::current().id() == me), Ordering::Relaxed);
                    finish(finished);
                });
                engine.submit(read(&pipe, 0, BufMut::zeroed(BLOCK)), finish);
                round.send(()).expect("the other thread goes on");
                assert_eq!(block_on(&*driver, op).result.ok(), Some(BLOCK as u64));
            }
            drop(round);
        });
        assert_eq!(own.load(Ordering::Relaxed), 100);
    });
}

/// Returns a function that is true while the calling thread sleeps in `io_uring_enter`, from `/proc`.
fn ring_wait_of_this_thread() -> impl Fn() -> bool + Send {
    let me = std::fs::read_link("/proc/thread-self").expect("Linux has it");
    let path = Path::new("/proc").join(me).join("syscall");
    // The file `/proc/.../syscall` of a running thread holds "running"; that of a waiting one begins with the
    // number of the system call.
    move || std::fs::read_to_string(&path).expect("a thread may read its own state").starts_with("426 ")
}

#[test]
fn completions_without_a_waiting_thread_are_served_by_another_thread() {
    for engine in engines() {
        let file = file(1 << 20);
        let me = std::thread::current().id();
        let (tx, rx) = mpsc::channel();
        for round in 0..100 {
            let tx = tx.clone();
            let finish = Box::new(move |finished: Finished| {
                tx.send((std::thread::current().id(), finished.result.ok())).expect("the test listens");
            });
            engine.submit(read(&file, 0, BufMut::zeroed(BLOCK)), finish);
            // This thread sleeps in a channel, not in its io_uring.
            let (by, result) = rx.recv_timeout(Duration::from_secs(120)).expect("served");
            assert_eq!(result, Some(BLOCK as u64));
            assert_ne!(by, me);
            if round % 10 == 0 {
                // Between two rounds the thread waits in its ring for a timer.
                let driver = RealDriver::new();
                block_on(&*driver, sleep_until(&*driver, driver.now().after(Duration::from_micros(100))));
            }
        }
    }
}

#[test]
fn more_than_a_ring_holds_may_be_in_flight() {
    within_ten_minutes(|| {
        let driver = RealDriver::new();
        for engine in engines() {
            let file = file(16 << 20);
            let data = Buf::copy_from(&pattern(5, BLOCK));
            for waits in [true, false] {
                let ops: Vec<_> = (0..3000u64)
                    .map(|n| Op::start(&engine, write(&file, n * BLOCK as u64, vec![data.clone()])))
                    .collect();
                if !waits {
                    while ops.iter().any(|op| op.calls() == 0) {
                        std::thread::yield_now();
                    }
                }
                for op in &ops {
                    assert_eq!(block_on(&*driver, op.clone()).result.ok(), Some(BLOCK as u64));
                }
                assert!(ops.iter().all(|op| op.calls() == 1));
            }
        }
    });
}

/// Completions that are taken late must fit the completion queue: the kernel would signal nothing for those
/// beyond its length.
#[test]
fn completions_that_are_taken_late_do_not_overflow() {
    within_ten_minutes(|| {
        for engine in engines() {
            let file = file(1 << 20);
            let (go, wait) = mpsc::channel::<()>();
            // The callback blocks the reaping thread, which the rules forbid.
            let blocks = Box::new(move |_: Finished| {
                let _gone = wait.recv();
            });
            engine.submit(read(&file, 0, BufMut::zeroed(BLOCK)), blocks);
            let (tx, rx) = mpsc::channel();
            for _ in 0..3000 {
                let tx = tx.clone();
                let finish = Box::new(move |finished: Finished| {
                    tx.send(finished.result.is_ok()).expect("the test listens");
                });
                // The read of a hole in a file completes at once.
                engine.submit(read(&file, 0, BufMut::zeroed(BLOCK)), finish);
            }
            drop(go);
            for _ in 0..3000 {
                assert_eq!(rx.recv_timeout(Duration::from_secs(120)), Ok(true));
            }
        }
    });
}

#[test]
fn timers_and_completions_are_waited_for_at_once() {
    within_ten_minutes(|| {
        let driver = RealDriver::new();
        for engine in engines() {
            let file = file(1 << 20);
            for round in 0..50u64 {
                let due = driver.now().after(Duration::from_micros(round * 20));
                let op = Op::start(&engine, read(&file, 0, BufMut::zeroed(BLOCK)));
                let (found, ()) = block_on(&*driver, join_both(op, sleep_until(&*driver, due)));
                assert_eq!(found.result.ok(), Some(BLOCK as u64));
                assert!(driver.now() >= due);
            }
        }
    });
}

#[test]
fn a_wait_in_the_ring_ends_when_another_thread_wakes_it() {
    within_ten_minutes(|| {
        let Some(engine) = ring() else { return };
        let (driver, file) = (RealDriver::new(), file(1 << 20));
        // This thread has an io_uring from here on, with nothing in flight.
        block_on(&*driver, Op::start(&engine, read(&file, 0, BufMut::zeroed(BLOCK))));
        for pause in [0, 1, 10, 100, 1000] {
            let d = Arc::clone(&driver);
            let other = spawn(&*driver, "other", async move {
                sleep_until(&*d, d.now().after(Duration::from_micros(pause))).await;
                pause
            });
            assert_eq!(block_on(&*driver, other), pause);
        }
    });
}

/// Each thread of a ring waits in turn for its neighbour and for an operation of its own. A lost wake-up stops the
/// ring.
#[test]
fn no_wake_is_lost_between_rings_timers_and_threads() {
    within_ten_minutes(|| {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 1500;
        for engine in engines() {
            let file = file(1 << 20);
            let events: Vec<_> = (0..THREADS).map(|_| Event::new()).collect();
            let operations = Arc::new(AtomicU64::new(0));
            std::thread::scope(|scope| {
                for me in 0..THREADS {
                    let (engine, file, events, operations) = (&engine, &file, &events, &operations);
                    scope.spawn(move || {
                        let driver = RealDriver::new();
                        let (mine, next) = (&events[me as usize], &events[((me + 1) % THREADS) as usize]);
                        for round in 0..ROUNDS {
                            next.notify();
                            let turn = async {
                                while mine.version() <= round {
                                    mine.changed_since(mine.version().min(round)).await;
                                }
                            };
                            let at = (me * 16 + round % 16) * BLOCK as u64;
                            match round % 3 {
                                0 => block_on(&*driver, turn),
                                1 => {
                                    let op = Op::start(engine, read(file, at, BufMut::zeroed(BLOCK)));
                                    let (found, ()) = block_on(&*driver, join_both(op, turn));
                                    operations.fetch_add(u64::from(found.result.is_ok()), Ordering::Relaxed);
                                }
                                _ => {
                                    let soon = driver.now().after(Duration::from_micros(round % 60));
                                    block_on(&*driver, join_both(sleep_until(&*driver, soon), turn));
                                }
                            }
                        }
                    });
                }
            });
            assert_eq!(operations.load(Ordering::Relaxed), THREADS * ROUNDS / 3);
        }
    });
}

/// Requests submitted during completions are held back until the thread waits, and must be submitted even if it does
/// not wait.
#[test]
fn a_chain_of_operations_from_callbacks_goes_on_to_its_end() {
    within_ten_minutes(|| {
        fn link(engine: &Arc<Engine>, file: &Arc<std::fs::File>, left: u32, done: mpsc::Sender<u32>) {
            let (again, file2) = (Arc::clone(engine), Arc::clone(file));
            let finish = Box::new(move |finished: Finished| {
                assert!(finished.result.is_ok());
                match left {
                    0 => done.send(0).expect("the test listens"),
                    _ => link(&again, &file2, left - 1, done),
                }
            });
            engine.submit(read(file, 0, BufMut::zeroed(BLOCK)), finish);
        }
        let driver = RealDriver::new();
        for engine in engines() {
            let file = file(1 << 20);
            let (tx, rx) = mpsc::channel();
            for _ in 0..8 {
                link(&engine, &file, 100, tx.clone());
            }
            // The thread waits in its ring for a while, then in a channel, where it does not serve the ring.
            block_on(&*driver, sleep_until(&*driver, driver.now().after(Duration::from_millis(2))));
            for _ in 0..8 {
                assert_eq!(rx.recv_timeout(Duration::from_secs(120)), Ok(0));
            }
        }
    });
}

/// While the owner thread waits, its ring signals no eventfd: the owner also processes completions that
/// arrive as it stops waiting.
#[test]
fn what_completes_as_a_thread_stops_waiting_is_served() {
    within_ten_minutes(|| {
        let driver = RealDriver::new();
        for engine in engines() {
            let file = file(1 << 20);
            block_on(&*driver, Op::start(&engine, write(&file, 0, vec![Buf::zeroed(1 << 20)])));
            for _ in 0..100 {
                let (tx, rx) = mpsc::channel();
                let awaited = Op::start(&engine, read(&file, 0, BufMut::zeroed(BLOCK)));
                for n in 0..24 {
                    let tx = tx.clone();
                    let finish = Box::new(move |finished: Finished| {
                        tx.send(finished.result.is_ok()).expect("the test listens");
                    });
                    engine.submit(read(&file, n * BLOCK as u64, BufMut::zeroed(BLOCK)), finish);
                }
                block_on(&*driver, awaited);
                for _ in 0..24 {
                    assert_eq!(rx.recv_timeout(Duration::from_secs(120)), Ok(true));
                }
            }
        }
    });
}
