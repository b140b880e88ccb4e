//! One entry on its way: a place in the gate, tickets, the parts in flight, and what becomes of them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use units::Blocks;
use zoned::{Done, Durability, Io, Op};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::entry::{EntryHeader, Home};
use crate::wal::parallel::gate::Entered;
use crate::wal::parallel::inner::Inner;
use crate::wal::parallel::join::Slot;
use crate::wal::parallel::known::Known;
use crate::wal::parallel::payload::{Joined, MAX_RECORD, Parts, payload_len, seal};
use crate::wal::parallel::zone::Zone;

/// What is left in a zone when the keeper is told, as a fraction of it, and in longest appends.
const LITTLE: u64 = 32;
const LITTLE_APPENDS: u64 = 4;

/// A place in a zone, for one operation.
#[derive(Clone, Debug)]
struct Place {
    zone: Arc<Zone>,
    blocks: u64,
    /// The block of the zone where its pointer is, if the operation has the zone to itself: it is a write then.
    pointer: Option<Blocks>,
}

impl Place {
    /// The operation is over. True if the zone is drained by that.
    fn leave(&self, log: &Inner) -> bool {
        if self.pointer.is_none() {
            return self.zone.gate.leave();
        }
        let drained = self.zone.gate.leave_alone();
        log.left_alone();
        drained
    }

    /// There is no operation.
    fn turn_back(&self, log: &Inner) -> bool {
        if self.pointer.is_none() {
            return self.zone.gate.turn_back(self.blocks);
        }
        let drained = self.zone.gate.turn_back_alone(self.blocks);
        log.left_alone();
        drained
    }
}

/// A part in flight.
#[derive(Debug)]
struct Part {
    io: Io,
    place: Place,
}

/// An entry that has a ticket, and a place for its first part.
struct Begun {
    first: u64,
    /// Every ticket below was acknowledged when it took its own.
    low: u64,
    place: Place,
    cut: Parts,
    parts: u16,
}

/// What an entry carries.
pub(super) enum Body<'a> {
    Record(&'a [u8]),
    Joined(Joined),
}

impl Body<'_> {
    /// Bytes of payload.
    pub(super) fn len(&self) -> usize {
        match self {
            Body::Record(record) => payload_len(std::iter::once(record.len())),
            Body::Joined(joined) => joined.len(),
        }
    }

    /// Records.
    pub(super) fn count(&self) -> u64 {
        match self {
            Body::Record(_) => 1,
            Body::Joined(joined) => u64::from(joined.count()),
        }
    }

    /// A part of it. `known` is what a single record's entry says of those before; a joint one has it already.
    fn seal(
        &mut self,
        header: EntryHeader,
        known: &Known,
        skip: usize,
        home: &Home,
        block_size: usize,
    ) -> zoned::Buf {
        match self {
            Body::Record(record) => seal(header, known, &[record], skip, home, block_size),
            Body::Joined(joined) => joined.seal(header, skip, home, block_size),
        }
    }
}

/// An entry whose first part is submitted. It outlives the task that waits for it: dropped, it goes on by itself.
struct Entry {
    log: Arc<Inner>,
    first: u64,
    count: u64,
    /// The place of the part that goes next. A panic while that is made or sent is to let go of it.
    held: Option<Place>,
    flying: Vec<Part>,
    /// Its slot among those that go together, until it is over.
    slot: Option<Slot>,
    /// Every part is submitted.
    whole: bool,
    failed: Option<Error>,
    /// There is nothing left to do.
    over: bool,
}

impl Inner {
    /// Appends records as one entry, whatever its length; gives the ticket of the first. They are acknowledged on return, and
    /// `slot` is the caller's again.
    pub(super) async fn append(
        self: &Arc<Inner>,
        mut body: Body<'_>,
        slot: Option<Slot>,
    ) -> (Result<u64>, Option<Slot>) {
        let before = match self.pay().await {
            Ok(()) => self.look_back().await,
            Err(error) => Err(error),
        };
        let (known_from, known) = match before {
            Ok(before) => before,
            Err(error) => return (Err(error), slot),
        };
        let len = match &mut body {
            Body::Record(_) => body.len() + known.bytes().len(),
            Body::Joined(joined) => {
                joined.know(&known, self.cutting.block_size);
                joined.len()
            }
        };
        let count = body.count();
        let write = slot.as_ref().is_some_and(Slot::is_exclusive);
        let begun = match self.check_usable().and_then(|()| self.check_length(len)) {
            Ok(()) => self.begin(len, count, write).await,
            Err(error) => Err(error),
        };
        let Begun { first, low, place, cut, parts } = match begun {
            Ok(begun) => begun,
            Err(error) => return (Err(error), slot),
        };
        // Nothing between the ticket and the submission of its first part can fail, or be dropped.
        let mut entry = self.entry(first, count, slot, usize::from(parts));
        entry.held = Some(place);
        let knows = !known.bytes().is_empty();
        let needs = if knows { known_from } else { low };
        let header = EntryHeader { parts, needs, known: knows, ..self.header(first) };
        for part in 0..parts {
            let length = cut.length(part);
            if part > 0 {
                let blocks = self.cutting.blocks(length);
                let zone = match self.go_on(blocks) {
                    Some(zone) => zone,
                    None => match entry.further(blocks).await {
                        Ok(zone) => zone,
                        Err(error) => return (Err(error), entry.slot.take()),
                    },
                };
                entry.held = Some(Place { zone, blocks, pointer: None });
            }
            let Place { zone, .. } = entry.held.as_ref().expect("every part has its place by now");
            let length = u32::try_from(length).expect("a part is shorter than MAX_PART");
            let header = EntryHeader { generation: zone.segment.generation, part, length, ..header };
            let data = body.seal(header, &known, cut.skip(part), &zone.home, self.cutting.block_size);
            entry.fly(data);
        }
        let finished = entry.finish().await;
        if finished.is_ok() {
            self.counters.records.fetch_add(count, Ordering::Relaxed);
        }
        (finished.map(|()| first), entry.slot.take())
    }

