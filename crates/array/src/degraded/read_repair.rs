//! Blocks that a drive cannot read any more: answered from the other drives, and recorded as relocated stripe units
//! (section 4.3.2), so that the next read finds them.
//!
//! The content first: in memory and in the log, durable. Only then its rows do not count any more, in memory and in the
//! log: a log that moves meanwhile takes along what memory has, not durable, and must not name rows whose content a crash
//! may take away. A crash between the two leaves the place as it was. One at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Buf, Durability, Error, ErrorKind, Result, ZoneId, ZoneState};

use crate::admin::status::{MANY_ERRORS, WornZone};
use crate::core::Core;
use crate::events::EventKind;
use crate::format::record::Body;
use crate::format::superblock::RELOCATION;
use crate::layout::{Piece, Slot, Stripe};
use crate::metrics::add;
use crate::mount::zone_rewrite;
use crate::zone::Relocated;

impl Core {
    /// A drive could not read: counts it, and says whether that is of its medium, so that its place is to be mended.
    pub(crate) fn misread(&self, id: ZoneId, slot: Slot, rows: Range<u64>, error: &Error) -> bool {
        if self.member(slot).lost.hits(id, &rows) {
            // That is not the drive's fault.
            return true;
        }
        add(&self.tally.read_errors, 1);
        match error.kind() {
            ErrorKind::ZoneOffline => {
                self.worn_out(id, slot, ZoneState::Offline);
                false
            }
            ErrorKind::Media => {
                let errors = self.member(slot).media_errors.fetch_add(1, Ordering::Relaxed) + 1;
                if errors == MANY_ERRORS {
                    tracing::warn!(slot = slot.0, errors, "many errors of the medium: replace the drive");
                    self.tell(EventKind::ManyErrors { slot, errors });
                }
                true
            }
            _ => false,
        }
    }

    /// A physical zone wore out.
    pub(crate) fn worn_out(&self, id: ZoneId, slot: Slot, state: ZoneState) {
        {
            let mut worn = self.worn.lock();
            if worn.iter().any(|known| (known.zone, known.slot) == (id, slot)) {
                return;
            }
            worn.push(WornZone { slot, zone: id, state });
        }
        tracing::warn!(slot = slot.0, zone = id.0, ?state, "a zone wore out");
        self.tell(EventKind::ZoneWorn { slot, zone: id, state });
    }

    /// Records what belongs in blocks that their drive cannot read. Says whether that was done: not where the zone is
    /// another by now, or where the log has no room for more.
    pub(crate) async fn mend(
        self: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        piece: Piece,
        data: Buf,
    ) -> Result<bool> {
        let _turn = self.mending.acquire().await;
        let row = self.layout.row(piece.stripe) + piece.row;
        let rows = row..row + piece.len;
        let slot = piece.slot;
        if !self.may_mend(slot) {
            return Ok(false);
        }
        let (start, end) = (piece.offset, piece.offset.plus(zoned::Blocks(piece.len)));
        {
            let mut zone = self.zone(id);
            let below = end <= zone.acknowledged().min(zone.readable());
            if zone.generation != generation || zone.resetting || !below {
                return Ok(false);
            }
            zone.patches.put(&self.layout, self.bytes(1), slot, row, &data);
        }
        let content = Body::RelocatedData { zone: id, generation, start, end, data };
        self.record_on(slot, &content).await?;
        let ranges = {
            let mut zone = self.zone(id);
            if zone.generation != generation || zone.resetting || !self.member(slot).is_good() {
                return Ok(false);
            }
            zone.patches.hide(slot, rows.clone());
            zone.patches.hidden(slot).to_vec()
        };
        let hidden = Body::Hidden { zone: id, generation, ranges, rebuilt: false };
        self.record_on(slot, &hidden).await?;
        self.found_again(id, generation, slot, &rows).await?;
        add(&self.tally.relocations, 1);
        Ok(true)
    }

    /// Records the parity of a whole stripe, which its drive cannot read or which does not fit.
    pub(crate) async fn mend_parity(
        self: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        stripe: Stripe,
        unit: Buf,
    ) -> Result<bool> {
        let _turn = self.mending.acquire().await;
        let slot = self.layout.parity(id, stripe);
        if !self.may_mend(slot) {
            return Ok(false);
        }
        let (start, end) = (self.layout.start(stripe), self.layout.end(stripe));
        {
            let mut zone = self.zone(id);
            let below = end <= zone.acknowledged().min(zone.readable());
            if zone.generation != generation || zone.resetting || !below {
                return Ok(false);
            }
            zone.relocated.insert(stripe, Relocated { end, unit: unit.clone() });
        }
        self.record_on(slot, &Body::Relocated { zone: id, generation, start, end, unit }).await?;
        let row = self.layout.row(stripe);
        self.found_again(id, generation, slot, &(row..row + self.layout.unit_of(stripe))).await?;
        add(&self.tally.relocations, 1);
        Ok(true)
    }

    /// What belongs in rows of a drive is in its log: if they were lost they are not any more.
    async fn found_again(
        self: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        slot: Slot,
        rows: &Range<u64>,
    ) -> Result<()> {
        let lost = &self.member(slot).lost;
        if !lost.remove(id, rows) {
            return Ok(());
        }
        self.record_on(slot, &Body::Lost { zone: id, generation, ranges: lost.of(id) }).await
    }

    /// A record in the log of a drive, durable.
    async fn record_on(self: &Arc<Core>, slot: Slot, body: &Body) -> Result<()> {
        match self.append_rolling(slot, body, Durability::Durable).await? {
            Some(io) => io.await,
            None => Ok(()),
        }
    }

    /// Whether the log of a drive has room for more relocated units, which every checkpoint takes along.
    fn may_mend(&self, slot: Slot) -> bool {
        let relocates = self.config.lock().incompat & RELOCATION != 0;
        let taken = |id: ZoneId| self.zone(id).relocated_cost(&self.layout, id, slot);
        let more = 2 * (self.layout.unit + 1) + 1;
        let member = self.member(slot);
        relocates
            && member.is_good()
            && (0..self.geometry.zones).map(ZoneId).map(taken).sum::<u64>() + more
                <= zone_rewrite::most(self, member)
    }

    /// Mends a place that a client's read came upon, after the client has its answer.
    pub(crate) fn mend_later(self: &Arc<Core>, id: ZoneId, generation: u64, piece: Piece, data: Buf) {
        let core = Arc::clone(self);
        self.driver.drive(Box::pin(async move {
            let mended = core.mend(id, generation, piece, data).await;
            if let Err(error) = &mended {
                tracing::warn!(zone = id.0, block = piece.offset.0, %error, "a repaired read is not recorded");
            }
            core.tell(EventKind::Repaired {
                slot: piece.slot,
                zone: id,
                block: piece.offset,
                blocks: piece.len,
                relocated: mended.unwrap_or(false),
            });
        }));
    }
}
