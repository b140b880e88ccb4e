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
use crate::layout::stored_maps::{PlacedBy, ZoneMap};
use crate::layout::{Parity, Slot, Stripe};
use crate::member::known_frames::KnownFrames;
use crate::member::log_reader::each_record;
use crate::member::member_drive::MemberDrive;
use crate::member::needed_parity::NeededParity;
use crate::zone::stale_rows::RelocatedParity;

/// A record of partial parity: the rows of a parity of the blocks `start..end` of one stripe.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    pub parity: Parity,
    /// The sequence number of the record.
    pub sequence: u64,
    pub start: Blocks,
    pub end: Blocks,
    pub rows: Buf,
}

/// A reorder record: records of partial parity of the stripe with a lower sequence number and an end above `above` do not count.
#[derive(Clone, Copy, Debug)]
struct Reorder {
    stripe: Stripe,
    parity: Parity,
    above: Blocks,
    sequence: u64,
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

/// A part of a zone that is or was on the drive with the log: the zone, and the version of the map that brought the part to the drive.
/// Records of a part that has left the drive stay apart from those of a part that came later.
pub(crate) type PartId = (ZoneId, PlacedBy);

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
    /// Reorder records by zone and generation.
    reorders: BTreeMap<(ZoneId, u64), Vec<Reorder>>,
    /// The highest stripe of each zone whose partial parity was dropped, because no mount should need it.
    pub dropped: BTreeMap<ZoneId, Stripe>,
    pub relocated: BTreeMap<(PartId, Stripe, Parity), Dated<RelocatedParity>>,
    /// Zones that an interrupted rebuild has copied to the member, a new drive: sequence, generation and end.
    pub rebuilt: BTreeMap<ZoneId, (u64, ZoneEntry)>,
    /// Relocated data by part, with the zone's generation, and by row of the drive's physical zone.
    pub data: BTreeMap<PartId, (u64, BTreeMap<u64, Buf>)>,
    /// The newest record of stale rows, by part.
    pub stale: BTreeMap<PartId, Dated<StaleRecord>>,
    /// The newest record of a zone copy, by zone.
    pub zone_copies: BTreeMap<ZoneId, Dated<ZoneCopy>>,
    /// The newest map of each zone.
    pub maps: BTreeMap<ZoneId, Dated<ZoneMap>>,
    /// The newest record of bad rows, by part.
    pub bad_rows: BTreeMap<PartId, Dated<RowSet>>,
    /// The metadata zones with entries of zones, which every checkpoint has, and the lowest sequence number of such a record.
    checkpoints: BTreeMap<ZoneId, u64>,
    /// The frames of each zone's writes.
    pub frames: BTreeMap<ZoneId, KnownFrames>,
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
    log.epochs.values_mut().for_each(EpochContents::drop_corrected);
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
        let (frames, body) = match record.body {
            Body::Reorder { above, parity } => {
                if let Body::PartialParity { parity, zone, generation, start, .. } = *parity {
                    let reorder = Reorder { stripe: layout.stripe_of(start), parity, above, sequence };
                    contents.reorders.entry((zone, generation)).or_default().push(reorder);
                }
                (Vec::new(), Some(*parity))
            }
            Body::Frames { frames, parity } => (frames, parity.map(|parity| *parity)),
            body => (Vec::new(), Some(body)),
        };
        for frame in frames {
            let known = contents.frames.entry(frame.zone).or_default();
            if let Some(stripe) = known.add(layout, needed, from, frame) {
                let dropped = contents.dropped.entry(frame.zone).or_default();
                *dropped = (*dropped).max(stripe);
            }
        }
        let Some(body) = body else { return };
        match body {
            Body::Superblock(superblock) => {
                contents.config = contents.config.max(superblock.config);
                if self.newest.as_ref().is_none_or(|newest| newest.config <= superblock.config) {
                    self.newest = Some(superblock);
                }
            }
            Body::Zones { first, entries } => {
                let begins = contents.checkpoints.entry(from).or_insert(sequence);
                *begins = sequence.min(*begins);
                for (id, entry) in (first.0..shape.zones).zip(entries) {
                    contents.entries.entry(ZoneId(id)).or_default().merge(entry);
                }
            }
            Body::ResetIntent { zone, generation } => {
                contents.intents.insert((zone, generation));
            }
            Body::PartialParity { parity, zone, generation, start, end, rows } => {
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
                stripes.entry(stripe).or_default().push(Partial { parity, sequence, start, end, rows });
                let highest = stripes.last_key_value().map_or(stripe, |(stripe, _)| *stripe);
                let kept = stripes.split_off(&needed.first_needed_stripe(layout, zone, highest));
                if let Some((stripe, _)) = std::mem::replace(stripes, kept).last_key_value() {
                    let dropped = contents.dropped.entry(zone).or_default();
                    *dropped = (*dropped).max(*stripe);
                }
            }
            Body::RelocatedParity { parity, zone, generation, placed_by, start, end, unit } => {
                let content = RelocatedParity { end, unit: Buf::copy_from(&unit) };
                let key = ((zone, placed_by), layout.stripe_of(start), parity);
                keep_newest(&mut contents.relocated, key, Dated { generation, sequence, content });
            }
            Body::RebuiltZones { first, entries } => {
                for (id, entry) in (first.0..shape.zones).zip(entries) {
                    contents.rebuilt.insert(ZoneId(id), (sequence, entry));
                }
            }
            Body::CheckpointEnd => contents.complete = true,
            // Frames and corrections are known, and the parity in such a record is the body that is matched here.
            Body::Frames { .. } | Body::Reorder { .. } => {}
            Body::RelocatedData { zone, generation, placed_by, start, data, .. } => {
                let piece = layout.locate(start);
                let known = contents.data.entry((zone, placed_by)).or_default();
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
            Body::StaleRows { zone, generation, placed_by, rows, rewritten } => {
                let content = StaleRecord { rows, rewritten };
                let part = (zone, placed_by);
                keep_newest(&mut contents.stale, part, Dated { generation, sequence, content });
            }
            Body::ZoneMaps(maps) => {
                for map in maps {
                    let (zone, generation) = (map.zone, map.generation);
                    contents.entries.entry(zone).or_default().merge(ZoneEntry { generation, end: None });
                    contents.keep_newest_map(Dated { generation, sequence, content: map });
                }
            }
            Body::BadRows { zone, generation, placed_by, rows } => {
                let part = (zone, placed_by);
                keep_newest(&mut contents.bad_rows, part, Dated { generation, sequence, content: rows });
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
    /// Adds a zone's map unless a newer one is known. A checkpoint may hold an older version than a record that the log got before.
    fn keep_newest_map(&mut self, new: Dated<ZoneMap>) {
        let age = |one: &Dated<ZoneMap>| (one.generation, one.content.version, one.sequence);
        let zone = new.content.zone;
        if self.maps.get(&zone).is_none_or(|known| age(known) <= age(&new)) {
            self.maps.insert(zone, new);
        }
    }

    /// True if a metadata zone holds records of the epoch, or the copy of a physical zone.
    pub(crate) fn counts(&self, zone: ZoneId) -> bool {
        self.zones.contains(&zone) || self.zone_copies.values().any(|copy| copy.content.zone == zone)
    }

    /// The marks of a zone that count: those of the log's older metadata zone, if there are two. That zone's predecessor was reset
    /// once all writes below its marks were durable. While it is there, so are all frames that a mark in the newer zone stands for.
    pub(crate) fn marks(&self, zone: ZoneId) -> impl Iterator<Item = Blocks> {
        let oldest = self.checkpoints.iter().min_by_key(|(_, sequence)| **sequence).map(|(from, _)| *from);
        let known = self.frames.get(&zone).zip(oldest);
        known.into_iter().flat_map(|(known, oldest)| known.marks_in(oldest))
    }

    /// Drops the relocated content and the copies of physical zones that were rewritten since.
    fn drop_rewritten(&mut self) {
        for (part, stale) in self.stale.iter().filter(|(_, stale)| stale.content.rewritten) {
            self.relocated.retain(|(of, ..), parity| {
                of != part || parity.generation != stale.generation || parity.sequence > stale.sequence
            });
        }
        let stale = &self.stale;
        self.zone_copies.retain(|zone, copy| {
            let after = |rows: &Dated<StaleRecord>| rows.content.rewritten && rows.sequence > copy.sequence;
            !stale.iter().any(|((of, _), rows)| of == zone && after(rows))
        });
    }

    /// Drops partial parity that reorder records correct: the drives hold other data in the rows of appends than the parity was
    /// computed from.
    fn drop_corrected(&mut self) {
        for ((zone, generation), reorders) in &self.reorders {
            let Some((_, stripes)) = self.partials.get_mut(zone).filter(|(of, _)| of == generation) else {
                continue;
            };
            for reorder in reorders {
                let Some(partials) = stripes.get_mut(&reorder.stripe) else { continue };
                partials.retain(|partial| {
                    partial.parity != reorder.parity
                        || partial.sequence >= reorder.sequence
                        || partial.end <= reorder.above
                });
            }
        }
    }

    /// Notes that a physical zone was rewritten from its copy.
    pub(crate) fn note_rewritten(&mut self, part: PartId, copy: Dated<ZoneCopy>) {
        let (generation, sequence) = (copy.generation, copy.sequence + 1);
        let content = StaleRecord { rows: RowSet::default(), rewritten: true };
        self.stale.insert(part, Dated { generation, sequence, content });
        self.drop_rewritten();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Role;
    use crate::layout::placement::Place;

    #[test]
    fn the_newest_version_of_a_map_counts_wherever_its_record_lies() {
        let map = |generation, version, to| {
            let mut map = ZoneMap::first(ZoneId(3), generation, vec![Place::whole(Slot(to), ZoneId(9))]);
            map.version = version;
            map.moved.extend((version > 1).then_some((Role(0), PlacedBy(version))));
            map
        };
        let mut contents = EpochContents::default();
        let mut sequence = 0;
        let mut newest_after = |map: ZoneMap| {
            sequence += 1;
            contents.keep_newest_map(Dated { generation: map.generation, sequence, content: map });
            contents.maps[&ZoneId(3)].content.places[0].slot
        };
        assert_eq!(newest_after(map(7, 1, 0)), Slot(0));
        assert_eq!(newest_after(map(7, 3, 1)), Slot(1));
        // A checkpoint that began before the move.
        assert_eq!(newest_after(map(7, 2, 2)), Slot(1));
        // The next life of the zone.
        assert_eq!(newest_after(map(8, 1, 3)), Slot(3));
        assert_eq!(newest_after(map(7, 4, 0)), Slot(3));
    }
}
