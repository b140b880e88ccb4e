//! The drives that the kernel serves, as a [`Backend`]: a [`Wire`] encodes operations, a [`Kernel`] executes requests.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use sys::{Engine, Finish, Finished, Request};

use crate::kernel::{Backend, DriveOp, Failure};
use crate::{Done, ZoneInfo};

/// The form of a successful reply to a kernel request.
#[derive(Debug)]
pub(crate) enum ExpectedReply {
    /// The reply is success without a value.
    Success,
    /// The reply is the number of written bytes, expected to be the given one.
    Written(usize),
    /// The reply is the number of read bytes, expected to be the given one.
    Read(usize),
    /// The reply is the address of an append.
    Address,
    /// The reply is a report, which the request's call stores in the list.
    Report(Arc<Mutex<Vec<ZoneInfo>>>),
}

/// The interface of a kind of drives: encodes operations as kernel requests and decodes replies. Only [`Wire::is_gone`] does I/O.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Encodes an operation as a kernel request.
    fn request(&self, ask: DriveOp) -> (Request, ExpectedReply);

    /// Decodes the kernel's reply to a request.
    fn interpret(&self, expect: ExpectedReply, finished: Finished) -> Result<Done, Failure>;

    /// True if the device has been removed. Called after a failure, because the kernel answers EIO for a removed device.
    fn is_gone(&self) -> bool;
}

/// Executes requests: the kernel, or a fake kernel in tests.
pub(crate) trait Kernel: Send + Sync + 'static {
    /// Starts a request. `finish` is called once with its result, never from within this call.
    fn submit(&self, request: Request, finish: Finish);
}

/// A drive behind the kernel.
pub(crate) struct KernelBackend {
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) kernel: Arc<dyn Kernel>,
    /// The drive by blocking system calls: they serve writes that failed through `kernel`.
    pub(crate) blocking: Arc<dyn Kernel>,
}

impl Backend for KernelBackend {
    type Reply = (ExpectedReply, Finished);

    fn send(&self, op: DriveOp, finish: impl FnOnce(Self::Reply) + Send + 'static) {
        let repeated = matches!(op, DriveOp::Write { repeated: true, .. });
        let kernel = if repeated { &self.blocking } else { &self.kernel };
        let (request, expect) = self.wire.request(op);
        kernel.submit(request, Box::new(move |finished| finish((expect, finished))));
    }

    fn interpret(&self, (expect, finished): Self::Reply) -> Result<Done, Failure> {
        self.wire.interpret(expect, finished)
    }

    fn is_gone(&self) -> bool {
        self.wire.is_gone()
    }
}

impl Kernel for Engine {
    fn submit(&self, request: Request, finish: Finish) {
        Engine::submit(self, request, finish);
    }
}

impl ExpectedReply {
    /// The kernel request for a zone report. `ask` may block; a helper thread runs it.
    pub(crate) fn report(
        ask: impl FnOnce() -> io::Result<Vec<ZoneInfo>> + Send + 'static,
    ) -> (Request, ExpectedReply) {
        let place = Arc::new(Mutex::new(Vec::new()));
        let expect = ExpectedReply::Report(Arc::clone(&place));
        let call = move || {
            *place.lock() = ask()?;
            Ok(0)
        };
        (Request::Call(Box::new(call)), expect)
    }
}
