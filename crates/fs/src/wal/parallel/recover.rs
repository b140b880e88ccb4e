//! What a parallel log holds after a crash: all its entries are found first, then the rule decides.
//!
//! The rule: a ticket *exists* if its entry is there whole, or a void of it, or if it is retired. An entry follows what was
//! acknowledged before it: all tickets below its `needs`, and those that it [knows](super::known). The first entry that
//! follows a ticket which does not exist is where recovery stops: it does not count, nor does anything with a higher ticket.
//! In an epoch that another one followed, where it stops was decided then.
//!
//! What was promised lies before that. The entry knew the missing ticket when it took its own; whoever had a higher one
//! flushed later than that, and the flush would have made the missing one durable.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use units::{Bytes, Lba};
use uuid::Uuid;
use zoned::ZonedDevice;

use crate::error::Result;
use crate::rules::Rules;
use crate::wal::chunk::{Memory, Payload};
use crate::wal::index::LogIndex;
use crate::wal::parallel::known;
use crate::wal::parallel::payload::{NUMBER, count};
use crate::wal::parallel::ticket::Epoch;
use crate::wal::scan::{Found, Scan};
use crate::wal::segment::Segment;

/// The records of an entry that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    /// The ticket of the first.
    pub(crate) ticket: u64,
    pub(crate) count: u32,
    /// Before the records it says which tickets it knew.
    pub(crate) knows: bool,
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// Where the payloads of what counts lie, in ticket order.
    pub(crate) index: LogIndex,
    /// The same entries.
    pub(crate) kept: Vec<Kept>,
    pub(crate) voids: Voids,
    /// The lowest ticket that does not exist.
    pub(crate) absent: u64,
    /// Entries from this ticket on do not count.
    pub(crate) stop: u64,
    /// Above every ticket that was found.
    pub(crate) next: u64,
    /// Parts that do not count.
    pub(crate) dropped: usize,
    /// The ticket that is missing although a later entry proves that it was durable.
    pub(crate) missing: Option<u64>,
    /// For each segment: above every ticket that was found in it.
    pub(crate) tops: Vec<u64>,
}

/// Tickets whose records were taken back: the first of each run and the one behind its last. No two runs meet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Voids(BTreeMap<u64, u64>);

impl Voids {
    fn add(&mut self, mut first: u64, mut end: u64) {
        while let Some((&from, &behind)) = self.0.range(..=end).next_back().filter(|(_, e)| **e >= first) {
            self.0.remove(&from);
            (first, end) = (first.min(from), end.max(behind));
        }
        self.0.insert(first, end);
    }

    /// Whether the ticket's record was taken back. Looks at one run.
    pub(crate) fn has(&self, ticket: u64) -> bool {
        self.0.range(..=ticket).next_back().is_some_and(|(_, end)| *end > ticket)
    }
}

/// A part of an entry.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ticket: u64,
    needs: u64,
    lba: Lba,
    length: u32,
    mask: u32,
    count: u32,
    /// Which of the epochs, and of the segments.
    epoch: u32,
    segment: u32,
    part: u16,
    parts: u16,
    knows: bool,
}

/// Takes what the scan finds and decides in the end. Knows nothing of devices.
struct Judge {
    epochs: Vec<Epoch>,
    retired: u64,
    seen: Vec<Seen>,
    /// What entries of the newest epoch knew, by their ticket: the first ticket of each run and the one behind the last.
    known: HashMap<u64, Vec<(u64, u64)>>,
    voids: Voids,
    proven: u64,
    next: u64,
    tops: Vec<u64>,
    /// What an entry follows is not looked at: the rule broken, for tests.
    broken: bool,
}

/// Finds the entries of a parallel log in its segments and decides which count.
///
/// Reads each block below the zones' write pointers once, in large reads. Memory: the reads in flight, and some 50 bytes
/// for each entry. Fails where the device fails. On a device with a volatile cache, flush it before.
pub(crate) async fn recover(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log: u64,
    epochs: &[Epoch],
    retired: u64,
    segments: &[Segment],
    rules: Rules,
) -> Result<Verdict> {
    let memory = Arc::new(Memory::default());
    let mut scan = Scan::begin(dev, uuid, log, segments, &memory).await?;
    let mut judge = Judge::new(epochs, retired, segments.len(), rules.keeps_entries_with_missing_needs());
    while scan.next(|found, payload, _| judge.add(&found, &Head::of(&found, &payload))).await?.is_some() {}
    Ok(judge.decide())
}

