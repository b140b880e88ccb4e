//! Reading a member's metadata zones back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use uuid::Uuid;
use zoned::{Blocks, Buf, BufMut, Error, ErrorKind, Lba, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice};

use crate::degraded::failure::fails_the_drive;
use crate::format::record::{self, Body, Record};
use crate::format::shape::{HIGHEST, Shape};
use crate::format::superblock::Superblock;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::{Layout, Slot, Stripe};
use crate::member::METADATA_ZONES;
use crate::zone::Relocated;

/// Bytes read at a time.
const CHUNK: u64 = 4 << 20;
/// Blocks that hold the first record of a zone, a superblock, however small they are.
const FIRST: u64 = 8;

/// What a drive says it is.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub superblock: Superblock,
    pub slot: Slot,
}

/// Partial parity that was logged.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    pub start: Blocks,
    pub end: Blocks,
    pub rows: Buf,
}

/// Hidden rows of a physical zone.
#[derive(Clone, Debug)]
pub(crate) struct HiddenRows {
    pub generation: u64,
    sequence: u64,
    pub ranges: Vec<Range<u64>>,
    rebuilt: bool,
}

/// A copy of a physical zone in a metadata zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapCopy {
    pub generation: u64,
    sequence: u64,
    pub rows: u64,
    pub swap: ZoneId,
    pub mask: u64,
}

/// What the records of one epoch on one member say.
#[derive(Default, Debug)]
pub(crate) struct Told {
    /// The checkpoint that begins the epoch is whole.
    pub complete: bool,
    /// The newest superblock among its records.
    pub config: u64,
    pub entries: BTreeMap<ZoneId, ZoneEntry>,
    pub intents: BTreeSet<(ZoneId, u64)>,
    /// By zone, with the generation that they are of: stripes.
    pub partials: BTreeMap<ZoneId, (u64, BTreeMap<Stripe, Vec<Partial>>)>,
    /// The highest stripe of each zone whose partial parity was not kept.
    pub dropped: BTreeMap<ZoneId, Stripe>,
    pub relocated: BTreeMap<(ZoneId, Stripe), (u64, u64, Relocated)>,
    /// What a new drive that was not filled to the end has, with the record's sequence.
    pub rebuilt: BTreeMap<ZoneId, (u64, ZoneEntry)>,
    /// Data that does not lie in its place, by row of the drive's physical zone, with the zone's generation.
    pub data: BTreeMap<ZoneId, (u64, BTreeMap<u64, Buf>)>,
    /// The newest word on hidden rows, by zone.
    pub hidden: BTreeMap<ZoneId, HiddenRows>,
    /// The newest copy of a physical zone, by zone.
    pub swaps: BTreeMap<ZoneId, SwapCopy>,
    /// The newest word on lost rows, by zone: generation, sequence, rows.
    pub lost: BTreeMap<ZoneId, (u64, u64, Vec<Range<u64>>)>,
    /// Metadata zones that hold records of the epoch.
    pub zones: BTreeSet<ZoneId>,
}

/// Everything that a member's metadata zones say.
#[derive(Default, Debug)]
pub(crate) struct Tale {
    pub epochs: BTreeMap<u64, Told>,
    pub newest: Option<Superblock>,
    pub sequence: u64,
    /// Records with a right checksum that say what cannot be: passed over.
    pub unsound: u64,
    /// Blocks of each metadata zone that the drive cannot read: what they said is not known.
    unreadable: BTreeMap<ZoneId, u64>,
}

/// Which partial parity a mount needs.
#[derive(Debug)]
pub(crate) struct Needed {
    /// Stripes below the highest of a zone that may have been in flight.
    pub doubt: u64,
    /// Rows of each zone that all drives have written, of those that tell.
    pub lowest: Vec<u64>,
}

impl Needed {
    /// The first stripe of a zone whose records count, when the highest with a record is `highest`. What was flushed
    /// is below the highest by any distance: a drive may have lost all that lay in its cache.
    fn first(&self, layout: &Layout, zone: ZoneId, highest: Stripe) -> Stripe {
        let lowest = self.lowest.get(zone.index()).map_or(0, |row| row / layout.unit.max(1));
        Stripe(highest.0.saturating_sub(self.doubt).min(lowest.saturating_sub(1)))
    }
}

