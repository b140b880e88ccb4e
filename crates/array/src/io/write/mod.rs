//! The write path. Operations are submitted under the zone's lock, so that every drive receives them in order. Their
//! errors are judged when all have ended.
//!
//! ```text
//!   begin_write   checks, opens the zone, reserves room in the logs
//!   full_zones    lets a first write wait, at the limit, for full zones whose physical zones a power cut may reopen
//!   first_write   gives the zone its map; shared_drives and shared_places, where zones share physical ones
//!   put           data and final parity to the drives
//!   appends       appends to the drives, and their order
//!   partial       parity of the open stripe to a log
//!   frames        which blocks each write has, to two logs, if writes are atomic
//!   acknowledge   completes writes in order; durable ones after a flush (stamps)
//! ```

mod acknowledge;
mod appends;
mod first_write;
mod frames;
mod full_zones;
mod partial;
mod put;
mod shared_drives;
mod shared_places;
mod stamps;

use std::sync::Arc;

use zoned::{Blocks, Completer, Error, ErrorKind, Resources, ZoneEvent, ZoneId, ZoneState};

use crate::context::Context;
use crate::deferred::Deferred;
use crate::degraded::failures::Failures;
use crate::format::header;
use crate::layout::Slot;
use crate::layout::steps::{Step, steps};
use crate::membership::Membership;
use crate::zone::Zone;
use crate::zone::append_choice::AppendChoice;
use crate::zone::free_zones::NoPlaces;
use crate::zone::work::{Work, WriteRequest};
use crate::zone::zone_table::ZoneTable;

/// The write path of an array.
pub(crate) struct Writes {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub failures: Arc<Failures>,
    /// How appends go to the drives.
    pub ways: AppendChoice,
}

impl Writes {
    /// The reason to refuse a write or append, if any.
    fn refuse_write(
        &self,
        zone: &Zone,
        id: ZoneId,
        name: &'static str,
        offset: Option<Blocks>,
        blocks: u64,
    ) -> Option<Error> {
        let at = self.ctx.geometry.start(id).plus(offset.unwrap_or(zone.pointer));
        let refuse = |kind| Some(self.ctx.error(kind, name).in_zone(id).at(at));
        match zone.state {
            ZoneState::Offline => return refuse(ErrorKind::ZoneOffline),
            ZoneState::ReadOnly => {
                let error = self.ctx.error(ErrorKind::ZoneReadOnly, name).in_zone(id).at(at);
                return Some(match self.zones.worn_reason(id) {
                    Some(why) => error.because(why),
                    None => error.because(
                        "a part of the zone was worn, or full too early: the zone takes writes again, or is full, once the array is \
                         opened anew",
                    ),
                });
            }
            ZoneState::Full => return refuse(ErrorKind::ZoneFull),
            _ => {}
        }
        if let Some(poison) = &zone.poison {
            return Some(poison.duplicate());
        }
        if self.members.is_broken() {
            return Some(self.members.broken_error(name).in_zone(id).at(at));
        }
        if offset.is_some_and(|offset| offset != zone.pointer) {
            let pointer = self.ctx.geometry.start(id).plus(zone.pointer);
            return refuse(ErrorKind::NotAtWritePointer)
                .map(|e| e.because(format!("the pointer is at block {pointer}")));
        }
        let left = self.ctx.layout.capacity().minus(zone.pointer).0;
        if blocks > left {
            return refuse(ErrorKind::ZoneFull).map(|e| e.because(format!("{blocks} blocks, {left} left")));
        }
        None
    }

