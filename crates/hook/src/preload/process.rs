//! State of the process: the rules, the counters, whether real-time is refused; and the process's start, forks and end.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Write;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32};

use libc::c_int;
use pathprio::counters::{Counters, Effective, Line};
use pathprio::matched::MatchedGlobs;
use pathprio::profile::{self, Profile};
use pathprio::rules::{Classified, Rules};
use pathprio::{FileClass, settings};
use sys::Priority;
use sys::priority::{set_thread_priority, thread_priority};

use super::kernel::{self, FileId};
use super::table::{self, Classed, Entry};
use super::{drive, errno};

/// Environment variable with the descriptor to which a probe announces the library: see `abi::preload`.
const HANDSHAKE_VARIABLE: &CStr = c"FURROW_HANDSHAKE_FD";

/// The priority of a log's calls.
const LOG: Priority = Priority::RealTime(4);
/// The priority of a log's calls where real-time is refused.
const LOG_UNPRIVILEGED: Priority = Priority::BestEffort(0);
/// The priority of bulk.
const BULK: Priority = Priority::BestEffort(7);
/// The priority of bulk where real-time is refused: best effort is for logs then.
const BULK_UNPRIVILEGED: Priority = Priority::Idle;

/// The settings of the process, which do not change.
struct Settings {
    rules: Rules,
    /// A byte for each glob of the run, which all its processes share; `None` if the file cannot be mapped.
    marks: Option<&'static [AtomicU8]>,
    profile: Option<&'static Profile>,
    pages: Option<CString>,
    /// The file for the counters; `None` for stderr.
    counters: Option<CString>,
    /// The process that prints its counters even if all are zero, and the only one that writes to stderr.
    root: u32,
    /// The file that was stderr at the start. A program may close stderr and have another file in its place.
    stderr: Option<FileId>,
}

/// Null until the constructor ran, and for good in a program without the variables.
static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());
/// The process that the memory belongs to: in a child of `vfork` not the calling one.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static REAL_TIME_REFUSED: AtomicBool = AtomicBool::new(false);
static WROTE_COUNTERS: AtomicBool = AtomicBool::new(false);
static WARNED_OF_TWO_CLASSES: AtomicBool = AtomicBool::new(false);

/// The counters of the process.
pub static COUNTERS: Counters = Counters::new();

fn settings() -> Option<&'static Settings> {
    // SAFETY: the pointer is null, or that of settings that are never freed nor written.
    unsafe { SETTINGS.load(Acquire).as_ref() }
}

/// True if the process has rules.
pub fn has_rules() -> bool {
    !SETTINGS.load(Relaxed).is_null()
}

/// The process's number, if the memory belongs to the calling process.
pub fn own_id() -> Option<u32> {
    let id = kernel::process_id();
    (PROCESS.load(Relaxed) == id).then_some(id)
}

/// Finds the class of a descriptor's file and puts it into the descriptor's entry. `opened_as`: the path by which it was opened, if known.
#[inline(never)]
pub fn classify(fd: c_int, entry: &Entry, opened_as: Option<&CStr>) -> Option<Classed> {
    let settings = settings()?;
    own_id()?;
    let Some(file) = kernel::regular_file(fd) else {
        entry.set_no_class();
        return None;
    };
    let given = opened_as.and_then(|path| settings.classify(path.to_bytes()));
    let classified = given.or_else(|| {
        let mut link = Line::<32>::new();
        write!(link, "/proc/self/fd/{fd}\0").ok()?;
        let mut path = [0; kernel::PATH_BYTES];
        let path = kernel::read_link(CStr::from_bytes_with_nul(link.as_bytes()).ok()?, &mut path)?;
        settings.classify(path)
    });
    let Some(classified) = classified else {
        entry.set_no_class();
        return None;
    };
    let flags = kernel::open_flags(fd);
    let drive = drive::number_of(file.device, settings.pages.as_deref());
    let has = |flag: c_int| flags & flag != 0;
    let (synced, direct) = (has(libc::O_DSYNC), has(libc::O_DIRECT));
    let classed = Classed { class: classified.class, synced, direct, drive };
    entry.set(classed, file.inode);
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        COUNTERS.of(classed.class).files.fetch_add(1, Relaxed);
    }
    if classified.in_both {
        COUNTERS.in_both.fetch_add(1, Relaxed);
        if !WARNED_OF_TWO_CLASSES.swap(true, Relaxed) {
            warn_of_two_classes(settings, opened_as);
        }
    }
    Some(classed)
}