/// What the first part of an entry says before its records.
#[derive(Clone, Debug, Default)]
struct Head {
    count: Option<u32>,
    /// `None` where no writer wrote it.
    known: Option<Vec<(u64, u64)>>,
}

impl Head {
    /// The first block of a part is not masked, and all of this is in it.
    fn of(found: &Found, payload: &Payload) -> Head {
        let Some(head) = payload.pieces().next().filter(|_| found.header.part == 0) else {
            return Head::default();
        };
        let list = head.get(NUMBER..).unwrap_or_default();
        let known = if found.header.known { known::runs(list, found.header.needs) } else { Some(Vec::new()) };
        Head { count: count(head), known }
    }
}

impl Judge {
    fn new(epochs: &[Epoch], retired: u64, segments: usize, broken: bool) -> Judge {
        let first = epochs.last().map_or(0, |epoch| epoch.first);
        Judge {
            epochs: epochs.to_vec(),
            retired,
            seen: Vec::new(),
            known: HashMap::new(),
            voids: Voids::default(),
            proven: 0,
            next: first.max(retired),
            tops: vec![0; segments],
            broken,
        }
    }

    /// Takes a part, and what its payload begins with.
    fn add(&mut self, found: &Found, head: &Head) {
        let header = found.header;
        let Some((epoch, end)) = self.epoch_of(header.epoch, header.sequence) else { return };
        let newest = end == u64::MAX;
        let count = match (header.part, head.count) {
            (0, Some(count)) if header.length as usize >= NUMBER && head.known.is_some() => count,
            // No writer writes that; it says nothing.
            (0, _) => return,
            _ => 1,
        };
        let behind = header.sequence.saturating_add(count.into());
        if newest {
            self.next = self.next.max(behind);
            self.proven = self.proven.max(header.proven());
        }
        if let Some(top) = self.tops.get_mut(found.segment) {
            *top = behind.max(*top);
        }
        if header.void {
            self.voids.add(header.sequence, behind);
        } else if behind > self.retired || header.part > 0 {
            if let Some(known) = head.known.as_ref().filter(|known| newest && !known.is_empty()) {
                self.known.insert(header.sequence, known.clone());
            }
            // Of a further part only the first one says how far its tickets go.
            self.seen.push(Seen {
                ticket: header.sequence,
                needs: header.needs,
                lba: found.lba,
                length: header.length,
                mask: header.mask,
                count,
                epoch,
                segment: u32::try_from(found.segment).unwrap_or(u32::MAX),
                part: header.part,
                parts: header.parts,
                knows: header.known,
            });
        }
    }

    /// Which epoch an entry belongs to, and where that one ends; `None` where it belongs to none.
    fn epoch_of(&self, epoch: u32, ticket: u64) -> Option<(u32, u64)> {
        let at = self.epochs.iter().rposition(|e| e.epoch == epoch)?;
        let first = self.epochs.get(at)?.first;
        let end = self.epochs.get(at + 1).map_or(u64::MAX, |next| next.first);
        (first..end).contains(&ticket).then_some((u32::try_from(at).ok()?, end))
    }

    /// Decides.
    fn decide(mut self) -> Verdict {
        // Stable: of the same part twice (an old block that a hole shows again) the first one counts.
        self.seen.sort_by_key(|s| (s.ticket, s.part));
        self.seen.dedup_by_key(|s| (s.ticket, s.part));
        let there = self.there();
        let absent = there.first().map_or(0, |(_, end)| *end);
        let stop = self.stop(&there);
        let mut verdict = Verdict {
            index: LogIndex::starting_at(Bytes::ZERO),
            kept: Vec::new(),
            voids: self.voids,
            absent,
            stop,
            next: self.next,
            dropped: 0,
            missing: (absent < self.proven && !self.broken).then_some(absent),
            tops: self.tops,
        };
        for entry in entries(&self.seen) {
            let Some(first) = entry.first() else { continue };
            let stop = self.epochs.get(first.epoch as usize + 1).map_or(stop, |next| next.settled);
            if !is_whole(entry) || (first.ticket >= stop && !self.broken) {
                verdict.dropped += entry.len();
                continue;
            }
            // Only the first part says how many tickets the others carry a piece of.
            let end = first.ticket.saturating_add(first.count.into());
            for part in entry {
                if let Some(top) = verdict.tops.get_mut(part.segment as usize) {
                    *top = end.max(*top);
                }
            }
            verdict.kept.push(Kept { ticket: first.ticket, count: first.count, knows: first.knows });
            for part in entry {
                verdict.index.push(part.lba, part.length, part.mask);
            }
        }
        verdict
    }

