//! The task that writes a server's snapshots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use units::{Instant, sleep_until};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, Io, IoClass, ZoneId, ZonedDevice};

use super::cluster::Cluster;
use super::replication::LOG_ZONES;
use super::rules::Rule;
use super::server::SnapshotUnderWay;

/// Bytes of a write of a snapshot.
const PIECE_BYTES: u64 = 256 << 10;
/// The most such writes in flight.
const PIECES_IN_FLIGHT: usize = 32;
/// A server that may not write looks this often whether it may.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Writes the snapshots of server `at` as `rule` lets it, for ever.
pub(super) async fn write_snapshots(cluster: Arc<Cluster>, rule: Arc<Rule>, at: usize) -> zoned::Result<()> {
    let mut writer = Writer::new(Arc::clone(&cluster), at);
    loop {
        sleep_until(&*cluster.driver, writer.next).await;
        let Some(rate) = rule.rate(&cluster, at) else {
            writer.drain().await?;
            rule.nothing_in_flight(at);
            writer.set_writing(false);
            sleep_until(&*cluster.driver, cluster.now().after(LOOKS_EVERY)).await;
            continue;
        };
        writer.set_writing(true);
        if writer.write_piece(rate).await? == 0 {
            writer.finish().await?;
            rule.durable(at);
            writer.set_writing(false);
        }
    }
}

/// The most bytes a second that a writer goes by: at a higher rate, writes go as the drive takes them.
const FASTEST: u64 = 1 << 40;

/// The writer of a server's snapshots, which go round the zones behind the log's.
struct Writer {
    cluster: Arc<Cluster>,
    at: usize,
    device: Arc<dyn ZonedDevice>,
    zones: u32,
    zeros: Buf,
    zone: u32,
    written: u64,
    in_flight: VecDeque<(Io<()>, u64)>,
    /// The time at which the next piece may go.
    next: Instant,
    is_writing: bool,
}

impl Writer {
    fn new(cluster: Arc<Cluster>, at: usize) -> Writer {
        let device = cluster.server(at).device.class(IoClass::Flush);
        let zones = device.geometry().zones;
        let next = cluster.now();
        let zeros = BufMut::zeroed(PIECE_BYTES as usize).freeze();
        let (zone, in_flight) = (LOG_ZONES, VecDeque::new());
        Writer { cluster, at, device, zones, zeros, zone, written: 0, in_flight, next, is_writing: false }
    }

    fn set_writing(&mut self, writes: bool) {
        if std::mem::replace(&mut self.is_writing, writes) != writes {
            self.cluster.tally.lock().set_writing(self.at, writes);
        }
    }

    /// Writes the next piece: the one after it may go when this one is over at `rate` bytes a second. Returns the bytes that are left to write.
    async fn write_piece(&mut self, rate: u64) -> zoned::Result<u64> {
        let left = self.begin();
        let (device, block_size) = (Arc::clone(&self.device), self.device.geometry().block_size);
        let geometry = device.geometry();
        if self.written == geometry.zone_capacity.0 {
            self.drain().await?;
            self.zone = if self.zone + 1 == self.zones { LOG_ZONES } else { self.zone + 1 };
            self.written = 0;
            device.zone(ZoneId(self.zone), Action::Reset).await?;
        }
        let most = Blocks(geometry.zone_capacity.0 - self.written);
        let blocks = Bytes(left.min(PIECE_BYTES)).blocks_ceil(block_size).min(most);
        let bytes = blocks.bytes(block_size).0;
        let data = self.zeros.slice(0..usize::try_from(bytes).expect("a piece fits memory"));
        let address = geometry.start(ZoneId(self.zone)).plus(Blocks(self.written));
        self.in_flight.push_back((device.write(address, data, Durability::Cached), bytes));
        self.written += blocks.0;
        let takes = Duration::from_secs_f64(bytes as f64 / rate.clamp(1, FASTEST) as f64);
        self.next = self.next.max(self.cluster.now()).after(takes);
        let left = left.saturating_sub(bytes);
        {
            let mut state = self.cluster.server(self.at).state.lock();
            state.syncs.note_bulk(self.cluster.now());
            if let Some(snapshot) = &mut state.snapshot {
                snapshot.left = left;
            }
        }
        if self.in_flight.len() >= PIECES_IN_FLIGHT {
            self.await_oldest().await?;
        }
        Ok(left)
    }

    /// Begins a snapshot where none is under way. Returns the bytes that are left to write.
    fn begin(&self) -> u64 {
        let mut state = self.cluster.server(self.at).state.lock();
        let covers = state.entries();
        let new = SnapshotUnderWay { left: self.cluster.load.snapshot.0, covers };
        state.snapshot.get_or_insert(new).left
    }

    async fn await_oldest(&mut self) -> zoned::Result<()> {
        let Some((io, bytes)) = self.in_flight.pop_front() else { return Ok(()) };
        io.await?;
        let now = self.cluster.now();
        self.cluster.server(self.at).state.lock().syncs.note_bulk(now);
        self.cluster.tally.lock().note_bulk(now, bytes);
        Ok(())
    }

    async fn drain(&mut self) -> zoned::Result<()> {
        while !self.in_flight.is_empty() {
            self.await_oldest().await?;
        }
        Ok(())
    }

    /// Makes the snapshot durable.
    async fn finish(&mut self) -> zoned::Result<()> {
        self.drain().await?;
        self.device.flush().await?;
        let mut state = self.cluster.server(self.at).state.lock();
        if let Some(snapshot) = state.snapshot.take() {
            state.covered = snapshot.covers;
        }
        drop(state);
        let is_on_leader = self.cluster.leadership().0 == self.at;
        self.cluster.tally.lock().note_snapshot(self.cluster.now(), is_on_leader);
        Ok(())
    }
}