    /// Fails where no entry holds `len` bytes of payload, however it is cut.
    pub(super) fn check_length(&self, len: usize) -> Result<()> {
        let most = (usize::from(u16::MAX) - 1) * self.cutting.room();
        if len <= most && len as u64 <= MAX_RECORD.0 {
            return Ok(());
        }
        let why = format!("a record of {len} bytes: at most {} fit here", MAX_RECORD.0.min(most as u64));
        Err(Error::new(ErrorKind::TooLarge, "appending to a parallel log").because(why))
    }

    fn entry(self: &Arc<Inner>, first: u64, count: u64, slot: Option<Slot>, parts: usize) -> Entry {
        Entry {
            log: Arc::clone(self),
            first,
            count,
            held: None,
            flying: Vec::with_capacity(parts),
            slot,
            whole: false,
            failed: None,
            over: false,
        }
    }

    /// A place for the first part of an entry with `len` bytes of payload, and tickets for who has it. `alone`: with the zone
    /// to itself, if nobody is in it and there is no other part.
    async fn begin(&self, len: usize, count: u64, alone: bool) -> Result<Begun> {
        self.pay().await?;
        loop {
            let mut cut = self.cut(len);
            let blocks = |cut: &Parts| self.cutting.blocks(cut.length(0));
            let alone = alone && cut.count() == Some(1);
            let place = match alone.then(|| self.try_enter_alone(blocks(&cut))).flatten() {
                Some((zone, pointer)) => Place { zone, blocks: blocks(&cut), pointer: Some(pointer) },
                None => {
                    let zone = match self.try_enter(blocks(&cut)) {
                        Ok(zone) => zone,
                        Err(_) => {
                            cut = self.cutting.whole(len);
                            self.enter(blocks(&cut)).await?
                        }
                    };
                    Place { zone, blocks: blocks(&cut), pointer: None }
                }
            };
            if place.zone.gate.in_flight() > 1 {
                self.spread_out();
            }
            // With its place: what was acknowledged before the zone was gone on with is below, see `turn`. And before its ticket.
            let low = self.tickets.low();
            if let Some(first) = self.tickets.take(count) {
                let parts = cut.count().expect("checked against the most parts of an entry");
                return Ok(Begun { first, low, place, cut, parts });
            }
            if place.turn_back(self) {
                self.drained(&place.zone);
            }
            self.wait_for_tickets(count).await?;
        }
    }

    /// How an entry is cut: where the zone has less left than its first part would have, that fills the zone. With a
    /// volatile cache it does not: before an entry goes on in another zone, what it has in the old one must be durable.
    fn cut(&self, len: usize) -> Parts {
        if self.spread.is_wide() {
            // It goes where it fits.
            return self.cutting.dealt(len, self.spread.zones());
        }
        let whole = self.cutting.whole(len);
        if self.volatile {
            return whole;
        }
        let left = self.active.load().as_ref().map_or(0, |zone| zone.gate.left());
        if left >= self.cutting.blocks(whole.length(0)) { whole } else { self.cutting.filling(len, left) }
    }

    /// A place for another part: in the zone that is written, or in the next one if nobody has to wait for it.
    fn go_on(&self, blocks: u64) -> Option<Arc<Zone>> {
        match self.try_enter(blocks) {
            Ok(zone) => Some(zone),
            Err(Entered::Shut) if !self.volatile => {
                let active = self.active.load_full();
                if self.no_room(active.as_ref()) { self.try_enter(blocks).ok() } else { None }
            }
            Err(_) => None,
        }
    }

    /// Whether it is time for the next segment.
    pub(super) fn is_nearly_full(&self, zone: &Zone) -> bool {
        let capacity = zone.segment.end.minus(zone.segment.start).0;
        let little = (capacity / LITTLE).max(LITTLE_APPENDS * self.cutting.longest).min(capacity / 2);
        zone.gate.left() <= little
    }
}