    /// The tickets of the newest epoch that exist, as runs that are apart from each other, in order. All before the epoch, and
    /// those that are retired, are the first one.
    fn there(&self) -> Vec<(u64, u64)> {
        let first = self.epochs.last().map_or(0, |epoch| epoch.first).max(self.retired);
        let whole = entries(&self.seen).filter(|entry| is_whole(entry)).filter_map(<[Seen]>::first);
        let mut all: Vec<(u64, u64)> =
            whole.map(|s| (s.ticket, s.ticket.saturating_add(s.count.into()))).collect();
        all.extend(self.voids.0.iter().map(|(first, end)| (*first, *end)));
        all.sort_unstable();
        let mut there = vec![(0, first)];
        for (from, end) in all {
            match there.last_mut() {
                Some((_, last)) if from <= *last => *last = end.max(*last),
                _ => there.push((from, end)),
            }
        }
        there
    }

    /// The ticket of the first entry of the newest epoch that follows what is not `there`; above all that were found, if there
    /// is none.
    fn stop(&self, there: &[(u64, u64)]) -> u64 {
        let newest = u32::try_from(self.epochs.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let is_there = |&(first, end): &(u64, u64)| {
            let behind = there.partition_point(|(from, _)| *from <= first);
            behind.checked_sub(1).and_then(|at| there.get(at)).is_some_and(|(_, last)| end <= *last)
        };
        let follows = |entry: &Seen| {
            let known = self.known.get(&entry.ticket).map_or(&[][..], Vec::as_slice);
            is_there(&(0, entry.needs)) && known.iter().all(is_there)
        };
        let whole = entries(&self.seen).filter(|entry| is_whole(entry)).filter_map(<[Seen]>::first);
        let stops = whole.filter(|first| first.epoch == newest && !follows(first));
        stops.map(|first| first.ticket).min().unwrap_or(self.next)
    }
}

fn entries(seen: &[Seen]) -> impl Iterator<Item = &[Seen]> {
    seen.chunk_by(|a, b| a.ticket == b.ticket)
}

/// Whether the parts of an entry, in order, are all of them.
fn is_whole(entry: &[Seen]) -> bool {
    let Some(first) = entry.first() else { return false };
    let alike = |s: &Seen| (s.parts, s.needs, s.epoch) == (first.parts, first.needs, first.epoch);
    entry.len() == usize::from(first.parts) && entry.iter().all(alike)
}

#[cfg(test)]
mod tests {
    use units::Blocks;

    use super::*;
    use crate::wal::entry::EntryHeader;

    fn judge(epochs: &[(u32, u64, u64)], retired: u64) -> Judge {
        let epochs: Vec<Epoch> =
            epochs.iter().map(|&(epoch, first, settled)| Epoch { epoch, first, settled }).collect();
        Judge::new(&epochs, retired, 1, false)
    }

    fn header(epoch: u32, sequence: u64, needs: u64) -> EntryHeader {
        EntryHeader { length: 100, ..EntryHeader::of_a_test(epoch, sequence, needs) }
    }

    fn add(judge: &mut Judge, header: EntryHeader, count: u32) {
        let lba = Lba(header.sequence * 100 + u64::from(header.part));
        judge.add(&Found { header, segment: 0, lba, end: Blocks(1) }, &head(count));
    }

    fn head(count: u32) -> Head {
        Head { count: Some(count), known: Some(Vec::new()) }
    }

    fn tickets(verdict: &Verdict) -> Vec<u64> {
        verdict.kept.iter().map(|kept| kept.ticket).collect()
    }

    /// One epoch from ticket 0 on: entries of one record, by ticket and needs.
    fn decided(entries: &[(u64, u64)]) -> Verdict {
        let mut judge = judge(&[(1, 0, 0)], 0);
        entries.iter().for_each(|&(ticket, needs)| add(&mut judge, header(1, ticket, needs), 1));
        judge.decide()
    }

