//! Writes: carried out under the zone's lock, so that every drive sees them in order; judged when they land.

mod acknowledge;
mod partial;
mod put;

use std::sync::Arc;

use zoned::{
    Admission, Blocks, Buf, Completer, Done, Durability, Error, ErrorKind, Io, Resources, ZoneEvent, ZoneId,
    ZoneState, join_all,
};

use crate::core::{After, Core};
use crate::format::header;
use crate::io::flush::Slots;
use crate::layout::Slot;
use crate::layout::steps::{Step, steps};
use crate::zone::Zone;

/// What a write gave to the drives.
#[derive(Default)]
pub(crate) struct Children {
    slots: Vec<Slot>,
    ios: Vec<Io<()>>,
}

impl Children {
    pub(crate) fn push(&mut self, slot: Slot, io: Option<Io<()>>) {
        if let Some(io) = io {
            self.slots.push(slot);
            self.ios.push(io);
        }
    }

    fn len(&self) -> usize {
        self.ios.len()
    }

    /// The drives that have something to do.
    fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        self.slots.iter().for_each(|slot| slots.add(*slot));
        slots
    }

    /// Waits for all; gives the failures.
    pub(crate) async fn join(self) -> Vec<(Slot, Error)> {
        let results = join_all(self.ios).await;
        let failure = |(slot, result): (Slot, zoned::Result<()>)| result.err().map(|e| (slot, e));
        self.slots.into_iter().zip(results).filter_map(failure).collect()
    }
}

impl Core {
    /// Why a write must not begin.
    fn refuse_write(
        &self,
        zone: &Zone,
        id: ZoneId,
        name: &'static str,
        offset: Option<Blocks>,
        blocks: u64,
    ) -> Option<Error> {
        let at = self.geometry.start(id).plus(offset.unwrap_or(zone.pointer));
        let refuse = |kind| Some(self.error(kind, name).in_zone(id).at(at));
        match zone.state {
            ZoneState::Offline => return refuse(ErrorKind::ZoneOffline),
            ZoneState::ReadOnly => {
                let error = self.error(ErrorKind::ZoneReadOnly, name).in_zone(id).at(at);
                return Some(match self.worn_words(id) {
                    Some(why) => error.because(why),
                    None => error,
                });
            }
            ZoneState::Full => return refuse(ErrorKind::ZoneFull),
            _ => {}
        }
        if let Some(poison) = &zone.poison {
            return Some(poison.duplicate());
        }
        if self.is_broken() {
            return Some(self.broken_error(name).in_zone(id).at(at));
        }
        if offset.is_some_and(|offset| offset != zone.pointer) {
            let pointer = self.geometry.start(id).plus(zone.pointer);
            return refuse(ErrorKind::NotAtWritePointer)
                .map(|e| e.because(format!("the pointer is at block {pointer}")));
        }
        let left = self.layout.capacity().minus(zone.pointer).0;
        if blocks > left {
            return refuse(ErrorKind::ZoneFull).map(|e| e.because(format!("{blocks} blocks, {left} left")));
        }
        None
    }

