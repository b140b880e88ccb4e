//! Tests of both engines on an ordinary file, open for direct I/O.

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Op, engines, file, pattern, read, within_ten_minutes, write};
use sys::{Buf, BufMut, Priority, Request};
use units::{RealDriver, block_on};

const BLOCK: usize = 4096;

#[test]
fn what_was_written_is_read_back() {
    let driver = RealDriver::new();
    for engine in engines() {
        let file = file(1 << 20);
        let data = pattern(1, 4 * BLOCK);
        let parts = vec![Buf::copy_from(&data[..BLOCK]), Buf::copy_from(&data[BLOCK..])];
        for (durable, priority) in
            [(false, Priority::Unset), (true, Priority::BestEffort(0)), (true, Priority::of_log())]
        {
            let (file, data) = (Arc::clone(&file), parts.clone());
            let request = Request::Write { file, at: 8192, data, durable, priority };
            let written = block_on(&*driver, Op::start(&engine, request));
            assert_eq!(written.result.ok(), Some(4 * BLOCK as u64));
        }
        let synced = block_on(&*driver, Op::start(&engine, Request::Sync { file: Arc::clone(&file) }));
        assert_eq!((synced.result.ok(), synced.status), (Some(0), 0));
        let found = block_on(&*driver, Op::start(&engine, read(&file, 8192, BufMut::zeroed(4 * BLOCK))));
        assert_eq!(found.result.ok(), Some(4 * BLOCK as u64));
        assert_eq!(found.buffer.as_deref(), Some(&*data));
    }
}

#[test]
fn buffers_need_no_alignment() {
    let driver = RealDriver::new();
    for engine in engines() {
        let file = file(1 << 20);
        let data = pattern(2, 2 * BLOCK);
        // The data is misaligned by one byte, and is in parts that end anywhere.
        let whole = Buf::copy_from(&[&[0][..], &data].concat()).slice(1..);
        let parts = vec![whole.slice(..700), Buf::default(), whole.slice(700..5000), whole.slice(5000..)];
        for data in [vec![whole.clone()], parts] {
            let written = block_on(&*driver, Op::start(&engine, write(&file, 0, data)));
            assert_eq!(written.result.ok(), Some(2 * BLOCK as u64));
        }
        let mut into = BufMut::zeroed(2 * BLOCK + 1);
        let _first = into.split_to(1);
        let found = block_on(&*driver, Op::start(&engine, read(&file, 0, into)));
        assert_eq!(found.result.ok(), Some(2 * BLOCK as u64));
        assert_eq!(found.buffer.as_deref(), Some(&*data));
    }
}

#[test]
fn a_write_of_more_parts_than_one_call_takes_is_whole() {
    let driver = RealDriver::new();
    for engine in engines() {
        let file = file(8 << 20);
        let data = pattern(3, 1500 * BLOCK);
        let whole = Buf::copy_from(&data);
        let parts = (0..1500).map(|i| whole.slice(i * BLOCK..(i + 1) * BLOCK)).collect();
        let written = block_on(&*driver, Op::start(&engine, write(&file, 0, parts)));
        assert_eq!(written.result.ok(), Some(1500 * BLOCK as u64));
        let found = block_on(&*driver, Op::start(&engine, read(&file, 0, BufMut::zeroed(1500 * BLOCK))));
        assert!(found.buffer.as_deref() == Some(&*data));
    }
}

#[test]
fn a_read_past_the_end_gives_fewer_bytes_and_its_buffer() {
    let driver = RealDriver::new();
    for engine in engines() {
        let file = file(2 * BLOCK as u64);
        let found =
            block_on(&*driver, Op::start(&engine, read(&file, BLOCK as u64, BufMut::zeroed(4 * BLOCK))));
        assert_eq!(found.result.ok(), Some(BLOCK as u64));
        assert_eq!(found.buffer.map(|buffer| buffer.len()), Some(4 * BLOCK));
        let past = block_on(&*driver, Op::start(&engine, read(&file, 1 << 20, BufMut::zeroed(BLOCK))));
        assert_eq!(past.result.ok(), Some(0));
    }
}

#[test]
fn errors_reach_the_submitter() {
    let driver = RealDriver::new();
    for engine in engines() {
        let readable = Arc::new(std::fs::File::open("/dev/null").expect("/dev/null"));
        let written = block_on(&*driver, Op::start(&engine, write(&readable, 0, vec![Buf::zeroed(BLOCK)])));
        assert_eq!(written.result.expect_err("opened for reading").raw_os_error(), Some(libc::EBADF));
        let directory = Arc::new(std::fs::File::open("/").expect("/"));
        let found = block_on(&*driver, Op::start(&engine, read(&directory, 0, BufMut::zeroed(BLOCK))));
        assert_eq!(found.result.expect_err("a directory").raw_os_error(), Some(libc::EISDIR));
        assert_eq!(found.buffer.map(|buffer| buffer.len()), Some(BLOCK));
    }
}

