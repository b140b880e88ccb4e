//! What a rebuild and a scrub share: their pace beside clients, and reading what lies on a drive as it should be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use units::sleep_until;
use zoned::{BufMut, ErrorKind, Io, Op, Result, ZoneId};

use crate::background::jobs::Job;
use crate::background::pace::{KEPT, Pacer};
use crate::core::Core;
use crate::degraded::failure::Patience;
use crate::layout::{Slot, Stripe};
use crate::mount::zone_rewrite;

/// Bytes of each drive that are read and written at a time beside clients, and without.
const SHARED_CHUNK: u64 = 64 << 10;
const CHUNK: u64 = 512 << 10;
/// A job that waits for its turn looks this often whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Chunks in flight without clients.
const DEPTH: usize = 12;

/// The clients' latencies, while somebody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    watchers: AtomicU32,
    seen: Mutex<Vec<Duration>>,
}

impl Watch {
    pub(crate) fn is_on(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    fn saw(&self, latency: Duration) {
        let mut seen = self.seen.lock();
        if seen.len() < KEPT {
            seen.push(latency);
        }
    }
}

impl Core {
    /// Submits an operation and notes how long it takes.
    pub(crate) fn submit_watched(self: &Arc<Core>, op: Op) -> Io {
        if !matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Append { .. }) {
            return self.route(op);
        }
        let began = self.driver.now();
        let io = self.route(op);
        let core = Arc::clone(self);
        Io::spawn(&self.driver, &self.geometry.name, async move {
            let result = io.await;
            core.watch.saw(core.driver.now().since(began));
            result
        })
    }
}

/// A job with its pace.
pub(crate) struct Runner {
    pub core: Arc<Core>,
    pub job: Arc<Job>,
    pacer: Pacer,
}

impl Runner {
    pub(crate) fn new(core: &Arc<Core>, job: &Arc<Job>, pace: crate::Pace) -> Runner {
        core.watch.watchers.fetch_add(1, Ordering::Relaxed);
        let pacer = Pacer::new(pace, core.driver.now());
        Runner { core: Arc::clone(core), job: Arc::clone(job), pacer }
    }

    /// Takes in what clients saw.
    fn look(&mut self) {
        let mut seen = std::mem::take(&mut *self.core.watch.seen.lock());
        self.pacer.clients(self.core.driver.now(), &mut seen);
    }

    /// Rows of the next chunk, and how many chunks may be in flight.
    pub(crate) fn window(&mut self) -> (u64, usize) {
        self.look();
        let block = u64::from(self.core.geometry.block_size);
        let now = self.core.driver.now();
        let (bytes, depth) = if self.pacer.is_shared(now) { (SHARED_CHUNK, 1) } else { (CHUNK, DEPTH) };
        ((bytes / block).clamp(1, self.core.longest_read()), depth)
    }

    /// Waits until `rows` more may be read. False where the job is to end.
    pub(crate) async fn turn(&mut self, rows: u64) -> bool {
        let bytes = rows * u64::from(self.core.geometry.block_size);
        loop {
            if self.job.is_ended_early() {
                return false;
            }
            self.look();
            let now = self.core.driver.now();
            let at = self.pacer.ask(now, bytes);
            if at <= now {
                return true;
            }
            // At a low rate the next turn may be far away; the job's end is not.
            sleep_until(&*self.core.driver, at.min(now.after(LOOK))).await;
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.core.watch.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Rows that every member's drive gives at once.
    fn longest_read(&self) -> u64 {
        let devices = self.members.iter().filter_map(|member| member.device());
        devices.map(|device| device.geometry().max_transfer.0).min().unwrap_or(u64::MAX).max(1)
    }

    /// Reads rows of a member's physical zone. `None` where the drive is missing.
    pub(crate) fn read_rows(&self, id: ZoneId, slot: Slot, row: u64, rows: u64) -> Option<Io<BufMut>> {
        self.member(slot).read(id, row, BufMut::zeroed(self.bytes(rows))).ok()
    }

    /// What a read gave, or the last of several like it where its error may pass: nothing is wrong with the drive then.
    pub(crate) async fn patiently(
        &self,
        id: ZoneId,
        slot: Slot,
        (row, rows): (u64, u64),
        mut read: Result<BufMut>,
    ) -> Result<BufMut> {
        let mut patience = Patience::default();
        while let Err(error) = &read
            && patience.outlasts(&*self.driver, error).await
        {
            let Some(again) = self.read_rows(id, slot, row, rows) else { break };
            read = again.await;
        }
        read
    }

    /// What belongs in rows that were read: relocated units are put over them.
    pub(crate) fn settle(&self, id: ZoneId, slot: Slot, row: u64, data: &mut BufMut) {
        zone_rewrite::content(self, id, slot, row, data);
    }

    /// Rows of a member's physical zone as they should be. Where the drive cannot read some, those do that are held
    /// elsewhere; where an error may pass the read is tried again.
    pub(crate) async fn rows_of(&self, id: ZoneId, slot: Slot, row: u64, rows: u64) -> Result<BufMut> {
        let gone = || self.error(ErrorKind::Gone, "read").in_zone(id);
        let read = self.read_rows(id, slot, row, rows).ok_or_else(gone)?.await;
        let mut data = match self.patiently(id, slot, (row, rows), read).await {
            Ok(data) => data,
            Err(e) if e.kind() != ErrorKind::Media => return Err(e),
            Err(_) => {
                let mut data = BufMut::with_capacity(self.bytes(rows));
                for row in row..row + rows {
                    if self.is_held(id, slot, row) {
                        data.extend_from_slice(&BufMut::zeroed(self.bytes(1)));
                    } else {
                        let read = self.read_rows(id, slot, row, 1).ok_or_else(gone)?.await;
                        data.extend_from_slice(&self.patiently(id, slot, (row, 1), read).await?);
                    }
                }
                data
            }
        };
        self.settle(id, slot, row, &mut data);
        Ok(data)
    }

    /// Whether what belongs in a row is known without its drive.
    fn is_held(&self, id: ZoneId, slot: Slot, row: u64) -> bool {
        let zone = self.zone(id);
        let stripe = Stripe(row / self.layout.unit);
        let parity = self.layout.parity(id, stripe) == slot
            && zone.relocated.contains_key(&stripe)
            && !self.member(slot).lost.hits(id, &(row..row + 1));
        parity || zone.patches.held(self.bytes(1), slot, row, 1).is_some()
    }
}
