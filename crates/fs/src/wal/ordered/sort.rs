//! The rule that decides which entries of a log count, without I/O: parts come in the order in which they lie on the
//! device, and those that count go out in the order of the stream, as early as can be.
//!
//! ```text
//!   push(part) --> the next sequence?  yes: decided at once
//!                                      no:  held until the ones before it are there, or can no longer come:
//!                                           the next region begins, or the segment is over
//! ```

use std::collections::{BTreeMap, VecDeque};

use units::{Blocks, Bytes};

use crate::wal::chunk::Payload;
use crate::wal::index::LogIndex;
use crate::wal::ordered::recovered::{Cut, Recovered};
use crate::wal::scan::Found;
use crate::wal::segment::Segment;

/// A part with its bytes, if they are in memory.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) found: Found,
    pub(super) payload: Option<Payload>,
}

/// Sorts the parts of one log.
#[derive(Debug)]
pub(super) struct Sorter {
    cuts: Vec<Cut>,
    /// What lies behind a gap counts: the rule broken, for tests.
    keep_gaps: bool,
    /// Every sequence below this is decided.
    next: u64,
    /// The lowest sequence that does not exist, as far as it is decided.
    absent: u64,
    /// Parts of entries that are not decided, by sequence.
    held: BTreeMap<u64, Vec<Part>>,
    /// Those of them that came with their bytes, in the order of coming.
    carried: VecDeque<Carried>,
    /// The region of the last part.
    region: Option<(u32, bool)>,
    /// The highest sequence found in this segment.
    highest: Option<u64>,
    /// Decided to count, in the order of the stream, not yet taken.
    ready: VecDeque<Part>,
    index: LogIndex,
    /// The sequence behind the last one that counts.
    behind_last: u64,
    proven: u64,
    dropped: usize,
    behind: u64,
    /// For each segment, the block behind the last part that counts, and behind the last one that does not.
    kept_end: Vec<Blocks>,
    dropped_end: Vec<Blocks>,
}

/// A part that is held with its bytes.
#[derive(Debug)]
struct Carried {
    /// How many bytes had been looked at when it came.
    at: u64,
    sequence: u64,
    part: u16,
}

impl Sorter {
    pub(super) fn new(cuts: &[Cut], segments: &[Segment], keep_gaps: bool) -> Sorter {
        let first = cuts.first().map_or(0, |cut| cut.first_sequence);
        let starts: Vec<Blocks> = segments.iter().map(|s| s.start).collect();
        Sorter {
            cuts: cuts.to_vec(),
            keep_gaps,
            next: first,
            absent: first,
            held: BTreeMap::new(),
            carried: VecDeque::new(),
            region: None,
            highest: None,
            ready: VecDeque::new(),
            index: LogIndex::starting_at(Bytes::ZERO),
            behind_last: first,
            proven: cuts.last().map_or(0, |cut| cut.first_sequence),
            dropped: 0,
            behind: 0,
            kept_end: starts.clone(),
            dropped_end: starts,
        }
    }

    /// Takes the next part that the scan found, when `at` bytes had been looked at.
    pub(super) fn push(&mut self, part: Part, at: u64) {
        let header = part.found.header;
        if !in_its_epoch(&part.found, &self.cuts) {
            return;
        }
        if header.sequence < self.absent {
            // It is there already: an old block that a hole shows again. It says nothing of what lies around it.
            return;
        }
        let region = (header.epoch, header.odd);
        if self.region.replace(region).is_some_and(|before| before != region) {
            // All entries before this one were acknowledged before it was submitted: what is missing stays so.
            self.settle(u64::MAX);
        }
        self.highest = self.highest.max(Some(header.sequence));
        self.proven = self.proven.max(header.proven());
        if header.sequence < self.next {
            // It came too late.
            self.drop_part(&part);
            return;
        }
        if header.sequence == self.next && header.parts == 1 && !self.held.contains_key(&header.sequence) {
            self.decide_one(part);
        } else {
            let (sequence, number) = (header.sequence, header.part);
            let entry = self.held.entry(sequence).or_default();
            // The same part twice: the first one counts.
            if entry.iter().any(|p| p.found.header.part == number) {
                return;
            }
            if part.payload.is_some() {
                self.carried.push_back(Carried { at, sequence, part: number });
            }
            entry.push(part);
        }
        self.advance();
    }