    /// Makes the zone open, closing another one where that is the rule.
    pub(crate) fn admit(
        &self,
        limits: &mut Resources,
        zone: &mut Zone,
        id: ZoneId,
        name: &'static str,
        event: ZoneEvent,
    ) -> Result<(), Error> {
        let to = zone.state.transition(event).map_err(|_| self.illegal(zone, id, name))?;
        let (max_open, max_active) = (self.geometry.max_open, self.geometry.max_active);
        match limits.admit(zone.state, max_open, max_active) {
            Ok(Admission::Granted) => {}
            Ok(Admission::Close(victim)) => {
                // Two zones' locks: only whoever holds the limits may do that.
                limits.moved(victim, ZoneState::ImplicitOpen, ZoneState::Closed);
                self.zone(victim).state = ZoneState::Closed;
            }
            Err(kind) => {
                let any = |n: Option<u32>| n.map_or("any number".into(), |n| n.to_string());
                return Err(self.error(kind, name).in_zone(id).because(format!(
                    "{} open of {}, {} active of {}: close or finish another zone first",
                    limits.open(),
                    any(max_open),
                    limits.active(),
                    any(max_active)
                )));
            }
        }
        limits.moved(id, zone.state, to);
        zone.state = to;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a write with all that it needs")]
    pub(crate) fn begin_write(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        name: &'static str,
        offset: Option<Blocks>,
        data: Buf,
        how: Durability,
        completer: Completer,
        after: &mut After,
    ) {
        let blocks = data.len() as u64 / u64::from(self.geometry.block_size);
        if let Some(error) = self.refuse_write(zone, id, name, offset, blocks) {
            return after.complete(completer, Err(error));
        }
        let fills = zone.pointer.0 + blocks == self.layout.capacity().0;
        if let Some(limits) = limits
            && let Err(error) = self.admit(limits, zone, id, name, ZoneEvent::Write { fills })
        {
            return after.complete(completer, Err(error));
        }
        let done = match offset {
            Some(_) => Done::Unit,
            None => Done::At(self.geometry.start(id).plus(zone.pointer)),
        };
        let needs = self.relocations(zone, id, blocks);
        if !needs.is_empty() && !self.reserve_now(&needs) {
            // Nothing else of the zone goes on before there is room.
            zone.busy = true;
            let core = Arc::clone(self);
            after.run(async move {
                core.reserve(&needs).await;
                let mut after = After::default();
                {
                    let mut zone = core.zone(id);
                    zone.busy = false;
                    let refused = zone.poison.as_ref().map(Error::duplicate);
                    let refused =
                        refused.or_else(|| core.is_broken().then(|| core.broken_error(name).in_zone(id)));
                    match refused {
                        Some(error) => {
                            core.unreserve(&needs);
                            after.complete(completer, Err(error));
                        }
                        None => core.put(&mut zone, id, data, how, done, completer, &mut after),
                    }
                }
                after.finish(&core);
                core.pump(id);
            });
            return;
        }
        self.put(zone, id, data, how, done, completer, after);
    }

    /// Blocks of each drive's log that a write of `blocks` blocks at the pointer takes, for what is relocated.
    pub(crate) fn relocations(&self, zone: &Zone, id: ZoneId, blocks: u64) -> Vec<(Slot, u64)> {
        let mut needs = Vec::new();
        if zone.patches.is_empty() {
            return needs;
        }
        let layout = &self.layout;
        let block = u64::from(self.geometry.block_size);
        let header = |rows: u64| (header::SIZE as u64).div_ceil(block) + rows;
        for step in steps(layout, id, zone.pointer, blocks) {
            match step {
                Step::Data(piece) => {
                    let row = layout.row(piece.stripe) + piece.row;
                    for (rows, hidden) in zone.patches.split(piece.slot, row..row + piece.len) {
                        if hidden {
                            needs.push((piece.slot, header(rows.end - rows.start)));
                        }
                    }
                }
                Step::Parity { stripe, row, len } => {
                    if row + len < layout.unit_of(stripe) {
                        continue;
                    }
                    let (slot, row) = (layout.parity(id, stripe), layout.row(stripe));
                    if zone.patches.hides(slot, &(row..row + layout.unit_of(stripe))) {
                        needs.push((slot, header(layout.unit_of(stripe))));
                    }
                }
            }
        }
        needs
    }

    /// Reserves room in the logs, if all have it.
    fn reserve_now(&self, needs: &[(Slot, u64)]) -> bool {
        for (n, (slot, blocks)) in needs.iter().enumerate() {
            if !self.member(*slot).reserve(*blocks) {
                self.unreserve(needs.get(..n).unwrap_or_default());
                return false;
            }
        }
        true
    }

    /// Reserves room in the logs, moving them where there is none.
    pub(crate) async fn reserve(self: &Arc<Core>, needs: &[(Slot, u64)]) {
        for (slot, blocks) in needs {
            let member = self.member(*slot);
            loop {
                let seen = member.rolled.version();
                if member.reserve(*blocks) {
                    break;
                }
                let mut after = After::default();
                self.roll(*slot, &mut after);
                after.finish(self);
                member.rolled.changed_since(seen).await;
            }
        }
    }

    fn unreserve(&self, needs: &[(Slot, u64)]) {
        needs.iter().for_each(|(slot, blocks)| self.member(*slot).unreserve(*blocks));
    }
}
