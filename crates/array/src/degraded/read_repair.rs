//! Read repair: content of blocks that a drive cannot read is relocated to the drive's metadata log (RAIZN,
//! section 4.3.2), so that the next read finds the content.
//!
//! Order of the steps, each durable before the next:
//!
//! 1. The content is kept in memory and written to the log.
//! 2. The rows are marked as stale in memory and in the log.
//!
//! A log roll between the steps copies the memory to a checkpoint, not durable yet. The rows must not be
//! stale then, because a crash could lose their content. A crash between the steps leaves the rows as they
//! were. An array repairs one place at a time.

use std::ops::Range;
use std::sync::Arc;

use units::sync::Turnstile;
use zoned::{Blocks, Buf, Durability, Result, ZoneId};

use crate::context::Context;
use crate::events::EventKind;
use crate::format::record::Body;
use crate::format::superblock::FEATURE_RELOCATION;
use crate::layout::stored_maps::PlacedBy;
use crate::layout::{Parity, Piece, Slot, Stripe};
use crate::member::Member;
use crate::membership::Membership;
use crate::metrics::add;
use crate::zone::stale_rows::RelocatedParity;
use crate::zone::zone_table::ZoneTable;

/// The most relocated bytes of one drive, over all zones.
const MAX_RELOCATED_BYTES: u64 = 16 << 20;
/// Relocated blocks of a drive take no more than one in this many blocks of a metadata zone.
const MAX_LOG_SHARE: u64 = 4;

/// Blocks of the log of a member that relocated content may take.
pub(crate) fn max_relocated(ctx: &Context, member: &Member) -> u64 {
    let capacity = member.log.lock().capacity;
    (capacity / MAX_LOG_SHARE).min(MAX_RELOCATED_BYTES / u64::from(ctx.geometry.block_size))
}

/// Read repair of an array in use.
pub(crate) struct ReadRepair {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    /// The lock that is held while one place of the array is repaired.
    pub turn: Turnstile,
}

impl ReadRepair {
    /// Relocates the content of blocks that their drive cannot read. False if the zone was reset meanwhile, or the log has
    /// no room for more relocated content.
    pub(crate) async fn relocate(
        &self,
        id: ZoneId,
        generation: u64,
        piece: Piece,
        data: Buf,
    ) -> Result<bool> {
        let _turn = self.turn.acquire().await;
        let row = self.ctx.layout.row(piece.stripe) + piece.row;
        let rows = row..row + piece.len;
        let slot = self.ctx.places.slot(id, piece.role);
        let Some(slot) = slot.filter(|slot| self.has_room(*slot)) else { return Ok(false) };
        let (start, end) = (piece.offset, piece.offset.plus(Blocks(piece.len)));
        {
            let mut zone = self.zones.zone(id);
            let below = end <= zone.acknowledged().min(zone.readable());
            if zone.generation != generation || zone.resetting || !below {
                return Ok(false);
            }
            zone.stale.put(&self.ctx.layout, self.ctx.bytes(1), piece.role, row, &data);
        }
        let placed_by = self.ctx.places.placed_by(id, piece.role);
        let content = Body::RelocatedData { zone: id, generation, placed_by, start, end, data };
        self.record_on(slot, &content).await?;
        let stale = {
            let mut zone = self.zones.zone(id);
            if zone.generation != generation || zone.resetting || !self.members.member(slot).is_good() {
                return Ok(false);
            }
            zone.stale.add(piece.role, rows.clone());
            zone.stale.of(piece.role)
        };
        let stale = Body::StaleRows { zone: id, generation, placed_by, rows: stale, rewritten: false };
        self.record_on(slot, &stale).await?;
        self.forget_bad_rows((id, placed_by), generation, slot, &rows).await?;
        add(&self.ctx.metrics.relocations, 1);
        Ok(true)
    }

    /// Relocates a parity of a whole stripe that its drive cannot read, or that does not match the data.
    pub(crate) async fn relocate_parity(
        &self,
        id: ZoneId,
        generation: u64,
        (stripe, parity): (Stripe, Parity),
        unit: Buf,
    ) -> Result<bool> {
        let _turn = self.turn.acquire().await;
        let layout = &self.ctx.layout;
        let slot = self.ctx.places.slot(id, layout.parity(stripe, parity));
        let Some(slot) = slot.filter(|slot| self.has_room(*slot)) else { return Ok(false) };
        let (start, end) = (layout.start(stripe), layout.end(stripe));
        {
            let mut zone = self.zones.zone(id);
            let below = end <= zone.acknowledged().min(zone.readable());
            if zone.generation != generation || zone.resetting || !below {
                return Ok(false);
            }
            zone.relocated.insert((stripe, parity), RelocatedParity { end, unit: unit.clone() });
        }
        let placed_by = self.ctx.places.placed_by(id, layout.parity(stripe, parity));
        let record = Body::RelocatedParity { parity, zone: id, generation, placed_by, start, end, unit };
        self.record_on(slot, &record).await?;
        let row = layout.row(stripe);
        let rows = row..row + layout.unit_of(stripe);
        self.forget_bad_rows((id, placed_by), generation, slot, &rows).await?;
        add(&self.ctx.metrics.relocations, 1);
        Ok(true)
    }

    /// Removes rows from the drive's bad rows: the log holds their content now.
    async fn forget_bad_rows(
        &self,
        (id, placed_by): (ZoneId, PlacedBy),
        generation: u64,
        slot: Slot,
        rows: &Range<u64>,
    ) -> Result<()> {
        let bad = &self.members.member(slot).bad_rows;
        if !bad.remove(id, rows) {
            return Ok(());
        }
        self.record_on(slot, &Body::BadRows { zone: id, generation, placed_by, rows: bad.of(id) }).await
    }

    /// Writes a record to the log of a drive, durable.
    async fn record_on(&self, slot: Slot, body: &Body) -> Result<()> {
        match self.members.append_rolling(slot, body, Durability::Durable).await? {
            Some(io) => io.await,
            None => Ok(()),
        }
    }

    /// True if the log of a drive has room for more relocated content. Every checkpoint contains all relocated content.
    fn has_room(&self, slot: Slot) -> bool {
        let relocates = self.members.config.lock().incompat & FEATURE_RELOCATION != 0;
        let taken = |id: ZoneId| {
            let role = self.ctx.places.role(id, slot);
            role.map_or(0, |role| self.zones.zone(id).relocated_cost(&self.ctx.layout, role))
        };
        let more = 2 * (self.ctx.layout.unit + 1) + 1;
        let member = self.members.member(slot);
        relocates
            && member.is_good()
            && self.zones.ids().map(taken).sum::<u64>() + more <= max_relocated(&self.ctx, member)
    }

    /// Relocates content that a client's read reconstructed. The client does not wait.
    pub(crate) fn relocate_later(self: &Arc<Self>, id: ZoneId, generation: u64, piece: Piece, data: Buf) {
        let this = Arc::clone(self);
        self.ctx.spawn(async move {
            let relocated = this.relocate(id, generation, piece, data).await;
            if let Err(error) = &relocated {
                tracing::warn!(zone = id.0, block = piece.offset.0, %error, "the content of a repaired read is not relocated");
            }
            this.ctx.publish(EventKind::Repaired {
                slot: this.ctx.places.slot(id, piece.role).unwrap_or_default(),
                zone: id,
                block: piece.offset,
                blocks: piece.len,
                relocated: relocated.unwrap_or(false),
            });
        });
    }
}
