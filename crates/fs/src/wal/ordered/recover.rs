//! What a log holds after a mount.

use std::sync::Arc;

use units::Blocks;
use uuid::Uuid;
use zoned::ZonedDevice;

use crate::error::{Error, ErrorKind, Result};
use crate::rules::Rules;
use crate::wal::chunk::Memory;
use crate::wal::index::LogIndex;
use crate::wal::ordered::sort::{Part, Sorter};
use crate::wal::scan::Scan;
use crate::wal::segment::Segment;

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
/// metadata lists, in the order in which the log got them. An entry counts only if its checksum, log and zone
/// generation fit, if its sequence lies between its epoch's cut and the next one's, if all its parts are there, and
/// if **every sequence below its `needs` exists**. In a stream `needs` is the entry's own sequence, so a gap ends the
/// log. Entries are looked for within their region and segment, as [`entry`](super::entry) describes them.
///
/// Reads each block below the zones' write pointers once, in large reads. Memory: the reads in flight, some 100 bytes
/// for each entry of a region, and the index. Fails where the device fails, and where the cuts are not in order.
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
    recover_with(dev, uuid, log_id, cuts, segments, Rules::default()).await
}

/// Like [`recover`], under `rules`.
pub(crate) async fn recover_with(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log_id: u64,
    cuts: &[Cut],
    segments: &[Segment],
    rules: Rules,
) -> Result<Recovered> {
    check_order(cuts)?;
    let memory = Arc::new(Memory::default());
    let mut scan = Scan::begin(dev, uuid, log_id, segments, &memory).await?;
    let mut sorter = Sorter::new(cuts, segments, rules.keeps_entries_behind_gaps());
    loop {
        scan.read_ahead(u64::MAX);
        if !scan.arrive().await? {
            break;
        }
        let step = scan.look(|found, _payload, at| sorter.push(Part { found, payload: None }, at));
        if step.segment_over {
            sorter.end_of_segment();
        }
        sorter.ready().for_each(drop);
    }
    sorter.finish();
    Ok(sorter.recovered().said(log_id))
}

/// Fails where the epochs are not in order.
pub(super) fn check_order(cuts: &[Cut]) -> Result<()> {
    let ordered = cuts.windows(2).all(|pair| match pair {
        [a, b] => a.epoch < b.epoch && a.first_sequence <= b.first_sequence,
        _ => true,
    });
    if ordered {
        return Ok(());
    }
    let why = "the epochs in the metadata are not in order; run `furrow fs check`";
    Err(Error::new(ErrorKind::Corrupt, "recover a log").because(why))
}

impl Recovered {
    /// Says what was found where it is not everything.
    pub(super) fn said(self, log: u64) -> Recovered {
        let Recovered { dropped, missing, .. } = self;
        if dropped > 0 || missing.is_some() {
            tracing::debug!(log, kept = self.index.len(), dropped, missing, "recovered a log with a gap");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use units::{Lba, ZoneId};

    use super::*;
    use crate::wal::entry::EntryHeader;
    use crate::wal::scan::Found;

    fn part(epoch: u32, sequence: u64, needs: u64, (part, parts): (u16, u16)) -> Found {
        let header = EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
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

    /// What counts, in the order in which it goes out, and how it ends.
    fn sorted(found: &[Found], cuts: &[(u32, u64)]) -> (Vec<Found>, Recovered) {
        let cuts: Vec<Cut> =
            cuts.iter().map(|&(epoch, first_sequence)| Cut { epoch, first_sequence }).collect();
        let mut sorter = Sorter::new(&cuts, &[], false);
        found.iter().for_each(|found| sorter.push(Part { found: *found, payload: None }, 0));
        sorter.finish();
        (sorter.ready().map(|part| part.found).collect(), sorter.recovered())
    }

    fn kept(found: Vec<Found>, cuts: &[(u32, u64)]) -> (Vec<u64>, u64, Option<u64>) {
        let (kept, left) = sorted(&found, cuts);
        (kept.iter().map(|p| p.header.sequence).collect(), left.next_sequence, left.missing)
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
        let (left, _) = sorted(&found, &[(1, 0), (2, 2)]);
        assert!(left.iter().all(|p| (p.header.sequence >= 2) == (p.header.epoch == 2)));
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
