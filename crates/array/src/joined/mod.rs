//! Joined zones: the device that an array shows where several zones, its *sections*, make one.
//!
//! The rooms below know sections only: each has parts, a map, a generation and records of its own, and its own writes in flight. This
//! room cuts operations into pieces of sections and keeps what holds for a zone as a whole:
//!
//! - **Order.** A write is acknowledged once the sections have acknowledged all its pieces and all writes below. The pieces go to each
//!   section in order, as writes at its pointer, so an append's address is known when it is submitted.
//! - **Durability.** A durable write is followed by a flush of the array, since lower blocks lie in other sections too.
//! - **A gap ends the zone.** A mount cuts all sections off at the first block that is not there (`mount::joined`).
//! - **A reset** begins with the first section, durably: without its first block the joined zone is empty, and a mount completes the
//!   reset of the others. A finish that a cut interrupted is completed when the array is opened.
//!
//! The limits of open and active zones are those of the sections that may be written at a time: all of a joined zone whose stripes take
//! turns, one otherwise.

mod zone;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use zoned::checks::{self, Transfer};
use zoned::{
    Action, Admission, Blocks, Buf, BufMut, Completer, Done, Durability, Error, ErrorKind, Geometry, Io,
    IoClass, Lba, Op, Resources, Result, ZoneEvent, ZoneId, ZoneInfo, ZoneKind, ZoneState, join_all,
};

use crate::core::Core;
use crate::deferred::Deferred;
use crate::joined::zone::{AwaitsFlush, JoinedZone, Landing, Work};
use crate::layout::joined::{JoinedLayout, SectionPiece};
use crate::zone::zone_table::check_limits;

/// The result of a command on sections: if one failed, its error, and whether another one carried the command out.
type CommandResult = std::result::Result<(), (Error, bool)>;

/// The joined zones of an array.
pub(crate) struct JoinedZones {
    core: Arc<Core>,
    layout: JoinedLayout,
    geometry: Geometry,
    /// The numbers of open and active joined zones. Locked before a zone.
    limits: Mutex<Resources>,
    zones: Vec<Mutex<JoinedZone>>,
}

impl fmt::Debug for JoinedZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.layout)
    }
}

