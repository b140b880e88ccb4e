//! The drives whose files a process uses: each has a page that it shares with other processes, and an admission of this process's bulk.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::fmt::Write;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::time::Duration;

use pathprio::admission::{Admission, HOLD_AT_MOST};
use pathprio::counters::Line;
use pathprio::page::{PAGE_BYTES, Page};
use units::Instant;
use zoned::share::Beside;

use super::kernel;

/// Drives that a process can have. Bulk of further drives is not held.
const DRIVES: usize = 8;
/// The number that stands for a drive beyond those.
pub const NO_DRIVE: u8 = u8::MAX;
/// `slot` of a process that has none.
const NO_SLOT: u32 = u32::MAX;
/// The time after which a thread asks again for an admission that another thread of the process uses, and the time after which it does without.
const BUSY: Duration = Duration::from_micros(50);
const BUSY_AT_MOST: Duration = Duration::from_millis(1);
/// The time from one search for slots of dead processes to the next.
const DEAD_INTERVAL: Duration = Duration::from_secs(1);

/// A drive.
pub struct Drive {
    /// `st_dev` plus one; 0 if the place is free.
    device: AtomicU64,
    page: AtomicPtr<Page>,
    slot: AtomicU32,
    /// When slots of dead processes were last searched for.
    searched: AtomicU64,
    admission: AdmissionCell,
}

/// The admission of a process, for one thread at a time. Nobody waits for it under a lock: a thread that does not get it asks again later.
struct AdmissionCell {
    used: AtomicBool,
    admission: UnsafeCell<Option<Admission>>,
}

// SAFETY: the admission is touched only by the thread that set `used`, and by the single thread of a new child.
unsafe impl Sync for AdmissionCell {}

static DRIVES_OF_PROCESS: [Drive; DRIVES] = [const { Drive::new() }; DRIVES];

/// The drive of that number.
pub fn get(number: u8) -> Option<&'static Drive> {
    DRIVES_OF_PROCESS.get(usize::from(number))
}

/// The number of the drive `device`, which gets a place and a page at its first file. `pages` is the directory of pages.
pub fn number_of(device: u64, pages: Option<&CStr>) -> u8 {
    let key = device.wrapping_add(1);
    for (number, drive) in DRIVES_OF_PROCESS.iter().enumerate() {
        let found = drive.device.load(Acquire);
        let taken = found == 0 && drive.device.compare_exchange(0, key, AcqRel, Acquire).is_ok();
        if taken && let Some(page) = pages.and_then(|pages| open_page(device, pages)) {
            drive.page.store(page, Release);
        }
        if taken || drive.device.load(Acquire) == key {
            return u8::try_from(number).unwrap_or(NO_DRIVE);
        }
    }
    NO_DRIVE
}

/// In the child of a fork: the parent's slots and admissions are not the child's.
pub fn forked() {
    for drive in &DRIVES_OF_PROCESS {
        drive.slot.store(NO_SLOT, Relaxed);
        // SAFETY: the child has one thread. The parent's admission is not dropped: another thread of the parent may have been changing it at the fork.
        unsafe { drive.admission.admission.get().write(None) };
        drive.admission.used.store(false, Release);
    }
}

/// At the process's end.
pub fn release_slots(pid: u32) {
    for drive in &DRIVES_OF_PROCESS {
        let slot = drive.slot.swap(NO_SLOT, Relaxed);
        if let Some(page) = drive.page()
            && slot != NO_SLOT
        {
            page.release(slot as usize, pid);
        }
    }
}

impl Drive {
    const fn new() -> Drive {
        Drive {
            device: AtomicU64::new(0),
            page: AtomicPtr::new(std::ptr::null_mut()),
            slot: AtomicU32::new(NO_SLOT),
            searched: AtomicU64::new(0),
            admission: AdmissionCell { used: AtomicBool::new(false), admission: UnsafeCell::new(None) },
        }
    }

