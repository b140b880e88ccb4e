//! What a log holds after a mount: the rule that decides which entries count.

use std::sync::Arc;

use units::{Blocks, Bytes};
use uuid::Uuid;
use zoned::ZonedDevice;

use super::scan::{Found, scan};
use super::{LogIndex, Segment};
use crate::{Error, ErrorKind, Result};

/// Where an epoch begins: recorded durably before the epoch's first entry is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The epoch.
    pub epoch: u32,
    /// The sequence of its first entry.
    pub first_sequence: u64,
}

/// What [`recover`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Where the log's bytes lie.
    pub index: LogIndex,
    /// Bytes in the log.
    pub size: u64,
    /// The sequence behind the last entry: the cut of the next epoch.
    pub next_sequence: u64,
    /// For each segment, the block of the zone behind the last entry that was kept (of a damaged log: that was
    /// found); its start where none was.
    pub used: Vec<Blocks>,
    /// Valid entries, or parts of some, that were not kept: behind a gap, or without all their parts. What a
    /// power cut leaves of unsynced writes.
    pub dropped: usize,
    /// The first sequence that is missing although a later cut, or a later entry, proves that it was durable: the
    /// log is damaged, it can be read up to here, and it must not be appended to.
    pub missing: Option<u64>,
    /// Bytes of the entries that were found and not kept.
    pub behind: u64,
}

/// Finds the log's bytes in its segments.
///
/// `cuts` are the log's epochs in order, the first one with the log's first sequence; `segments` are what the
/// metadata lists, in any order. An entry counts only if its checksum, log and zone generation fit, if its
/// sequence lies between its epoch's cut and the next one's, if all its parts are there, and if **every sequence
/// below its `needs` exists**. In a stream `needs` is the entry's own sequence, so a gap ends the log.
///
/// Reads each block below the zones' write pointers once, in large reads. Memory: a few chunks, and some 100
/// bytes for each entry. Fails where the device fails, and where the cuts are not in order.
///
/// On a device with a volatile cache, flush it before the result is relied on (a mount does): the entries of a
/// process that was killed may still be in the cache.
pub async fn recover(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log_id: u64,
    cuts: &[Cut],
    segments: &[Segment],
) -> Result<Recovered> {
    let ordered = cuts.windows(2).all(|pair| match pair {
        [a, b] => a.epoch < b.epoch && a.first_sequence <= b.first_sequence,
        _ => true,
    });
    if !ordered {
        let why = "the epochs in the metadata are not in order; run `furrow fs check`";
        return Err(Error::new(ErrorKind::Corrupt, "recover a log").because(why));
    }
    let found = scan(dev, uuid, log_id, segments).await?;
    let survivors = survivors(found, cuts);
    let mut index = LogIndex::starting_at(Bytes::ZERO);
    let mut used: Vec<Blocks> = segments.iter().map(|s| s.start).collect();
    for part in &survivors.kept {
        index.push(part.lba, part.header.length, part.header.mask);
    }
    for part in survivors.kept.iter().chain(&survivors.damaged) {
        if let Some(used) = used.get_mut(part.segment) {
            *used = part.end.max(*used);
        }
    }
    let Survivors { kept, next_sequence, missing, dropped, behind, .. } = survivors;
    if dropped > 0 || missing.is_some() {
        tracing::debug!(log = log_id, kept = kept.len(), dropped, missing, "recovered a log with a gap");
    }
    Ok(Recovered { size: index.size().0, index, next_sequence, used, dropped, missing, behind })
}

/// What the rule leaves of the parts found.
#[derive(Debug)]
struct Survivors {
    /// In the order of the stream.
    kept: Vec<Found>,
    next_sequence: u64,
    missing: Option<u64>,
    /// Parts that are covered by an epoch, and not kept.
    dropped: usize,
    /// Stream bytes in them.
    behind: u64,
    /// They themselves, if the log is damaged.
    damaged: Vec<Found>,
}

/// The rule, without I/O.
fn survivors(mut found: Vec<Found>, cuts: &[Cut]) -> Survivors {
    found.retain(|part| in_its_epoch(part, cuts));
    let first = cuts.first().map_or(0, |cut| cut.first_sequence);
    let last_cut = cuts.last().map_or(0, |cut| cut.first_sequence);

    found.sort_by_key(|part| (part.header.sequence, part.header.part));
    // The same part twice can only be a hole that shows an old block again: the first one counts.
    found.dedup_by_key(|part| (part.header.sequence, part.header.part));
    let proven = found.iter().map(|part| part.header.proven()).fold(last_cut, u64::max);

    let (mut kept, mut dropped): (Vec<Found>, Vec<Found>) = (Vec::new(), Vec::new());
    // The lowest sequence that does not exist.
    let mut absent = first;
    for entry in found.chunk_by(|a, b| a.header.sequence == b.header.sequence) {
        let Some(Found { header, .. }) = entry.first() else { continue };
        let whole = entry.len() == usize::from(header.parts)
            && entry
                .iter()
                .all(|part| (part.header.parts, part.header.needs) == (header.parts, header.needs));
        if !whole {
            dropped.extend_from_slice(entry);
            continue;
        }
        if header.sequence == absent {
            absent += 1;
        }
        // Entries come in ascending order, so what is missing below `needs` is known here.
        if header.needs <= absent {
            kept.extend_from_slice(entry);
        } else {
            dropped.extend_from_slice(entry);
        }
    }
    let behind_last = kept.last().map_or(first, |part| part.header.sequence + 1);
    Survivors {
        next_sequence: behind_last.max(last_cut),
        missing: (absent < proven).then_some(absent),
        dropped: dropped.len(),
        behind: dropped.iter().map(|part| u64::from(part.header.length)).sum(),
        damaged: if absent < proven { dropped } else { Vec::new() },
        kept,
    }
}