fn warn_of_two_classes(settings: &Settings, opened_as: Option<&CStr>) {
    let mut line = Line::<{ kernel::PATH_BYTES + 128 }>::new();
    let path = opened_as.map_or(&b"a file"[..], CStr::to_bytes);
    let named = line.push(b"furrow prio: ").and_then(|()| line.push(path));
    if named.and_then(|()| line.push(b" matches globs of logs and of bulk: it is a log\n")).is_ok() {
        settings.write_to_stderr(line.as_bytes());
    }
}

/// A call that changed its thread's priority.
#[derive(Clone, Copy, Debug)]
struct Changed {
    /// The thread's own priority. A call from a signal handler may be within another call.
    own: Priority,
    /// An address on the stack of the call.
    frame: usize,
}

/// The thread's priority before [`raise`], which [`restore`] sets again.
#[derive(Clone, Copy, Debug)]
pub struct Raised {
    before: Priority,
    /// The call that this one is within.
    outer: Option<Changed>,
}

thread_local! {
    /// The last change that was not restored. A jump out of a call, by `siglongjmp` from a signal handler, leaves it.
    static CHANGED: Cell<Option<Changed>> = const { Cell::new(None) };
}

/// The most by which the frames of two calls from one function of the program differ. A signal handler's calls are further below the call that it interrupted.
const FRAMES_DIFFER: usize = 512;

/// Gives the calling thread the priority of a class. Returns the change for [`restore`], if there was one, and the priority that the thread has now.
#[inline(never)]
pub fn raise(class: FileClass) -> (Option<Raised>, Effective) {
    let here = 0_u8;
    let frame = (&raw const here).addr();
    let mut outer = CHANGED.get();
    if let Some(gone) = outer.filter(|outer| frame + FRAMES_DIFFER >= outer.frame) {
        // A call that is not below that one on the stack: the program jumped out of that one.
        let _refused = set_thread_priority(gone.own);
        CHANGED.set(None);
        outer = None;
    }
    let Ok(before) = thread_priority() else { return (None, Effective::Unchanged) };
    let (changed, effective) = change_priority(class, before);
    if !changed {
        return (None, effective);
    }
    let own = outer.map_or(before, |outer| outer.own);
    CHANGED.set(Some(Changed { own, frame }));
    (Some(Raised { before, outer }), effective)
}

/// Sets the priority of a class. Returns whether the thread's own, `before`, was changed, and the priority that the thread has now.
fn change_priority(class: FileClass, before: Priority) -> (bool, Effective) {
    loop {
        let refused = REAL_TIME_REFUSED.load(Relaxed);
        let wanted = match (class, before, refused) {
            // A thread that made itself real-time, or idle, stays so.
            (FileClass::Log, Priority::RealTime(_), _) | (FileClass::Bulk, Priority::Idle, _) => before,
            // The way back to real-time needs the capability too.
            (FileClass::Bulk, Priority::RealTime(_), _) if set_thread_priority(before).is_err() => before,
            (FileClass::Log, _, false) => LOG,
            (FileClass::Log, _, true) => LOG_UNPRIVILEGED,
            (FileClass::Bulk, _, false) => BULK,
            (FileClass::Bulk, _, true) => BULK_UNPRIVILEGED,
        };
        let effective = match wanted {
            Priority::RealTime(_) => Effective::RealTime,
            Priority::Idle => Effective::Idle,
            _ => Effective::BestEffort,
        };
        if before == wanted {
            return (false, effective);
        }
        if set_thread_priority(wanted).is_ok() {
            return (true, effective);
        }
        COUNTERS.refused.fetch_add(1, Relaxed);
        if class == FileClass::Bulk || refused {
            return (false, Effective::Unchanged);
        }
        // The process gave its capability up, as servers do when they become another user.
        REAL_TIME_REFUSED.store(true, Relaxed);
    }
}

