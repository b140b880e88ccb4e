//! Recovery of a parallel log: the scan finds all entries, then one rule decides which of them count.
//!
//! The rule:
//!
//! - A ticket *exists* if all parts of its entry were found, if a void entry names the ticket, or if the ticket is retired.
//! - An entry *follows* the tickets that were acknowledged before it: all tickets below its `needs`, and its
//!   [known](super::known) tickets.
//! - Recovery stops at the first entry of the newest epoch that follows a ticket which does not exist. This entry and all
//!   entries with higher tickets do not count.
//! - The stop of an older epoch was decided when the next epoch began, and is in the metadata.
//!
//! The rule drops no record that was reported durable. The stopping entry took its ticket after the missing
//! ticket was acknowledged. A record with a higher ticket was flushed later still, and that flush would have
//! made the missing ticket durable.

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
use crate::wal::parallel::payload::{COUNT_BYTES, count};
use crate::wal::parallel::ticket::Epoch;
use crate::wal::scan::{Found, Scan};
use crate::wal::segment::Segment;

/// An entry that counts, as recovery found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptEntry {
    /// The ticket of the entry's first record.
    pub(crate) ticket: u64,
    /// Number of records.
    pub(crate) count: u32,
    /// True if the entry's payload has a list of known tickets before the records.
    pub(crate) lists_known: bool,
}

/// The result of a parallel log's recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecoveredEntries {
    /// The places of the payloads of the entries that count, in ticket order.
    pub(crate) index: LogIndex,
    /// The entries of the index.
    pub(crate) kept: Vec<KeptEntry>,
    pub(crate) voids: Voids,
    /// The lowest ticket that does not exist in the log.
    pub(crate) absent: u64,
    /// The ticket at which recovery stopped: entries with this ticket or a higher one do not count.
    pub(crate) stop: u64,
    /// The first ticket of the next epoch: higher than every ticket that was found.
    pub(crate) next: u64,
    /// Number of parts of entries that do not count.
    pub(crate) dropped: usize,
    /// A missing ticket that a later entry proves to have been durable: the log is damaged.
    pub(crate) missing: Option<u64>,
    /// For each segment of the log, the ticket after the highest one found in the segment.
    pub(crate) tops: Vec<u64>,
}

/// The tickets of void entries, as runs: the first ticket of each run and the ticket after its last. Between two runs is a gap.
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

    /// True if a void entry names the ticket.
    pub(crate) fn has(&self, ticket: u64) -> bool {
        self.0.range(..=ticket).next_back().is_some_and(|(_, end)| *end > ticket)
    }
}

/// A part of a parallel log's entry that the scan found.
#[derive(Clone, Copy, Debug)]
struct FoundPart {
    ticket: u64,
    needs: u64,
    lba: Lba,
    length: u32,
    mask: u32,
    count: u32,
    /// The indexes of the part's epoch and segment.
    epoch: u32,
    segment: u32,
    part: u16,
    parts: u16,
    lists_known: bool,
}

/// The recovery rule, without I/O: takes the parts that the scan finds, and decides at the end.
struct EntryDecision {
    epochs: Vec<Epoch>,
    retired: u64,
    found: Vec<FoundPart>,
    /// The known tickets that entries of the newest epoch list, by the entry's ticket: runs of tickets, each
    /// the first ticket and the ticket after the last one.
    known: HashMap<u64, Vec<(u64, u64)>>,
    voids: Voids,
    /// Every ticket below this one was durable, as later entries prove.
    proven: u64,
    next: u64,
    tops: Vec<u64>,
    /// Broken rule: entries count although they follow a missing ticket.
    keep_all: bool,
}

/// Finds the entries of a parallel log in its segments and decides which count.
///
/// Reads each block below the zones' write pointers once, in large reads. Memory: the reads in flight, and some 50 bytes
/// for each entry. Fails where the device fails. The caller flushes a volatile device cache first.
pub(crate) async fn recover(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log: u64,
    epochs: &[Epoch],
    retired: u64,
    segments: &[Segment],
    rules: Rules,
) -> Result<RecoveredEntries> {
    let memory = Arc::new(Memory::default());
    let mut scan = Scan::begin(dev, uuid, log, segments, &memory).await?;
    let mut judge =
        EntryDecision::new(epochs, retired, segments.len(), rules.keeps_entries_with_missing_needs());
    while scan
        .next(|found, payload, _| judge.add(&found, &PayloadStart::of(&found, &payload)))
        .await?
        .is_some()
    {}
    Ok(judge.decide())
}

