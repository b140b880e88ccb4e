//! The tasks of the leader and of the servers' logs.

use std::sync::Arc;

use units::sleep_until;
use zoned::{Action, Buf, BufMut, Bytes, Durability, Io, IoClass, ZoneId, ZonedDevice};

use super::cluster::Cluster;
use super::server::Server;

/// The most entries of a proposal, so that a leader computes for some while others are on their way.
const ENTRIES_OF_PROPOSAL: u64 = 16;
/// Bytes of a vote in the log.
const VOTE_BYTES: u64 = 64;
/// Zones that the log goes round, from zone 0 on: nothing reads it, and one of the zones is empty.
pub(super) const LOG_ZONES: u32 = 3;

/// Takes requests of clients and proposes their entries, for ever.
pub(super) async fn lead(cluster: Arc<Cluster>) {
    loop {
        let requests = cluster.take_requests(ENTRIES_OF_PROPOSAL).await;
        let entries: u64 = requests.iter().map(|requests| requests.count).sum();
        let computes = cluster.load.leader_time * u32::try_from(entries).unwrap_or(u32::MAX);
        sleep_until(&*cluster.driver, cluster.now().after(computes)).await;
        cluster.propose(requests);
    }
}

/// Writes the log of server `at`, for ever: all that waits in one append, and one append at a time.
pub(super) async fn write_log(cluster: Arc<Cluster>, at: usize) -> zoned::Result<()> {
    let server = cluster.server(at);
    let mut zones = LogZones::new(server);
    let most = (zones.most_bytes / cluster.load.entry.0).max(1);
    loop {
        let version = server.log_work.version();
        let (end, votes) = {
            let mut state = server.state.lock();
            (state.received.min(state.durable + most), std::mem::take(&mut state.votes))
        };
        let entries = end - server.state.lock().durable;
        if entries == 0 && votes.is_empty() {
            server.log_work.changed_since(version).await;
            continue;
        }
        let bytes = entries * cluster.load.entry.0 + votes.len() as u64 * VOTE_BYTES;
        let begun = cluster.now();
        zones.append(bytes).await?;
        let longest = {
            let mut state = server.state.lock();
            state.durable = end;
            state.syncs.note(cluster.now(), begun);
            state.entries_since_snapshot()
        };
        {
            let mut tally = cluster.tally.lock();
            tally.longest_log = tally.longest_log.max(longest);
        }
        cluster.durable(at, end, votes);
    }
}

/// The zones of a server's log.
struct LogZones {
    device: Arc<dyn ZonedDevice>,
    /// Bytes of the longest append.
    most_bytes: u64,
    zeros: Buf,
    zone: u32,
    written: u64,
    /// The reset of the next zone.
    reset: Option<Io<()>>,
}

impl LogZones {
    fn new(server: &Server) -> LogZones {
        let device = server.device.class(IoClass::Log);
        let geometry = device.geometry();
        // A vote or two come on top of the entries, and the whole is rounded up to blocks.
        let block = u64::from(geometry.block_size);
        let longest = geometry.max_append.bytes(geometry.block_size).0;
        let zeros = BufMut::zeroed(usize::try_from(longest).expect("an append fits memory")).freeze();
        let most_bytes = longest.saturating_sub(block).max(block);
        LogZones { device, most_bytes, zeros, zone: 0, written: 0, reset: None }
    }

    /// Appends `bytes`, rounded up to blocks, durably.
    async fn append(&mut self, bytes: u64) -> zoned::Result<()> {
        let geometry = self.device.geometry();
        let blocks = Bytes(bytes).blocks_ceil(geometry.block_size).min(geometry.max_append);
        if self.written + blocks.0 > geometry.zone_capacity.0 {
            if let Some(reset) = self.reset.take() {
                reset.await?;
            }
            self.zone = (self.zone + 1) % LOG_ZONES;
            self.written = 0;
            self.reset = Some(self.device.zone(ZoneId((self.zone + 1) % LOG_ZONES), Action::Reset));
        }
        let len = usize::try_from(blocks.bytes(geometry.block_size).0).expect("an append fits memory");
        self.device.append(ZoneId(self.zone), self.zeros.slice(0..len), Durability::Durable).await?;
        self.written += blocks.0;
        Ok(())
    }
}