impl JoinedZones {
    /// The joined zones of an array that was opened just now. Completes what a power cut left of a finish.
    pub(crate) async fn open(core: Arc<Core>, layout: JoinedLayout) -> Arc<JoinedZones> {
        let geometry = joined_geometry(&core.ctx.geometry, &layout);
        let (mut limits, mut zones) = (Resources::default(), Vec::with_capacity(geometry.zones as usize));
        for id in (0..geometry.zones).map(ZoneId) {
            let zone = found_zone(&core, &layout, id);
            limits.moved(id, ZoneState::Empty, zone.state);
            if zone.state == ZoneState::Full {
                complete_finish(&core, &layout, id).await;
            }
            zones.push(Mutex::new(zone));
        }
        Arc::new(JoinedZones { core, layout, geometry, limits: Mutex::new(limits), zones })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Begins an operation of a client.
    pub(crate) fn submit(self: &Arc<JoinedZones>, class: IoClass, op: Op) -> Io {
        let (name, geometry) = (op.name(), &self.geometry);
        match op {
            Op::Flush => self.core.submit(class, Op::Flush),
            Op::Report { zones } => {
                let infos = (zones.start..zones.end.min(geometry.zones)).map(|zone| self.info(ZoneId(zone)));
                Io::ready(Ok(Done::Zones(infos.collect())))
            }
            Op::Read { at, into } => match checks::locate_transfer(geometry, name, at, into.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    self.begin_or_queue(zone, Work::Read { class, offset: Blocks(offset), into })
                }
                Err(error) => Io::ready(Err(error.with_buffer(into))),
            },
            Op::Write { at, data, how } => match checks::locate_transfer(geometry, name, at, data.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    self.begin_or_queue(zone, Work::Write { class, offset: Some(Blocks(offset)), data, how })
                }
                Err(error) => Io::ready(Err(error)),
            },
            Op::Append { zone, data, how } => match checks::check_append(geometry, name, zone, data.len()) {
                Ok(_) => self.begin_or_queue(zone, Work::Write { class, offset: None, data, how }),
                Err(error) => Io::ready(Err(error)),
            },
            Op::Zone { zone, action } => match checks::check_zone_exists(geometry, name, zone) {
                Ok(()) => self.begin_or_queue(zone, Work::Act(action)),
                Err(error) => Io::ready(Err(error)),
            },
        }
    }

    /// The section with a block of a joined zone, and the block's offset there.
    pub(crate) fn locate(&self, id: ZoneId, offset: Blocks) -> (ZoneId, Blocks) {
        let piece = self.layout.locate(offset);
        (self.layout.zone(id, piece.section), piece.offset)
    }

    /// Gives operations on `blocks`, which lie in one joined zone, the class of a caller who waits for them.
    pub(crate) fn raise(&self, class: IoClass, blocks: &Range<Lba>) {
        let Some(id) = self.geometry.zone_of(blocks.start) else { return };
        let from = blocks.start.since(self.geometry.start(id));
        let to = blocks.end.since(self.geometry.start(id)).min(self.geometry.zone_capacity);
        for piece in self.layout.pieces(from, to.minus(from).0) {
            let at = self.address(id, piece.section, piece.offset);
            self.core.raise(class, &(at..at.plus(Blocks(piece.blocks))));
        }
    }

    fn zone(&self, id: ZoneId) -> MutexGuard<'_, JoinedZone> {
        self.zones.get(id.index()).expect("checked where the operation came in").lock()
    }

    fn error(&self, kind: ErrorKind, name: &'static str, id: ZoneId) -> Error {
        self.core.ctx.error(kind, name).in_zone(id)
    }

    /// The address of a block of a section, as the rooms below count.
    fn address(&self, id: ZoneId, section: u32, offset: Blocks) -> Lba {
        self.core.ctx.geometry.start(self.layout.zone(id, section)).plus(offset)
    }

    /// A zone's entry in a zone report. The zone is offline if a section is, and read-only if a section is before it is full.
    fn info(&self, id: ZoneId) -> ZoneInfo {
        let zone = self.zone(id);
        let sections: Vec<ZoneInfo> =
            self.layout.zones(id).map(|section| self.core.zones.info(section)).collect();
        let is_offline = |info: &ZoneInfo| info.state == ZoneState::Offline;
        // A full section takes no more writes in any case, and its reset takes other physical zones, if maps are stored.
        let is_stored = self.core.ctx.places.stored().is_some();
        let ends_early = |info: &ZoneInfo| {
            info.state == ZoneState::ReadOnly && (info.pointer < info.capacity || !is_stored)
        };
        let state = if sections.iter().any(is_offline) {
            ZoneState::Offline
        } else if sections.iter().any(ends_early) {
            ZoneState::ReadOnly
        } else {
            zone.state
        };
        let capacity = self.layout.capacity();
        let pointer = if state == ZoneState::Full { capacity } else { zone.readable() };
        ZoneInfo { zone: id, kind: ZoneKind::Sequential, state, pointer, capacity }
    }

    /// Begins `work` on a zone, or queues it behind earlier work.
    fn begin_or_queue(self: &Arc<Self>, id: ZoneId, work: Work) -> Io {
        let (completer, io) = Io::pair(&self.core.ctx.driver, &self.geometry.name);
        let mut deferred = Deferred::default();
        {
            let mut zone = self.zone(id);
            if zone.must_wait(&self.layout, &work) {
                zone.queue.push_back((work, completer));
                return io;
            }
            if zone.changes_no_state(&work) {
                self.begin(&mut zone, id, None, work, completer, &mut deferred);
            } else {
                drop(zone);
                let mut limits = self.limits.lock();
                let mut zone = self.zone(id);
                if zone.must_wait(&self.layout, &work) {
                    zone.queue.push_back((work, completer));
                    return io;
                }
                self.begin(&mut zone, id, Some(&mut limits), work, completer, &mut deferred);
            }
        }
        deferred.finish(&self.core.ctx);
        io
    }

    /// Begins queued work of a zone, up to the first operation that must wait.
    fn begin_queued(self: &Arc<Self>, id: ZoneId) {
        let mut deferred = Deferred::default();
        {
            let mut limits = self.limits.lock();
            let mut zone = self.zone(id);
            while zone.queue.front().is_some_and(|(work, _)| !zone.holds_back(&self.layout, work)) {
                let Some((work, completer)) = zone.queue.pop_front() else { break };
                self.begin(&mut zone, id, Some(&mut limits), work, completer, &mut deferred);
            }
        }
        deferred.finish(&self.core.ctx);
    }

    /// Begins `work` on a locked zone. `limits` are given if the work may change the zone's state.
    fn begin(
        self: &Arc<Self>,
        zone: &mut JoinedZone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        work: Work,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        match work {
            Work::Read { class, offset, into } => {
                self.begin_read(zone, id, (class, offset, into), completer, deferred);
            }
            Work::Write { class, offset, data, how } => {
                let name = if offset.is_some() { "write" } else { "append" };
                let end = match self.admit_write(zone, id, limits, name, offset, data.len()) {
                    Ok(end) => end,
                    Err(error) => return deferred.complete(completer, Err(error)),
                };
                let (start, bytes) = (zone.pointer, data.len());
                let done = match offset {
                    Some(_) => Done::Unit,
                    None => Done::At(self.geometry.start(id).plus(start)),
                };
                let pieces = self.pieces_of_write(id, start, data);
                let number = zone.begin_write(end, bytes, how, done, completer);
                let this = Arc::clone(self);
                if pieces.len() > 1 && !self.layout.interleaved {
                    // The section below is full, and not active any more, once its piece is there.
                    zone.busy = true;
                    return deferred.run(async move {
                        let mut results = Vec::new();
                        for piece in pieces {
                            results.push(this.core.submit(class, piece).await);
                            if results.last().is_some_and(Result::is_err) {
                                break;
                            }
                        }
                        this.zone(id).busy = false;
                        this.end_write(id, number, results);
                    });
                }
                let ios: Vec<Io> = pieces.into_iter().map(|piece| self.core.submit(class, piece)).collect();
                deferred.run(async move { this.end_write(id, number, join_all(ios).await) });
            }
            Work::Act(action) => {
                let limits = limits.expect("a command changes the state");
                self.begin_action(zone, id, limits, action, completer, deferred);
            }
        }
    }

    /// The writes to sections that a write at `start` of a joined zone consists of.
    fn pieces_of_write(&self, id: ZoneId, start: Blocks, data: Buf) -> Vec<Op> {
        let (block, mut next) = (self.core.ctx.bytes(1), 0);
        let blocks = (data.len() / block) as u64;
        let piece = |piece: SectionPiece| {
            let from = next;
            next += piece.blocks as usize * block;
            let at = self.address(id, piece.section, piece.offset);
            Op::Write { at, data: data.slice(from..next), how: Durability::Cached }
        };
        self.layout.pieces(start, blocks).map(piece).collect()
    }

    /// Begins a read on a locked zone. Blocks above the zone's content read as zeros.
    fn begin_read(
        self: &Arc<Self>,
        zone: &JoinedZone,
        id: ZoneId,
        (class, offset, into): (IoClass, Blocks, BufMut),
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        if let Some(poison) = zone.poison.as_ref().filter(|_| zone.is_half_reset) {
            return deferred.complete(completer, Err(poison.duplicate().with_buffer(into)));
        }
        let mut rest = into;
        let (block, mut next) = (self.core.ctx.bytes(1), self.geometry.start(id).plus(offset));
        let written = zone.readable().minus(offset).0.min((rest.len() / block) as u64);
        let piece = |piece: SectionPiece| {
            let into = rest.split_to(piece.blocks as usize * block);
            let at = self.address(id, piece.section, piece.offset);
            let of_zone = next;
            next = next.plus(Blocks(piece.blocks));
            (into.len(), of_zone, self.core.submit(class, Op::Read { at, into }).typed::<BufMut>())
        };
        let ios: Vec<(usize, Lba, Io<BufMut>)> = self.layout.pieces(offset, written).map(piece).collect();
        rest.fill(0);
        deferred.run(async move {
            let (mut whole, mut failed): (Option<BufMut>, Option<Error>) = (None, None);
            for (bytes, at, io) in ios {
                let buf = match io.await {
                    Ok(buf) => buf,
                    Err(mut error) => {
                        let buf = error.take_buffer().unwrap_or_else(|| BufMut::zeroed(bytes));
                        failed.get_or_insert(error.at(at));
                        buf
                    }
                };
                match &mut whole {
                    Some(whole) => whole.unsplit(buf),
                    None => whole = Some(buf),
                }
            }
            let whole = match whole {
                Some(mut whole) => {
                    whole.unsplit(rest);
                    whole
                }
                None => rest,
            };
            completer.complete(match failed {
                None => Ok(Done::Read(whole)),
                Some(error) => Err(error.in_zone(id).with_buffer(whole)),
            });
        });
    }

    /// Admits a write or an append of `bytes` at the pointer. Returns where it ends.
    fn admit_write(
        &self,
        zone: &mut JoinedZone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        name: &'static str,
        offset: Option<Blocks>,
        bytes: usize,
    ) -> Result<Blocks> {
        let blocks = (bytes / self.core.ctx.bytes(1)) as u64;
        let at = self.geometry.start(id).plus(offset.unwrap_or(zone.pointer));
        let refuse = |kind| self.error(kind, name, id).at(at);
        if let Some(poison) = &zone.poison {
            return Err(poison.duplicate());
        }
        if zone.state == ZoneState::Full {
            return Err(refuse(ErrorKind::ZoneFull));
        }
        if offset.is_some_and(|offset| offset != zone.pointer) {
            let pointer = self.geometry.start(id).plus(zone.pointer);
            return Err(
                refuse(ErrorKind::NotAtWritePointer).because(format!("the pointer is at block {pointer}"))
            );
        }
        let left = self.layout.capacity().minus(zone.pointer).0;
        if blocks > left {
            return Err(refuse(ErrorKind::ZoneFull).because(format!("{blocks} blocks, {left} left")));
        }
        if let Some(limits) = limits {
            // The zone is full once the write is acknowledged.
            self.admit(zone, id, limits, name, ZoneEvent::Write { fills: false })?;
        }
        Ok(zone.pointer.plus(Blocks(blocks)))
    }

    /// Opens a zone. At the limit of open zones, the zone that was opened implicitly first is closed.
    fn admit(
        &self,
        zone: &mut JoinedZone,
        id: ZoneId,
        limits: &mut Resources,
        name: &'static str,
        event: ZoneEvent,
    ) -> Result<()> {
        let to = zone.state.transition(event).map_err(|_| self.illegal(zone, id, name))?;
        match check_limits(limits, zone.state, &self.geometry, (name, id))? {
            Admission::Granted => {}
            Admission::Close(victim) => {
                limits.moved(victim, ZoneState::ImplicitOpen, ZoneState::Closed);
                self.zone(victim).state = ZoneState::Closed;
            }
        }
        limits.moved(id, zone.state, to);
        zone.state = to;
        Ok(())
    }

    fn illegal(&self, zone: &JoinedZone, id: ZoneId, name: &'static str) -> Error {
        self.error(ErrorKind::IllegalMove, name, id).because(format!("the zone is {:?}", zone.state))
    }

    /// Completes what can be completed now that the pieces of a write have ended.
    fn end_write(self: &Arc<Self>, id: ZoneId, number: u64, results: Vec<Result<Done>>) {
        let any = results.iter().any(Result::is_ok);
        let failed = results.into_iter().find_map(Result::err);
        let at = self.geometry.start(id);
        let landing = Landing { result: failed.map_or(Ok(()), |error| Err(error.in_zone(id).at(at))), any };
        let mut deferred = Deferred::default();
        let durable = {
            let mut limits = self.limits.lock();
            self.zone(id).write_ended(id, &self.layout, (number, landing), &mut limits, &mut deferred)
        };
        if !durable.is_empty() {
            let flush = self.core.submit(IoClass::Log, Op::Flush);
            deferred.run(async move {
                let result = flush.await;
                for AwaitsFlush { done, completer } in durable {
                    completer.complete(match &result {
                        Ok(_) => Ok(done),
                        Err(error) => Err(error.duplicate()),
                    });
                }
            });
        }
        deferred.finish(&self.core.ctx);
        self.begin_queued(id);
    }

    fn begin_action(
        self: &Arc<Self>,
        zone: &mut JoinedZone,
        id: ZoneId,
        limits: &mut Resources,
        action: Action,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        let event = match action {
            Action::Open => {
                let result = self.admit(zone, id, limits, "open", ZoneEvent::Open);
                return deferred.complete(completer, result.map(|()| Done::Unit));
            }
            Action::Close => {
                ZoneEvent::Close { empty: zone.pointer == Blocks::ZERO && zone.poison.is_none() }
            }
            Action::Finish => ZoneEvent::Finish,
            Action::Reset => ZoneEvent::Reset,
        };
        let name = Op::Zone { zone: id, action }.name();
        let to = match zone.state.transition(event) {
            Ok(to) => to,
            Err(_) => return deferred.complete(completer, Err(self.illegal(zone, id, name))),
        };
        if action == Action::Close || action == Action::Finish && zone.state == ZoneState::Full {
            limits.moved(id, zone.state, to);
            zone.state = to;
            return deferred.complete(completer, Ok(Done::Unit));
        }
        if action == Action::Finish
            && let Some(poison) = &zone.poison
        {
            return deferred.complete(completer, Err(poison.duplicate()));
        }
        if action == Action::Reset
            && let Some(error) = self.layout.zones(id).find_map(|section| {
                self.core.zones.state_after_reset(&self.core.zones.zone(section), section).err()
            })
        {
            // No section is reset if one of them cannot be.
            return deferred.complete(completer, Err(error.in_zone(id)));
        }
        zone.busy = true;
        let this = Arc::clone(self);
        deferred.run(async move {
            let result = match action {
                Action::Finish => this.finish_sections(id).await,
                _ => this.reset_sections(id).await,
            };
            this.action_ended(id, to, &result);
            completer.complete(result.map(|()| Done::Unit).map_err(|(error, _)| error));
            this.begin_queued(id);
        });
    }

    /// Resets the first section, durably, then the others.
    async fn reset_sections(&self, id: ZoneId) -> CommandResult {
        let mut sections = self.layout.zones(id);
        let first = sections.next().into_iter().collect();
        self.on_sections(id, first, Action::Reset).await?;
        // Without its first section the zone is another one.
        self.on_sections(id, sections.collect(), Action::Reset).await.map_err(|(error, _)| (error, true))
    }

    /// Finishes the sections that are not full.
    async fn finish_sections(&self, id: ZoneId) -> CommandResult {
        let sections = unfinished_sections(&self.core, &self.layout, id);
        self.on_sections(id, sections, Action::Finish).await
    }

    /// Sends a command to sections, and waits for all of them.
    async fn on_sections(&self, id: ZoneId, sections: Vec<ZoneId>, action: Action) -> CommandResult {
        let act = |zone| self.core.submit(IoClass::Log, Op::Zone { zone, action });
        let results = join_all(sections.into_iter().map(act).collect()).await;
        let any = results.iter().any(Result::is_ok);
        let at = self.geometry.start(id);
        results.into_iter().find_map(Result::err).map_or(Ok(()), |error| Err((error.in_zone(id).at(at), any)))
    }

    /// A reset or a finish has ended: the zone has its new state, or an unknown one.
    fn action_ended(&self, id: ZoneId, to: ZoneState, result: &CommandResult) {
        let mut limits = self.limits.lock();
        let mut zone = self.zone(id);
        zone.busy = false;
        if let Err((error, any)) = result {
            // A command that some sections carried out is completed by a reset, or by the next mount.
            if *any {
                zone.poison = Some(error.duplicate());
                zone.is_half_reset = to == ZoneState::Empty;
            }
            return;
        }
        limits.moved(id, zone.state, to);
        match to {
            ZoneState::Empty => zone.make_empty(),
            _ => (zone.state, zone.end) = (to, Some(zone.pointer)),
        }
    }
}