/// The fields before the records in the payload of an entry's first part. Empty for an entry's further parts.
#[derive(Clone, Debug, Default)]
struct PayloadStart {
    count: Option<u32>,
    /// The number of records in the entry; `None` for bytes that no writer writes.
    known: Option<Vec<(u64, u64)>>,
}

impl PayloadStart {
    /// Reads the payload's leading fields from the part's first block, which has all of them and is not
    /// masked.
    fn of(found: &Found, payload: &Payload) -> PayloadStart {
        let Some(head) = payload.pieces().next().filter(|_| found.header.part == 0) else {
            return PayloadStart::default();
        };
        let list = head.get(COUNT_BYTES..).unwrap_or_default();
        let known = if found.header.known { known::runs(list, found.header.needs) } else { Some(Vec::new()) };
        PayloadStart { count: count(head), known }
    }
}

impl EntryDecision {
    fn new(epochs: &[Epoch], retired: u64, segments: usize, keep_all: bool) -> EntryDecision {
        let first = epochs.last().map_or(0, |epoch| epoch.first);
        EntryDecision {
            epochs: epochs.to_vec(),
            retired,
            found: Vec::new(),
            known: HashMap::new(),
            voids: Voids::default(),
            proven: 0,
            next: first.max(retired),
            tops: vec![0; segments],
            keep_all,
        }
    }

    /// Takes a part of an entry that the scan found, and the fields at the start of the part's payload.
    fn add(&mut self, found: &Found, head: &PayloadStart) {
        let header = found.header;
        let Some((epoch, end)) = self.epoch_of(header.epoch, header.sequence) else { return };
        let newest = end == u64::MAX;
        let count = match (header.part, head.count) {
            (0, Some(count)) if header.length as usize >= COUNT_BYTES && head.known.is_some() => count,
            // No writer writes such a payload: recovery ignores the part.
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
            // A further part has no count of records: the count is in the entry's first part.
            self.found.push(FoundPart {
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
                lists_known: header.known,
            });
        }
    }

    /// The index of the entry's epoch, and the first ticket of the next epoch; `None` if the entry belongs to
    /// no epoch.
    fn epoch_of(&self, epoch: u32, ticket: u64) -> Option<(u32, u64)> {
        let at = self.epochs.iter().rposition(|e| e.epoch == epoch)?;
        let first = self.epochs.get(at)?.first;
        let end = self.epochs.get(at + 1).map_or(u64::MAX, |next| next.first);
        (first..end).contains(&ticket).then_some((u32::try_from(at).ok()?, end))
    }

    /// Decides which entries of the log count.
    fn decide(mut self) -> RecoveredEntries {
        // Of a part that was found twice, the first one counts, because the sort is stable. (An old block
        // reappears if a write was lost.)
        self.found.sort_by_key(|s| (s.ticket, s.part));
        self.found.dedup_by_key(|s| (s.ticket, s.part));
        let existing = self.existing_tickets();
        let absent = existing.first().map_or(0, |(_, end)| *end);
        let stop = self.stop_ticket(&existing);
        let mut recovered = RecoveredEntries {
            index: LogIndex::starting_at(Bytes::ZERO),
            kept: Vec::new(),
            voids: self.voids,
            absent,
            stop,
            next: self.next,
            dropped: 0,
            missing: (absent < self.proven && !self.keep_all).then_some(absent),
            tops: self.tops,
        };
        for entry in entries(&self.found) {
            let Some(first) = entry.first() else { continue };
            let stop = self.epochs.get(first.epoch as usize + 1).map_or(stop, |next| next.settled);
            if !is_whole(entry) || (first.ticket >= stop && !self.keep_all) {
                recovered.dropped += entry.len();
                continue;
            }
            // The first part of an entry tells the tickets of all its parts.
            let end = first.ticket.saturating_add(first.count.into());
            for part in entry {
                if let Some(top) = recovered.tops.get_mut(part.segment as usize) {
                    *top = end.max(*top);
                }
            }
            recovered.kept.push(KeptEntry {
                ticket: first.ticket,
                count: first.count,
                lists_known: first.lists_known,
            });
            for part in entry {
                recovered.index.push(part.lba, part.length, part.mask);
            }
        }
        recovered
    }

