//! State of the process: the rules, the counters, whether real-time is refused; and the process's start, forks and end.

use std::ffi::{CStr, CString, c_char};
use std::fmt::Write;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};

use libc::c_int;
use pathprio::counters::{Counters, Effective, Line};
use pathprio::rules::Rules;
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
    pages: Option<CString>,
    /// The file for the counters; `None` for stderr.
    counters: Option<CString>,
    /// The process that prints its counters even if all are zero.
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
static TOLD_OF_BOTH: AtomicBool = AtomicBool::new(false);

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
pub fn classify(fd: c_int, entry: &Entry, opened_as: Option<&CStr>) -> Option<Classed> {
    let settings = settings()?;
    own_id()?;
    let Some(file) = kernel::regular_file(fd) else {
        entry.set_no_class();
        return None;
    };
    let given = opened_as.and_then(|path| settings.rules.classify(path.to_bytes()));
    let classified = given.or_else(|| {
        let mut link = Line::<32>::new();
        write!(link, "/proc/self/fd/{fd}\0").ok()?;
        let mut path = [0; kernel::PATH_BYTES];
        let path = kernel::read_link(CStr::from_bytes_with_nul(link.as_bytes()).ok()?, &mut path)?;
        settings.rules.classify(path)
    });
    let Some(classified) = classified else {
        entry.set_no_class();
        return None;
    };
    let flags = kernel::open_flags(fd);
    let drive = drive::number_of(file.device, settings.pages.as_deref());
    let classed = Classed { class: classified.class, synced: flags & libc::O_DSYNC != 0, drive };
    entry.set(classed, file.inode);
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        COUNTERS.of(classed.class).files.fetch_add(1, Relaxed);
    }
    if classified.in_both {
        COUNTERS.in_both.fetch_add(1, Relaxed);
        if !TOLD_OF_BOTH.swap(true, Relaxed) {
            tell_of_both(settings, opened_as);
        }
    }
    Some(classed)
}

fn tell_of_both(settings: &Settings, opened_as: Option<&CStr>) {
    let mut line = Line::<{ kernel::PATH_BYTES + 128 }>::new();
    let path = opened_as.map_or(&b"a file"[..], CStr::to_bytes);
    let named = line.push(b"furrow prio: ").and_then(|()| line.push(path));
    if named.and_then(|()| line.push(b" matches globs of logs and of bulk: it is a log\n")).is_ok() {
        settings.write_to_stderr(line.as_bytes());
    }
}

/// Gives the calling thread the priority of a class. Returns the thread's own, if it was changed, and the one that it has now.
pub fn raise(class: FileClass) -> (Option<Priority>, Effective) {
    let Ok(before) = thread_priority() else { return (None, Effective::Unchanged) };
    loop {
        let refused = REAL_TIME_REFUSED.load(Relaxed);
        let wanted = match (class, refused) {
            (FileClass::Log, false) => LOG,
            (FileClass::Log, true) => LOG_UNPRIVILEGED,
            // A thread that made itself idle stays so.
            (FileClass::Bulk, _) if before == Priority::Idle => Priority::Idle,
            (FileClass::Bulk, false) => BULK,
            (FileClass::Bulk, true) => BULK_UNPRIVILEGED,
        };
        let effective = match wanted {
            Priority::RealTime(_) => Effective::RealTime,
            Priority::Idle => Effective::Idle,
            _ => Effective::BestEffort,
        };
        if before == wanted {
            return (None, effective);
        }
        if set_thread_priority(wanted).is_ok() {
            return (Some(before), effective);
        }
        COUNTERS.refused.fetch_add(1, Relaxed);
        if class == FileClass::Bulk || refused {
            return (None, Effective::Unchanged);
        }
        // The process gave its capability up, as servers do when they become another user.
        REAL_TIME_REFUSED.store(true, Relaxed);
    }
}

/// Gives the calling thread its own priority back.
pub fn restore(before: Option<Priority>) {
    if let Some(before) = before {
        // Going back needs no capability, but where the program itself gave its real-time priority's up.
        let _refused = set_thread_priority(before);
    }
}

/// Runs before the program's `main`, and after calls that other libraries' constructors make.
extern "C" fn start() {
    let errno = errno::get();
    if let Some(descriptor) = variable(HANDSHAKE_VARIABLE) {
        announce(descriptor);
    }
    if let Some(settings) = read_settings() {
        PROCESS.store(kernel::process_id(), Relaxed);
        // The answer is known before the first call of a log, so that bulk has the right class from the start.
        let (before, _) = raise(FileClass::Log);
        restore(before);
        // SAFETY: the function takes no arguments and is never unloaded: the library has functions that the program is bound to.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        SETTINGS.store(Box::into_raw(Box::new(settings)), Release);
    }
    errno::set(errno);
}

#[cfg(not(test))]
#[used]
// SAFETY: the section holds functions without arguments, which the dynamic loader calls once.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(not(test))]
#[used]
// SAFETY: as for `.init_array`, at the process's end.
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = finish;

#[cfg(test)]
const _: [extern "C" fn(); 2] = [start, finish];

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
    Some(Settings {
        rules,
        pages: path(settings::PAGES_VARIABLE),
        counters: path(settings::COUNTERS_VARIABLE),
        root: root.unwrap_or(0),
        stderr: kernel::any_file(2),
    })
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
        let mut line = Line::<2048>::new();
        if COUNTERS.write_line(&mut line, pid, name).is_ok() {
            settings.write_counters(line.as_bytes());
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

impl Settings {
    /// Appends the line with one call, so that lines of several processes do not mix.
    fn write_counters(&self, line: &[u8]) {
        let Some(path) = &self.counters else {
            self.write_to_stderr(line);
            return;
        };
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
        let Some(fd) = kernel::open(path, flags, 0o644) else { return };
        // A counter that cannot be written is no reason to disturb the program.
        let _wrote = kernel::write(fd, line);
        kernel::close(fd);
    }

    fn write_to_stderr(&self, line: &[u8]) {
        if self.stderr.is_some() && kernel::any_file(2) == self.stderr {
            let _wrote = kernel::write(2, line);
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
