//! Appends of a parallel log: an entry's place in a zone, its tickets, its parts in flight, and its outcome.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use units::Blocks;
use units::sync::Event;
use zoned::{Done, Durability, Io, Op, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::rules::Rules;
use crate::wal::entry::{EntryHeader, Home};
use crate::wal::parallel::counters::Counters;
use crate::wal::parallel::gate::Entered;
use crate::wal::parallel::headers::Headers;
use crate::wal::parallel::health::Health;
use crate::wal::parallel::joiner::OperationSlot;
use crate::wal::parallel::known::Known;
use crate::wal::parallel::order::Order;
use crate::wal::parallel::payload::{Joined, MAX_RECORD, PartSizes, Parts, payload_len, seal};
use crate::wal::parallel::replacement::Replacement;
use crate::wal::parallel::striping::Striping;
use crate::wal::parallel::void::VoidQueue;
use crate::wal::parallel::zone::LogZone;

const APPENDING: &str = "appending to a parallel log";

/// Appends entries.
#[derive(Debug)]
pub(super) struct Appender {
    pub(super) dev: Arc<dyn ZonedDevice>,
    pub(super) sizes: PartSizes,
    pub(super) headers: Headers,
    pub(super) order: Arc<Order>,
    pub(super) replacement: Arc<Replacement>,
    pub(super) striping: Arc<Striping>,
    pub(super) voids: Arc<VoidQueue>,
    pub(super) health: Arc<Health>,
    pub(super) counters: Arc<Counters>,
    /// Wakes maintenance.
    pub(super) work: Event,
    pub(super) rules: Rules,
}

/// Blocks of a log zone that are allotted to one operation.
#[derive(Clone, Debug)]
struct ZonePlace {
    zone: Arc<LogZone>,
    blocks: u64,
    /// The block of the zone's write pointer, if the operation has the zone for itself alone: then the
    /// operation is a write.
    pointer: Option<Blocks>,
}

impl ZonePlace {
    /// Ends the operation at this place. True if the zone is drained by that.
    fn leave(&self, replacement: &Replacement) -> bool {
        if self.pointer.is_none() {
            return self.zone.gate.leave();
        }
        let drained = self.zone.gate.leave_exclusive();
        replacement.unblock();
        drained
    }

    /// Gives the blocks back, because no operation was submitted. True if the zone is drained by that.
    fn cancel(&self, replacement: &Replacement) -> bool {
        if self.pointer.is_none() {
            return self.zone.gate.cancel(self.blocks);
        }
        let drained = self.zone.gate.cancel_exclusive(self.blocks);
        replacement.unblock();
        drained
    }
}

/// A part in flight.
#[derive(Debug)]
struct Part {
    io: Io,
    place: ZonePlace,
}

/// An entry that has its tickets, and a place for its first part, and is not submitted yet.
struct EntryToSubmit {
    first: u64,
    /// The lowest open ticket of the log before the entry took its own.
    low: u64,
    place: ZonePlace,
    cut: Parts,
    parts: u16,
}

/// The records that an entry carries.
pub(super) enum EntryRecords<'a> {
    Record(&'a [u8]),
    Joined(Joined),
}

impl EntryRecords<'_> {
    /// Bytes of payload.
    pub(super) fn len(&self) -> usize {
        match self {
            EntryRecords::Record(record) => payload_len(std::iter::once(record.len())),
            EntryRecords::Joined(joined) => joined.len(),
        }
    }

    fn records(&self) -> u64 {
        match self {
            EntryRecords::Record(_) => 1,
            EntryRecords::Joined(joined) => u64::from(joined.count()),
        }
    }

    /// The bytes of one part of an entry. `known`: the list of known tickets for a single record's entry;
    /// joined records hold theirs already.
    fn seal(
        &mut self,
        header: EntryHeader,
        known: &Known,
        skip: usize,
        home: &Home,
        block_size: usize,
    ) -> zoned::Buf {
        match self {
            EntryRecords::Record(record) => seal(header, known, &[record], skip, home, block_size),
            EntryRecords::Joined(joined) => joined.seal(header, skip, home, block_size),
        }
    }
}

