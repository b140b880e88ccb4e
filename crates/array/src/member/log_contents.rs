//! The contents of a member's metadata log, as a mount reads them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use zoned::{Blocks, Buf, ErrorKind, Result, ZoneId, ZoneInfo};

use crate::format::HIGHEST_COUNTER;
use crate::format::record::{Body, Record};
use crate::format::shape::Shape;
use crate::format::superblock::Superblock;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::placement::metadata_zones;
use crate::layout::row_set::RowSet;
use crate::layout::{Layout, Slot, Stripe};
use crate::member::log_reader::each_record;
use crate::member::member_drive::MemberDrive;
use crate::zone::stale_rows::RelocatedParity;

/// A record of partial parity: the parity rows of the blocks `start..end` of one stripe.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    pub start: Blocks,
    pub end: Blocks,
    pub rows: Buf,
}

/// The content of a record about a zone, with the generation of the zone and the sequence number of the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dated<T> {
    pub generation: u64,
    pub sequence: u64,
    pub content: T,
}

/// Adds the content of a record unless the content of a newer one is known.
fn keep_newest<K: Ord, T>(known: &mut BTreeMap<K, Dated<T>>, key: K, new: Dated<T>) {
    let age = |one: &Dated<T>| (one.generation, one.sequence);
    if known.get(&key).is_none_or(|old| age(old) <= age(&new)) {
        known.insert(key, new);
    }
}

/// The stale rows of a physical zone.
#[derive(Clone, Debug)]
pub(crate) struct StaleRecord {
    pub rows: RowSet,
    /// True if the physical zone was rewritten: relocated content of older records is in place.
    rewritten: bool,
}

/// A record of a zone copy: metadata zone `zone` holds the first `rows` rows of a physical zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneCopy {
    pub rows: u64,
    pub zone: ZoneId,
    pub mask: u64,
}

/// The records of one epoch on one member.
#[derive(Default, Debug)]
pub(crate) struct EpochContents {
    /// True if the checkpoint that begins the epoch is complete.
    pub complete: bool,
    /// The highest `config` of the epoch's superblocks.
    pub config: u64,
    /// Recorded generation and end of each zone.
    pub entries: BTreeMap<ZoneId, ZoneEntry>,
    /// Zones and generations whose reset was begun.
    pub intents: BTreeSet<(ZoneId, u64)>,
    /// Partial parity by zone, with the zone's generation, and by stripe.
    pub partials: BTreeMap<ZoneId, (u64, BTreeMap<Stripe, Vec<Partial>>)>,
    /// The highest stripe of each zone whose partial parity was dropped, because no mount should need it.
    pub dropped: BTreeMap<ZoneId, Stripe>,
    pub relocated: BTreeMap<(ZoneId, Stripe), Dated<RelocatedParity>>,
    /// Zones that an interrupted rebuild has copied to the member, a new drive: sequence, generation and end.
    pub rebuilt: BTreeMap<ZoneId, (u64, ZoneEntry)>,
    /// Relocated data by zone, with the zone's generation, and by row of the drive's physical zone.
    pub data: BTreeMap<ZoneId, (u64, BTreeMap<u64, Buf>)>,
    /// The newest record of stale rows, by zone.
    pub stale: BTreeMap<ZoneId, Dated<StaleRecord>>,
    /// The newest record of a zone copy, by zone.
    pub zone_copies: BTreeMap<ZoneId, Dated<ZoneCopy>>,
    /// The newest record of bad rows, by zone.
    pub bad_rows: BTreeMap<ZoneId, Dated<RowSet>>,
    /// Metadata zones that hold records of the epoch.
    pub zones: BTreeSet<ZoneId>,
}

/// The records of all epochs on one member.
#[derive(Default, Debug)]
pub(crate) struct LogContents {
    pub epochs: BTreeMap<u64, EpochContents>,
    /// The newest superblock of the member.
    pub newest: Option<Superblock>,
    /// The highest sequence number of the member's records.
    pub sequence: u64,
    /// Number of ignored records, with a valid checksum and impossible content.
    pub unsound: u64,
    /// Number of unreadable blocks in each metadata zone: the records there are unknown.
    unreadable: BTreeMap<ZoneId, u64>,
}

/// Which partial parity records a mount keeps in memory.
#[derive(Debug)]
pub(crate) struct NeededParity {
    /// Number of stripes below the highest one of a zone that may have been in flight.
    pub doubt: u64,
    /// For each zone, the number of rows that every drive with a known pointer has written.
    pub lowest: Vec<u64>,
}