/// Gives the calling thread the priority back that it had before the change.
pub fn restore(raised: Option<Raised>) {
    if let Some(raised) = raised {
        // Refused only if the program gave its capability up within the call.
        let _refused = set_thread_priority(raised.before);
        CHANGED.set(raised.outer);
    }
}

/// Finds out whether real-time is refused, so that also bulk before the first log has the right priority.
fn learn_whether_real_time_is_refused() {
    let Ok(before) = thread_priority() else { return };
    if set_thread_priority(LOG).is_err() {
        COUNTERS.refused.fetch_add(1, Relaxed);
        REAL_TIME_REFUSED.store(true, Relaxed);
    } else {
        let _allowed_as_before = set_thread_priority(before);
    }
}

/// Reads the process's settings. `errno` stays.
pub fn start() {
    let errno = errno::get();
    if let Some(descriptor) = variable(HANDSHAKE_VARIABLE) {
        announce(descriptor);
    }
    if let Some(settings) = read_settings() {
        PROCESS.store(kernel::process_id(), Relaxed);
        learn_whether_real_time_is_refused();
        // SAFETY: the function takes no arguments and is never unloaded: the library has functions that the program is bound to.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        SETTINGS.store(Box::into_raw(Box::new(settings)), Release);
    }
    errno::set(errno);
}

