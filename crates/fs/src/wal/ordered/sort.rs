//! The rule that decides which entries of an ordered log count, without I/O. Parts of entries come in the
//! order of their places on the device. Parts that count are passed on in the order of the stream, as early
//! as possible.
//!
//! ```text
//!   push(part) --> the next sequence?  yes: decided at once
//!                                      no:  held until every earlier entry came, or can no longer come:
//!                                           the next region begins, or the segment ends
//! ```

use std::collections::{BTreeMap, VecDeque};

use units::{Blocks, Bytes};

use crate::wal::chunk::Payload;
use crate::wal::index::LogIndex;
use crate::wal::ordered::recovered::{Cut, Recovered};
use crate::wal::scan::Found;
use crate::wal::segment::Segment;

/// A part of an entry that the scan of a log found, with its bytes if they are in memory.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) found: Found,
    pub(super) payload: Option<Payload>,
}

/// Sorts the found parts of one log's entries.
#[derive(Debug)]
pub(super) struct Sorter {
    cuts: Vec<Cut>,
    /// Broken rule: log entries after a gap count.
    keep_gaps: bool,
    /// The recovery has decided every entry below this sequence.
    next: u64,
    /// The lowest sequence that is decided not to exist; `next` if there is none.
    absent: u64,
    /// Parts of entries that are not decided yet, by the lowest sequence that each entry stands for.
    held: BTreeMap<u64, Vec<Part>>,
    /// Parts in `held` that have their bytes in memory, in the order in which the scan found them.
    in_memory: VecDeque<HeldPart>,
    /// The region of the part that the scan found last.
    region: Option<(u32, bool)>,
    /// The highest sequence found in the segment being scanned.
    highest: Option<u64>,
    /// Parts that count, in the order of the stream, to be taken by [`Sorter::ready`].
    ready: VecDeque<Part>,
    index: LogIndex,
    /// The sequence after the last entry that counts.
    after_last: u64,
    /// Every entry below this sequence was durable, as the log's cuts and entries prove.
    proven: u64,
    dropped: usize,
    dropped_bytes: u64,
    /// For each segment: the block after the last part that counts, and after the last part that does not
    /// count.
    kept_end: Vec<Blocks>,
    dropped_end: Vec<Blocks>,
}

