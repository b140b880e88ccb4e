//! The files with bytes in memory only, and how many bytes these are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::{Event, Turnstile};
use units::{Bytes, Instant};
use zoned::{Buf, BufMut, IoClass, ZonedDevice};

use crate::error::{Error, Result};
use crate::files::file::File;
use crate::files::writes::WriteOut;
use crate::writeback::spare::SpareBuffers;

/// All files are written once this part of the budget is dirty.
const BEGIN_DIVISOR: u64 = 8;
/// Writers wait while this part of the budget is dirty.
const WAIT_DIVISOR: u64 = 4;
/// A file's buffer takes at most this part of the budget.
const BUFFER_DIVISOR: u64 = 16;

/// The bytes of one mount that are in memory only.
#[derive(Debug)]
pub(crate) struct DirtyBytes {
    budget: u64,
    /// Bytes are written at this age.
    longest_in_memory: Duration,
    queue: Mutex<Queue>,
    /// Wakes the task that writes back.
    pub work: Event,
    /// Notified when fewer bytes are dirty, or when the task has failed.
    fewer: Event,
    /// Writers wait for memory in order.
    turn: Turnstile,
    spare: SpareBuffers,
}

#[derive(Debug, Default)]
struct Queue {
    /// Number of dirty bytes of all files.
    total: u64,
    files: BTreeMap<u64, DirtyFile>,
    /// The files that nobody was told to write yet, by the time of their oldest dirty byte.
    by_age: BTreeSet<(Instant, u64)>,
    /// The files of `by_age` with a full buffer.
    full: BTreeSet<(Instant, u64)>,
    /// The class of the writer that waits for memory: files are written until the writer has some.
    waiting: Option<IoClass>,
    /// Everything that became dirty up to this time is to be written.
    everything_upto: Option<Instant>,
    /// Files that lost bytes since the last call of [`DirtyBytes::take_failures`].
    failed: Vec<(Weak<File>, Error)>,
}

#[derive(Debug)]
struct DirtyFile {
    file: Arc<File>,
    bytes: u64,
    /// When the oldest dirty byte was appended, or a later time at which the file was last written.
    since: Instant,
    has_full_buffer: bool,
    /// True while the task writes the file.
    is_being_written: bool,
}

/// A writer that waits for memory.
struct WaitingWriter<'a>(&'a DirtyBytes);

impl<'a> WaitingWriter<'a> {
    fn begin(dirty: &'a DirtyBytes, class: IoClass) -> WaitingWriter<'a> {
        dirty.queue.lock().waiting = Some(class);
        WaitingWriter(dirty)
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().waiting = None;
    }
}

impl DirtyFile {
    fn new(file: &Arc<File>, since: Instant) -> DirtyFile {
        let file = Arc::clone(file);
        DirtyFile { file, bytes: 0, since, has_full_buffer: false, is_being_written: false }
    }
}

impl Queue {
    fn unqueue(&mut self, ino: u64) {
        if let Some(entry) = self.files.get(&ino) {
            self.by_age.remove(&(entry.since, ino));
            self.full.remove(&(entry.since, ino));
        }
    }

    fn enqueue(&mut self, ino: u64) {
        if let Some(entry) = self.files.get(&ino).filter(|entry| !entry.is_being_written) {
            self.by_age.insert((entry.since, ino));
            if entry.has_full_buffer {
                self.full.insert((entry.since, ino));
            }
        }
    }
}

impl DirtyBytes {
    /// The dirty bytes of a mount whose page cache has `budget` bytes, which are written at the age `longest_in_memory`.
    pub(crate) fn new(budget: Bytes, longest_in_memory: Duration) -> DirtyBytes {
        DirtyBytes {
            budget: budget.0,
            longest_in_memory,
            queue: Mutex::default(),
            work: Event::new(),
            fewer: Event::new(),
            turn: Turnstile::new(),
            spare: SpareBuffers::new(budget.0),
        }
    }