    /// The drive's page; `None` if there is no directory of pages, or the page cannot be used.
    fn page(&self) -> Option<&'static Page> {
        // SAFETY: the pointer is null or that of a mapping as long as a page, which stays. All fields of a page are atomics, so that other processes may
        // write them at any time.
        unsafe { self.page.load(Acquire).as_ref() }
    }

    /// An operation of a log begins.
    pub fn log_begins(&self, now: Instant) -> Beside {
        let Some(page) = self.page() else { return Beside::Nothing };
        if now.since(Instant(self.searched.load(Relaxed))) >= DEAD_INTERVAL {
            self.searched.store(now.0, Relaxed);
            page.release_dead(now, kernel::is_dead);
        }
        page.log_begins(now)
    }

    /// An operation of a log ended.
    pub fn log_ended(&self, sample: &zoned::share::Sample) {
        if let Some(page) = self.page() {
            page.log_ended(sample);
        }
    }

    /// A bulk operation of this process begins.
    pub fn bulk_begins(&self, pid: u32, now: Instant) {
        let Some(page) = self.page() else { return };
        let mut slot = self.slot.load(Relaxed);
        if slot == NO_SLOT {
            let Some(claimed) = page.claim(pid, kernel::is_dead) else { return };
            slot = claimed as u32;
            // Two threads may claim at once: both get the same slot.
            self.slot.store(slot, Relaxed);
        }
        page.bulk_begins(slot as usize, now);
    }

    /// A bulk operation of this process ended.
    pub fn bulk_ended(&self, now: Instant) {
        let slot = self.slot.load(Relaxed);
        if let Some(page) = self.page()
            && slot != NO_SLOT
        {
            page.bulk_ended(slot as usize, now);
        }
    }

    /// Holds the calling thread until a bulk write may go, for [`HOLD_AT_MOST`] at most. Returns the time for which it was held.
    pub fn hold_bulk(&self) -> Duration {
        let Some(page) = self.page() else { return Duration::ZERO };
        let start = kernel::now();
        let end = start.after(HOLD_AT_MOST);
        let mut now = start;
        let mut busy = Duration::ZERO;
        while now < end {
            let until = match self.admission.with(page, now, |admission| admission.wait_until(page, now)) {
                Some(None) => break,
                Some(Some(until)) => {
                    busy = Duration::ZERO;
                    until
                }
                // A thread may have been cancelled, or have jumped, while it used the admission.
                None if busy >= BUSY_AT_MOST => break,
                None => {
                    busy += BUSY;
                    now.after(BUSY)
                }
            };
            kernel::sleep_until(until.min(end));
            now = kernel::now();
        }
        now.since(start)
    }

    /// A bulk write of `bytes` went.
    pub fn bulk_went(&self, now: Instant, bytes: u64) {
        if let Some(page) = self.page() {
            // Bytes that another thread's use of the admission leaves uncounted are few.
            let _busy = self.admission.with(page, now, |admission| admission.bulk_goes(now, bytes));
        }
    }
}

impl AdmissionCell {
    /// Calls `with` with the admission; `None` if another thread uses it, or the thread itself where a signal handler interrupted it.
    fn with<T>(&self, page: &Page, now: Instant, with: impl FnOnce(&mut Admission) -> T) -> Option<T> {
        if self.used.swap(true, Acquire) {
            return None;
        }
        // SAFETY: `used` was false, so that no other thread has a reference, and is true until the reference is gone.
        let admission = unsafe { &mut *self.admission.get() };
        let result = with(admission.get_or_insert_with(|| Admission::new(page, now)));
        self.used.store(false, Release);
        Some(result)
    }
}

/// Maps the page of a drive. Makes it first, if it is not there.
fn open_page(device: u64, pages: &CStr) -> Option<*mut Page> {
    let mut path = Line::<{ kernel::PATH_BYTES }>::new();
    path.push(pages.to_bytes()).ok()?;
    let mut new = Line::<{ kernel::PATH_BYTES }>::new();
    new.push(pages.to_bytes()).ok()?;
    write!(path, "/drive-{device:x}.page\0").ok()?;
    write!(new, "/new-{:x}-{device:x}\0", kernel::process_id()).ok()?;
    let path = CStr::from_bytes_with_nul(path.as_bytes()).ok()?;
    let new = CStr::from_bytes_with_nul(new.as_bytes()).ok()?;
    let fd = match kernel::open(path, libc::O_RDWR, 0) {
        Some(fd) => fd,
        None => {
            make_page(device, path, new);
            kernel::open(path, libc::O_RDWR, 0)?
        }
    };
    // A shorter file's mapping would end the process where it ends.
    let is_whole = kernel::file_bytes(fd).is_some_and(|bytes| bytes == PAGE_BYTES as u64);
    let mapped = if is_whole { kernel::map_shared(fd, PAGE_BYTES) } else { None };
    kernel::close(fd);
    let page = mapped?.cast::<Page>();
    // SAFETY: the mapping is as long as a page, aligned to the machine's pages, and stays.
    let usable = unsafe { &*page }.check(device).is_ok();
    usable.then_some(page)
}

/// Makes a page under a name of its own, and links it to its place: a page is whole or not there.
fn make_page(device: u64, path: &CStr, new: &CStr) {
    let Some(fd) = kernel::open(new, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o600) else { return };
    // A store into a page without room on the drive would end the process.
    let is_made = kernel::without_signals(|| {
        kernel::write(fd, &Page::header(device)) && kernel::allocate(fd, PAGE_BYTES as u64)
    });
    if is_made {
        // Another process may have been first.
        let _was_first = kernel::link(new, path);
    }
    kernel::close(fd);
    kernel::unlink(new);
}