/// A part of an undecided entry whose bytes are in memory.
#[derive(Debug)]
struct HeldPart {
    /// Number of bytes that had been scanned when the part was found.
    at: u64,
    /// The lowest sequence that the part's entry stands for.
    first: u64,
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
            in_memory: VecDeque::new(),
            region: None,
            highest: None,
            ready: VecDeque::new(),
            index: LogIndex::starting_at(Bytes::ZERO),
            after_last: first,
            proven: cuts.last().map_or(0, |cut| cut.first_sequence),
            dropped: 0,
            dropped_bytes: 0,
            kept_end: starts.clone(),
            dropped_end: starts,
        }
    }

    /// Takes the next part that the scan found. `at`: number of bytes scanned so far.
    pub(super) fn push(&mut self, part: Part, at: u64) {
        let header = part.found.header;
        if !in_its_epoch(&part.found, &self.cuts) {
            return;
        }
        if header.sequence < self.absent {
            // The part's entry is already decided to exist: the part is an old block that reappears where a
            // write was lost. It says nothing about the region around it.
            return;
        }
        let region = (header.epoch, header.odd);
        if self.region.replace(region).is_some_and(|before| before != region) {
            // The first entry of a region was submitted when all entries before it were acknowledged: the
            // scan cannot find a missing one of those any more.
            self.decide_below(u64::MAX);
        }
        self.highest = self.highest.max(Some(header.sequence));
        self.proven = self.proven.max(header.proven());
        if header.sequence < self.next {
            // The part's entry was decided without this part.
            self.drop_part(&part);
            return;
        }
        let first = header.first_sequence();
        if first == self.next && header.parts == 1 && !self.held.contains_key(&first) {
            self.decide_one(part);
        } else {
            let number = header.part;
            let entry = self.held.entry(first).or_default();
            // The scan found the same part twice: the first one counts.
            if entry.iter().any(|p| p.found.header.part == number) {
                return;
            }
            if part.payload.is_some() {
                self.in_memory.push_back(HeldPart { at, first, part: number });
            }
            entry.push(part);
        }
        self.advance();
    }

    /// Decides the entries from the next sequence on of which all parts were found.
    fn advance(&mut self) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() == self.next
            && is_whole(entry.get())
        {
            let entry = entry.remove();
            self.decide(entry);
        }
    }

    /// The scan reached the end of a segment: a missing entry whose sequence lies before one of this segment
    /// will not be found any more. The segment's last entry may have further parts in the next segment.
    pub(super) fn end_of_segment(&mut self) {
        if let Some(highest) = self.highest.take() {
            self.decide_below(highest);
            self.advance();
        }
    }

    /// Decides all held entries below sequence `end`: the scan cannot find their missing parts any more.
    fn decide_below(&mut self, end: u64) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() < end
        {
            let (first, parts) = entry.remove_entry();
            if is_whole(&parts) {
                self.decide(parts);
            } else {
                parts.iter().for_each(|part| self.drop_part(part));
                self.next = first + 1;
            }
        }
        if end != u64::MAX {
            self.next = self.next.max(end);
        }
        if self.held.is_empty() {
            self.in_memory.clear();
        }
    }

    /// Decides an entry of which all parts were found, when all entries before it are decided.
    fn decide(&mut self, mut parts: Vec<Part>) {
        parts.sort_unstable_by_key(|part| part.found.header.part);
        let Some(last) = parts.first().map(|part| part.found.header.sequence) else { return };
        let counts = parts.first().is_some_and(|part| self.exists(part));
        for part in parts {
            if counts { self.keep_part(part) } else { self.drop_part(&part) }
        }
        self.next = last + 1;
    }

    /// As [`Sorter::decide`], for an entry of one part, the usual case.
    fn decide_one(&mut self, part: Part) {
        self.next = part.found.header.sequence + 1;
        if self.exists(&part) { self.keep_part(part) } else { self.drop_part(&part) }
    }

    /// Notes that the next entry of the log exists; returns whether the entry counts.
    fn exists(&mut self, part: &Part) -> bool {
        let header = part.found.header;
        if header.first_sequence() == self.absent {
            self.absent = header.sequence + 1;
        }
        header.needs <= self.absent || self.keep_gaps
    }

    fn keep_part(&mut self, part: Part) {
        let Found { header, segment, lba, end } = part.found;
        if let Some(kept) = self.kept_end.get_mut(segment) {
            *kept = end.max(*kept);
        }
        self.after_last = header.sequence + 1;
        self.index.push(lba, header.length, header.mask);
        if header.length > 0 {
            self.ready.push_back(part);
        }
    }

    fn drop_part(&mut self, part: &Part) {
        self.dropped += 1;
        self.dropped_bytes += u64::from(part.found.header.length);
        if let Some(end) = self.dropped_end.get_mut(part.found.segment) {
            *end = part.found.end.max(*end);
        }
    }

    /// Takes the parts that are decided to count, in the order of the stream.
    pub(super) fn ready(&mut self) -> impl Iterator<Item = Part> {
        self.ready.drain(..)
    }

    /// Drops the bytes of held parts that were found before `before` bytes were scanned. The parts' places
    /// stay known, so the bytes can be read again.
    pub(super) fn drop_bytes(&mut self, before: u64) {
        while let Some(oldest) = self.in_memory.front().filter(|c| c.at < before) {
            if let Some(parts) = self.held.get_mut(&oldest.first) {
                for part in parts.iter_mut().filter(|p| p.found.header.part == oldest.part) {
                    part.payload = None;
                }
            }
            self.in_memory.pop_front();
        }
    }

    /// Decides the remaining entries, at the end of the log's scan.
    pub(super) fn finish(&mut self) {
        self.decide_below(u64::MAX);
    }

    /// The result of the recovery, after [`finish`](Sorter::finish).
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
            next_sequence: self.after_last.max(last_cut),
            used,
            dropped: self.dropped,
            missing,
            dropped_bytes: self.dropped_bytes,
        }
    }
}

fn is_whole(parts: &[Part]) -> bool {
    let Some(Part { found: Found { header, .. }, .. }) = parts.first() else { return false };
    parts.len() == usize::from(header.parts)
        && parts.iter().all(|p| (p.found.header.parts, p.found.header.needs) == (header.parts, header.needs))
}

fn in_its_epoch(part: &Found, cuts: &[Cut]) -> bool {
    // The search begins at the newest epoch, to which most entries belong.
    let Some(mine) = cuts.iter().rposition(|cut| cut.epoch == part.header.epoch) else { return false };
    let from = cuts.get(mine).map_or(0, |cut| cut.first_sequence);
    let to = cuts.get(mine + 1).map_or(u64::MAX, |cut| cut.first_sequence);
    (from..to).contains(&part.header.sequence)
}

#[cfg(test)]
mod tests;