impl NeededParity {
    /// The first stripe of a zone whose partial parity may be needed, if `highest` is the highest stripe with a record. A
    /// drive may have lost everything in its cache, so the lowest pointer counts too.
    fn first_needed_stripe(&self, layout: &Layout, zone: ZoneId, highest: Stripe) -> Stripe {
        let lowest = self.lowest.get(zone.index()).map_or(0, |row| row / layout.unit.max(1));
        Stripe(highest.0.saturating_sub(self.doubt).min(lowest.saturating_sub(1)))
    }
}

/// Reads all metadata zones of a member of an array of this shape.
///
/// Errors: those of the drive, and [`ErrorKind::Damaged`] if a record has an epoch or sequence number above [`HIGHEST_COUNTER`].
pub(crate) async fn read(
    device: &MemberDrive,
    shape: &Shape,
    array: Uuid,
    slot: Slot,
    needed: &NeededParity,
) -> Result<(LogContents, Vec<ZoneInfo>)> {
    let mut log = LogContents::default();
    let zones = device.report(metadata_zones()).await?;
    for info in &zones {
        let unreadable = each_record(device, shape.layout.unit, info, &mut |_, _, record| {
            if record.place.array == array && record.place.member == slot {
                log.add(shape, info.zone, needed, record);
            }
        })
        .await?;
        if unreadable > 0 {
            log.unreadable.insert(info.zone, unreadable);
        }
    }
    let epoch = log.epochs.last_key_value().map_or(0, |(epoch, _)| *epoch);
    if epoch.max(log.sequence) > HIGHEST_COUNTER {
        let error = device.error(ErrorKind::Damaged, "read the metadata log");
        return Err(error.because(format!(
            "its records have epochs up to {epoch} and numbers up to {}: no array counts that far. Leave the drive out, and \
             replace it",
            log.sequence
        )));
    }
    if log.unsound > 0 {
        let records = log.unsound;
        tracing::error!(?device, records, "implausible records are ignored");
    }
    log.epochs.values_mut().for_each(EpochContents::drop_rewritten);
    Ok((log, zones))
}

impl LogContents {
    /// The newest epoch on the member that is complete.
    pub(crate) fn complete(&self) -> Option<u64> {
        self.epochs.iter().rev().find(|(_, contents)| contents.complete).map(|(epoch, _)| *epoch)
    }

    /// The number of unreadable blocks that may belong to `epoch` or a later one. A metadata zone holds records of one epoch
    /// only, so that one readable record gives the epoch of the zone. A zone with a copy of a physical zone has no records.
    pub(crate) fn unreadable_from(&self, epoch: u64) -> u64 {
        let of = |zone: &ZoneId| self.epochs.iter().rev().find(|(_, contents)| contents.zones.contains(zone));
        let counts = |zone: &ZoneId| of(zone).is_none_or(|(of, _)| *of >= epoch);
        self.unreadable.iter().filter(|(zone, _)| counts(zone)).map(|(_, blocks)| blocks).sum()
    }

