//! The replay: reads the metadata log at a mount.
//!
//! The highest epoch with a complete snapshot counts; an epoch with a torn or incomplete snapshot is skipped. Records are
//! replayed up to the first block that does not hold the next record: a torn tail ends the log, and the mount succeeds.
//!
//! A power cut tears only records that were never acknowledged. Each record says how many records before it
//! were durable when it was submitted. A record behind the end of the log may therefore prove that durable
//! records are gone: the medium is damaged, and the mount fails. The mount also fails where a metadata zone
//! cannot be read. The loss of the very last commit leaves no proof.

use std::collections::BTreeMap;
use std::sync::Arc;

use units::{Blocks, ZoneId};
use zoned::{ZoneInfo, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::files::stat::Superblock;
use crate::metadata::chain::{Chain, SpareZones};
use crate::metadata::format::frame::{self, Binding, MAX_FRAME};
use crate::metadata::format::header::{self, Header};
use crate::metadata::format::record::Record;
use crate::metadata::mkfs::read_blocks;
use crate::metadata::state::State;
use crate::zones::table::ZoneTable;

/// Bytes of a replay's device reads.
const READ_BYTES: u64 = 1 << 20;

/// The result of a metadata replay: the state that the log describes, and the end of the log.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub state: State,
    pub chain: Chain,
    pub spare: SpareZones,
    pub max_epoch: u64,
    /// True if blocks behind the log's last record are written.
    pub torn: bool,
    pub records: u64,
}

/// The metadata zones of one epoch, in chain order.
struct Epoch {
    header: Header,
    zones: Vec<ZoneId>,
}

/// A replay's callback for the epoch and each record replayed.
pub(crate) type VisitRecord<'a> = &'a mut (dyn FnMut(u64, &Record) + Send);

/// Reads the metadata log.
pub(crate) async fn replay(
    dev: &Arc<dyn ZonedDevice>,
    sb: &Superblock,
    report: &[ZoneInfo],
    visit: VisitRecord<'_>,
) -> Result<Replayed> {
    let files_from = sb.metadata_first.0 + sb.metadata_zones;
    let pointer = |zone: ZoneId| report.get(zone.index()).map_or(0, |z| z.pointer.0);
    let (epochs, max_epoch) = find_epochs(dev, sb, &pointer).await?;
    let mut torn_epochs = Vec::new();
    for epoch in &epochs {
        let table = ZoneTable::new(dev.geometry(), report, files_from);
        let mut state = State::new(u64::from(sb.block_size), table);
        let (end, complete) = read_epoch(dev, epoch, &pointer, &mut state, visit).await?;
        check_durable_records_behind(dev, sb, epoch, &pointer, &end).await?;
        if !complete {
            torn_epochs.push(epoch.header.epoch);
            continue;
        }
        if !torn_epochs.is_empty() {
            tracing::warn!(
                ?torn_epochs,
                epoch = epoch.header.epoch,
                "a metadata roll was cut short; going on before it"
            );
        }
        let zones = epoch.zones.get(..end.zones).unwrap_or_default().to_vec();
        let last = *zones.last().expect("an epoch that was read has a zone");
        // A zone of the epoch without a record makes the tail count as torn: the next commit must not begin a
        // second zone with the same index in the chain, or a later mount could not choose between the two.
        let torn = !end.clean || pointer(last) > end.block || epoch.zones.len() > end.zones;
        let header = Header { index: u32::try_from(end.zones - 1).unwrap_or(0), ..epoch.header };
        let chain = Chain::resume(header, zones, pointer(last), end.sequence);
        let all = (sb.metadata_first.0..files_from).map(ZoneId);
        let spare = all.filter(|z| !chain.zones().contains(z)).map(|z| (z, pointer(z) > 0)).collect();
        return Ok(Replayed {
            state,
            chain,
            spare: SpareZones { zones: spare },
            max_epoch,
            torn,
            records: end.sequence,
        });
    }
    Err(Error::new(ErrorKind::Corrupt, "reading the metadata log")
        .at_path(&*dev.geometry().name)
        .because("no metadata zone holds a complete snapshot; restore the device from a backup"))
}