    /// Decides what is next and whole.
    fn advance(&mut self) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() == self.next
            && is_whole(entry.get())
        {
            let entry = entry.remove();
            self.decide(entry);
        }
    }

    /// The scan has come to the end of a segment: what is missing before an entry that was found in it, is missing
    /// for good. An entry may go on in the next segment.
    pub(super) fn end_of_segment(&mut self) {
        if let Some(highest) = self.highest.take() {
            self.settle(highest);
            self.advance();
        }
    }

    /// Decides everything held below `end`: nothing that is missing there can come any more.
    fn settle(&mut self, end: u64) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() < end
        {
            let (sequence, parts) = entry.remove_entry();
            if is_whole(&parts) {
                self.next = sequence;
                self.decide(parts);
            } else {
                parts.iter().for_each(|part| self.drop_part(part));
                self.next = sequence + 1;
            }
        }
        if end != u64::MAX {
            self.next = self.next.max(end);
        }
        if self.held.is_empty() {
            self.carried.clear();
        }
    }

    /// Decides a whole entry: everything before it is decided.
    fn decide(&mut self, mut parts: Vec<Part>) {
        parts.sort_unstable_by_key(|part| part.found.header.part);
        let counts = parts.first().is_some_and(|part| self.exists(part));
        for part in parts {
            if counts { self.keep(part) } else { self.drop_part(&part) }
        }
        self.next += 1;
    }

    /// The same for an entry of one part, the usual one.
    fn decide_one(&mut self, part: Part) {
        if self.exists(&part) {
            self.keep(part)
        } else {
            self.drop_part(&part)
        }
        self.next += 1;
    }

    /// Notes that the next entry is there whole; gives whether it counts.
    fn exists(&mut self, part: &Part) -> bool {
        let header = part.found.header;
        if header.sequence == self.absent {
            self.absent += 1;
        }
        header.needs <= self.absent || self.keep_gaps
    }

    fn keep(&mut self, part: Part) {
        let Found { header, segment, lba, end } = part.found;
        if let Some(kept) = self.kept_end.get_mut(segment) {
            *kept = end.max(*kept);
        }
        self.behind_last = header.sequence + 1;
        self.index.push(lba, header.length, header.mask);
        if header.length > 0 {
            self.ready.push_back(part);
        }
    }

    fn drop_part(&mut self, part: &Part) {
        self.dropped += 1;
        self.behind += u64::from(part.found.header.length);
        if let Some(end) = self.dropped_end.get_mut(part.found.segment) {
            *end = part.found.end.max(*end);
        }
    }

    /// The parts that count, in the order of the stream.
    pub(super) fn ready(&mut self) -> impl Iterator<Item = Part> {
        self.ready.drain(..)
    }

    /// Lets go of the bytes of what is held since fewer than `before` bytes had been looked at: its place is known,
    /// and it can be read again.
    pub(super) fn forget(&mut self, before: u64) {
        while let Some(oldest) = self.carried.front().filter(|c| c.at < before) {
            if let Some(parts) = self.held.get_mut(&oldest.sequence) {
                for part in parts.iter_mut().filter(|p| p.found.header.part == oldest.part) {
                    part.payload = None;
                }
            }
            self.carried.pop_front();
        }
    }

    /// The scan is over: decides the rest.
    pub(super) fn finish(&mut self) {
        self.settle(u64::MAX);
    }

    /// What was found, after [`finish`](Sorter::finish).
    pub(super) fn recovered(self) -> Recovered {
        let missing = (self.absent < self.proven && !self.keep_gaps).then_some(self.absent);
        let mut used = self.kept_end;
        if missing.is_some() {
            for (used, dropped) in used.iter_mut().zip(self.dropped_end) {
                *used = dropped.max(*used);
            }
        }
        let last_cut = self.cuts.last().map_or(0, |cut| cut.first_sequence);
        Recovered {
            size: self.index.size().0,
            index: self.index,
            next_sequence: self.behind_last.max(last_cut),
            used,
            dropped: self.dropped,
            missing,
            behind: self.behind,
        }
    }
}

fn is_whole(parts: &[Part]) -> bool {
    let Some(Part { found: Found { header, .. }, .. }) = parts.first() else { return false };
    parts.len() == usize::from(header.parts)
        && parts.iter().all(|p| (p.found.header.parts, p.found.header.needs) == (header.parts, header.needs))
}

fn in_its_epoch(part: &Found, cuts: &[Cut]) -> bool {
    // The newest epoch is asked for most.
    let Some(mine) = cuts.iter().rposition(|cut| cut.epoch == part.header.epoch) else { return false };
    let from = cuts.get(mine).map_or(0, |cut| cut.first_sequence);
    let to = cuts.get(mine + 1).map_or(u64::MAX, |cut| cut.first_sequence);
    (from..to).contains(&part.header.sequence)
}

#[cfg(test)]
mod tests;