/// An entry whose first part is submitted. If the task that waits for the entry is dropped, the entry
/// finishes by itself.
struct Entry {
    log: Arc<Appender>,
    first: u64,
    count: u64,
    /// The place of the entry's next part. It is kept here so that a panic while the part is made releases
    /// it.
    held: Option<ZonePlace>,
    in_flight: Vec<Part>,
    /// The entry's slot in the joiner, until the entry has ended.
    slot: Option<OperationSlot>,
    /// True once every part of the entry is submitted.
    complete: bool,
    error: Option<Error>,
    /// True once nothing is left to do for the entry.
    ended: bool,
}

impl Appender {
    /// Appends records as one entry, of any length; returns the ticket of the first record. On return the
    /// records are acknowledged, and the joiner's `slot` is the caller's again.
    pub(super) async fn append(
        self: &Arc<Appender>,
        mut body: EntryRecords<'_>,
        slot: Option<OperationSlot>,
    ) -> (Result<u64>, Option<OperationSlot>) {
        let before = match self.postponed_voids_written().await {
            Ok(()) => self.order.acknowledged().await,
            Err(error) => Err(error),
        };
        let (known_from, known) = match before {
            Ok(before) => before,
            Err(error) => return (Err(error), slot),
        };
        let len = match &mut body {
            EntryRecords::Record(_) => body.len() + known.bytes().len(),
            EntryRecords::Joined(joined) => {
                joined.know(&known, self.sizes.block_size);
                joined.len()
            }
        };
        let count = body.records();
        let write = slot.as_ref().is_some_and(OperationSlot::is_exclusive);
        let begun = match self.health.check_usable().and_then(|()| self.check_length(len)) {
            Ok(()) => self.begin(len, count, write).await,
            Err(error) => Err(error),
        };
        let EntryToSubmit { first, low, place, cut, parts } = match begun {
            Ok(begun) => begun,
            Err(error) => return (Err(error), slot),
        };
        // Between taking the tickets and submitting the entry's first part nothing can fail, and the future
        // cannot be dropped.
        let mut entry = self.entry(first, count, slot, usize::from(parts));
        entry.held = Some(place);
        let knows = !known.bytes().is_empty();
        let needs = if knows { known_from } else { low };
        let header = EntryHeader { parts, needs, known: knows, ..self.headers.of(first) };
        for part in 0..parts {
            let length = cut.length(part);
            if part > 0 {
                let blocks = self.sizes.blocks(length);
                let zone = match self.enter_next_zone(blocks) {
                    Some(zone) => zone,
                    None => match entry.enter_zone_after_parts_end(blocks).await {
                        Ok(zone) => zone,
                        Err(error) => return (Err(error), entry.slot.take()),
                    },
                };
                entry.held = Some(ZonePlace { zone, blocks, pointer: None });
            }
            let ZonePlace { zone, .. } = entry.held.as_ref().expect("every part has its place by now");
            let length = u32::try_from(length).expect("a part is shorter than MAX_PART");
            let header = EntryHeader { generation: zone.segment.generation, part, length, ..header };
            let data = body.seal(header, &known, cut.skip(part), &zone.home, self.sizes.block_size);
            entry.submit(data);
        }
        let finished = entry.finish().await;
        if finished.is_ok() {
            self.counters.records.fetch_add(count, Ordering::Relaxed);
        }
        (finished.map(|()| first), entry.slot.take())
    }

    /// Waits until no void entry is postponed; fails where there still is no room for one. Postponed void entries are written
    /// first: otherwise a recovery could give the voided record after a record that was acknowledged later.
    async fn postponed_voids_written(&self) -> Result<()> {
        let mut times = None;
        while self.voids.has_postponed() {
            let seen = self.replacement.changed.version();
            self.health.check_usable()?;
            if let Some(why) = self.replacement.failed_since(&mut times) {
                let first = "the void entry of a failed record has to be written first, and there is no room for it; \
                             nothing is written until there is";
                return Err(Error::new(why.kind(), APPENDING).because(first).caused_by(why));
            }
            if !self.voids.has_postponed() {
                break;
            }
            self.replacement.request();
            self.replacement.changed.changed_since(seen).await;
        }
        Ok(())
    }

    /// Fails if no entry holds `len` bytes of payload, however the payload is split into parts.
    pub(super) fn check_length(&self, len: usize) -> Result<()> {
        let most = (usize::from(u16::MAX) - 1) * self.sizes.room();
        if len <= most && len as u64 <= MAX_RECORD.0 {
            return Ok(());
        }
        let why = format!("a record of {len} bytes: at most {} fit here", MAX_RECORD.0.min(most as u64));
        Err(Error::new(ErrorKind::TooLarge, APPENDING).because(why))
    }

