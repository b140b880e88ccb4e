//! Between the lanes and the kernel.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sys::{Engine, Finish, Finished, Request};

use crate::kernel::Failure;
use crate::{Action, Buf, BufMut, Done, Lba, ZoneId, ZoneInfo};

/// An operation that has passed all checks.
#[derive(Debug)]
pub(crate) enum Ask {
    Read { at: Lba, into: BufMut },
    Write { at: Lba, data: Vec<Buf>, durable: bool },
    Append { zone: ZoneId, data: Buf, durable: bool },
    Zone { zone: ZoneId, action: Action },
    Flush,
    Report { zones: Range<u32> },
}

/// What the answer to a request has to be.
#[derive(Debug)]
pub(crate) enum Expect {
    /// That it succeeded.
    Success,
    /// This many bytes written.
    Written(usize),
    /// This many bytes read.
    Read(usize),
    /// An append's address.
    Address,
    /// A report, left here by the call.
    Report(Arc<Mutex<Vec<ZoneInfo>>>),
}

/// A backend's language: operations as requests, answers as results. Pure but for [`Wire::is_gone`].
pub(crate) trait Wire: Send + Sync + 'static {
    /// The request for an operation.
    fn request(&self, ask: Ask) -> (Request, Expect);

    /// What the kernel's answer means.
    fn judge(&self, expect: Expect, finished: Finished) -> Result<Done, Failure>;

    /// Whether the device is there no more: asked when an operation failed, for the kernel answers EIO too then.
    fn is_gone(&self) -> bool;
}

/// Who executes requests.
pub(crate) trait Kernel: Send + Sync + 'static {
    /// Starts one; `finish` is called once, never from within this call.
    fn submit(&self, request: Request, finish: Finish);
}

impl Kernel for Engine {
    fn submit(&self, request: Request, finish: Finish) {
        Engine::submit(self, request, finish);
    }
}

impl Expect {
    /// The request for a report: `ask` blocks, on a thread that may.
    pub(crate) fn report(
        ask: impl FnOnce() -> io::Result<Vec<ZoneInfo>> + Send + 'static,
    ) -> (Request, Expect) {
        let place = Arc::new(Mutex::new(Vec::new()));
        let expect = Expect::Report(Arc::clone(&place));
        let call = move || {
            *place.lock() = ask()?;
            Ok(0)
        };
        (Request::Call(Box::new(call)), expect)
    }
}