    /// The tickets of the newest epoch that exist, as runs in order with gaps between them. The first run has the tickets
    /// before the epoch and the retired ones.
    fn existing_tickets(&self) -> Vec<(u64, u64)> {
        let first = self.epochs.last().map_or(0, |epoch| epoch.first).max(self.retired);
        let whole = entries(&self.found).filter(|entry| is_whole(entry)).filter_map(<[FoundPart]>::first);
        let mut all: Vec<(u64, u64)> =
            whole.map(|s| (s.ticket, s.ticket.saturating_add(s.count.into()))).collect();
        all.extend(self.voids.0.iter().map(|(first, end)| (*first, *end)));
        all.sort_unstable();
        let mut existing = vec![(0, first)];
        for (from, end) in all {
            match existing.last_mut() {
                Some((_, last)) if from <= *last => *last = end.max(*last),
                _ => existing.push((from, end)),
            }
        }
        existing
    }

    /// The ticket at which recovery stops: that of the newest epoch's first entry that follows a ticket which
    /// is not `existing`; the next epoch's first ticket if there is no such entry.
    fn stop_ticket(&self, existing: &[(u64, u64)]) -> u64 {
        let newest = u32::try_from(self.epochs.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let exists = |&(first, end): &(u64, u64)| {
            let after = existing.partition_point(|(from, _)| *from <= first);
            after.checked_sub(1).and_then(|at| existing.get(at)).is_some_and(|(_, last)| end <= *last)
        };
        let follows = |entry: &FoundPart| {
            let known = self.known.get(&entry.ticket).map_or(&[][..], Vec::as_slice);
            exists(&(0, entry.needs)) && known.iter().all(exists)
        };
        let whole = entries(&self.found).filter(|entry| is_whole(entry)).filter_map(<[FoundPart]>::first);
        let stops = whole.filter(|first| first.epoch == newest && !follows(first));
        stops.map(|first| first.ticket).min().unwrap_or(self.next)
    }
}

fn entries(seen: &[FoundPart]) -> impl Iterator<Item = &[FoundPart]> {
    seen.chunk_by(|a, b| a.ticket == b.ticket)
}

/// True if `entry` has all parts of an entry; the parts are in order.
fn is_whole(entry: &[FoundPart]) -> bool {
    let Some(first) = entry.first() else { return false };
    let alike = |s: &FoundPart| (s.parts, s.needs, s.epoch) == (first.parts, first.needs, first.epoch);
    entry.len() == usize::from(first.parts) && entry.iter().all(alike)
}

#[cfg(test)]
mod tests {
    use units::Blocks;

    use super::*;
    use crate::wal::entry::EntryHeader;

    fn decision(epochs: &[(u32, u64, u64)], retired: u64) -> EntryDecision {
        let epochs: Vec<Epoch> =
            epochs.iter().map(|&(epoch, first, settled)| Epoch { epoch, first, settled }).collect();
        EntryDecision::new(&epochs, retired, 1, false)
    }

    fn header(epoch: u32, sequence: u64, needs: u64) -> EntryHeader {
        EntryHeader { length: 100, ..EntryHeader::for_recovery_tests(epoch, sequence, needs) }
    }

    fn add(judge: &mut EntryDecision, header: EntryHeader, count: u32) {
        let lba = Lba(header.sequence * 100 + u64::from(header.part));
        judge.add(&Found { header, segment: 0, lba, end: Blocks(1) }, &payload_start(count));
    }

    fn payload_start(count: u32) -> PayloadStart {
        PayloadStart { count: Some(count), known: Some(Vec::new()) }
    }

    fn tickets(recovered: &RecoveredEntries) -> Vec<u64> {
        recovered.kept.iter().map(|kept| kept.ticket).collect()
    }

    /// Recovery of one epoch from ticket 0 on, whose entries have one record each, given by ticket and needs.
    fn recovery_of(entries: &[(u64, u64)]) -> RecoveredEntries {
        let mut judge = decision(&[(1, 0, 0)], 0);
        entries.iter().for_each(|&(ticket, needs)| add(&mut judge, header(1, ticket, needs), 1));
        judge.decide()
    }

