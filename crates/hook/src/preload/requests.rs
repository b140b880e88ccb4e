//! Requests of libaio: their class, and the priority with which they go to the kernel.
//!
//! A request has a field for its priority. The library leaves the field alone: the request is in the program's memory, and another thread may reap and free it before `io_submit` returns, so
//! that nothing could put the field back. The kernel gives a request without a priority that of the thread that submits it, so the thread has the class's while it submits.
//!
//! ```text
//!   io_submit([log, log, bulk, other])  ->  real-time: [log, log]   best effort: [bulk]   own: [other]
//! ```
//!
//! The results are those of one call: requests go in the program's order, and the first one that the kernel does not take ends the call.
//!
//! A request's end is not seen. So a log's requests give no samples by which bulk is held, and bulk counts as in flight only while it is submitted. A sync is done by a thread of the kernel,
//! which has no class.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use libc::c_int;
use pathprio::FileClass;
use pathprio::counters::Effective;
use sys::Priority;

use super::table::Classed;
use super::{calls, drive, errno, kernel, process};

/// A request: `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    data: u64,
    key: u32,
    write_flags: c_int,
    operation: u16,
    priority: u16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

// On big-endian machines `key` and `write_flags` change places.
const _: () = assert!(size_of::<Request>() == 64 && cfg!(target_endian = "little"));

/// Values of [`Request::operation`].
const WRITE: u16 = 1;
const SYNC: u16 = 2;
const DATA_SYNC: u16 = 3;
const GATHER_WRITE: u16 = 8;
/// Bit of [`Request::flags`]: the request has a priority of its own.
const HAS_PRIORITY: u32 = 2;

/// Most requests that go to the kernel at once: so many are looked at before.
const MOST_AT_ONCE: usize = 64;
/// Most parts of a gather list: the kernel refuses longer ones.
const MOST_PARTS: u64 = 1024;

/// The effect of a request on a file with a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Effect {
    classed: Classed,
    /// Bytes that the request writes; `None` for a sync.
    writes: Option<u64>,
    /// True if the written bytes, or all earlier ones, are durable at the request's end.
    syncs: bool,
    /// The priority that the program gave the request, or that a sync has; `None` for that of the submitting thread.
    fixed: Option<Effective>,
}

impl Effect {
    /// The effect of a request; `None` if its file has no class, or the request neither writes nor syncs.
    ///
    /// # Safety
    /// The request's gather list may be read.
    unsafe fn of(request: &Request) -> Option<Effect> {
        if !matches!(request.operation, WRITE | GATHER_WRITE | SYNC | DATA_SYNC) {
            return None;
        }
        let (_, classed) = calls::class_of(request.descriptor.cast_signed())?;
        let writes = match request.operation {
            WRITE => Some(request.bytes),
            // SAFETY: the caller answers for the list.
            GATHER_WRITE => {
                Some(unsafe { bytes_of_parts(request.buffer as *const libc::iovec, request.bytes) })
            }
            _ => None,
        };
        let by_flag = request.write_flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        let own = || match Priority::from_raw(request.priority) {
            Priority::RealTime(_) => Effective::RealTime,
            Priority::BestEffort(_) => Effective::BestEffort,
            Priority::Idle => Effective::Idle,
            Priority::Unset => Effective::Unchanged,
        };
        let fixed = match writes {
            None => Some(Effective::Unchanged),
            Some(_) => (request.flags & HAS_PRIORITY != 0).then(own),
        };
        Some(Effect { classed, writes, syncs: writes.is_none() || by_flag || classed.synced, fixed })
    }
}

/// # Safety
/// The list of `parts` parts may be read.
unsafe fn bytes_of_parts(list: *const libc::iovec, parts: u64) -> u64 {
    if list.is_null() || parts > MOST_PARTS {
        return 0;
    }
    // SAFETY: the caller answers for the list.
    (0..parts as usize).map(|n| unsafe { list.add(n).read_unaligned() }.iov_len as u64).sum()
}

