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
use crate::wal::ordered::recover::{Cut, Recovered};
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
mod tests {
    use proptest::prelude::*;
    use units::Lba;

    use super::*;
    use crate::wal::entry::EntryHeader;

    fn found(sequence: u64, needs: u64, (part, parts): (u16, u16), odd: bool) -> Found {
        let header = EntryHeader {
            padding: false,
            odd,
            void: false,
            known: false,
            log: 1,
            generation: 1,
            sequence,
            needs,
            epoch: 0,
            part,
            parts,
            length: 10,
            mask: 0,
            open: u32::MAX,
            crc: 0,
        };
        Found { header, segment: 0, lba: Lba(sequence * 100 + u64::from(part)), end: Blocks(1) }
    }

    fn sorter() -> Sorter {
        let cut = Cut { epoch: 0, first_sequence: 0 };
        Sorter::new(&[cut], &[], false)
    }

    fn out(sorter: &mut Sorter) -> Vec<u64> {
        sorter.ready().map(|part| part.found.header.sequence).collect()
    }

    fn push(sorter: &mut Sorter, found: Found) -> Vec<u64> {
        sorter.push(Part { found, payload: None }, 0);
        out(sorter)
    }

    fn plain(sequence: u64, odd: bool) -> Found {
        found(sequence, sequence, (0, 1), odd)
    }

    #[test]
    fn an_entry_goes_out_as_soon_as_all_before_it_are_there() {
        let mut sorter = sorter();
        assert_eq!(push(&mut sorter, plain(0, false)), [0]);
        assert_eq!(push(&mut sorter, plain(2, false)), []);
        assert_eq!(push(&mut sorter, plain(3, false)), []);
        assert_eq!(push(&mut sorter, plain(1, false)), [1, 2, 3]);
    }

    #[test]
    fn what_waits_behind_a_gap_that_may_be_there_goes_out_when_the_region_ends() {
        let mut sorter = sorter();
        // Ticket 1 was not acknowledged when 2 was submitted.
        assert_eq!(push(&mut sorter, found(0, 0, (0, 1), false)), [0]);
        assert_eq!(push(&mut sorter, found(2, 1, (0, 1), false)), []);
        assert_eq!(push(&mut sorter, found(3, 1, (0, 1), true)), [2, 3]);
    }

    #[test]
    fn the_end_of_a_segment_decides_what_is_before_its_last_entry() {
        let mut sorter = sorter();
        push(&mut sorter, found(1, 0, (0, 1), false));
        // The last entry goes on in the next segment.
        push(&mut sorter, found(2, 0, (0, 2), false));
        sorter.end_of_segment();
        assert_eq!(out(&mut sorter), [1]);
        assert_eq!(push(&mut sorter, found(2, 0, (1, 2), false)), [2, 2]);
    }

    #[test]
    fn an_entry_that_lies_behind_the_end_of_its_region_is_lost() {
        let mut sorter = sorter();
        let order = [plain(0, false), plain(2, false), plain(3, true), plain(1, false)];
        let all: Vec<u64> = order.into_iter().flat_map(|found| push(&mut sorter, found)).collect();
        assert_eq!(all, [0], "recovery relies on the writer's barriers");
        let mut same = super::tests::sorter();
        let order = [plain(0, false), plain(2, false), plain(3, false), plain(1, false)];
        assert_eq!(order.into_iter().flat_map(|found| push(&mut same, found)).count(), 4);
    }

    #[test]
    fn an_old_block_that_a_hole_shows_again_ends_no_region() {
        let mut sorter = sorter();
        assert_eq!(push(&mut sorter, plain(0, false)), [0]);
        assert_eq!(push(&mut sorter, plain(1, true)), [1]);
        assert_eq!(push(&mut sorter, plain(3, true)), []);
        assert_eq!(push(&mut sorter, plain(0, false)), [], "the old block");
        assert_eq!(push(&mut sorter, plain(2, true)), [2, 3]);
        sorter.finish();
        assert_eq!(sorter.recovered().dropped, 0);
    }

    #[test]
    fn behind_a_gap_only_what_the_region_holds_is_remembered() {
        let mut sorter = sorter();
        for sequence in 1..1000 {
            assert_eq!(push(&mut sorter, plain(sequence, sequence / 100 % 2 == 1)), []);
            assert!(sorter.held.len() <= 100);
        }
    }