    /// Begins a write or an append on a locked zone.
    pub(crate) fn begin_write(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        request: WriteRequest,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        let name = if request.offset.is_some() { "write" } else { "append" };
        let blocks = request.data.len() as u64 / u64::from(self.ctx.geometry.block_size);
        if let Some(error) = self.refuse_write(zone, id, name, request.offset, blocks) {
            return deferred.complete(completer, Err(error));
        }
        let shares_places = self.needs_shared_places(id);
        // A write that the limits refuse takes no room, and its zone gets no map: a map in memory is never withdrawn within a life of the
        // zone, as a log roll may have written it.
        if (shares_places || self.ctx.places.stored().is_some_and(|maps| !maps.has(id)))
            && let Some(limits) = &limits
            && let Err(error) = self.zones.check_admission(limits, zone, id, name)
        {
            return deferred.complete(completer, Err(error));
        }
        if let Some(limits) = &limits
            && self.must_await_full_zones(zone, id, limits)
            && self.zones.check_admission(limits, zone, id, name).is_ok()
        {
            return self.retry_after_full_zones(zone, id, (request, completer), deferred);
        }
        if shares_places {
            return self.place_in_shared_zones(zone, id, (Work::Write(request), completer), name, deferred);
        }
        match self.give_map(zone, id, name, request.moves_awaited) {
            Ok(()) => {}
            Err(NoPlaces::Refused(error)) => return deferred.complete(completer, Err(error)),
            Err(NoPlaces::UntilMoveEnds(moves)) => {
                let request = WriteRequest { moves_awaited: Some(moves.newest), ..request };
                return self.retry_after_move(zone, id, (Work::Write(request), completer), moves, deferred);
            }
        }
        let fills = zone.pointer.0 + blocks == self.ctx.layout.capacity().0;
        if let Some(limits) = limits
            && let Err(error) = self.zones.admit(limits, zone, id, name, ZoneEvent::Write { fills })
        {
            return deferred.complete(completer, Err(error));
        }
        let mut needs = self.relocation_needs(zone, id, blocks);
        needs.extend(self.map_needs(zone, id));
        if !needs.is_empty() && !self.members.reserve_now(&needs) {
            // The zone takes no other operation before the logs have room for the write.
            zone.busy = true;
            let this = Arc::clone(self);
            deferred.run(async move {
                this.members.reserve(&needs).await;
                this.zones.change(id, |zone, deferred| {
                    zone.busy = false;
                    let refused = zone.poison.as_ref().map(Error::duplicate);
                    let refused = refused.or_else(|| {
                        this.members.is_broken().then(|| this.members.broken_error(name).in_zone(id))
                    });
                    match refused {
                        Some(error) => {
                            this.members.unreserve(&needs);
                            deferred.complete(completer, Err(error));
                        }
                        None => this.put(zone, id, request, completer, deferred),
                    }
                });
                this.zones.begin_queued(id);
            });
            return;
        }
        self.put(zone, id, request, completer, deferred);
    }

    /// Blocks of each drive's log that a write of `blocks` blocks at the pointer needs for relocated content.
    pub(crate) fn relocation_needs(&self, zone: &Zone, id: ZoneId, blocks: u64) -> Vec<(Slot, u64)> {
        let mut needs = Vec::new();
        if zone.stale.is_empty() {
            return needs;
        }
        let layout = &self.ctx.layout;
        let block = u64::from(self.ctx.geometry.block_size);
        let header = |rows: u64| (header::SIZE as u64).div_ceil(block) + rows;
        for step in steps(layout, zone.pointer, blocks) {
            match step {
                Step::Data(piece) => {
                    let row = layout.row(piece.stripe) + piece.row;
                    for (rows, stale) in zone.stale.split(piece.role, row..row + piece.len) {
                        if stale {
                            let slot = self.ctx.places.slot(id, piece.role);
                            needs.extend(slot.map(|slot| (slot, header(rows.end - rows.start))));
                        }
                    }
                }
                Step::Parity { stripe, row, len } => {
                    if row + len < layout.unit_of(stripe) {
                        continue;
                    }
                    let row = layout.row(stripe);
                    for role in layout.parities().map(|parity| layout.parity(stripe, parity)) {
                        if zone.stale.has_stale(role, &(row..row + layout.unit_of(stripe))) {
                            let slot = self.ctx.places.slot(id, role);
                            needs.extend(slot.map(|slot| (slot, header(layout.unit_of(stripe)))));
                        }
                    }
                }
            }
        }
        needs
    }
}
