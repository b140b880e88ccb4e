//! A request in flight, which owns the memory that the kernel reads and writes until completion.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};

use crate::bounce::{Bounce, are_aligned_for_direct_io, is_aligned_for_direct_io};
use crate::nvme::{Command, Data, PassthruCmd64, STATUS_MASK, check};
use crate::request::call_back;
use crate::{Buf, BufMut, Finish, Finished, Priority, Request};

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`: the operation for an NVMe command on an I/O queue, submitted
/// through a ring.
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;

/// A request in flight and its memory. While the request is in flight, this is a raw pointer that the kernel
/// returns as user data.
pub(super) struct Flight {
    request: Request,
    finish: Finish,
    /// Aligned copy of the request's data, if the data is not aligned.
    bounce: Option<Bounce>,
    /// The I/O vector of a vectored write.
    parts: Vec<libc::iovec>,
}

// SAFETY: the raw pointers in `parts` point into the buffers of `request`, which the flight owns and which may be sent
// to other threads.
unsafe impl Send for Flight {}

/// The result and flags of a completion queue entry.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    pub(super) result: i32,
    pub(super) big: u64,
}

impl Flight {
    /// Prepares a request for a ring. Returns the request if a ring does not support it.
    pub(super) fn new(request: Request, finish: Finish) -> Result<Box<Flight>, (Request, Finish)> {
        let mut parts = Vec::new();
        let mut none = false;
        let bounce = match &request {
            Request::Read { into, .. } => (!is_aligned_for_direct_io(into)).then(|| Bounce::new(into.len())),
            Request::Write { data, .. } => {
                let direct = are_aligned_for_direct_io(data);
                if direct && data.len() > 1 {
                    let part =
                        |part: &Buf| libc::iovec { iov_base: part.as_ptr() as *mut _, iov_len: part.len() };
                    parts = data.iter().map(part).collect();
                }
                (!direct).then(|| Bounce::gather(data))
            }
            Request::Sync { .. } => None,
            Request::NvmeOut { command, data, .. } => {
                let bounce = (data.len() > 1).then(|| Bounce::gather(data));
                let bytes = bounce.as_ref().map(Bounce::bytes).or(data.first().map(|part| &**part));
                none = check(command, &bytes.map_or(Data::None, Data::Out)).is_err();
                bounce
            }
            Request::NvmeIn { command, into, .. } => {
                none = !command.transfers_to_host(into.len());
                None
            }
            Request::Call(_) => {
                none = true;
                None
            }
        };
        if none {
            return Err((request, finish));
        }
        Ok(Box::new(Flight { request, finish, bounce, parts }))
    }

    /// Returns the request of a flight that was not submitted.
    pub(super) fn into_request(self) -> (Request, Finish) {
        (self.request, self.finish)
    }

    /// The ring's submission entry for the request, without user data. The entry points into this flight,
    /// which must not move until the completion.
    pub(super) fn entry(&mut self) -> Entry128 {
        let fd = |file: &Arc<File>| types::Fd(file.as_raw_fd());
        match &mut self.request {
            Request::Read { file, at, into, priority } => {
                let target = self.bounce.as_mut().map_or(&mut **into, Bounce::bytes_mut);
                let len = u32::try_from(target.len()).unwrap_or(u32::MAX);
                let entry = opcode::Read::new(fd(file), target.as_mut_ptr(), len).offset(*at);
                entry.ioprio(priority.as_raw()).build().into()
            }
            Request::Write { file, at, data, durable, priority } => {
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                let (fd, priority) = (fd(file), priority.as_raw());
                if self.bounce.is_none() && data.len() > 1 {
                    let count = u32::try_from(self.parts.len()).expect("no more parts than one write takes");
                    let entry = opcode::Writev::new(fd, self.parts.as_ptr(), count);
                    return entry.offset(*at).rw_flags(flags).ioprio(priority).build().into();
                }
                let source = source(self.bounce.as_ref(), data);
                let len = u32::try_from(source.len()).unwrap_or(u32::MAX);
                let entry = opcode::Write::new(fd, source.as_ptr(), len).offset(*at).rw_flags(flags);
                entry.ioprio(priority).build().into()
            }
            Request::Sync { file } => {
                opcode::Fsync::new(fd(file)).flags(types::FsyncFlags::DATASYNC).build().into()
            }
            Request::NvmeOut { file, command, data } => {
                let source = source(self.bounce.as_ref(), data);
                nvme(fd(file), command, source.as_ptr().addr(), source.len())
            }
            Request::NvmeIn { file, command, into } => {
                nvme(fd(file), command, into.as_mut_ptr().addr(), into.len())
            }
            Request::Call(_) => unreachable!("calls have no flight"),
        }
    }

    /// True if the kernel did not execute the request, so that it can be submitted again.
    pub(super) fn is_undone(&self, completion: Completion) -> bool {
        matches!(-completion.result, libc::EINTR | libc::EAGAIN) && !self.is_nvme()
    }

    /// Lowers the priority of a request that the kernel refused, because the process may not submit real-time requests any more. Returns false if that was not the reason.
    pub(super) fn lower_refused_priority(&mut self, completion: Completion) -> bool {
        let priority = match &mut self.request {
            Request::Read { priority, .. } | Request::Write { priority, .. } => priority,
            _ => return false,
        };
        let is_refused = -completion.result == libc::EPERM && matches!(priority, Priority::RealTime(_));
        if is_refused {
            *priority = Priority::BestEffort(0);
        }
        is_refused
    }

    /// True if the file does not support commands through a ring, such as a block device or an ordinary file.
    pub(super) fn is_unsupported(&self, completion: Completion) -> bool {
        -completion.result == libc::EOPNOTSUPP && self.is_nvme()
    }

    fn is_nvme(&self) -> bool {
        matches!(self.request, Request::NvmeOut { .. } | Request::NvmeIn { .. })
    }

    /// Completes the request with the kernel's result.
    pub(super) fn complete(self, completion: Completion) {
        let Flight { request, finish, bounce, .. } = self;
        let ok = u64::try_from(completion.result);
        let result = ok.map_err(|_| io::Error::from_raw_os_error(-completion.result));
        let finished = match request {
            Request::Read { mut into, .. } => {
                if let (Some(bounce), Ok(done)) = (bounce, &result) {
                    copy_back(bounce.bytes(), &mut into, *done);
                }
                Finished { result, status: 0, buffer: Some(into) }
            }
            Request::NvmeIn { into, .. } => nvme_finished(completion, result, Some(into)),
            Request::NvmeOut { .. } => nvme_finished(completion, result, None),
            Request::Write { .. } | Request::Sync { .. } | Request::Call(_) => {
                Finished { result, status: 0, buffer: None }
            }
        };
        call_back(finish, finished);
    }
}

fn source<'a>(bounce: Option<&'a Bounce>, data: &'a [Buf]) -> &'a [u8] {
    match (bounce, data) {
        (Some(bounce), _) => bounce.bytes(),
        (None, [one, ..]) => one,
        (None, []) => &[],
    }
}

fn copy_back(from: &[u8], into: &mut BufMut, done: u64) {
    let done = usize::try_from(done).unwrap_or(usize::MAX).min(from.len());
    if let (Some(from), Some(into)) = (from.get(..done), into.get_mut(..done)) {
        into.copy_from_slice(from);
    }
}

/// A positive result of an NVMe command is the device's status. The 64-bit result is valid only without a
/// status.
fn nvme_finished(completion: Completion, result: io::Result<u64>, buffer: Option<BufMut>) -> Finished {
    let status = u16::try_from(completion.result).map_or(0, |raw| raw & STATUS_MASK);
    Finished { result: result.map(|_| if status == 0 { completion.big } else { 0 }), status, buffer }
}

pub(super) fn nvme(fd: types::Fd, command: &Command, addr: usize, len: usize) -> Entry128 {
    let addr = if len == 0 { 0 } else { addr as u64 };
    let len = u32::try_from(len).expect("checked when the flight was made");
    let raw = PassthruCmd64::new(command, addr, len);
    // SAFETY: the NVMe command structure is plain data without padding, as long as the array.
    let raw = unsafe { std::mem::transmute::<PassthruCmd64, [u8; 80]>(raw) };
    opcode::UringCmd80::new(fd, NVME_URING_CMD_IO).cmd(raw).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_real_time_request_is_submitted_again_as_best_effort() {
        let file = Arc::new(File::open("/dev/null").expect("opens"));
        let write = |priority| {
            let request =
                Request::Write { file: Arc::clone(&file), at: 0, data: Vec::new(), durable: true, priority };
            Flight::new(request, Box::new(drop)).unwrap_or_else(|_| panic!("a ring takes writes"))
        };
        let refused = Completion { result: -libc::EPERM, big: 0 };
        let mut flight = write(Priority::RealTime(4));
        assert!(!flight.lower_refused_priority(Completion { result: -libc::EIO, big: 0 }));
        assert!(flight.lower_refused_priority(refused), "the first time");
        assert!(!flight.lower_refused_priority(refused), "an error of the file, not of the priority");
        assert!(!write(Priority::Unset).lower_refused_priority(refused));
    }

    #[test]
    fn a_status_comes_without_its_flags_and_an_address_only_without_a_status() {
        let finished = |result: i32, big| {
            let ok = u64::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            nvme_finished(Completion { result, big }, ok, None)
        };
        let done = finished(0, 0x1_0000_0001);
        assert_eq!((done.result.ok(), done.status), (Some(0x1_0000_0001), 0));
        let refused = finished(0x4000 | 0x1bd, 77);
        assert_eq!((refused.result.ok(), refused.status), (Some(0), 0x1bd));
        let failed = finished(-libc::EIO, 0);
        assert_eq!(failed.result.expect_err("an errno").raw_os_error(), Some(libc::EIO));
    }
}