    #[test]
    fn the_broken_gap_rule_keeps_what_lies_behind() {
        let mut sorter = Sorter::new(&[Cut { epoch: 0, first_sequence: 0 }], &[], true);
        push(&mut sorter, plain(0, false));
        push(&mut sorter, plain(2, false));
        sorter.finish();
        assert_eq!(out(&mut sorter), [2]);
    }

    /// The rule as it reads, over everything that is there: what counts, what is missing first.
    fn model(all: &[Found]) -> (Vec<(u64, u16)>, u64) {
        let mut parts: BTreeMap<(u64, u16), Found> = BTreeMap::new();
        for found in all {
            parts.entry((found.header.sequence, found.header.part)).or_insert(*found);
        }
        let whole = |sequence: u64| {
            let mine: Vec<&Found> =
                parts.range((sequence, 0)..=(sequence, u16::MAX)).map(|(_, found)| found).collect();
            mine.first().is_some_and(|f| mine.len() == usize::from(f.header.parts))
        };
        let mut kept = Vec::new();
        for (&(sequence, part), found) in &parts {
            if whole(sequence) && (0..found.header.needs).all(whole) {
                kept.push((sequence, part));
            }
        }
        (kept, (0..).find(|sequence| !whole(*sequence)).expect("a log ends"))
    }

    #[derive(Clone, Debug)]
    struct Entry {
        parts: u16,
        slack: u64,
        lost: Option<u16>,
        shuffle: u64,
        again: bool,
    }

    fn entries(waltz: bool) -> impl Strategy<Value = Vec<Entry>> {
        let slack = if waltz { 0..6_u64 } else { 0..1 };
        let lost = prop_oneof![9 => Just(None), 1 => (0..3_u16).prop_map(Some)];
        let entry = (1..4_u16, slack, lost, any::<u64>(), prop::bool::weighted(0.1))
            .prop_map(|(parts, slack, lost, shuffle, again)| Entry { parts, slack, lost, shuffle, again });
        prop::collection::vec(entry, 0..60)
    }

    proptest! {
        #[test]
        fn any_order_within_regions_gives_what_the_rule_says(
            entries in prop_oneof![entries(false), entries(true)],
            region in 1..20_usize,
            segments: bool,
        ) {
            let mut sorter = sorter();
            let (mut all, mut got) = (Vec::new(), Vec::new());
            for (number, group) in entries.chunks(region).enumerate() {
                // Regions flip the bit; segments end without.
                let odd = !segments && number % 2 == 1;
                let mut here = Vec::new();
                for (at, entry) in (number * region..).zip(group) {
                    let sequence = at as u64;
                    for part in (0..entry.parts).filter(|part| entry.lost != Some(*part)) {
                        let found = found(sequence, sequence.saturating_sub(entry.slack), (part, entry.parts), odd);
                        let mixed = (entry.shuffle ^ u64::from(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        here.push((mixed, found));
                        if entry.again {
                            here.push((mixed.rotate_left(17), Found { lba: Lba(u64::MAX), ..found }));
                        }
                    }
                }
                here.sort_by_key(|(mixed, _)| *mixed);
                for (_, found) in here {
                    all.push(found);
                    sorter.push(Part { found, payload: None }, 0);
                    got.extend(sorter.ready());
                }
                if segments {
                    sorter.end_of_segment();
                    got.extend(sorter.ready());
                }
            }
            sorter.finish();
            got.extend(sorter.ready());
            let (kept, absent) = model(&all);
            let got: Vec<(u64, u16)> = got.iter().map(|p| (p.found.header.sequence, p.found.header.part)).collect();
            prop_assert_eq!(&got, &kept);
            prop_assert_eq!(sorter.absent, absent);
            let left = sorter.recovered();
            let mut distinct: Vec<(u64, u16)> = all.iter().map(|f| (f.header.sequence, f.header.part)).collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(left.next_sequence, kept.last().map_or(0, |(s, _)| s + 1));
            prop_assert_eq!(left.size, kept.len() as u64 * 10);
            prop_assert!(left.dropped >= distinct.len() - kept.len());
        }
    }
}