    fn entry(
        self: &Arc<Appender>,
        first: u64,
        count: u64,
        slot: Option<OperationSlot>,
        parts: usize,
    ) -> Entry {
        Entry {
            log: Arc::clone(self),
            first,
            count,
            held: None,
            in_flight: Vec::with_capacity(parts),
            slot,
            complete: false,
            error: None,
            ended: false,
        }
    }

    /// Takes a place for the first part of an entry with `len` bytes of payload, and `count` tickets.
    /// `alone`: the place is in a zone without any other operation, if there is such a zone and the entry has
    /// a single part.
    async fn begin(&self, len: usize, count: u64, alone: bool) -> Result<EntryToSubmit> {
        self.postponed_voids_written().await?;
        loop {
            let mut cut = self.cut(len);
            let blocks = |cut: &Parts| self.sizes.blocks(cut.length(0));
            let alone = alone && cut.count() == Some(1);
            let place = match alone.then(|| self.replacement.try_enter_exclusive(blocks(&cut))).flatten() {
                Some((zone, used)) => {
                    let pointer = Blocks(zone.segment.start.0 + used);
                    ZonePlace { zone, blocks: blocks(&cut), pointer: Some(pointer) }
                }
                None => {
                    let zone = match self.replacement.try_enter(blocks(&cut)) {
                        Ok(zone) => zone,
                        Err(_) => {
                            cut = self.sizes.whole(len);
                            self.replacement.enter(blocks(&cut)).await?
                        }
                    };
                    ZonePlace { zone, blocks: blocks(&cut), pointer: None }
                }
            };
            if place.zone.gate.in_flight() > 1 {
                self.striping.widen();
            }
            // The lowest open ticket is read after the place is taken, so that it covers every ticket
            // acknowledged before the zone became active (see `Replacement::try_install`); and before the
            // entry takes its own tickets.
            let low = self.order.low();
            if let Some(first) = self.order.take(count) {
                let parts = cut.count().expect("checked against the most parts of an entry");
                return Ok(EntryToSubmit { first, low, place, cut, parts });
            }
            if place.cancel(&self.replacement) {
                self.replacement.drained(&place.zone);
            }
            self.order.wait_for(count).await?;
        }
    }

    /// How an entry's payload is split into parts. If the active zone has less room than the first part would
    /// take, the first part fills the zone. Not with a volatile cache: an entry that goes on in another zone
    /// waits until its parts in the old zone are durable.
    fn cut(&self, len: usize) -> Parts {
        if self.replacement.stripe.is_wide() {
            return self.sizes.striped(len, self.replacement.stripe.zones());
        }
        let whole = self.sizes.whole(len);
        if self.replacement.volatile {
            return whole;
        }
        let left = self.replacement.active.load().as_ref().map_or(0, |zone| zone.gate.left());
        if left >= self.sizes.blocks(whole.length(0)) { whole } else { self.sizes.filling(len, left) }
    }

    /// Takes a place for a further part of the entry: in the active zone, or in the next one if that zone can
    /// become active at once.
    fn enter_next_zone(&self, blocks: u64) -> Option<Arc<LogZone>> {
        let replacement = &self.replacement;
        match replacement.try_enter(blocks) {
            Ok(zone) => Some(zone),
            Err(Entered::Shut) if !replacement.volatile => {
                let active = replacement.active.load_full();
                if replacement.replace(active.as_ref()) { replacement.try_enter(blocks).ok() } else { None }
            }
            Err(_) => None,
        }
    }
}

impl Entry {
    /// Submits a part of the entry to the place that is held for it.
    fn submit(&mut self, data: zoned::Buf) {
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
        self.in_flight.extend(self.held.take().map(|place| Part { io, place }));
    }

    /// Takes a place for a further part of the entry in the next zone. All parts in flight end first: the
    /// next zone may become active only then.
    async fn enter_zone_after_parts_end(&mut self, blocks: u64) -> Result<Arc<LogZone>> {
        poll_fn(|cx| self.take_ended_parts(cx)).await;
        if let Some(error) = self.error.take() {
            let _void = self.log.voids.request(self.first, self.count, true).wait().await;
            self.ended = true;
            return Err(error);
        }
        let got = self.log.replacement.enter(blocks).await;
        if got.is_err() {
            // The entry does not count, because a part is missing. The void entry, once there is room for it,
            // completes the tickets.
            self.ended = true;
            let _later = self.log.voids.request(self.first, self.count, true);
        }
        got
    }