fn in_its_epoch(part: &Found, cuts: &[Cut]) -> bool {
    let Some(mine) = cuts.iter().position(|cut| cut.epoch == part.header.epoch) else { return false };
    let from = cuts.get(mine).map_or(0, |cut| cut.first_sequence);
    let to = cuts.get(mine + 1).map_or(u64::MAX, |cut| cut.first_sequence);
    (from..to).contains(&part.header.sequence)
}

#[cfg(test)]
mod tests {
    use units::{Lba, ZoneId};

    use super::super::entry::EntryHeader;
    use super::*;

    fn part(epoch: u32, sequence: u64, needs: u64, (part, parts): (u16, u16)) -> Found {
        let header = EntryHeader {
            padding: false,
            odd: false,
            log: 1,
            generation: 1,
            sequence,
            needs,
            epoch,
            part,
            parts,
            length: 10,
            mask: 0,
            // Nothing is known to be durable.
            open: u32::MAX,
            crc: 0,
        };
        Found {
            header,
            segment: ZoneId(0).index(),
            lba: Lba(sequence * 100 + u64::from(part)),
            end: Blocks(1),
        }
    }

    fn kept(found: Vec<Found>, cuts: &[(u32, u64)]) -> (Vec<u64>, u64, Option<u64>) {
        let cuts: Vec<Cut> =
            cuts.iter().map(|&(epoch, first_sequence)| Cut { epoch, first_sequence }).collect();
        let left = survivors(found, &cuts);
        (left.kept.iter().map(|p| p.header.sequence).collect(), left.next_sequence, left.missing)
    }

    fn stream(epoch: u32, sequences: &[u64]) -> Vec<Found> {
        sequences.iter().map(|&s| part(epoch, s, s, (0, 1))).collect()
    }

    #[test]
    fn a_gap_ends_a_stream() {
        assert_eq!(kept(stream(0, &[2, 0, 1, 4, 5]), &[(0, 0)]), (vec![0, 1, 2], 3, None));
        assert_eq!(kept(stream(0, &[1, 2]), &[(0, 0)]), (vec![], 0, None));
    }

    #[test]
    fn a_gap_that_nobody_needs_is_legal() {
        // Ticket 1 was never acknowledged: 2 and 3 went out meanwhile. 5 needs a 4 that is lost.
        let found = [(0, 0), (2, 1), (3, 1), (5, 5)].map(|(s, needs)| part(0, s, needs, (0, 1))).to_vec();
        assert_eq!(kept(found, &[(0, 0)]).0, vec![0, 2, 3]);
    }

    #[test]
    fn parts_are_kept_together_or_not_at_all() {
        let mut found = stream(0, &[0, 2]);
        found.extend([part(0, 1, 1, (0, 3)), part(0, 1, 1, (2, 3))]);
        assert_eq!(kept(found.clone(), &[(0, 0)]).0, vec![0]);
        found.push(part(0, 1, 1, (1, 3)));
        assert_eq!(kept(found, &[(0, 0)]).0, vec![0, 1, 1, 1, 2]);
    }

    #[test]
    fn parts_of_two_makings_do_not_complete_each_other() {
        let found = vec![part(0, 0, 0, (0, 2)), part(0, 0, 0, (1, 3))];
        assert_eq!(kept(found, &[(0, 0)]).0, vec![]);
    }

    #[test]
    fn an_older_epoch_counts_up_to_the_cut_only() {
        let mut found = stream(1, &[0, 1, 2, 3, 4]);
        found.extend(stream(2, &[2, 3]));
        let (_, survivors) = (kept(found.clone(), &[(1, 0)]), kept(found.clone(), &[(1, 0), (2, 2)]));
        assert_eq!(survivors, (vec![0, 1, 2, 3], 4, None));
        let cuts = [Cut { epoch: 1, first_sequence: 0 }, Cut { epoch: 2, first_sequence: 2 }];
        let left = super::survivors(found, &cuts);
        assert!(left.kept.iter().all(|p| (p.header.sequence >= 2) == (p.header.epoch == 2)));
    }

    #[test]
    fn an_epoch_without_a_cut_does_not_count() {
        assert_eq!(kept(stream(7, &[0, 1]), &[(1, 0)]), (vec![], 0, None));
    }

    #[test]
    fn a_gap_below_a_cut_is_damage_and_is_said() {
        let mut found = stream(1, &[0, 2]);
        found.extend(stream(2, &[3]));
        assert_eq!(kept(found, &[(1, 0), (2, 3)]), (vec![0], 3, Some(1)));
    }

    #[test]
    fn a_gap_that_a_later_entry_knew_to_be_durable_is_damage() {
        let mut found = stream(1, &[0, 2, 3]);
        found[1].header.open = 1;
        assert_eq!(kept(found.clone(), &[(1, 0)]), (vec![0], 1, None), "1 was open when 2 was sealed");
        found[2].header.open = 1;
        assert_eq!(kept(found, &[(1, 0)]), (vec![0], 1, Some(1)), "2 was durable when 3 was sealed");
    }

    #[test]
    fn an_empty_reopened_log_goes_on_at_its_cut() {
        assert_eq!(kept(Vec::new(), &[(1, 0), (2, 0)]), (vec![], 0, None));
    }
}