/// Requests that follow each other and have one class and one drive, or no class.
struct Run {
    class: Option<(FileClass, u8)>,
    effects: [Option<Effect>; MOST_AT_ONCE],
    len: usize,
}

/// Submits `requests` as `io_submit` does, with the same result. `real` does that with a part of them.
///
/// # Safety
/// Each request, and its gather list, may be read: the kernel reads them too, but refuses a wild pointer.
pub unsafe fn submit(requests: &[*mut Request], mut real: impl FnMut(&[*mut Request]) -> c_int) -> c_int {
    let Some(pid) = process::has_rules().then(process::own_id).flatten() else { return real(requests) };
    let mut taken = 0;
    while let Some(rest) = requests.get(taken..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the caller answers for the requests.
        let run = unsafe { Run::at_front_of(rest) };
        let part = rest.get(..run.len).unwrap_or(rest);
        let result = run.submit(pid, || real(part));
        let Ok(number) = usize::try_from(result) else {
            // An error after the first request is found again when the program submits what is left.
            return if taken == 0 { result } else { c_int::try_from(taken).unwrap_or(c_int::MAX) };
        };
        taken += number;
        if number < part.len() {
            break;
        }
    }
    c_int::try_from(taken).unwrap_or(c_int::MAX)
}

impl Run {
    /// # Safety
    /// As for [`submit`].
    unsafe fn at_front_of(requests: &[*mut Request]) -> Run {
        let errno = errno::get();
        let mut run = Run { class: None, effects: [None; MOST_AT_ONCE], len: 0 };
        for (place, request) in run.effects.iter_mut().zip(requests) {
            // SAFETY: the caller answers for the request. A null pointer is the kernel's to refuse.
            let effect =
                if request.is_null() { None } else { unsafe { Effect::of(&request.read_unaligned()) } };
            let class = effect.map(|effect| (effect.classed.class, effect.classed.drive));
            if run.len > 0 && class != run.class {
                break;
            }
            run.class = class;
            *place = effect;
            run.len += 1;
        }
        errno::set(errno);
        run
    }

    /// Makes the call `real`, which submits the run, at the priority of its class. The requests are not touched afterwards.
    fn submit(&self, pid: u32, real: impl FnOnce() -> c_int) -> c_int {
        let Some((class, drive)) = self.class else { return real() };
        let errno = errno::get();
        let writes = self.effects.iter().flatten().any(|effect| effect.writes.is_some());
        let bulk_of = drive::get(drive).filter(|_| class == FileClass::Bulk && writes);
        let held = bulk_of.map_or(Duration::ZERO, |drive| drive.hold_bulk());
        let (own_priority, effective) = process::raise(class);
        if let Some(drive) = bulk_of {
            drive.bulk_begins(pid, kernel::now());
        }
        errno::set(errno);
        let result = real();
        let errno = errno::get();
        let bytes = self.count(class, effective, held, result);
        if let Some(drive) = bulk_of {
            let now = kernel::now();
            drive.bulk_went(now, bytes);
            drive.bulk_ended(now);
        }
        process::restore(own_priority);
        errno::set(errno);
        result
    }

    /// Counts the requests that the kernel took. Returns the bytes that they write.
    fn count(&self, class: FileClass, effective: Effective, held: Duration, result: c_int) -> u64 {
        let counters = process::COUNTERS.of(class);
        counters.held_ns.fetch_add(u64::try_from(held.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let mut all_bytes = 0_u64;
        for effect in self.effects.iter().flatten().take(usize::try_from(result).unwrap_or(0)) {
            counters.count_priority(effect.fixed.unwrap_or(effective));
            if let Some(bytes) = effect.writes {
                counters.writes.fetch_add(1, Relaxed);
                counters.bytes.fetch_add(bytes, Relaxed);
                all_bytes = all_bytes.saturating_add(bytes);
            }
            if effect.syncs {
                counters.syncs.fetch_add(1, Relaxed);
            }
        }
        all_bytes
    }
}