    /// An empty buffer for appended bytes, with room for `bytes` of the `full` bytes that a full buffer has.
    pub(crate) fn buffer(&self, bytes: usize, full: usize) -> BufMut {
        self.spare.get(bytes, full)
    }

    /// Takes back a buffer whose bytes were written.
    pub(super) fn reuse(&self, written: Buf, full: usize) {
        self.spare.put(written, full);
    }

    /// Bytes of memory that dirty bytes and spare buffers take, where a full buffer has `full` bytes.
    pub(super) fn memory(&self, full: usize) -> u64 {
        self.total() + self.spare.bytes(full)
    }

    /// Bytes that a file's buffer may have.
    pub(crate) fn longest_buffer(&self) -> u64 {
        self.budget / BUFFER_DIVISOR
    }

    /// Number of dirty bytes.
    pub(crate) fn total(&self) -> u64 {
        self.queue.lock().total
    }

    /// Waits until `bytes` more bytes of `file` may be dirty, and counts them. `check` fails once nothing is written back any more.
    pub(crate) async fn admit(
        &self,
        file: &Arc<File>,
        bytes: u64,
        now: Instant,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let _turn = match self.turn.try_acquire() {
            Some(turn) => turn,
            None => self.turn.acquire().await,
        };
        while !self.try_admit(file, bytes, now) {
            let seen = self.fewer.version();
            let _waiting = WaitingWriter::begin(self, file.writes.class_of_waiter());
            if self.try_admit(file, bytes, now) {
                break;
            }
            check()?;
            self.work.notify();
            self.fewer.changed_since(seen).await;
        }
        Ok(())
    }

    fn try_admit(&self, file: &Arc<File>, bytes: u64, now: Instant) -> bool {
        let mut queue = self.queue.lock();
        if queue.total > 0 && queue.total + bytes > self.budget / WAIT_DIVISOR {
            return false;
        }
        let begun = queue.total < self.budget / BEGIN_DIVISOR;
        queue.total += bytes;
        let first = queue.files.is_empty();
        let entry = queue.files.entry(file.ino).or_insert_with(|| DirtyFile::new(file, now));
        entry.bytes += bytes;
        queue.enqueue(file.ino);
        let begins = begun && queue.total >= self.budget / BEGIN_DIVISOR;
        drop(queue);
        // The task sleeps without a time where no file was dirty.
        if first || begins {
            self.work.notify();
        }
        true
    }

    /// Sets the number of dirty bytes of `file`, and whether one of its buffers is full.
    pub(crate) fn set(&self, file: &Arc<File>, bytes: u64, has_full_buffer: bool, now: Instant) {
        let mut queue = self.queue.lock();
        queue.unqueue(file.ino);
        // A write-back may have ended between the admission of bytes and their append.
        let first = queue.files.is_empty() && bytes > 0;
        if bytes > 0 {
            queue.files.entry(file.ino).or_insert_with(|| DirtyFile::new(file, now));
        }
        let Some(entry) = queue.files.get_mut(&file.ino) else { return };
        let before = entry.bytes;
        let had_full_buffer = std::mem::replace(&mut entry.has_full_buffer, has_full_buffer);
        entry.bytes = bytes;
        if bytes == 0 && !entry.is_being_written {
            queue.files.remove(&file.ino);
        }
        queue.total = queue.total - before + bytes;
        queue.enqueue(file.ino);
        drop(queue);
        if bytes < before {
            self.fewer.notify();
        }
        if first || has_full_buffer && !had_full_buffer {
            self.work.notify();
        }
    }

