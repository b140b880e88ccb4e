//! The chain: the metadata zones of one epoch, written one after the other.
//!
//! ```text
//!   zone a: header | snapshot ...      zone b: header | ... snapshot | end | commit | commit ...   zone c: ...
//! ```
//! Each commit begins at a block boundary, and no block is written twice.

use std::collections::VecDeque;
use std::sync::Arc;

use units::{Blocks, ZoneId};
use zoned::{Action, Buf, Durability, Geometry, ZonedDevice};

use crate::error::{Error, Result};
use crate::metadata::format::frame::{self, Binding};
use crate::metadata::format::header::Header;
use crate::metadata::format::record::Record;

/// The longest single write to the metadata log, in bytes.
const MAX_WRITE_BYTES: usize = 1 << 20;

/// The metadata zones of one epoch, and the position at which the next record is written.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    header: Header,
    binding: Binding,
    zones: Vec<ZoneId>,
    /// The next block to write in the chain's last zone. At block 0 the zone's header is still to be written.
    at: u64,
    sequence: u64,
    /// Every metadata record below this sequence is known to be durable.
    durable: u64,
}

/// The metadata zones outside the chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareZones {
    /// Metadata zones outside the chain, each with true if the zone must be reset before it is written.
    pub zones: VecDeque<(ZoneId, bool)>,
}

impl SpareZones {
    /// Takes a zone for the metadata chain, and resets the zone where necessary; `None` if no zone is left.
    pub(crate) async fn take(&mut self, dev: &Arc<dyn ZonedDevice>) -> Result<Option<ZoneId>> {
        let Some((zone, dirty)) = self.zones.pop_front() else { return Ok(None) };
        if dirty {
            let reset = dev.zone(zone, Action::Reset).await;
            reset.map_err(|e| Error::device("resetting a metadata zone", e))?;
        }
        Ok(Some(zone))
    }
}

impl Chain {
    /// A new metadata epoch that begins in the empty zone `zone`.
    pub(crate) fn begin(header: Header, zone: ZoneId) -> Chain {
        Chain { header, binding: Binding::of(&header), zones: vec![zone], at: 0, sequence: 0, durable: 0 }
    }

    /// The chain of an epoch found on the device. Its records are durable: a mount flushes the device before
    /// the first commit.
    pub(crate) fn resume(header: Header, zones: Vec<ZoneId>, at: u64, sequence: u64) -> Chain {
        Chain { header, binding: Binding::of(&header), zones, at, sequence, durable: sequence }
    }

    /// The number of the chain's epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.header.epoch
    }

    /// Number of metadata records written in this epoch.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Notes that the device was flushed: every metadata record written before the flush is durable.
    pub(crate) fn flushed(&mut self) {
        self.durable = self.sequence;
    }

    /// The zones in order.
    pub(crate) fn zones(&self) -> &[ZoneId] {
        &self.zones
    }

    /// Number of blocks written in the metadata zone `zone`; `None` for a zone outside the chain.
    pub(crate) fn written(&self, zone: ZoneId, capacity: Blocks) -> Option<Blocks> {
        self.zones.contains(&zone).then(|| if zone == self.last_zone() { Blocks(self.at) } else { capacity })
    }

    /// The metadata zone being written.
    pub(crate) fn last_zone(&self) -> ZoneId {
        *self.zones.last().expect("a chain has a zone")
    }

    /// Blocks left in the metadata zone being written.
    pub(crate) fn blocks_left(&self, dev: &Arc<dyn ZonedDevice>) -> u64 {
        dev.geometry().zone_capacity.0.saturating_sub(self.at)
    }

    /// Blocks written in this metadata epoch, all of which a mount reads.
    pub(crate) fn blocks(&self, dev: &Arc<dyn ZonedDevice>) -> u64 {
        (self.zones.len() as u64 - 1) * dev.geometry().zone_capacity.0 + self.at
    }

    /// Adds the empty zone `zone` to the chain: the next metadata record is written there.
    pub(crate) fn extend(&mut self, zone: ZoneId) {
        self.header.index += 1;
        self.header.first_sequence = self.sequence;
        self.zones.push(zone);
        self.at = 0;
    }

    /// Removes from `records` as many metadata records as fit into the zone and into one write, and writes
    /// them. Returns their number: 0 when the zone is full.
    pub(crate) async fn write(
        &mut self,
        dev: &Arc<dyn ZonedDevice>,
        records: &mut VecDeque<Record>,
        how: Durability,
    ) -> Result<u64> {
        let geometry = dev.geometry();
        let block = geometry.block_size as usize;
        let blocks =
            self.blocks_left(dev).min(geometry.max_transfer.0).min((MAX_WRITE_BYTES / block).max(1) as u64);
        let limit = usize::try_from(blocks).unwrap_or(usize::MAX) * block;
        let mut bytes = Vec::new();
        if self.at == 0 {
            bytes.extend_from_slice(&self.header.encode());
            bytes.resize(block, 0);
        }
        let (mut taken, mut sequence, mut payload) = (0, self.sequence, Vec::new());
        for record in records.iter() {
            payload.clear();
            record.encode(&mut payload);
            if bytes.len() + frame::length(payload.len()) > limit {
                break;
            }
            frame::encode(&mut bytes, &self.binding, record.kind(), (sequence, self.durable), &payload);
            sequence += 1;
            taken += 1;
        }
        if taken == 0 {
            return Ok(0);
        }
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        let at = geometry.start(self.last_zone()).plus(Blocks(self.at));
        let written = (bytes.len() / block) as u64;
        let result = dev.write(at, Buf::copy_from(&bytes), how).await;
        result.map_err(|e| Error::device("writing metadata", e))?;
        records.drain(..taken);
        self.at += written;
        // The durability of a metadata write proves only its own records, because writes to a chain do not
        // overlap. Earlier records count if they were known to be durable before.
        if how == Durability::Durable && self.durable == self.sequence {
            self.durable = sequence;
        }
        self.sequence = sequence;
        Ok(taken as u64)
    }
}

/// Number of zones that a metadata snapshot of `bytes` bytes takes, a margin included, and one more for the
/// commits during the roll.
pub(crate) fn zones_for_snapshot(geometry: &Geometry, bytes: u64) -> u64 {
    let zone = (geometry.zone_capacity.0.saturating_sub(1) * u64::from(geometry.block_size)).max(1);
    (bytes + bytes / 4).div_ceil(zone).max(1) + 1
}