async fn find_epochs(
    dev: &Arc<dyn ZonedDevice>,
    sb: &Superblock,
    pointer: &(dyn Fn(ZoneId) -> u64 + Sync),
) -> Result<(Vec<Epoch>, u64)> {
    let mut found: BTreeMap<(u64, u64), BTreeMap<u32, (Header, ZoneId)>> = BTreeMap::new();
    for zone in (sb.metadata_first.0..sb.metadata_first.0 + sb.metadata_zones).map(ZoneId) {
        if pointer(zone) == 0 {
            continue;
        }
        let Some(header) = read_zone_header(dev, zone).await? else { continue };
        if header.uuid == sb.uuid {
            found.entry((header.epoch, header.nonce)).or_default().insert(header.index, (header, zone));
        }
    }
    let max_epoch = found.keys().map(|(epoch, _)| *epoch).max().unwrap_or(0);
    let mut epochs = Vec::new();
    for zones in found.into_values().rev() {
        let Some(&(header, _)) = zones.get(&0) else { continue };
        let chain = (0..).map_while(|index| zones.get(&index)).map(|(_, zone)| *zone).collect();
        epochs.push(Epoch { header, zones: chain });
    }
    Ok((epochs, max_epoch))
}

async fn read_zone_header(dev: &Arc<dyn ZonedDevice>, zone: ZoneId) -> Result<Option<Header>> {
    let block = read_blocks(dev, zone, Blocks::ZERO, 1).await;
    let block = block.map_err(|e| Error::device("reading the metadata log", e))?;
    Ok(block.get(..header::SIZE).and_then(Header::decode))
}

/// Fails if a metadata record of the epoch behind its `end` proves that more records were durable.
async fn check_durable_records_behind(
    dev: &Arc<dyn ZonedDevice>,
    sb: &Superblock,
    epoch: &Epoch,
    pointer: &(dyn Fn(ZoneId) -> u64 + Sync),
    end: &End,
) -> Result<()> {
    let binding = Binding::of(&epoch.header);
    let (read, last) = epoch.zones.split_at(end.zones.saturating_sub(1).min(epoch.zones.len()));
    let last = last.first().copied();
    for zone in (sb.metadata_first.0..sb.metadata_first.0 + sb.metadata_zones).map(ZoneId) {
        // The earlier zones of the metadata chain were read to their ends.
        if pointer(zone) == 0 || read.contains(&zone) {
            continue;
        }
        let from = if last == Some(zone) { end.begun } else { 0 };
        // A metadata zone whose header is damaged may belong to any epoch.
        let other =
            |h: &Header| h.uuid == sb.uuid && (h.epoch, h.nonce) != (epoch.header.epoch, epoch.header.nonce);
        if from == 0 && read_zone_header(dev, zone).await?.as_ref().is_some_and(other) {
            continue;
        }
        let mut reader = ZoneReader::new(dev, zone, pointer(zone));
        reader.base = from.max(1);
        while let Some(bytes) = reader.next_block().await? {
            if let Some(proven) = frame::proven(bytes, &binding).filter(|proven| *proven > end.sequence) {
                let (broken, block) = last.map_or((zone, 0), |last| (last, end.block));
                return Err(Error::new(ErrorKind::Corrupt, "reading the metadata log")
                    .at_path(&*dev.geometry().name)
                    .in_zone(broken)
                    .because(format!(
                        "record {} of epoch {} at block {block} of zone {broken} is damaged or gone, and zone {zone} \
                         shows that {proven} were durable: the medium lost them; nothing was changed, copy the device \
                         or restore it from a backup",
                        end.sequence, epoch.header.epoch
                    )));
            }
        }
    }
    Ok(())
}

/// Where a metadata epoch's last good record ends.
struct End {
    /// Number of metadata zones that hold records.
    zones: usize,
    /// The block behind the epoch's last record, in the last zone that holds records.
    block: u64,
    /// The first block of the epoch's last zone that holds more than records.
    begun: u64,
    sequence: u64,
    /// True if only padding follows the epoch's last record in its block.
    clean: bool,
}