    /// The number of unreadable blocks that may belong to the newest complete epoch or a later one.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable_from(self.complete().unwrap_or(0))
    }

    /// Forgets which zones a rebuild has copied: a newer record about a zone may be unreadable.
    pub(crate) fn forget_rebuilt_zones(&mut self) {
        self.epochs.values_mut().for_each(|contents| contents.rebuilt.clear());
    }

    /// Adds a record to the contents. Partial parity that no mount needs is dropped.
    fn add(&mut self, shape: &Shape, from: ZoneId, needed: &NeededParity, record: Record) {
        let layout = &shape.layout;
        let sequence = record.place.sequence;
        self.sequence = self.sequence.max(sequence);
        let contents = self.epochs.entry(record.place.epoch).or_default();
        contents.zones.insert(from);
        if !shape.allows(from, &record.place, &record.body) {
            self.unsound += 1;
            return;
        }
        match record.body {
            Body::Superblock(superblock) => {
                contents.config = contents.config.max(superblock.config);
                if self.newest.as_ref().is_none_or(|newest| newest.config <= superblock.config) {
                    self.newest = Some(superblock);
                }
            }
            Body::Zones { first, entries } => {
                for (id, entry) in (first.0..shape.zones).zip(entries) {
                    contents.entries.entry(ZoneId(id)).or_default().merge(entry);
                }
            }
            Body::ResetIntent { zone, generation } => {
                contents.intents.insert((zone, generation));
            }
            Body::PartialParity { zone, generation, start, end, rows } => {
                let (newest, stripes) = contents.partials.entry(zone).or_default();
                if *newest < generation {
                    (*newest, *stripes) = (generation, BTreeMap::new());
                }
                if *newest != generation {
                    return;
                }
                let stripe = layout.stripe_of(start);
                // The rows are copied, because the record is a slice of a large buffer.
                let rows = Buf::copy_from(&rows);
                stripes.entry(stripe).or_default().push(Partial { start, end, rows });
                let highest = stripes.last_key_value().map_or(stripe, |(stripe, _)| *stripe);
                let kept = stripes.split_off(&needed.first_needed_stripe(layout, zone, highest));
                if let Some((stripe, _)) = std::mem::replace(stripes, kept).last_key_value() {
                    let dropped = contents.dropped.entry(zone).or_default();
                    *dropped = (*dropped).max(*stripe);
                }
            }
            Body::RelocatedParity { zone, generation, start, end, unit } => {
                let content = RelocatedParity { end, unit: Buf::copy_from(&unit) };
                let key = (zone, layout.stripe_of(start));
                keep_newest(&mut contents.relocated, key, Dated { generation, sequence, content });
            }
            Body::RebuiltZones { first, entries } => {
                for (id, entry) in (first.0..shape.zones).zip(entries) {
                    contents.rebuilt.insert(ZoneId(id), (sequence, entry));
                }
            }
            Body::CheckpointEnd => contents.complete = true,
            Body::RelocatedData { zone, generation, start, data, .. } => {
                let piece = layout.locate(start);
                let known = contents.data.entry(zone).or_default();
                if known.0 < generation {
                    *known = (generation, BTreeMap::new());
                }
                if known.0 == generation {
                    let row = layout.row(piece.stripe) + piece.row;
                    // The record of a checkpoint may hold a longer run of relocated data from the same row
                    // on.
                    let longer = known.1.get(&row).is_some_and(|other| other.len() >= data.len());
                    if !longer {
                        known.1.insert(row, Buf::copy_from(&data));
                    }
                }
            }
            Body::StaleRows { zone, generation, rows, rewritten } => {
                let content = StaleRecord { rows, rewritten };
                keep_newest(&mut contents.stale, zone, Dated { generation, sequence, content });
            }
            Body::BadRows { zone, generation, rows } => {
                keep_newest(&mut contents.bad_rows, zone, Dated { generation, sequence, content: rows });
            }
            Body::ZoneCopy { zone, generation, rows, copy, mask } => {
                // The newest record of a zone copy counts, whichever generation the zone has.
                if contents.zone_copies.get(&zone).is_none_or(|known| known.sequence <= sequence) {
                    let content = ZoneCopy { rows, zone: copy, mask };
                    contents.zone_copies.insert(zone, Dated { generation, sequence, content });
                }
            }
        }
    }
}

impl EpochContents {
    /// True if a metadata zone holds records of the epoch, or the copy of a physical zone.
    pub(crate) fn counts(&self, zone: ZoneId) -> bool {
        self.zones.contains(&zone) || self.zone_copies.values().any(|copy| copy.content.zone == zone)
    }

    /// Drops the relocated content and the copies of physical zones that were rewritten since.
    fn drop_rewritten(&mut self) {
        for (zone, stale) in self.stale.iter().filter(|(_, stale)| stale.content.rewritten) {
            self.relocated.retain(|(of, _), parity| {
                of != zone || parity.generation != stale.generation || parity.sequence > stale.sequence
            });
        }
        let stale = &self.stale;
        self.zone_copies.retain(|zone, copy| {
            let after = |rows: &Dated<StaleRecord>| rows.content.rewritten && rows.sequence > copy.sequence;
            !stale.get(zone).is_some_and(after)
        });
    }

    /// Notes that a physical zone was rewritten from its copy.
    pub(crate) fn note_rewritten(&mut self, zone: ZoneId, copy: Dated<ZoneCopy>) {
        let (generation, sequence) = (copy.generation, copy.sequence + 1);
        let content = StaleRecord { rows: RowSet::default(), rewritten: true };
        self.stale.insert(zone, Dated { generation, sequence, content });
        self.drop_rewritten();
    }
}