    #[test]
    fn a_gap_of_tickets_that_were_never_acknowledged_does_not_stop_recovery() {
        // Ticket 1 was in flight when 2 and 3 were submitted. Ticket 5 needs 4, which is lost, so 5 does not
        // count.
        let recovered = recovery_of(&[(3, 1), (0, 0), (5, 5), (2, 1)]);
        assert_eq!((tickets(&recovered), recovered.absent), (vec![0, 2, 3], 1));
        assert_eq!((recovered.next, recovered.missing, recovered.dropped), (6, None, 1));
    }

    #[test]
    fn recovery_stops_at_the_first_entry_that_follows_a_missing_ticket() {
        // Ticket 1 is open the whole time. Ticket 4 was begun when 2 was acknowledged, and 2 is lost. Tickets
        // 3 and 5 do not list 2.
        let decide = |two: bool, retired: u64| {
            let mut judge = decision(&[(1, 0, 0)], retired);
            for (ticket, known) in
                [(0, vec![]), (2, vec![]), (3, vec![]), (4, vec![(2, 4)]), (5, vec![(3, 4)])]
            {
                if ticket == 2 && !two {
                    continue;
                }
                let header = EntryHeader { known: !known.is_empty(), ..header(1, ticket, ticket.min(1)) };
                let found = Found { header, segment: 0, lba: Lba(ticket), end: Blocks(1) };
                judge.add(&found, &PayloadStart { count: Some(1), known: Some(known) });
            }
            judge.decide()
        };
        let recovered = decide(true, 0);
        assert_eq!((tickets(&recovered), recovered.stop), (vec![0, 2, 3, 4, 5], 6));
        let recovered = decide(false, 0);
        assert_eq!((tickets(&recovered), recovered.stop, recovered.absent), (vec![0, 3], 4, 1));
        assert_eq!((recovered.dropped, recovered.missing, recovered.next), (2, None, 6));
        let recovered = decide(false, 3);
        assert_eq!((tickets(&recovered), recovered.stop), (vec![3, 4, 5], 6), "what is retired exists");
    }

    #[test]
    fn an_entry_with_a_list_that_no_writer_writes_is_ignored() {
        let mut judge = decision(&[(1, 0, 0)], 0);
        let found = Found { header: header(1, 0, 0), segment: 0, lba: Lba(0), end: Blocks(1) };
        judge.add(&found, &PayloadStart { count: Some(1), known: None });
        assert_eq!(tickets(&judge.decide()), []);
    }

    #[test]
    fn a_missing_ticket_that_a_later_entry_proves_durable_is_reported() {
        let mut judge = decision(&[(1, 0, 0)], 0);
        add(&mut judge, header(1, 0, 0), 1);
        add(&mut judge, EntryHeader { open: 2, ..header(1, 4, 4) }, 1);
        assert_eq!(judge.decide().missing, Some(1), "all below 2 were durable");
        let mut judge = super::tests::decision(&[(1, 0, 0)], 2);
        add(&mut judge, EntryHeader { open: 2, ..header(1, 4, 2) }, 1);
        let recovered = judge.decide();
        assert_eq!((recovered.missing, tickets(&recovered)), (None, vec![4]), "but they are retired");
    }

    #[test]
    fn the_parts_of_an_entry_count_all_or_not_at_all() {
        let part = |part, parts| EntryHeader { part, parts, ..header(1, 0, 0) };
        for (parts, kept) in [(vec![0, 1, 2], 1), (vec![0, 2], 0), (vec![0, 2, 2], 0), (vec![2, 1, 0, 1], 1)]
        {
            let mut judge = decision(&[(1, 0, 0)], 0);
            parts.iter().for_each(|n| add(&mut judge, part(*n, 3), 1));
            let recovered = judge.decide();
            assert_eq!((recovered.kept.len(), recovered.absent), (kept, kept as u64), "{parts:?}");
            assert_eq!(recovered.index.len(), 3 * kept);
        }
        let mut judge = decision(&[(1, 0, 0)], 0);
        [part(0, 2), part(1, 3)].into_iter().for_each(|header| add(&mut judge, header, 1));
        assert_eq!(judge.decide().kept, [], "parts of two entries with the same ticket");
    }