#[test]
fn a_call_returns_its_result_or_resumes_its_panic() {
    let driver = RealDriver::new();
    for engine in engines() {
        let call = |call: Box<dyn FnOnce() -> io::Result<u64> + Send>| {
            block_on(&*driver, Op::start(&engine, Request::Call(call))).result
        };
        assert_eq!(call(Box::new(|| Ok(42))).ok(), Some(42));
        let error = call(Box::new(|| Err(io::Error::from_raw_os_error(libc::EIO)))).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert!(call(Box::new(|| panic!("a defect of the caller"))).is_err());
    }
}

#[test]
fn many_threads_have_many_in_flight_and_each_finishes_once() {
    within_ten_minutes(|| {
        for engine in engines() {
            let file = file(64 << 20);
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let (engine, file) = (&engine, &file);
                    scope.spawn(move || {
                        let driver = RealDriver::new();
                        let at = |n: u64| (thread * 64 + n) * 2 * BLOCK as u64;
                        let data = |n: u64| Buf::copy_from(&pattern(thread * 1000 + n, 2 * BLOCK));
                        let writes: Vec<_> =
                            (0..64).map(|n| Op::start(engine, write(file, at(n), vec![data(n)]))).collect();
                        for op in &writes {
                            let written = block_on(&*driver, op.clone());
                            assert_eq!(written.result.ok(), Some(2 * BLOCK as u64));
                        }
                        let reads: Vec<_> = (0..64)
                            .map(|n| Op::start(engine, read(file, at(n), BufMut::zeroed(2 * BLOCK))))
                            .collect();
                        for (n, op) in reads.iter().enumerate() {
                            let found = block_on(&*driver, op.clone());
                            assert_eq!(found.buffer.as_deref(), Some(&*data(n as u64)), "{n} of {thread}");
                        }
                        assert!(writes.iter().chain(&reads).all(|op| op.calls() == 1));
                    });
                }
            });
        }
    });
}

#[test]
fn a_finish_may_submit_more() {
    let driver = RealDriver::new();
    for engine in engines() {
        let file = file(1 << 20);
        let (last, finish) = Op::pair();
        let (again, file2) = (Arc::clone(&engine), Arc::clone(&file));
        let first: sys::Finish = Box::new(move |finished| {
            assert_eq!(finished.result.ok(), Some(BLOCK as u64));
            again.submit(read(&file2, 0, BufMut::zeroed(BLOCK)), finish);
        });
        engine.submit(write(&file, 0, vec![Buf::copy_from(&[7; BLOCK])]), first);
        let found = block_on(&*driver, last);
        assert_eq!(found.buffer.as_deref(), Some(&[7; BLOCK][..]));
    }
}

#[test]
fn what_a_thread_leaves_in_flight_finishes_after_it() {
    within_ten_minutes(|| {
        for engine in engines() {
            let file = file(16 << 20);
            let finished = Arc::new(AtomicU64::new(0));
            let (engine2, file2, finished2) = (Arc::clone(&engine), Arc::clone(&file), Arc::clone(&finished));
            let thread = std::thread::Builder::new().spawn(move || {
                for n in 0..200u64 {
                    let finished = Arc::clone(&finished2);
                    let finish = Box::new(move |done: sys::Finished| {
                        assert_eq!(done.result.ok(), Some(BLOCK as u64));
                        finished.fetch_add(1, Ordering::Relaxed);
                    });
                    let data = vec![Buf::copy_from(&pattern(n, BLOCK))];
                    engine2.submit(write(&file2, n * BLOCK as u64, data), finish);
                }
            });
            thread.expect("a thread").join().expect("the thread submits and leaves");
            let driver = RealDriver::new();
            let wait = async {
                while finished.load(Ordering::Relaxed) < 200 {
                    let soon = units::Driver::now(&*driver).after(std::time::Duration::from_millis(1));
                    units::sleep_until(&*driver, soon).await;
                }
            };
            block_on(&*driver, wait);
            let found = block_on(
                &*driver,
                Op::start(&engine, read(&file, 199 * BLOCK as u64, BufMut::zeroed(BLOCK))),
            );
            assert_eq!(found.buffer.as_deref(), Some(&*pattern(199, BLOCK)));
        }
    });
}