/// Replays a metadata epoch into `state`. Returns the epoch's end, and whether its snapshot is complete.
async fn read_epoch(
    dev: &Arc<dyn ZonedDevice>,
    epoch: &Epoch,
    pointer: &(dyn Fn(ZoneId) -> u64 + Sync),
    state: &mut State,
    visit: VisitRecord<'_>,
) -> Result<(End, bool)> {
    let mut complete = false;
    let mut end = End { zones: 0, block: 0, begun: 0, sequence: 0, clean: true };
    let binding = Binding::of(&epoch.header);
    for (index, &zone) in epoch.zones.iter().enumerate() {
        let mut reader = ZoneReader::new(dev, zone, pointer(zone));
        let before = end.sequence;
        while let Some(record) = reader.next(&binding, end.sequence).await? {
            let record = record.ok_or_else(|| unknown_record_error(zone, end.sequence))?;
            if let Record::End { count } = record {
                complete |= count == end.sequence;
            }
            match state.apply(&record) {
                // A record that does not apply to the state is damage, except in an incomplete snapshot.
                Err(_) if !complete => return Ok((end, false)),
                applied => applied?,
            }
            visit(epoch.header.epoch, &record);
            end.sequence += 1;
        }
        // A metadata zone without a valid record ends the epoch: no record of the zone's first commit was
        // acknowledged.
        if end.sequence == before && index > 0 {
            break;
        }
        end.zones = index + 1;
        end.block = reader.block();
        end.begun = reader.begun();
        end.clean = reader.is_clean();
    }
    Ok((end, complete))
}

fn unknown_record_error(zone: ZoneId, sequence: u64) -> Error {
    Error::new(ErrorKind::Version, "reading the metadata log")
        .in_zone(zone)
        .because(format!("record {sequence} is of a kind that this build does not know: use a newer build"))
}

/// Reads the records of a metadata zone through a window of its blocks in memory.
struct ZoneReader<'a> {
    dev: &'a Arc<dyn ZonedDevice>,
    zone: ZoneId,
    /// Blocks written.
    pointer: u64,
    /// Blocks of the zone before the window.
    base: u64,
    window: Vec<u8>,
    at: usize,
    block: usize,
}

impl<'a> ZoneReader<'a> {
    fn new(dev: &'a Arc<dyn ZonedDevice>, zone: ZoneId, pointer: u64) -> ZoneReader<'a> {
        let block = dev.geometry().block_size as usize;
        // The window begins behind block 0, which holds the zone's header and was read before.
        ZoneReader { dev, zone, pointer, base: 1, window: Vec::new(), at: 0, block }
    }

    /// The block of the zone behind the last record.
    fn block(&self) -> u64 {
        self.base + self.at.div_ceil(self.block) as u64
    }

    /// The first block of the zone that holds more than records.
    fn begun(&self) -> u64 {
        self.base + (self.at / self.block) as u64
    }

    /// The zone's bytes from the next block on, at least as many as a frame may have.
    async fn next_block(&mut self) -> Result<Option<&[u8]>> {
        self.fill().await?;
        let at = self.at;
        self.at += self.block;
        Ok(self.window.get(at..).filter(|bytes| !bytes.is_empty()))
    }

    /// True if only padding follows the last record in its block. Otherwise a torn record may begin in the
    /// block.
    fn is_clean(&self) -> bool {
        let rest = self.window.get(self.at..).unwrap_or_default();
        rest.iter().take(self.at.next_multiple_of(self.block) - self.at).all(|b| *b == 0)
    }

    /// The zone's next record; `Some(None)` where its kind is not known, `None` at the end of the log.
    async fn next(&mut self, binding: &Binding, sequence: u64) -> Result<Option<Option<Record>>> {
        self.fill().await?;
        let Some((frame, at)) = frame::next(&self.window, self.at, self.block, binding, sequence) else {
            return Ok(None);
        };
        let record = Record::decode(frame.kind, frame.payload);
        self.at = at;
        Ok(Some(record))
    }

    /// Reads the zone until the window holds a whole frame, or all written blocks.
    async fn fill(&mut self) -> Result<()> {
        while self.window.len() < self.at + self.block + MAX_FRAME {
            let done = self.at / self.block;
            self.window.drain(..done * self.block);
            self.at -= done * self.block;
            self.base += done as u64;
            let from = self.base + (self.window.len() / self.block) as u64;
            let geometry = self.dev.geometry();
            let most = (READ_BYTES / self.block as u64).max(1).min(geometry.max_transfer.0);
            let blocks = self.pointer.saturating_sub(from).min(most);
            if blocks == 0 {
                return Ok(());
            }
            match read_blocks(self.dev, self.zone, Blocks(from), blocks).await {
                Ok(data) => self.window.extend_from_slice(&data),
                Err(error) => return Err(Error::device("reading the metadata log", error)),
            }
        }
        Ok(())
    }
}