    #[test]
    fn a_gap_of_tickets_that_were_never_acknowledged_is_legal() {
        // 1 was in flight when 2 and 3 were submitted; 5 needs a 4 that is lost, and goes with it.
        let verdict = decided(&[(3, 1), (0, 0), (5, 5), (2, 1)]);
        assert_eq!((tickets(&verdict), verdict.absent), (vec![0, 2, 3], 1));
        assert_eq!((verdict.next, verdict.missing, verdict.dropped), (6, None, 1));
    }

    #[test]
    fn recovery_stops_at_the_first_entry_that_follows_what_is_missing() {
        // 1 is open the whole time. 4 was begun when 2 was acknowledged, and 2 is lost; 3 and 5 did not know it.
        let decide = |two: bool, retired: u64| {
            let mut judge = judge(&[(1, 0, 0)], retired);
            for (ticket, known) in
                [(0, vec![]), (2, vec![]), (3, vec![]), (4, vec![(2, 4)]), (5, vec![(3, 4)])]
            {
                if ticket == 2 && !two {
                    continue;
                }
                let header = EntryHeader { known: !known.is_empty(), ..header(1, ticket, ticket.min(1)) };
                let found = Found { header, segment: 0, lba: Lba(ticket), end: Blocks(1) };
                judge.add(&found, &Head { count: Some(1), known: Some(known) });
            }
            judge.decide()
        };
        let verdict = decide(true, 0);
        assert_eq!((tickets(&verdict), verdict.stop), (vec![0, 2, 3, 4, 5], 6));
        let verdict = decide(false, 0);
        assert_eq!((tickets(&verdict), verdict.stop, verdict.absent), (vec![0, 3], 4, 1));
        assert_eq!((verdict.dropped, verdict.missing, verdict.next), (2, None, 6));
        let verdict = decide(false, 3);
        assert_eq!((tickets(&verdict), verdict.stop), (vec![3, 4, 5], 6), "what is retired exists");
    }

    #[test]
    fn a_list_that_no_writer_wrote_says_nothing() {
        let mut judge = judge(&[(1, 0, 0)], 0);
        let found = Found { header: header(1, 0, 0), segment: 0, lba: Lba(0), end: Blocks(1) };
        judge.add(&found, &Head { count: Some(1), known: None });
        assert_eq!(tickets(&judge.decide()), []);
    }

    #[test]
    fn a_ticket_that_a_later_entry_knew_to_be_durable_is_missed() {
        let mut judge = judge(&[(1, 0, 0)], 0);
        add(&mut judge, header(1, 0, 0), 1);
        add(&mut judge, EntryHeader { open: 2, ..header(1, 4, 4) }, 1);
        assert_eq!(judge.decide().missing, Some(1), "all below 2 were durable");
        let mut judge = super::tests::judge(&[(1, 0, 0)], 2);
        add(&mut judge, EntryHeader { open: 2, ..header(1, 4, 2) }, 1);
        let verdict = judge.decide();
        assert_eq!((verdict.missing, tickets(&verdict)), (None, vec![4]), "but they are retired");
    }

    #[test]
    fn the_parts_of_one_ticket_count_all_or_not_at_all() {
        let part = |part, parts| EntryHeader { part, parts, ..header(1, 0, 0) };
        for (parts, kept) in [(vec![0, 1, 2], 1), (vec![0, 2], 0), (vec![0, 2, 2], 0), (vec![2, 1, 0, 1], 1)]
        {
            let mut judge = judge(&[(1, 0, 0)], 0);
            parts.iter().for_each(|n| add(&mut judge, part(*n, 3), 1));
            let verdict = judge.decide();
            assert_eq!((verdict.kept.len(), verdict.absent), (kept, kept as u64), "{parts:?}");
            assert_eq!(verdict.index.len(), 3 * kept);
        }
        let mut judge = judge(&[(1, 0, 0)], 0);
        [part(0, 2), part(1, 3)].into_iter().for_each(|header| add(&mut judge, header, 1));
        assert_eq!(judge.decide().kept, [], "parts of two makings");
    }