impl Entry {
    /// Sends a part to the place that is held for it.
    fn fly(&mut self, data: zoned::Buf) {
        let Some(place) = &self.held else { return };
        let (zone, how) = (place.zone.segment.zone, Durability::Cached);
        let op = match place.pointer {
            None => Op::Append { zone, data, how },
            Some(pointer) => Op::Write { at: self.log.dev.geometry().start(zone).plus(pointer), data, how },
        };
        if let Some(slot) = &mut self.slot {
            slot.sent(place.pointer.is_some());
        }
        let io = self.log.dev.submit(op);
        self.flying.extend(self.held.take().map(|place| Part { io, place }));
    }

    /// A place for one part more, when the zone has none: what is in flight leaves it first, for the next one may wait
    /// for that.
    async fn further(&mut self, blocks: u64) -> Result<Arc<Zone>> {
        poll_fn(|cx| self.land(cx)).await;
        if let Some(error) = self.failed.take() {
            let _void = self.log.void(self.first, self.count, true).wait().await;
            self.over = true;
            return Err(error);
        }
        let got = self.log.enter(blocks).await;
        if got.is_err() {
            // With a part missing the record is void by itself; the void lets its ticket be done, when there is room.
            self.over = true;
            let _later = self.log.void(self.first, self.count, true);
        }
        got
    }

    /// Takes in what the device has done with the parts.
    fn land(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut at = 0;
        while let Some(part) = self.flying.get_mut(at) {
            let Poll::Ready(result) = Pin::new(&mut part.io).poll(cx) else {
                at += 1;
                continue;
            };
            let part = self.flying.swap_remove(at);
            let zone = &part.place.zone;
            if let Err(error) = self.landed(&part, result) {
                self.failed.get_or_insert(error);
                self.log.broken(zone);
            }
            if self.whole && self.flying.is_empty() && self.failed.is_none() {
                // Before it leaves: whoever finds the zone drained finds its tickets done.
                self.log.done(self.first, self.count);
                self.over = true;
            }
            if part.place.leave(&self.log) {
                self.log.drained(zone);
            }
            if self.log.is_nearly_full(zone) && zone.warn() {
                self.log.work.notify();
            }
            if self.log.closed.load(Ordering::Acquire) {
                self.log.switched.notify();
            }
        }
        if self.flying.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn landed(&self, part: &Part, result: zoned::Result<Done>) -> Result<()> {
        const DOING: &str = "appending to a parallel log";
        let (zone, done) = (part.place.zone.segment.zone, result.map_err(|e| Error::device(DOING, e))?);
        match (part.place.pointer, done) {
            (Some(_), _) => {
                self.log.counters.writes.fetch_add(1, Ordering::Relaxed);
            }
            (None, Done::At(at)) if self.log.dev.geometry().zone_of(at) == Some(zone) => {}
            (None, Done::At(at)) => {
                let why = format!("the device put an entry for zone {zone} at {at:?}");
                return Err(Error::new(ErrorKind::Invalid, DOING).because(why));
            }
            (None, other) => {
                let why = format!("the device answered {other:?} to an append");
                return Err(Error::new(ErrorKind::Invalid, DOING).because(why));
            }
        }
        self.log.counters.appends.fetch_add(1, Ordering::Relaxed);
        self.log.counters.blocks.fetch_add(part.place.blocks, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for all parts. A failed entry is void, durably, before its error is given.
    async fn finish(&mut self) -> Result<()> {
        self.whole = true;
        poll_fn(|cx| self.land(cx)).await;
        let Some(error) = self.failed.take() else {
            if let Some(slot) = &mut self.slot {
                slot.landed();
            }
            return Ok(());
        };
        self.over = true;
        let void = self.log.void(self.first, self.count, true);
        if self.log.rules.omits_voids() {
            return Err(error);
        }
        match void.wait().await {
            Ok(()) => Err(error),
            Err(_) => {
                // Whoever takes it for a write that failed for good would be wrong.
                let why = "nor could its record be taken back: it may come back when the log is opened again";
                Err(Error::new(ErrorKind::Poisoned, "appending to a parallel log")
                    .because(why)
                    .caused_by(error))
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Some(place) = self.held.take() {
            // It panicked while a part was made or handed over: where the zone's pointer is nobody knows.
            self.log.broken(&place.zone);
            if place.leave(&self.log) {
                self.log.drained(&place.zone);
            }
        }
        let mut rest = Entry {
            log: Arc::clone(&self.log),
            first: self.first,
            count: self.count,
            held: None,
            flying: std::mem::take(&mut self.flying),
            slot: self.slot.take(),
            whole: self.whole,
            failed: self.failed.take(),
            over: false,
        };
        self.over = true;
        self.log.driver().drive(Box::pin(async move {
            if !rest.whole {
                // The record was never handed to the device as a whole: it is void by its missing parts.
                poll_fn(|cx| rest.land(cx)).await;
                rest.over = true;
                let _later = rest.log.void(rest.first, rest.count, true);
                return;
            }
            if let Err(error) = rest.finish().await {
                tracing::debug!(%error, ticket = rest.first, "an append that nobody waited for failed");
            }
        }));
    }
}
