//! Helpers of the engine's tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use sys::{Buf, BufMut, Engine, EngineKind, Finish, Finished, Priority, Request};

/// The engines that this machine supports. On a machine without io_uring only the helper threads are tested,
/// with a message.
pub fn engines() -> Vec<Arc<Engine>> {
    let mut engines = vec![Engine::shared(Some(EngineKind::Threads)).expect("threads")];
    match Engine::shared(Some(EngineKind::Ring)) {
        Ok(engine) => engines.push(engine),
        Err(error) => eprintln!("NOT TESTED: the engine on io_uring: {error}"),
    }
    engines
}

/// A test file of `len` bytes, open for direct I/O.
pub fn file(len: u64) -> Arc<File> {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("device");
    let file = open(&path, libc::O_DIRECT).unwrap_or_else(|error| {
        eprintln!(
            "NOT DIRECT: {} has no direct I/O ({error}); tests go through the page cache",
            path.display()
        );
        open(&path, 0).expect("a file")
    });
    file.set_len(len).expect("room");
    Arc::new(file)
}

fn open(path: &Path, flags: i32) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).custom_flags(flags).open(path)
}

/// A future of one engine operation.
#[derive(Clone)]
pub struct Op(Arc<Mutex<State>>);

struct State {
    calls: u32,
    finished: Option<Finished>,
    waker: Option<Waker>,
}

impl Op {
    /// Starts an operation.
    pub fn start(engine: &Engine, request: Request) -> Op {
        let (op, finish) = Op::pair();
        engine.submit(request, finish);
        op
    }

    pub fn pair() -> (Op, Finish) {
        let op = Op(Arc::new(Mutex::new(State { calls: 0, finished: None, waker: None })));
        let shared = Arc::clone(&op.0);
        let finish = Box::new(move |finished| {
            let mut state = shared.lock();
            state.calls += 1;
            state.finished = Some(finished);
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        (op, finish)
    }

    pub fn calls(&self) -> u32 {
        self.0.lock().calls
    }
}

impl Future for Op {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        let mut state = self.0.lock();
        match state.finished.take() {
            Some(finished) => Poll::Ready(finished),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

pub fn write(file: &Arc<File>, at: u64, data: Vec<Buf>) -> Request {
    Request::Write { file: Arc::clone(file), at, data, durable: false, priority: Priority::Unset }
}

pub fn read(file: &Arc<File>, at: u64, into: BufMut) -> Request {
    Request::Read { file: Arc::clone(file), at, into, priority: Priority::Unset }
}

/// Test bytes that differ from block to block.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (seed.wrapping_mul(31).wrapping_add((i / 512) as u64 * 7 + i as u64 % 251)) as u8)
        .collect()
}

/// Runs a test that hangs on failure; panics after ten minutes.
pub fn within_ten_minutes(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().spawn(move || {
        test();
        drop(done);
    });
    match ended.recv_timeout(std::time::Duration::from_secs(600)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.expect("a thread").join().expect("the test passes"),
    }
}
