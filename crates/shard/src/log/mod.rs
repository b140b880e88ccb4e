//! The log that all groups of a process share: one parallel log on the process's drive.
//!
//! Each record is a change of one group: what its replica asks to be made durable. A group has one request in flight at a time, and joins what comes meanwhile in its next one; records of several groups join one entry of the parallel log. So a crash leaves each group a prefix of its requests: everything acknowledged, and perhaps the request in flight.
//!
//! The log is retired up to the oldest record that any group needs. A group that writes little would keep everybody's records: its whole state is written again ([`GroupsLog::pinning`]), and then it needs that record alone.

mod found;
mod needed;
mod record;
mod stored;

use std::collections::{BTreeMap, VecDeque};

use fs::{Fs, ParallelLog, ParallelOptions, Ticket};
use parking_lot::Mutex;
use replica::GroupId;
use units::Bytes;

use self::found::FoundGroup;
use self::needed::Needed;
use crate::error::{Error, Result};
use crate::rules::Rules;

pub use self::record::Change;
#[cfg(any(test, feature = "fuzzing"))]
pub use self::record::fuzz_record;
pub use self::stored::StoredGroup;

/// The settings of a process's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupsLogOptions {
    /// Bytes of the drive that the log's records may take before a group whose records are the oldest is to be written again.
    pub size: Bytes,
    /// The parallel log.
    pub log: ParallelOptions,
    /// The safety rule that is broken.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<crate::BrokenRule>,
}