/// The drives that are members of an array, with what they say of it. One that does not answer is left out, with a
/// warning: the array may do without it.
pub(crate) async fn claims(devices: Vec<Arc<dyn ZonedDevice>>) -> Result<Vec<(Arc<dyn ZonedDevice>, Claim)>> {
    let mut claims = Vec::new();
    for device in devices {
        match claim(&device).await {
            Ok(Some(claim)) => claims.push((device, claim)),
            Ok(None) => {}
            Err(error) if fails_the_drive(error.kind()) => {
                tracing::warn!(?device, %error, "the drive does not answer: left out");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(claims)
}

/// The newest superblock on a drive, and which member it says the drive is; `None` for a drive that is no member of
/// an array, or whose superblock cannot be read.
pub(crate) async fn claim(device: &Arc<dyn ZonedDevice>) -> Result<Option<Claim>> {
    let mut newest: Option<Claim> = None;
    let mut unreadable = 0;
    for info in device.report(0..METADATA_ZONES).await? {
        let count = info.pointer.0.min(FIRST);
        if count == 0 || info.state == ZoneState::Offline || info.state == ZoneState::Conventional {
            continue;
        }
        let block = device.geometry().block_size;
        let (bytes, bad) = read_around(device, device.geometry().start(info.zone), count).await?;
        unreadable += bad;
        let found = record::decode(&bytes.freeze(), block).map_err(|why| foreign(device, why))?;
        if let Some((Record { place, body: Body::Superblock(superblock) }, _)) = found
            && newest.as_ref().is_none_or(|claim| claim.superblock.config <= superblock.config)
        {
            newest = Some(Claim { superblock, slot: place.member });
        }
    }
    if newest.is_none() && unreadable > 0 {
        tracing::warn!(?device, unreadable, "whether it is a member of an array cannot be read: left out");
    }
    Ok(newest)
}

/// Reads blocks; those that the drive cannot read are zeros, and counted.
async fn read_around(device: &Arc<dyn ZonedDevice>, at: Lba, count: u64) -> Result<(BufMut, u64)> {
    let size = device.geometry().block_size as usize;
    match device.read(at, BufMut::zeroed(count as usize * size)).await {
        Ok(data) => return Ok((data, 0)),
        Err(e) if e.kind() != ErrorKind::Media => return Err(e),
        Err(_) => {}
    }
    let (mut data, mut unreadable) = (BufMut::with_capacity(count as usize * size), 0);
    for n in 0..count {
        match device.read(at.plus(Blocks(n)), BufMut::zeroed(size)).await {
            Ok(block) => data.extend_from_slice(&block),
            Err(e) if e.kind() != ErrorKind::Media => return Err(e),
            Err(_) => {
                data.resize(data.len() + size, 0);
                unreadable += 1;
            }
        }
    }
    Ok((data, unreadable))
}

/// The newest superblock in a member's log, the records behind the zones' beginnings included: that a drive failed
/// stands there. Reads the whole log.
pub(crate) async fn newest(device: &Arc<dyn ZonedDevice>, claim: &Claim) -> Result<Superblock> {
    let unit = u64::from(claim.superblock.unit);
    let mut newest = claim.superblock.clone();
    for info in device.report(0..METADATA_ZONES).await? {
        each_record(device, unit, &info, &mut |_, _, record| {
            if let Body::Superblock(superblock) = record.body
                && superblock.uuid == newest.uuid
                && superblock.config > newest.config
            {
                newest = superblock;
            }
        })
        .await?;
    }
    Ok(newest)
}

fn foreign(device: &Arc<dyn ZonedDevice>, why: String) -> Error {
    Error::new(ErrorKind::Unsupported, &device.geometry().name, "read the superblock").because(why)
}

/// Reads all metadata zones of a member of an array of this shape.
///
/// Errors: [`ErrorKind::Damaged`] where its records are counted beyond [`HIGHEST`], besides those of the drive.
pub(crate) async fn read(
    device: &Arc<dyn ZonedDevice>,
    shape: &Shape,
    array: Uuid,
    slot: Slot,
    needed: &Needed,
) -> Result<(Tale, Vec<ZoneInfo>)> {
    let mut tale = Tale::default();
    let zones = device.report(0..METADATA_ZONES).await?;
    for info in &zones {
        let unreadable = each_record(device, shape.layout.unit, info, &mut |_, _, record| {
            if record.place.array == array && record.place.member == slot {
                tale.hear(shape, info.zone, needed, record);
            }
        })
        .await?;
        if unreadable > 0 {
            tale.unreadable.insert(info.zone, unreadable);
        }
    }
    let epoch = tale.epochs.last_key_value().map_or(0, |(epoch, _)| *epoch);
    if epoch.max(tale.sequence) > HIGHEST {
        let error = Error::new(ErrorKind::Damaged, &device.geometry().name, "read the metadata log");
        return Err(error.because(format!(
            "its records have epochs up to {epoch} and numbers up to {}: no array counts that far. Leave the drive out, and \
             replace it",
            tale.sequence
        )));
    }
    if tale.unsound > 0 {
        let records = tale.unsound;
        tracing::error!(?device, records, "records that say what cannot be are passed over");
    }
    tale.epochs.values_mut().for_each(Told::settle);
    Ok((tale, zones))
}

/// Reads all records of a metadata zone of an array whose stripe unit is `unit`: the first block of each, its blocks,
/// and what it says. Gives the number of blocks that the drive cannot read: what lies there is passed over.
pub(crate) async fn each_record(
    device: &Arc<dyn ZonedDevice>,
    unit: u64,
    info: &ZoneInfo,
    hear: &mut (dyn FnMut(u64, u64, Record) + Send),
) -> Result<u64> {
    let geometry = device.geometry();
    let size = u64::from(geometry.block_size);
    if info.state == ZoneState::Offline {
        return Ok(0);
    }
    // The longest record: a unit and a header.
    let longest = unit + 1 + FIRST;
    let chunk = (CHUNK / size).min(geometry.max_transfer.0).max(1);
    let mut held = BufMut::with_capacity(0);
    let (mut from, mut read, mut unreadable) = (0, 0, 0);
    while from < info.pointer.0 {
        // `held` is the blocks `from..read`.
        while read < info.pointer.0 && read - from < longest {
            let count = chunk.min(info.pointer.0 - read);
            let at = Lba(geometry.start(info.zone).0 + read);
            let (more, bad) = read_around(device, at, count).await?;
            unreadable += bad;
            held.extend_from_slice(&more);
            read += count;
        }
        let bytes = std::mem::take(&mut held).freeze();
        let mut at = 0;
        while at < bytes.len() && (read == info.pointer.0 || bytes.len() - at >= (longest * size) as usize) {
            let found = record::decode(&bytes.slice(at..), geometry.block_size);
            let step = match found.map_err(|why| foreign(device, why))? {
                Some((record, blocks)) => {
                    hear(from + at as u64 / size, blocks, record);
                    blocks
                }
                None => 1,
            };
            at += (step * size) as usize;
        }
        let at = at.min(bytes.len());
        from += at as u64 / size;
        held.extend_from_slice(&bytes.slice(at..));
    }
    Ok(unreadable)
}

impl Tale {
    /// The newest epoch that is whole.
    pub(crate) fn complete(&self) -> Option<u64> {
        self.epochs.iter().rev().find(|(_, told)| told.complete).map(|(epoch, _)| *epoch)
    }

    /// Blocks that the drive cannot read and that may be of `epoch` or a later one. A metadata zone holds records of one
    /// epoch only, so that any that can be read tells of which all are; a copy of a physical zone has none.
    pub(crate) fn unreadable_from(&self, epoch: u64) -> u64 {
        let of = |zone: &ZoneId| self.epochs.iter().rev().find(|(_, told)| told.zones.contains(zone));
        let counts = |zone: &ZoneId| of(zone).is_none_or(|(of, _)| *of >= epoch);
        self.unreadable.iter().filter(|(zone, _)| counts(zone)).map(|(_, blocks)| blocks).sum()
    }

    /// Blocks that the drive cannot read and that may count.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable_from(self.complete().unwrap_or(0))
    }

    /// What a new drive is said to hold is not believed: which later word of it there was cannot be read.
    pub(crate) fn forget_notes(&mut self) {
        self.epochs.values_mut().for_each(|told| told.rebuilt.clear());
    }

    /// Takes a record in. Partial parity that no mount needs is not kept.
    fn hear(&mut self, shape: &Shape, from: ZoneId, needed: &Needed, record: Record) {
        let layout = &shape.layout;
        self.sequence = self.sequence.max(record.place.sequence);
        let told = self.epochs.entry(record.place.epoch).or_default();
        told.zones.insert(from);
        if !shape.allows(from, &record.place, &record.body) {
            self.unsound += 1;
            return;
        }
        match record.body {
            Body::Superblock(superblock) => {
                told.config = told.config.max(superblock.config);
                if self.newest.as_ref().is_none_or(|newest| newest.config <= superblock.config) {
                    self.newest = Some(superblock);
                }
            }
            Body::Zones { first, entries } => {
                for (id, entry) in (first.0..shape.zones).zip(entries) {
                    told.entries.entry(ZoneId(id)).or_default().learn(entry);
                }
            }
            Body::ResetIntent { zone, generation } => {
                told.intents.insert((zone, generation));
            }
            Body::PartialParity { zone, generation, start, end, rows } => {
                let (newest, stripes) = told.partials.entry(zone).or_default();
                if *newest < generation {
                    (*newest, *stripes) = (generation, BTreeMap::new());
                }
                if *newest != generation {
                    return;
                }
                let stripe = layout.stripe_of(start);
                // A copy: the record's buffer is a part of a large one.
                let rows = Buf::copy_from(&rows);
                stripes.entry(stripe).or_default().push(Partial { start, end, rows });
                let highest = stripes.last_key_value().map_or(stripe, |(stripe, _)| *stripe);
                let kept = stripes.split_off(&needed.first(layout, zone, highest));
                if let Some((stripe, _)) = std::mem::replace(stripes, kept).last_key_value() {
                    let dropped = told.dropped.entry(zone).or_default();
                    *dropped = (*dropped).max(*stripe);
                }
            }
            Body::Relocated { zone, generation, start, end, unit } => {
                let unit = Relocated { end, unit: Buf::copy_from(&unit) };
                let key = (zone, layout.stripe_of(start));
                let newer = (generation, record.place.sequence);
                let known =
                    told.relocated.get(&key).map(|(generation, sequence, _)| (*generation, *sequence));
                if known.is_none_or(|known| known <= newer) {
                    told.relocated.insert(key, (newer.0, newer.1, unit));
                }
            }
            Body::Rebuilt { first, entries } => {
                for (id, entry) in (first.0..shape.zones).zip(entries) {
                    told.rebuilt.insert(ZoneId(id), (record.place.sequence, entry));
                }
            }
            Body::CheckpointEnd => told.complete = true,
            Body::RelocatedData { zone, generation, start, data, .. } => {
                let piece = layout.locate(zone, start);
                let known = told.data.entry(zone).or_default();
                if known.0 < generation {
                    *known = (generation, BTreeMap::new());
                }
                if known.0 == generation {
                    let row = layout.row(piece.stripe) + piece.row;
                    // The same row may be in a longer run, of a checkpoint.
                    let longer = known.1.get(&row).is_some_and(|other| other.len() >= data.len());
                    if !longer {
                        known.1.insert(row, Buf::copy_from(&data));
                    }
                }
            }
            Body::Hidden { zone, generation, ranges, rebuilt } => {
                let sequence = record.place.sequence;
                let newer = (generation, sequence);
                let known = told.hidden.get(&zone).map(|known| (known.generation, known.sequence));
                if known.is_none_or(|known| known <= newer) {
                    told.hidden.insert(zone, HiddenRows { generation, sequence, ranges, rebuilt });
                }
            }
            Body::Lost { zone, generation, ranges } => {
                let newer = (generation, record.place.sequence);
                if told.lost.get(&zone).is_none_or(|(of, at, _)| (*of, *at) <= newer) {
                    told.lost.insert(zone, (newer.0, newer.1, ranges));
                }
            }
            Body::Swap { zone, generation, rows, swap, mask } => {
                let sequence = record.place.sequence;
                let known = told.swaps.get(&zone).map(|known| known.sequence);
                if known.is_none_or(|known| known <= sequence) {
                    told.swaps.insert(zone, SwapCopy { generation, sequence, rows, swap, mask });
                }
            }
        }
    }
}

impl Told {
    /// Whether a metadata zone holds what counts in this epoch: records, or the copy of a physical zone.
    pub(crate) fn counts(&self, zone: ZoneId) -> bool {
        self.zones.contains(&zone) || self.swaps.values().any(|copy| copy.swap == zone)
    }

    /// A zone was rebuilt: what was relocated before lies in its place, and the copy is not needed any more.
    fn settle(&mut self) {
        for (zone, hidden) in self.hidden.iter().filter(|(_, hidden)| hidden.rebuilt) {
            self.relocated.retain(|(of, _), (generation, sequence, _)| {
                of != zone || *generation != hidden.generation || *sequence > hidden.sequence
            });
        }
        let hidden = &self.hidden;
        self.swaps.retain(|zone, copy| {
            let after = |rows: &HiddenRows| rows.rebuilt && rows.sequence > copy.sequence;
            !hidden.get(zone).is_some_and(after)
        });
    }

    /// The zone was written anew from its copy.
    pub(crate) fn rebuilt(&mut self, zone: ZoneId, copy: SwapCopy) {
        let (generation, sequence) = (copy.generation, copy.sequence + 1);
        self.hidden.insert(zone, HiddenRows { generation, sequence, ranges: Vec::new(), rebuilt: true });
        self.settle();
    }
}