    #[test]
    fn a_void_entry_removes_the_records_of_its_tickets_and_makes_them_exist() {
        let mut judge = decision(&[(1, 0, 0)], 0);
        add(&mut judge, header(1, 0, 0), 2);
        add(&mut judge, EntryHeader { void: true, length: 4, ..header(1, 1, 0) }, 2);
        add(&mut judge, header(1, 3, 3), 1);
        let recovered = judge.decide();
        assert_eq!((tickets(&recovered), recovered.absent), (vec![0, 3], 4), "2 was never there");
        let voids: Vec<bool> = (0..4).map(|ticket| recovered.voids.has(ticket)).collect();
        assert_eq!(voids, [false, true, true, false]);
    }

    #[test]
    fn retired_tickets_exist_and_are_not_given_again() {
        let mut judge = decision(&[(1, 0, 0)], 5);
        let all = [(3, 2), (6, 5), (7, 6)];
        all.into_iter().for_each(|(ticket, needs)| add(&mut judge, header(1, ticket, needs), 1));
        let recovered = judge.decide();
        assert_eq!((tickets(&recovered), recovered.absent, recovered.next), (vec![6], 5, 8));
    }

    #[test]
    fn an_entry_that_a_recovery_dropped_stays_dropped_when_tickets_are_retired_later() {
        // Epoch 1: ticket 2 is missing, and ticket 4 needed it: recovery stopped there. Epoch 2 began at
        // ticket 5.
        let all = [(1, 0, 0), (1, 1, 1), (1, 3, 2), (1, 4, 3), (2, 5, 5), (2, 7, 6)];
        for (retired, kept) in [(0, vec![0, 1, 3, 5, 7]), (3, vec![3, 5, 7]), (4, vec![5, 7]), (6, vec![7])] {
            let mut judge = decision(&[(1, 0, 0), (2, 5, 4)], retired);
            all.iter().for_each(|&(epoch, ticket, needs)| add(&mut judge, header(epoch, ticket, needs), 1));
            let recovered = judge.decide();
            assert_eq!(
                (tickets(&recovered), recovered.absent, recovered.next),
                (kept, 6, 8),
                "{retired} retired"
            );
        }
    }

    #[test]
    fn an_entry_of_several_tickets_and_parts_is_kept_until_its_last_ticket_is_retired() {
        for (retired, kept) in [(0, vec![4]), (5, vec![4]), (6, vec![4]), (7, vec![])] {
            let mut judge =
                EntryDecision::new(&[Epoch { epoch: 1, first: 0, settled: 0 }], retired, 2, false);
            for ticket in 0..4 {
                add(&mut judge, header(1, ticket, 0), 1);
            }
            for part in 0..2 {
                let header = EntryHeader { part, parts: 2, ..header(1, 4, 4) };
                let lba = Lba(400 + u64::from(part));
                let found = Found { header, segment: part.into(), lba, end: Blocks(1) };
                judge.add(&found, &if part == 0 { payload_start(3) } else { PayloadStart::default() });
            }
            let recovered = judge.decide();
            let last: Vec<u64> = tickets(&recovered).into_iter().filter(|ticket| *ticket >= 4).collect();
            assert_eq!((last, recovered.absent), (kept, 7), "{retired} retired");
            assert!(retired == 7 || recovered.tops == [7, 7], "{:?}", recovered.tops);
        }
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins() {
        let mut judge = decision(&[(1, 0, 0), (3, 2, 2)], 0);
        for (epoch, ticket) in [(1, 0), (1, 1), (1, 2), (2, 2), (3, 1), (3, 2), (4, 3)] {
            add(&mut judge, header(epoch, ticket, 0), 1);
        }
        let recovered = judge.decide();
        assert_eq!(recovered.index.len(), 3, "of two entries 2 that of epoch 3 counts, and 3 has no epoch");
        assert_eq!((tickets(&recovered), recovered.next), (vec![0, 1, 2], 3));
    }

    #[test]
    fn voids_are_runs_with_gaps_between_them_in_any_order_of_adding() {
        let mut voids = Voids::default();
        let mut plain = [false; 120];
        for n in 0..200_u64 {
            let first = n * 7919 % 113;
            let end = first + n % 4;
            // The runs of void tickets are few and short at first, so that later runs join, overlap and touch
            // them.
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