    /// Takes the results of the entry's parts that the device has finished.
    fn take_ended_parts(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut at = 0;
        while let Some(part) = self.in_flight.get_mut(at) {
            let Poll::Ready(result) = Pin::new(&mut part.io).poll(cx) else {
                at += 1;
                continue;
            };
            let part = self.in_flight.swap_remove(at);
            let zone = &part.place.zone;
            if let Err(error) = self.part_ended(&part, result) {
                self.error.get_or_insert(error);
                self.log.replacement.zone_failed(zone);
            }
            if self.complete && self.in_flight.is_empty() && self.error.is_none() {
                // The tickets are completed before the part leaves the zone: a drained zone has no open
                // ticket.
                self.log.order.complete(self.first, self.count);
                self.ended = true;
            }
            if part.place.leave(&self.log.replacement) {
                self.log.replacement.drained(zone);
            }
            if zone.is_nearly_full(self.log.sizes.longest) && zone.announce() {
                self.log.work.notify();
            }
            if self.log.health.is_closed() {
                self.log.replacement.changed.notify();
            }
        }
        if self.in_flight.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn part_ended(&self, part: &Part, result: zoned::Result<Done>) -> Result<()> {
        let zone = part.place.zone.segment.zone;
        let done = result.map_err(|e| Error::device(APPENDING, e))?;
        let counters = &self.log.counters;
        match (part.place.pointer, done) {
            (Some(_), _) => counters.writes.fetch_add(1, Ordering::Relaxed),
            (None, Done::At(at)) if self.log.dev.geometry().zone_of(at) == Some(zone) => {
                counters.appends.fetch_add(1, Ordering::Relaxed)
            }
            (None, Done::At(at)) => {
                let why = format!("the device put an entry for zone {zone} at {at:?}");
                return Err(Error::new(ErrorKind::Invalid, APPENDING).because(why));
            }
            (None, other) => {
                let why = format!("the device answered {other:?} to an append");
                return Err(Error::new(ErrorKind::Invalid, APPENDING).because(why));
            }
        };
        counters.blocks.fetch_add(part.place.blocks, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for all parts of the entry. If one failed, a void entry is durable before the error is returned.
    async fn finish(&mut self) -> Result<()> {
        self.complete = true;
        poll_fn(|cx| self.take_ended_parts(cx)).await;
        let Some(error) = self.error.take() else {
            if let Some(slot) = &mut self.slot {
                slot.acknowledged();
            }
            return Ok(());
        };
        self.ended = true;
        let void = self.log.voids.request(self.first, self.count, true);
        if self.log.rules.omits_voids() {
            return Err(error);
        }
        match void.wait().await {
            Ok(()) => Err(error),
            Err(_) => {
                // The device's error is not returned: the caller would conclude from it that the record does
                // not exist.
                let why = "the void entry of its record failed too: the next opening of the log may replay the record";
                Err(Error::new(ErrorKind::Poisoned, APPENDING).because(why).caused_by(error))
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Some(place) = self.held.take() {
            // A panic interrupted the making or submitting of a part: the zone's write pointer is unknown.
            self.log.replacement.zone_failed(&place.zone);
            if place.leave(&self.log.replacement) {
                self.log.replacement.drained(&place.zone);
            }
        }
        let mut rest = Entry {
            log: Arc::clone(&self.log),
            first: self.first,
            count: self.count,
            held: None,
            in_flight: std::mem::take(&mut self.in_flight),
            slot: self.slot.take(),
            complete: self.complete,
            error: self.error.take(),
            ended: false,
        };
        self.ended = true;
        self.log.dev.driver().drive(Box::pin(async move {
            if !rest.complete {
                // The entry does not count, because some of its parts were not submitted.
                poll_fn(|cx| rest.take_ended_parts(cx)).await;
                rest.ended = true;
                let _later = rest.log.voids.request(rest.first, rest.count, true);
                return;
            }
            if let Err(error) = rest.finish().await {
                tracing::debug!(%error, ticket = rest.first, "an append that nobody waited for failed");
            }
        }));
    }
}
