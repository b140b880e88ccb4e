//! The cost of an I/O operation through each engine, and whether registered memory makes io_uring faster:
//! `cargo bench -p furrow-sys`. Compare results of one run only.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use common::{Op, engines, file, read, write};
use sys::{Buf, BufMut, Engine, Finished};
use units::{Driver, RealDriver, block_on};

const BLOCK: usize = 4096;
const ROUNDS: u32 = 3000;

/// Nanoseconds of processor time of this process, and how often its threads went to sleep: both are less
/// noisy than the clock on a machine with other work.
fn cpu_time_and_sleeps() -> (u64, u64) {
    // SAFETY: both calls write a structure that lives through the calls; all zeros are a valid value of
    // either structure.
    unsafe {
        let (mut cpu, mut usage): (libc::timespec, libc::rusage) = (std::mem::zeroed(), std::mem::zeroed());
        assert_eq!(libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut cpu), 0);
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        (cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64, usage.ru_nvcsw as u64)
    }
}

/// Measures the time of each of [`ROUNDS`] calls, their processor time and their sleeps.
fn measure(what: &str, mut call: impl FnMut(u32)) {
    let driver = RealDriver::new();
    let before = cpu_time_and_sleeps();
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|n| {
            let before = driver.now();
            call(n);
            driver.now().since(before).as_secs_f64() * 1e6
        })
        .collect();
    let after = cpu_time_and_sleeps();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((f64::from(ROUNDS) * share) as usize).copied().unwrap_or(f64::NAN);
    let per = |n: u64| n as f64 / f64::from(ROUNDS);
    println!(
        "{what:<54} p50 {:6.1}  p99 {:7.1}  cpu {:5.1} us, {:4.2} sleeps",
        at(0.5),
        at(0.99),
        per(after.0 - before.0) / 1e3,
        per(after.1 - before.1),
    );
}

fn measure_an_operation() {
    let driver = RealDriver::new();
    let (disk, hole) = (file(16 << 20), file(16 << 20));
    let threads = engines().remove(0);
    for part in 0..16 {
        let data = vec![Buf::zeroed(1 << 20)];
        assert!(block_on(&*driver, Op::start(&threads, write(&disk, part << 20, data))).result.is_ok());
    }
    for (name, file) in [("a disk", &disk), ("a hole (no I/O)", &hole)] {
        println!("4 KiB reads from {name}");
        let at = |n: u32| u64::from(n.wrapping_mul(2_654_435_761) % 4096) * BLOCK as u64;
        let mut into = BufMut::zeroed(BLOCK);
        measure("  pread", |n| {
            rustix::io::pread(file, &mut into[..], at(n)).expect("a read");
        });
        for engine in engines() {
            let kind = engine.kind();
            let me = std::thread::current().id();
            let own = Arc::new(AtomicU32::new(0));
            let start = |engine: &Engine, n: u32| {
                let (op, finish) = Op::pair();
                let own = Arc::clone(&own);
                let counted = move |finished: Finished| {
                    own.fetch_add(u32::from(std::thread::current().id() == me), Ordering::Relaxed);
                    finish(finished);
                };
                engine.submit(read(file, at(n), BufMut::zeroed(BLOCK)), Box::new(counted));
                op
            };
            measure(&format!("  {kind:?}, one in flight, waiting"), |n| {
                assert!(block_on(&*driver, start(&engine, n)).result.is_ok());
            });
            println!("      {} of {ROUNDS} served by the thread that waits", own.swap(0, Ordering::Relaxed));
            let mut flying = VecDeque::new();
            measure(&format!("  {kind:?}, eight in flight, waiting for the oldest"), |n| {
                while flying.len() < 8 {
                    flying.push_back(start(&engine, n));
                }
                let oldest = flying.pop_front().expect("eight are in flight");
                assert!(block_on(&*driver, oldest).result.is_ok());
            });
            println!("      {} of {ROUNDS} served by the thread that waits", own.swap(0, Ordering::Relaxed));
            flying.into_iter().for_each(|op| drop(block_on(&*driver, op)));
            measure(&format!("  {kind:?}, one in flight, unaligned"), |n| {
                let mut into = BufMut::zeroed(BLOCK + 1);
                let _first = into.split_to(1);
                assert!(block_on(&*driver, Op::start(&engine, read(file, at(n), into))).result.is_ok());
            });
            let (tx, rx) = mpsc::channel();
            measure(&format!("  {kind:?}, one in flight, served by another thread"), |n| {
                let tx = tx.clone();
                let finish = Box::new(move |finished: Finished| tx.send(finished).expect("the test listens"));
                engine.submit(read(file, at(n), BufMut::zeroed(BLOCK)), finish);
                assert!(rx.recv().expect("served").result.is_ok());
            });
        }
    }
}

/// Measures whether memory registered with the ring is faster, if the data must be copied into it or out of
/// it.
fn measure_registered_memory() {
    use io_uring::{IoUring, opcode, types};
    use std::os::fd::AsRawFd;

    let driver = RealDriver::new();
    let disk = file(16 << 20);
    let threads = engines().remove(0);
    for part in 0..16 {
        let data = vec![Buf::zeroed(1 << 20)];
        assert!(block_on(&*driver, Op::start(&threads, write(&disk, part << 20, data))).result.is_ok());
    }
    let fd = types::Fd(disk.as_raw_fd());
    for len in [4096, 16384, 65536] {
        let mut ring = IoUring::new(8).expect("a ring");
        let (mut slot, mut buffer) = (BufMut::zeroed(len), BufMut::zeroed(len));
        let memory = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: len };
        // SAFETY: the registered memory `slot` lives longer than the ring.
        unsafe { ring.submitter().register_buffers(&[memory]) }.expect("registered");
        let at = |n: u32| u64::from(n.wrapping_mul(2_654_435_761) % 128) * 65536;
        let mut run = |entry: io_uring::squeue::Entry| {
            // SAFETY: the memory that the entry refers to lives until the entry has completed, below.
            unsafe { ring.submission().push(&entry) }.expect("an empty queue");
            ring.submit_and_wait(1).expect("it completes");
            assert_eq!(ring.completion().next().expect("a completion").result(), len as i32);
        };
        println!("{len} bytes");
        for _ in 0..2 {
            let plain = buffer.as_mut_ptr();
            measure("  read where it lies", |n| {
                run(opcode::Read::new(fd, plain, len as u32).offset(at(n)).build());
            });
            let fixed = slot.as_mut_ptr();
            measure("  read into registered memory, and a copy", |n| {
                run(opcode::ReadFixed::new(fd, fixed, len as u32, 0).offset(at(n)).build());
                buffer.copy_from_slice(&slot);
            });
            let plain = buffer.as_ptr();
            measure("  write where it lies", |n| {
                run(opcode::Write::new(fd, plain, len as u32).offset(at(n)).build());
            });
            measure("  a copy, and write from registered memory", |n| {
                slot.copy_from_slice(&buffer);
                run(opcode::WriteFixed::new(fd, fixed, len as u32, 0).offset(at(n)).build());
            });
        }
    }
}

fn main() {
    measure_an_operation();
    measure_registered_memory();
}
