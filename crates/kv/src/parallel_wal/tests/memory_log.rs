//! A parallel log in memory that simulates power cuts.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::{LogError, LogErrorKind, Ticket, TicketLog, VisitRecord};

/// Decides for an unsynced log entry whether it survives a power cut.
pub type Survivors<'a> = dyn FnMut(Ticket) -> bool + 'a;

#[derive(Clone, Debug)]
struct LogEntry {
    record: Vec<u8>,
    /// The lowest ticket that was not acknowledged when this entry was submitted.
    needs: u64,
    acknowledged: bool,
    durable: bool,
}

#[derive(Clone, Debug, Default)]
struct LogState {
    entries: BTreeMap<u64, LogEntry>,
    /// Voided tickets.
    void: BTreeSet<u64>,
    next: u64,
    /// Tickets below this one were decided when the log was opened.
    settled: u64,
    mark: u64,
    /// The log's last retired ticket that a crash cannot lose.
    durable_mark: u64,
    failure: Option<LogError>,
    removed: bool,
    /// Largest number of unretired records; `None`: no limit.
    room: Option<usize>,
}

/// A parallel log in memory, which keeps and loses the same records at a power cut as one on a drive.
#[derive(Debug, Default)]
pub struct MemoryLog {
    state: Mutex<LogState>,
}

impl MemoryLog {
    /// A log without records.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }

    /// The log as it is opened after a power cut now. `survive` decides which unsynced entries are on the medium, and
    /// `keep_mark` whether the last retirement is.
    pub fn cut(&self, survive: &mut Survivors<'_>, keep_mark: bool) -> MemoryLog {
        let mut state = self.state.lock().clone();
        state.entries.retain(|ticket, entry| entry.durable || survive(Ticket(*ticket)));
        let exists = |state: &LogState, ticket: u64| {
            ticket < state.settled || state.entries.contains_key(&ticket) || state.void.contains(&ticket)
        };
        let missing = (state.settled..state.next).find(|t| !exists(&state, *t)).unwrap_or(state.next);
        // As in the recovery from a drive, the log ends at an entry that needs a missing one.
        let stop = state.entries.iter().find(|(_, entry)| entry.needs > missing).map(|(ticket, _)| *ticket);
        stop.map(|ticket| state.entries.split_off(&ticket));
        let void = std::mem::take(&mut state.void);
        state.entries.retain(|ticket, _| !void.contains(ticket));
        if keep_mark {
            state.durable_mark = state.mark;
        }
        state.mark = state.durable_mark;
        let mark = state.mark;
        state.entries.retain(|ticket, _| *ticket >= mark);
        for entry in state.entries.values_mut() {
            entry.durable = true;
            entry.acknowledged = true;
        }
        state.settled = state.next;
        state.failure = None;
        MemoryLog { state: Mutex::new(state) }
    }

    /// Makes every operation of the log fail from now on, as on a removed drive.
    pub fn poison(&self) {
        self.state.lock().failure = Some(LogError::new(LogErrorKind::Poisoned, "the log was told to fail"));
    }

    /// Limits the number of unretired records from now on.
    pub fn limit(&self, records: usize) {
        self.state.lock().room = Some(records);
    }

    /// Whether the log was removed.
    pub fn is_removed(&self) -> bool {
        self.state.lock().removed
    }

    /// Number of records that are not retired.
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.entries.range(state.mark..).filter(|(ticket, _)| !state.void.contains(ticket)).count()
    }

    /// Whether every record of the log is retired.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LogState {
    fn check_usable(&self) -> Result<(), LogError> {
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.check_usable()?;
        for entry in self.entries.values_mut().filter(|entry| entry.acknowledged) {
            entry.durable = true;
        }
        Ok(())
    }
}

impl TicketLog for MemoryLog {
    fn append(&self, record: &[u8], synced: bool) -> Result<Ticket, LogError> {
        let ticket = {
            let mut state = self.state.lock();
            state.check_usable()?;
            if state.room.is_some_and(|room| state.entries.range(state.mark..).count() >= room) {
                return Err(LogError::new(LogErrorKind::NoSpace, "the log has no room"));
            }
            let ticket = state.next;
            state.next += 1;
            let open = state.entries.iter().find(|(_, entry)| !entry.acknowledged).map(|(ticket, _)| *ticket);
            let needs = open.unwrap_or(ticket);
            let entry = LogEntry { record: record.to_vec(), needs, acknowledged: false, durable: false };
            state.entries.insert(ticket, entry);
            ticket
        };
        // The append is in flight here: let other threads run.
        std::thread::yield_now();
        let mut state = self.state.lock();
        state.check_usable()?;
        if let Some(entry) = state.entries.get_mut(&ticket) {
            entry.acknowledged = true;
        }
        if synced {
            drop(state);
            std::thread::yield_now();
            self.sync()?;
        }
        Ok(Ticket(ticket))
    }

    fn void(&self, ticket: Ticket) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.check_usable()?;
        state.void.insert(ticket.0);
        Ok(())
    }

    fn sync(&self) -> Result<(), LogError> {
        self.state.lock().sync()
    }

    fn retire(&self, below: Ticket) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.mark = state.mark.max(below.0);
        Ok(())
    }

    fn next_ticket(&self) -> Ticket {
        Ticket(self.state.lock().next)
    }

    fn failure(&self) -> Option<LogError> {
        self.state.lock().failure.clone()
    }

    fn replay(&self, visit: &mut VisitRecord<'_>) -> Result<(), LogError> {
        let entries = self.state.lock().entries.clone();
        entries.iter().try_for_each(|(ticket, entry)| visit(Ticket(*ticket), &entry.record))
    }

    fn seal(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.check_usable()?;
        state.durable_mark = state.mark;
        Ok(())
    }

    fn remove(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.entries.clear();
        state.removed = true;
        Ok(())
    }
}
