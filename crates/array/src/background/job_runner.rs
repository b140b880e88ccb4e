//! The pace of a background job beside clients.

use std::sync::Arc;
use std::time::Duration;

use units::sleep_until;

use crate::Pace;
use crate::background::jobs::Job;
use crate::background::pace::Pacer;
use crate::core::Core;

/// Bytes of each drive that a background job reads or writes at a time while clients are active.
const CHUNK_BYTES_BESIDE_CLIENTS: u64 = 64 << 10;
/// Bytes of each drive that a background job reads or writes at a time without clients.
const CHUNK_BYTES_ALONE: u64 = 512 << 10;
/// The longest sleep of a background job, which must notice its cancellation.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Chunks that a background job has in flight without clients.
const MAX_CHUNKS_IN_FLIGHT: usize = 12;

/// A job with its pace.
pub(crate) struct Runner {
    pub core: Arc<Core>,
    pub job: Arc<Job>,
    pacer: Pacer,
    /// The job does not regard clients while first writes of zones wait for room.
    hurries: bool,
}

impl Runner {
    pub(crate) fn new(core: &Arc<Core>, job: &Arc<Job>, pace: Pace) -> Runner {
        core.latencies.begin();
        let pacer = Pacer::new(pace, core.ctx.driver.now());
        Runner { core: Arc::clone(core), job: Arc::clone(job), pacer, hurries: false }
    }

    /// The job makes room for first writes: while one waits, the drives alone limit the pace.
    pub(crate) fn in_a_hurry_for_room(mut self) -> Runner {
        self.hurries = true;
        self
    }

    fn is_urgent(&self) -> bool {
        self.hurries && self.core.zones.shared().is_some_and(|shared| shared.requests.any())
    }

    /// Hands new latency samples of the clients to the pacer.
    fn feed_latencies_to_pacer(&mut self) {
        let mut seen = self.core.latencies.take();
        self.pacer.add_client_latencies(self.core.ctx.driver.now(), &mut seen);
    }

    /// The rows of a background job's next chunk, and how many chunks may be in flight.
    pub(crate) fn next_chunk_rows(&mut self) -> (u64, usize) {
        self.feed_latencies_to_pacer();
        let block = u64::from(self.core.ctx.geometry.block_size);
        let now = self.core.ctx.driver.now();
        let (bytes, depth) = if self.pacer.has_clients(now) && !self.is_urgent() {
            (CHUNK_BYTES_BESIDE_CLIENTS, 1)
        } else {
            (CHUNK_BYTES_ALONE, MAX_CHUNKS_IN_FLIGHT)
        };
        ((bytes / block).clamp(1, self.core.reconstruct.longest_read()), depth)
    }

    /// Waits until the job may read `rows` more. False if the job is to end.
    pub(crate) async fn wait_for_turn(&mut self, rows: u64) -> bool {
        let bytes = rows * u64::from(self.core.ctx.geometry.block_size);
        loop {
            if self.job.is_ended_early() {
                return false;
            }
            self.feed_latencies_to_pacer();
            if self.is_urgent() {
                return true;
            }
            let now = self.core.ctx.driver.now();
            let at = self.pacer.ask(now, bytes);
            if at <= now {
                return true;
            }
            sleep_until(&*self.core.ctx.driver, at.min(now.after(MAX_SLEEP))).await;
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.core.latencies.end();
    }
}
