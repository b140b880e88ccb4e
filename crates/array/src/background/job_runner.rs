//! The pace of a background job beside clients.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::sleep_until;

use crate::Pace;
use crate::background::jobs::Job;
use crate::background::pace::Pacer;
use crate::core::Core;
use crate::layout::Slot;
use crate::zone::shared_zones::SharedZones;

/// Bytes of each drive that a background job reads or writes at a time while clients are active.
const CHUNK_BYTES_BESIDE_CLIENTS: u64 = 64 << 10;
/// Bytes of each drive that a background job reads or writes at a time without clients.
pub(crate) const CHUNK_BYTES_ALONE: u64 = 512 << 10;
/// The longest sleep of a background job, which must notice its cancellation.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Empty physical zones of a drive at which a reclaim does not regard clients any more.
const LITTLE_ROOM: usize = 3;
/// Chunks that a background job has in flight. Beside clients the rate is limited, and not the number in flight.
const MAX_CHUNKS_IN_FLIGHT: usize = 12;

/// A job with its pace.
pub(crate) struct Runner {
    pub core: Arc<Core>,
    pub job: Arc<Job>,
    /// The rate of the job, which all tasks of the job share.
    pacer: Arc<Mutex<Pacer>>,
    /// Chunks that the runner has in flight at most.
    chunks_in_flight: usize,
    /// The drive that the job makes room on: it does not regard clients while first writes of zones wait for room, or soon will.
    makes_room_on: Option<Slot>,
}

impl Runner {
    pub(crate) fn new(core: &Arc<Core>, job: &Arc<Job>, pace: Pace) -> Runner {
        core.client_operations.begin_job();
        let pacer = Arc::new(Mutex::new(Pacer::new(pace, core.ctx.driver.now())));
        Runner {
            core: Arc::clone(core),
            job: Arc::clone(job),
            pacer,
            chunks_in_flight: MAX_CHUNKS_IN_FLIGHT,
            makes_room_on: None,
        }
    }

    /// A runner of another task of the same job, which has at most `chunks` in flight. The pace is that of all tasks together.
    pub(crate) fn of_task(&self, chunks: usize) -> Runner {
        self.core.client_operations.begin_job();
        Runner {
            core: Arc::clone(&self.core),
            job: Arc::clone(&self.job),
            pacer: Arc::clone(&self.pacer),
            chunks_in_flight: chunks.clamp(1, MAX_CHUNKS_IN_FLIGHT),
            makes_room_on: self.makes_room_on,
        }
    }

    /// The job makes room on a drive for first writes: while one waits, or little room is left, the drives alone limit the pace.
    pub(crate) fn makes_room_on(mut self, slot: Slot) -> Runner {
        self.makes_room_on = Some(slot);
        self
    }

    /// True while first writes of zones wait for the room that the job makes, or soon will.
    pub(crate) fn is_urgent(&self) -> bool {
        let lacks_room =
            |shared: &SharedZones, slot| shared.requests.any() || shared.empty_zones(slot) <= LITTLE_ROOM;
        let shared = self.core.zones.shared().zip(self.makes_room_on);
        shared.is_some_and(|(shared, slot)| lacks_room(shared, slot))
    }

    /// Hands what clients' operations did since the last call to the pacer.
    fn feed_pacer(&self) {
        let (events, in_flight) = self.core.client_operations.take();
        self.pacer.lock().add_client_events(self.core.ctx.driver.now(), events, in_flight);
    }

    /// How many chunks may be in flight.
    pub(crate) fn chunks_in_flight(&self) -> usize {
        self.chunks_in_flight
    }

    /// The rows of a background job's next chunk.
    pub(crate) fn next_chunk_rows(&self) -> u64 {
        self.feed_pacer();
        let block = u64::from(self.core.ctx.geometry.block_size);
        let now = self.core.ctx.driver.now();
        let has_clients = self.pacer.lock().has_clients(now);
        let is_paced = has_clients && !self.is_urgent();
        let bytes = if is_paced { CHUNK_BYTES_BESIDE_CLIENTS } else { CHUNK_BYTES_ALONE };
        (bytes / block).clamp(1, self.core.reconstruct.longest_read())
    }

    /// Waits until the job may read `rows` more. False if the job is to end.
    pub(crate) async fn wait_for_turn(&mut self, rows: u64) -> bool {
        let bytes = rows * u64::from(self.core.ctx.geometry.block_size);
        loop {
            if self.job.is_ended_early() {
                return false;
            }
            self.feed_pacer();
            if self.is_urgent() {
                return true;
            }
            let now = self.core.ctx.driver.now();
            let at = self.pacer.lock().ask(now, bytes);
            if at <= now {
                return true;
            }
            sleep_until(&*self.core.ctx.driver, at.min(now.after(MAX_SLEEP))).await;
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.core.client_operations.end_job();
    }
}
