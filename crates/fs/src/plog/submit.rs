//! One entry on its way: a place in the gate, tickets, the parts in flight, and what becomes of them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use zoned::{Done, Durability, Io, Op};

use super::inner::Inner;
use super::zone::Zone;
use crate::log::entry::EntryHeader;
use crate::log::parallel::{MAX_RECORD, payload_len, seal};
use crate::{Error, ErrorKind, Result, Sabotage};

/// What is left in a zone when the keeper is told, as a fraction of it, and in longest appends.
const LITTLE: u64 = 32;
const LITTLE_APPENDS: u64 = 4;

/// A part in flight.
#[derive(Debug)]
struct Part {
    io: Io,
    zone: Arc<Zone>,
    blocks: u64,
}

/// An entry whose first part is submitted. It outlives the task that waits for it: dropped, it goes on by itself.
struct Entry {
    log: Arc<Inner>,
    first: u64,
    count: u64,
    flying: Vec<Part>,
    /// Every part is submitted.
    whole: bool,
    failed: Option<Error>,
    /// There is nothing left to do.
    over: bool,
}

impl Inner {
    /// Appends records as one entry; gives the ticket of the first. They are acknowledged on return.
    pub(super) async fn append(self: &Arc<Inner>, records: &[&[u8]]) -> Result<u64> {
        self.check_usable()?;
        let len = payload_len(records.iter().map(|r| r.len()));
        let parts = self.cutting.parts(len).filter(|parts| {
            let fit = records.iter().all(|r| r.len() as u64 <= MAX_RECORD.0);
            fit && (*parts == 1 || records.len() == 1)
        });
        let Some(parts) = parts else {
            let most = usize::from(u16::MAX) * self.cutting.room();
            let why = format!("a record of {len} bytes: at most {} fit here", MAX_RECORD.0.min(most as u64));
            return Err(Error::new(ErrorKind::TooLarge, "appending to a parallel log").because(why));
        };
        let count = u64::try_from(records.len()).expect("fits");
        let blocks = self.cutting.blocks(self.cutting.length(len, 0));
        let (first, mut zone) = self.begin(blocks, count).await?;
        // Nothing between the ticket and the submission of its first part can fail, or be dropped.
        let mut entry = Entry {
            log: Arc::clone(self),
            first,
            count,
            flying: Vec::with_capacity(usize::from(parts)),
            whole: false,
            failed: None,
            over: false,
        };
        let header = EntryHeader { parts, ..self.header(first) };
        for part in 0..parts {
            let length = self.cutting.length(len, part);
            let blocks = self.cutting.blocks(length);
            if part > 0 {
                zone = match self.try_enter(blocks) {
                    Some(zone) => zone,
                    None => entry.further(blocks).await?,
                };
            }
            let length = u32::try_from(length).expect("a part is shorter than MAX_PART");
            let header = EntryHeader { generation: zone.segment.generation, part, length, ..header };
            let skip = usize::from(part) * self.cutting.room();
            let data = seal(header, records, skip, &zone.home, self.cutting.block_size);
            entry.fly(zone.clone(), blocks, data);
        }
        entry.whole = true;
        entry.finish().await?;
        self.counters.records.fetch_add(count, Ordering::Relaxed);
        Ok(first)
    }

    /// A place for `blocks`, and tickets for who has it.
    async fn begin(&self, blocks: u64, count: u64) -> Result<(u64, Arc<Zone>)> {
        loop {
            let zone = match self.try_enter(blocks) {
                Some(zone) => zone,
                None => self.enter(blocks).await?,
            };
            if let Some(first) = self.tickets.take(count) {
                return Ok((first, zone));
            }
            if zone.gate.turn_back(blocks) {
                self.drained(&zone);
            }
            self.wait_for_tickets(count).await?;
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
    fn fly(&mut self, zone: Arc<Zone>, blocks: u64, data: zoned::Buf) {
        let op = Op::Append { zone: zone.segment.zone, data, how: Durability::Cached };
        let io = self.log.dev.submit(op);
        self.flying.push(Part { io, zone, blocks });
    }

    /// A place for one part more, when the zone has none: what is in flight leaves it first, for the next one may wait
    /// for that.
    async fn further(&mut self, blocks: u64) -> Result<Arc<Zone>> {
        poll_fn(|cx| self.land(cx, false)).await;
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

    /// Takes in what the device has done with the parts. `end`: nothing more is submitted.
    fn land(&mut self, cx: &mut Context<'_>, end: bool) -> Poll<()> {
        let mut at = 0;
        while let Some(part) = self.flying.get_mut(at) {
            let Poll::Ready(result) = Pin::new(&mut part.io).poll(cx) else {
                at += 1;
                continue;
            };
            let part = self.flying.swap_remove(at);
            if let Err(error) = self.landed(&part, result) {
                self.failed.get_or_insert(error);
                self.log.broken(&part.zone);
            }
            if end && self.flying.is_empty() && self.failed.is_none() {
                // Before it leaves: whoever finds the zone drained finds its tickets done.
                self.log.done(self.first, self.count);
                self.over = true;
            }
            if part.zone.gate.leave() {
                self.log.drained(&part.zone);
            }
            if self.log.is_nearly_full(&part.zone) && part.zone.warn() {
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
        let at = match result.map_err(|e| Error::device(DOING, e))? {
            Done::At(at) => at,
            other => {
                let why = format!("the device answered {other:?} to an append");
                return Err(Error::new(ErrorKind::Invalid, DOING).because(why));
            }
        };
        if self.log.dev.geometry().zone_of(at) != Some(part.zone.segment.zone) {
            let why = format!("the device put an entry for zone {} at {at:?}", part.zone.segment.zone);
            return Err(Error::new(ErrorKind::Invalid, DOING).because(why));
        }
        self.log.counters.appends.fetch_add(1, Ordering::Relaxed);
        self.log.counters.blocks.fetch_add(part.blocks, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for all parts. A failed entry is void, durably, before its error is given.
    async fn finish(&mut self) -> Result<()> {
        poll_fn(|cx| self.land(cx, true)).await;
        let Some(error) = self.failed.take() else { return Ok(()) };
        self.over = true;
        let void = self.log.void(self.first, self.count, true);
        if self.log.sabotage == Some(Sabotage::Void) {
            return Err(error);
        }
        match void.wait().await {
            Ok(()) => Err(error),
            Err(_) => {
                // Whoever takes it for a write that failed for good would be wrong.
                let why = "nor could its record be taken back: it may come back when the log is opened again";
                Err(Error::new(ErrorKind::Poisoned, "appending to a parallel log").because(why).caused_by(error))
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut rest = Entry {
            log: Arc::clone(&self.log),
            first: self.first,
            count: self.count,
            flying: std::mem::take(&mut self.flying),
            whole: self.whole,
            failed: self.failed.take(),
            over: false,
        };
        self.over = true;
        self.log.driver().drive(Box::pin(async move {
            if !rest.whole {
                // The record was never handed to the device as a whole: it is void by its missing parts.
                poll_fn(|cx| rest.land(cx, false)).await;
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