/// The geometry of joined zones.
fn joined_geometry(of_sections: &Geometry, layout: &JoinedLayout) -> Geometry {
    let at_a_time = if layout.interleaved { layout.sections } else { 1 };
    let limit = |limit: Option<u32>| limit.map(|limit| (limit / at_a_time).max(1));
    let capacity = layout.capacity();
    Geometry {
        zones: of_sections.zones / layout.sections,
        zone_size: Blocks(capacity.0.next_power_of_two()),
        zone_capacity: capacity,
        max_open: limit(of_sections.max_open),
        max_active: limit(of_sections.max_active),
        ..of_sections.clone()
    }
}

/// A joined zone as a mount left its sections.
fn found_zone(core: &Core, layout: &JoinedLayout, id: ZoneId) -> JoinedZone {
    let sections: Vec<(ZoneState, Blocks)> = layout
        .zones(id)
        .map(|section| {
            let zone = core.zones.zone(section);
            (zone.state, zone.readable())
        })
        .collect();
    let failed = layout.zones(id).zip(&sections).find(|(_, (state, _))| *state == ZoneState::Offline);
    // The end of a failed section's content is unknown. Counted as full, the section leaves the other sections' blocks readable.
    let end_of = |(state, end): &(ZoneState, Blocks)| match state {
        ZoneState::Offline => Blocks(layout.section),
        _ => *end,
    };
    let ends: Vec<Blocks> = sections.iter().map(end_of).collect();
    let end = layout.first_gap(&ends);
    let poison = failed.map(|(section, _)| core.zones.failed_zone_error(section, "write").in_zone(id));
    // A section that is full below its capacity was finished, or filled by a drive at a power cut; one that is full above the gap cannot
    // be cut off there.
    let ends_zone = |(number, (state, section)): (u32, &(ZoneState, Blocks))| {
        *state == ZoneState::Full && (section.0 < layout.section || layout.share(number, end) < *section)
    };
    let is_full = end == layout.capacity() || (0..).zip(&sections).any(ends_zone);
    match (is_full, end) {
        (true, _) => JoinedZone::new(ZoneState::Full, layout.capacity(), Some(end), poison),
        (false, Blocks::ZERO) => JoinedZone::new(ZoneState::Empty, end, None, poison),
        (false, _) => JoinedZone::new(ZoneState::Closed, end, None, poison),
    }
}

/// The sections that a finish concerns: those that are neither full nor written to their capacity.
fn unfinished_sections(core: &Core, layout: &JoinedLayout, id: ZoneId) -> Vec<ZoneId> {
    let is_unfinished = |section: &ZoneId| {
        let info = core.zones.info(*section);
        info.state != ZoneState::Full && info.pointer < info.capacity
    };
    layout.zones(id).filter(is_unfinished).collect()
}

/// Finishes the sections of a full zone that a mount found not full.
async fn complete_finish(core: &Arc<Core>, layout: &JoinedLayout, id: ZoneId) {
    for section in unfinished_sections(core, layout, id) {
        if matches!(core.zones.info(section).state, ZoneState::ReadOnly | ZoneState::Offline) {
            continue;
        }
        if let Err(error) =
            core.submit(IoClass::Log, Op::Zone { zone: section, action: Action::Finish }).await
        {
            // The joined zone is full all the same: the next mount tries again.
            tracing::warn!(zone = id.0, section = section.0, %error, "a section of a full zone is not finished");
        }
    }
}