/// Answers a probe of the command, and ends the probe before its `main`.
fn announce(descriptor: &CStr) {
    let fd = descriptor.to_str().ok().and_then(|text| text.parse::<c_int>().ok());
    if let Some(fd) = fd {
        kernel::write(fd, concat!("furrow-prio ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
        // SAFETY: the process ends at once.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero byte. The value stays: no thread of the program runs yet.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the C library's values end with a zero byte.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

fn read_settings() -> Option<Settings> {
    let text = |name: &str| {
        let name = CString::new(name).ok()?;
        variable(&name)?.to_str().ok()
    };
    let path =
        |name: &str| text(name).filter(|path| path.starts_with('/')).and_then(|path| CString::new(path).ok());
    if text(settings::VERSION_VARIABLE)? != settings::VERSION {
        return None;
    }
    let globs = |name: &str| text(name).unwrap_or_default();
    let rules = settings::decode_rules(globs(settings::LOG_VARIABLE), globs(settings::BULK_VARIABLE)).ok()?;
    let root = text(settings::ROOT_VARIABLE).and_then(|root| root.parse().ok());
    let marks = path(settings::MATCHED_VARIABLE).and_then(|path| map_marks(&path, rules.globs()));
    Some(Settings {
        marks,
        profile: text(settings::PROFILE_VARIABLE).and_then(profile::find),
        rules,
        pages: path(settings::PAGES_VARIABLE),
        counters: path(settings::COUNTERS_VARIABLE),
        root: root.unwrap_or(0),
        stderr: kernel::any_file(2),
    })
}

/// Maps the file of the run's matched globs.
fn map_marks(path: &CStr, globs: usize) -> Option<&'static [AtomicU8]> {
    let fd = kernel::open(path, libc::O_RDWR, 0)?;
    // A shorter file's mapping would end the process where it ends.
    let is_whole = globs > 0 && kernel::file_bytes(fd) == u64::try_from(globs).ok();
    let mapped = if is_whole { kernel::map_shared(fd, globs) } else { None };
    kernel::close(fd);
    // SAFETY: the mapping has that many bytes, and stays. Bytes need no alignment, and are atomics, so that other processes may write them at any time.
    mapped.map(|marks| unsafe { std::slice::from_raw_parts(marks.cast::<AtomicU8>(), globs) })
}

/// Runs in the child of a fork, before the call returns there.
extern "C" fn forked() {
    PROCESS.store(kernel::process_id(), Relaxed);
    COUNTERS.clear();
    WROTE_COUNTERS.store(false, Relaxed);
    drive::forked();
}

/// Writes the counters at the process's end.
pub extern "C" fn finish() {
    let Some(settings) = settings() else { return };
    let Some(pid) = own_id() else { return };
    if WROTE_COUNTERS.swap(true, Relaxed) {
        return;
    }
    let errno = errno::get();
    drive::release_slots(pid);
    if pid == settings.root || !COUNTERS.is_empty() {
        let mut program = [0; 16];
        let name = program_name(&mut program);
        let matched = settings.matched();
        let mut line = String::new();
        // On the heap: the stack may be a signal handler's. A warning is no longer than the counters, which have all globs.
        if line.try_reserve_exact(Counters::line_bytes(&settings.rules)).is_ok() {
            if COUNTERS.write_line(&mut line, pid, name, matched.as_ref()).is_ok() {
                settings.write_counters(line.as_bytes());
            }
            if let Some(matched) = matched {
                matched.warn(settings.profile, |warning| {
                    line.clear();
                    if line.write_fmt(warning).is_ok() {
                        settings.write_to_stderr(line.as_bytes());
                    }
                });
            }
        }
    }
    errno::set(errno);
}

/// The name of the process, which the kernel cuts to 15 bytes.
fn program_name(into: &mut [u8; 16]) -> &[u8] {
    let Some(fd) = kernel::open(c"/proc/self/comm", libc::O_RDONLY, 0) else { return b"" };
    let bytes = kernel::read(fd, into);
    kernel::close(fd);
    into.get(..bytes).unwrap_or_default().trim_ascii_end()
}

/// Bytes that a pipe with room takes in one write.
const PIPE_BYTES: usize = 4096;

impl Settings {
    /// The class of the file at `path`. Marks the globs that match.
    fn classify(&self, path: &[u8]) -> Option<Classified> {
        let classified = self.rules.classify(path)?;
        if let Some(matched) = self.matched() {
            matched.mark(path);
        }
        Some(classified)
    }

    fn matched(&self) -> Option<MatchedGlobs<'_>> {
        MatchedGlobs::new(&self.rules, self.marks?)
    }

    /// Appends the line to the file of counters with one call, so that lines of several processes do not mix. The file is there since the start. Without a file the line goes to stderr.
    fn write_counters(&self, line: &[u8]) {
        let Some(path) = &self.counters else {
            self.write_to_stderr(line);
            return;
        };
        let Some(fd) = kernel::open(path, libc::O_WRONLY | libc::O_APPEND, 0) else { return };
        // A counter that cannot be written is no reason to disturb the program.
        let _wrote = kernel::without_signals(|| kernel::write(fd, line));
        kernel::close(fd);
    }

    /// Parents read the stderr of their children, so the first process alone writes there.
    fn write_to_stderr(&self, line: &[u8]) {
        let is_first = self.root == PROCESS.load(Relaxed);
        if is_first && self.stderr.is_some() && kernel::any_file(2) == self.stderr {
            // A reader that is gone, or slow, gets no more.
            let _wrote = kernel::without_signals(|| {
                line.chunks(PIPE_BYTES).all(|part| kernel::has_room(2) && kernel::write(2, part))
            });
        }
    }
}

/// The entry of a descriptor whose change the calling process may note: `None` in a child of `vfork`, whose descriptors are not its parent's.
pub fn entry_to_change(fd: c_int) -> Option<&'static Entry> {
    let entry = table::entry(fd)?;
    if !has_rules() {
        return None;
    }
    own_id().map(|_| entry)
}