    /// The next file for the task to write, how much of it, and in operations of which class. The task calls [`ended`](DirtyBytes::ended) afterwards.
    pub(super) fn next(&self, now: Instant) -> Option<(Arc<File>, WriteOut, IoClass)> {
        let mut queue = self.queue.lock();
        let oldest = queue.by_age.first().copied();
        let is_asked_for = |since: Instant| queue.everything_upto.is_some_and(|upto| since <= upto);
        let is_due = |since: Instant| since.after(self.longest_in_memory) <= now;
        let (ino, what) = match (queue.full.first().copied(), oldest) {
            (_, Some((since, ino))) if is_asked_for(since) || is_due(since) => (ino, WriteOut::Everything),
            (Some((_, ino)), _) => (ino, WriteOut::Buffers),
            (None, Some((_, ino)))
                if queue.waiting.is_some() || queue.total >= self.budget / BEGIN_DIVISOR =>
            {
                (ino, WriteOut::Everything)
            }
            _ => return None,
        };
        queue.unqueue(ino);
        let waiting = queue.waiting;
        let entry = queue.files.get_mut(&ino)?;
        entry.is_being_written = true;
        let class = entry.file.writes.class_in_background();
        // A writer that waits for memory waits for each file's bytes.
        Some((Arc::clone(&entry.file), what, waiting.map_or(class, |waiting| waiting.min(class))))
    }

    /// Gives the writes of all files that are being written the class of a writer that waits for memory, if there is one.
    pub(super) fn raise_for_waiting(&self, device: &dyn ZonedDevice) {
        let (class, files): (IoClass, Vec<Arc<File>>) = {
            let queue = self.queue.lock();
            let Some(class) = queue.waiting else { return };
            let written = queue.files.values().filter(|entry| entry.is_being_written);
            (class, written.map(|entry| Arc::clone(&entry.file)).collect())
        };
        files.iter().for_each(|file| file.writes.raise(class, device));
    }

    /// When the task has to write something, if nothing else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        self.queue.lock().by_age.first().map(|(since, _)| since.after(self.longest_in_memory))
    }

    /// The task has written `file`. `everything`: also its end, so that what is dirty now was appended after `now`, or soon before.
    pub(super) fn ended(&self, file: &File, everything: bool, now: Instant) {
        let mut queue = self.queue.lock();
        if let Some(entry) = queue.files.get_mut(&file.ino) {
            entry.is_being_written = false;
            if everything {
                entry.since = now;
            }
            if entry.bytes == 0 {
                queue.files.remove(&file.ino);
            }
            queue.enqueue(file.ino);
        }
        drop(queue);
        self.fewer.notify();
    }

    /// Has the task write everything that is dirty at `now`.
    pub(crate) fn write_everything(&self, now: Instant) {
        self.queue.lock().everything_upto = Some(now);
        self.work.notify();
    }

    /// Number of files with dirty bytes.
    pub(crate) fn file_count(&self) -> usize {
        self.queue.lock().files.len()
    }

    /// All files with dirty bytes.
    pub(crate) fn files(&self) -> Vec<Arc<File>> {
        self.queue.lock().files.values().map(|entry| Arc::clone(&entry.file)).collect()
    }

    /// Notes that `file` lost bytes because of `error`: none of its bytes in memory will be written.
    pub(super) fn note_failure(&self, file: &Arc<File>, error: &Error) {
        let mut queue = self.queue.lock();
        // Nobody asks for the failures of files that are gone.
        queue.failed.retain(|(failed, _)| failed.strong_count() > 0);
        queue.failed.push((Arc::downgrade(file), error.clone()));
    }

    /// The first error of the files that lost bytes since the last call.
    pub(super) fn take_failures(&self) -> Option<Error> {
        let failed = std::mem::take(&mut self.queue.lock().failed);
        for file in failed.iter().filter_map(|(file, _)| file.upgrade()) {
            file.writes.note_told();
        }
        failed.into_iter().next().map(|(_, error)| error)
    }

    /// Wakes writers that wait for memory: nothing is written back any more.
    pub(super) fn wake_writers(&self) {
        self.fewer.notify();
    }

    /// Wakes the task: the file system ends.
    pub(crate) fn wake_task(&self) {
        self.work.notify();
    }
}