    #[test]
    fn a_void_takes_its_tickets_back_and_stands_in_for_them() {
        let mut judge = judge(&[(1, 0, 0)], 0);
        add(&mut judge, header(1, 0, 0), 2);
        add(&mut judge, EntryHeader { void: true, length: 4, ..header(1, 1, 0) }, 2);
        add(&mut judge, header(1, 3, 3), 1);
        let verdict = judge.decide();
        assert_eq!((tickets(&verdict), verdict.absent), (vec![0, 3], 4), "2 was never there");
        let voids: Vec<bool> = (0..4).map(|ticket| verdict.voids.has(ticket)).collect();
        assert_eq!(voids, [false, true, true, false]);
    }

    #[test]
    fn retired_tickets_exist_and_are_not_given_again() {
        let mut judge = judge(&[(1, 0, 0)], 5);
        let all = [(3, 2), (6, 5), (7, 6)];
        all.into_iter().for_each(|(ticket, needs)| add(&mut judge, header(1, ticket, needs), 1));
        let verdict = judge.decide();
        assert_eq!((tickets(&verdict), verdict.absent, verdict.next), (vec![6], 5, 8));
    }

    #[test]
    fn what_a_recovery_left_out_stays_out_whatever_is_retired_later() {
        // Epoch 1: 2 is missing, and 4 needed it: recovery stopped there. Epoch 2 began at 5.
        let all = [(1, 0, 0), (1, 1, 1), (1, 3, 2), (1, 4, 3), (2, 5, 5), (2, 7, 6)];
        for (retired, kept) in [(0, vec![0, 1, 3, 5, 7]), (3, vec![3, 5, 7]), (4, vec![5, 7]), (6, vec![7])] {
            let mut judge = judge(&[(1, 0, 0), (2, 5, 4)], retired);
            all.iter().for_each(|&(epoch, ticket, needs)| add(&mut judge, header(epoch, ticket, needs), 1));
            let verdict = judge.decide();
            assert_eq!((tickets(&verdict), verdict.absent, verdict.next), (kept, 6, 8), "{retired} retired");
        }
    }

    #[test]
    fn an_entry_of_several_tickets_and_parts_is_kept_until_its_last_ticket_is_retired() {
        for (retired, kept) in [(0, vec![4]), (5, vec![4]), (6, vec![4]), (7, vec![])] {
            let mut judge = Judge::new(&[Epoch { epoch: 1, first: 0, settled: 0 }], retired, 2, false);
            for ticket in 0..4 {
                add(&mut judge, header(1, ticket, 0), 1);
            }
            for part in 0..2 {
                let header = EntryHeader { part, parts: 2, ..header(1, 4, 4) };
                let lba = Lba(400 + u64::from(part));
                let found = Found { header, segment: part.into(), lba, end: Blocks(1) };
                judge.add(&found, &if part == 0 { head(3) } else { Head::default() });
            }
            let verdict = judge.decide();
            let last: Vec<u64> = tickets(&verdict).into_iter().filter(|ticket| *ticket >= 4).collect();
            assert_eq!((last, verdict.absent), (kept, 7), "{retired} retired");
            assert!(retired == 7 || verdict.tops == [7, 7], "{:?}", verdict.tops);
        }
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins() {
        let mut judge = judge(&[(1, 0, 0), (3, 2, 2)], 0);
        for (epoch, ticket) in [(1, 0), (1, 1), (1, 2), (2, 2), (3, 1), (3, 2), (4, 3)] {
            add(&mut judge, header(epoch, ticket, 0), 1);
        }
        let verdict = judge.decide();
        assert_eq!(verdict.index.len(), 3, "of two entries 2 that of epoch 3 counts, and 3 has no epoch");
        assert_eq!((tickets(&verdict), verdict.next), (vec![0, 1, 2], 3));
    }

    #[test]
    fn voids_are_runs_apart_from_each_other_however_they_come() {
        let mut voids = Voids::default();
        let mut plain = [false; 120];
        for n in 0..200_u64 {
            let first = n * 7919 % 113;
            let end = first + n % 4;
            // Few and short ones first, so that later ones join some, lie within one, and touch one.
            if n > 20 || first % 2 == 0 {
                voids.add(first, end);
                plain.iter_mut().take(end as usize).skip(first as usize).for_each(|void| *void = true);
            }
            assert!((0..120).all(|ticket| voids.has(ticket) == plain[ticket as usize]), "{n}: {voids:?}");
            let runs: Vec<_> = voids.0.iter().collect();
            assert!(runs.windows(2).all(|two| two[0].1 < two[1].0), "{n}: {runs:?}");
        }
    }
}
