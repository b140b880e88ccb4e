//! How far a parity covers the blocks of a logical zone: its commits ([`super`]).

use std::collections::VecDeque;

use zoned::Blocks;

/// A commit: submitted parity that covers all blocks of the zone below `end`.
#[derive(Clone, Copy, Debug)]
struct Commit {
    end: Blocks,
    done: bool,
}

/// How far one parity covers the blocks of a zone.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// The first row of the parity of the stripe at the pointer that is final and not written to its place yet. No block of
    /// the last data unit from this row on is covered by a commit.
    pub held: Option<u64>,
    /// The end of the blocks that a submitted commit covers.
    pub logged: Blocks,
    /// True while a record of partial parity waits for room in the log.
    pub waiting: bool,
    /// The number of records of partial parity in flight.
    pub records: u32,
    /// The number of commits whose parity is in checkpoints under way.
    pub checkpoints: u32,
    /// The next record of partial parity corrects the parity of appends that were reordered: older records that end above
    /// this block do not count.
    pub corrects: Option<Blocks>,
    commits: VecDeque<Commit>,
    /// The end of the blocks that a commit covers for certain.
    pub(super) covered: Blocks,
}

impl Coverage {
    pub(super) fn new(pointer: Blocks) -> Coverage {
        Coverage {
            held: None,
            logged: pointer,
            waiting: false,
            records: 0,
            checkpoints: 0,
            corrects: None,
            commits: VecDeque::new(),
            covered: pointer,
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.commits.capacity() * size_of::<Commit>()
    }

    /// True while a record of partial parity is in flight, or waits for room in the log.
    pub(crate) fn is_logging(&self) -> bool {
        self.waiting || self.records > 0
    }

    /// The parity of the blocks that no commit covers for certain was computed for another order of appends. The next record
    /// corrects it.
    pub(super) fn begin_correction(&mut self) {
        self.commits.clear();
        self.logged = self.covered;
        self.corrects = Some(self.covered);
    }

    /// Adds a commit that covers the blocks below `end`. `done`: the commit needs no parity to land.
    pub(crate) fn commit(&mut self, end: Blocks, done: bool) {
        self.logged = self.logged.max(end);
        self.commits.push_back(Commit { end, done });
    }

    /// Notes that the parity of the commit at `end` has landed.
    pub(crate) fn commit_landed(&mut self, end: Blocks) {
        for commit in self.commits.iter_mut().filter(|commit| commit.end == end) {
            commit.done = true;
        }
    }

    /// Ends the first commits whose parity and data have landed: data below `landed` has.
    pub(super) fn advance(&mut self, landed: Blocks) {
        while let Some(commit) = self.commits.front().filter(|c| c.done && c.end <= landed) {
            self.covered = self.covered.max(commit.end);
            self.commits.pop_front();
        }
    }
}