impl Default for GroupsLogOptions {
    fn default() -> GroupsLogOptions {
        let log = ParallelOptions { batching: fs::Batching::Auto, ..ParallelOptions::default() };
        GroupsLogOptions {
            size: Bytes(256 << 20),
            log,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

impl GroupsLogOptions {
    fn rules(&self) -> Rules {
        Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }
}

/// The log of all groups of a process.
///
/// Crash safety: what a finished call wrote is there after a power cut. A call that fails with `NoSpace` wrote nothing; after another error, and for a call that was dropped, the next opening decides what became of its record.
pub struct GroupsLog {
    log: ParallelLog,
    rules: Rules,
    size: Bytes,
    /// The drive's block, of which an append takes whole ones.
    block: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<GroupId, Needed>,
    /// The records that the log holds, and the bytes that they take on the drive.
    held: VecDeque<(Ticket, u64)>,
    held_bytes: u64,
    /// Blocks that the log has written since its opening, as far as they are counted.
    blocks: u64,
    /// Bytes of the drive for records that said a group's whole state again, and of all others, since the opening.
    copied_bytes: u64,
    other_bytes: u64,
}

impl State {
    fn note(&mut self, rules: Rules, group: GroupId, ticket: Ticket, change: &Change) {
        if matches!(change, Change::Removed) {
            self.groups.remove(&group);
        } else {
            self.groups.entry(group).or_insert_with(|| Needed::from(rules, ticket)).note(ticket, change);
        }
    }

    /// A record of a group is about to be appended, and gets `next` or a higher ticket. A new group needs it from now on: another group's record may be durable earlier, and retire it. True if the group is new.
    fn begin(&mut self, rules: Rules, group: GroupId, change: &Change, next: Ticket) -> Result<bool> {
        if self.groups.contains_key(&group) {
            return Ok(false);
        }
        if !matches!(change, Change::State(_)) {
            return Err(Error::Group { group, why: "this process has no replica of it" });
        }
        if !rules.forgets_new_groups() {
            self.groups.insert(group, Needed::from(rules, next));
        }
        Ok(true)
    }

    /// A record was written now, and takes `bytes` of the drive.
    fn count(&mut self, change: &Change, bytes: u64) {
        let counted =
            if matches!(change, Change::State(_)) { &mut self.copied_bytes } else { &mut self.other_bytes };
        *counted += bytes;
    }

    /// The blocks that were written since the last call. Records that join one append share its blocks: the first of them that is counted has all.
    fn take_blocks(&mut self, written: u64) -> u64 {
        let more = written.saturating_sub(self.blocks);
        self.blocks = self.blocks.max(written);
        more
    }

    fn hold(&mut self, ticket: Ticket, bytes: u64) {
        let place = self.held.partition_point(|(of, _)| *of < ticket);
        self.held.insert(place, (ticket, bytes));
        self.held_bytes += bytes;
    }

    /// The ticket below which no group needs a record; `next` if none needs any.
    fn unneeded(&self, next: Ticket) -> Ticket {
        self.groups.values().map(Needed::oldest).min().unwrap_or(next)
    }

    fn drop_below(&mut self, below: Ticket) {
        let kept = self.held.partition_point(|(ticket, _)| *ticket < below);
        self.held_bytes -= self.held.drain(..kept).map(|(_, bytes)| bytes).sum::<u64>();
    }
}

impl GroupsLog {
    /// Opens the log at `path`, which is made if there is none, and recovers each group's state.
    ///
    /// # Errors
    /// The file system's, and `Record` for a record that this version did not write.
    pub async fn open(
        fs: &Fs,
        path: &str,
        options: &GroupsLogOptions,
    ) -> Result<(GroupsLog, BTreeMap<GroupId, StoredGroup>)> {
        let rules = options.rules();
        let block = u64::from(fs.device().geometry().block_size);
        let (log, mut replay) = fs.parallel_log(path, &options.log).await?;
        let mut found: BTreeMap<GroupId, FoundGroup> = BTreeMap::new();
        let mut state = State::default();
        let mut last = 0;
        while let Some((Ticket(ticket), record)) = replay.next().await? {
            last = ticket;
            let (group, change) = Change::decode(&record).map_err(|why| Error::Record { ticket, why })?;
            // Records that shared a block count one each.
            state.hold(Ticket(ticket), (record.len() as u64).next_multiple_of(block));
            state.note(rules, group, Ticket(ticket), &change);
            found.entry(group).or_default().take(change);
        }
        let mut groups = BTreeMap::new();
        for (group, found) in found {
            let bad = |why| Error::Record { ticket: last, why: format!("{group}, at the log's end: {why}") };
            groups.extend(found.end().map_err(bad)?.map(|stored| (group, stored)));
        }
        let log = GroupsLog { log, rules, size: options.size, block, state: Mutex::new(state) };
        Ok((log, groups))
    }

    /// Makes a change of a group durable. The caller has one call for a group in flight at a time.
    ///
    /// # Errors
    /// The file system's. `Group` for a change of a group that the process has no replica of.
    pub async fn write(&self, group: GroupId, change: &Change) -> Result<()> {
        let is_new = {
            let mut state = self.state.lock();
            // Under the lock: nobody retires the ticket between.
            state.begin(self.rules, group, change, self.log.next_ticket())?
        };
        let record = change.encode(group);
        if self.rules.retires_early() && !matches!(change, Change::Write { .. }) {
            let next = self.log.next_ticket();
            self.state.lock().note(self.rules, group, next, change);
            self.retire()?;
        }
        let ticket = self.log.append(&record, true).await.inspect_err(|_| {
            if is_new {
                self.state.lock().groups.remove(&group);
            }
        })?;
        {
            let mut state = self.state.lock();
            state.note(self.rules, group, ticket, change);
            let bytes = state.take_blocks(self.log.stats().blocks) * self.block;
            state.hold(ticket, bytes);
            state.count(change, bytes);
        }
        // Writes of entries and votes let few records go: the next change of another kind retires them.
        if !matches!(change, Change::Write { base: None, .. }) {
            self.retire()?;
        }
        Ok(())
    }

    /// The group whose oldest record keeps the log from being retired, if the log holds more than its size. Its tables are to be flushed, so that entries may go; then its state is to be written again, as [`Change::State`].
    pub fn pinning(&self) -> Option<GroupId> {
        let state = self.state.lock();
        let oldest = state.groups.iter().min_by_key(|(_, needed)| needed.oldest());
        oldest.filter(|_| state.held_bytes > self.size.0).map(|(group, _)| *group)
    }

    /// False while more was written again than anything else: groups that need more than the log's size together would be written again without end.
    pub fn may_copy(&self) -> bool {
        let state = self.state.lock();
        state.copied_bytes <= state.other_bytes
    }

    /// Bytes of the drive that were written since the opening.
    pub fn written(&self) -> u64 {
        let state = self.state.lock();
        state.copied_bytes + state.other_bytes
    }

    /// Bytes of the drive above which the log is to be made smaller.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Bytes of the drive that the log's records take.
    pub fn held(&self) -> Bytes {
        Bytes(self.state.lock().held_bytes)
    }

    /// Ends the log: waits for calls in flight.
    ///
    /// # Errors
    /// The file system's.
    pub async fn close(&self) -> Result<()> {
        Ok(self.log.close().await?)
    }

    fn retire(&self) -> Result<()> {
        let below = {
            let mut state = self.state.lock();
            let below = state.unneeded(self.log.next_ticket());
            state.drop_below(below);
            below
        };
        Ok(self.log.retire(below)?)
    }
}

impl std::fmt::Debug for GroupsLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        write!(f, "log of {} groups, {} bytes", state.groups.len(), state.held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use replica::{Configuration, ReplicaId};

    use super::*;

    /// The ticket below which the log may be retired while the first record of a group is in flight, with ticket 5 or a higher one.
    fn retired_beside_a_new_group(rules: Rules) -> Ticket {
        let mut state = State::default();
        let base = replica::Base::first(Configuration::default(), ReplicaId(1));
        let change = Change::State(StoredGroup::new(base));
        assert!(state.begin(rules, GroupId(1), &change, Ticket(5)).expect("a new group"));
        state.note(rules, GroupId(2), Ticket(6), &change);
        state.unneeded(Ticket(7))
    }

    #[test]
    fn the_first_record_of_a_group_is_not_retired_while_it_is_in_flight() {
        assert_eq!(retired_beside_a_new_group(Rules::default()), Ticket(5));
        let broken = Rules { broken: Some(crate::BrokenRule::NewGroup) };
        assert_eq!(retired_beside_a_new_group(broken), Ticket(6));
    }
}
