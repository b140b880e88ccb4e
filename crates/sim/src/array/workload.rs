//! The workload of the target `array`: writes and appends of every length, several in flight, flushes, durable writes, resets,
//! finishes.

use std::ops::Range;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use zoned::{
    Action, Blocks, Buf, BufMut, Done, Durability, Error, ErrorKind, Op, ZoneId, ZoneState, ZonedDevice,
};

use super::model::{Mark, Shown, UNREADABLE};
use super::shape::Worn;
use crate::Rng;

/// Where marks go.
pub(crate) type Sink = Arc<dyn Fn(Mark) + Send + Sync>;

/// A zone of a task.
struct Ours {
    zone: ZoneId,
    life: usize,
    written: usize,
    over: bool,
    /// The zone is lost: it takes a reset only, and no reset while a drive is missing.
    lost: bool,
    /// A physical zone wears out during the workload (`wears`), and a reset was refused for that (`stuck`).
    wears: bool,
    stuck: bool,
}

/// A task with zones of its own.
pub(crate) struct Task {
    device: Arc<dyn ZonedDevice>,
    sink: Sink,
    rng: Rng,
    zones: Vec<Ours>,
    steps: usize,
    flushes: u64,
}

/// The digest of a block's content.
pub(crate) fn digest(block: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, block)
}

/// Reads the state and the content of all zones. `may`: whether the read of a block may be a media error.
pub(crate) async fn show(
    device: &Arc<dyn ZonedDevice>,
    may: &(dyn Fn(ZoneId, u64) -> bool + Sync),
) -> Result<Vec<Shown>, String> {
    let geometry = device.geometry();
    let size = geometry.block_size as usize;
    let mut all = Vec::new();
    for info in device.report(0..geometry.zones).await.map_err(|e| format!("the report: {e}"))? {
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < info.pointer.0 {
            let count = (info.pointer.0 - at).min(geometry.max_transfer.0);
            let into = BufMut::zeroed(count as usize * size);
            match device.read(geometry.start(info.zone).plus(Blocks(at)), into).await {
                Ok(found) => blocks.extend(found.chunks(size).map(digest)),
                Err(e) if e.kind() == ErrorKind::Media && (at..at + count).any(|n| may(info.zone, n)) => {
                    for n in at..at + count {
                        let start = geometry.start(info.zone).plus(Blocks(n));
                        match device.read(start, BufMut::zeroed(size)).await {
                            Ok(found) => blocks.push(digest(&found)),
                            Err(e) if e.kind() == ErrorKind::Media && may(info.zone, n) => {
                                blocks.push(UNREADABLE)
                            }
                            Err(e) => return Err(format!("a read of zone {}, block {n}: {e}", info.zone)),
                        }
                    }
                }
                Err(e) => return Err(format!("a read of zone {}, block {at}: {e}", info.zone)),
            }
            at += count;
        }
        all.push(Shown { state: info.state, blocks });
    }
    Ok(all)
}

impl Task {
    /// A task on `zones`; `shown` is the content of all zones of the array.
    pub(crate) fn new(
        device: &Arc<dyn ZonedDevice>,
        sink: Sink,
        seed: u64,
        zones: Range<u32>,
        shown: &[Shown],
        steps: usize,
    ) -> Task {
        let ours = |zone: u32| {
            let shown = shown.get(zone as usize);
            let written = shown.map_or(0, |shown| shown.blocks.len());
            let over = shown.is_some_and(|s| matches!(s.state, ZoneState::Full | ZoneState::ReadOnly));
            let lost = shown.is_some_and(|shown| shown.state == ZoneState::Offline);
            Ours { zone: ZoneId(zone), life: 0, written, over, lost, wears: false, stuck: false }
        };
        Task {
            device: Arc::clone(device),
            sink,
            rng: Rng::new(seed),
            zones: zones.map(ours).collect(),
            steps,
            flushes: seed << 16,
        }
    }

    /// Operations on the worn zone may be refused.
    pub(crate) fn wears(mut self, worn: Option<Worn>) -> Task {
        for ours in &mut self.zones {
            ours.wears = worn.is_some_and(|worn| worn.zone == ours.zone.index());
        }
        self
    }

    /// Writes to the first zone of the task, then runs `lose`, which declares the zone lost.
    pub(crate) async fn loses(
        mut self,
        lose: impl Future<Output = zoned::Result<()>>,
    ) -> Result<Task, String> {
        for _ in 0..3 {
            self.write(0).await?;
        }
        let Some(ours) = self.zones.first_mut() else { return Ok(self) };
        ours.lost = true;
        let zone = ours.zone.index();
        (self.sink)(Mark::Losing { zone });
        lose.await.map_err(|e| format!("to lose a zone: {e}"))?;
        (self.sink)(Mark::Lost { zone });
        Ok(self)
    }

    /// Runs all steps. The error is an answer that the array must not give.
    pub(crate) async fn run(mut self) -> Result<(), String> {
        for _ in 0..self.steps {
            let at = self.rng.index(self.zones.len());
            if self.zones.get(at).is_some_and(|ours| ours.lost) {
                // A lost zone takes a reset only.
                self.reset(at).await?;
                continue;
            }
            match self.rng.below(20) {
                0 => self.flush().await?,
                1 => self.reset(at).await?,
                2 if self.rng.chance(30) => self.finish(at).await?,
                _ => self.write(at).await?,
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), String> {
        self.flushes += 1;
        let id = self.flushes;
        (self.sink)(Mark::Flushing { id });
        self.device.flush().await.map_err(|e| format!("a flush: {e}"))?;
        (self.sink)(Mark::Flushed { id });
        Ok(())
    }

    async fn reset(&mut self, at: usize) -> Result<(), String> {
        let Some(ours) = self.zones.get_mut(at) else { return Ok(()) };
        let zone = ours.zone.index();
        if ours.stuck {
            return Ok(());
        }
        (self.sink)(Mark::Resetting { zone });
        match self.device.zone(ours.zone, Action::Reset).await {
            Ok(()) => {}
            Err(e) if ours.lost && e.to_string().contains("is lacking") => {
                (self.sink)(Mark::Refused { zone });
                return Ok(());
            }
            Err(e) if ours.wears && is_worn(&e) => {
                (ours.stuck, ours.over) = (true, true);
                // The array refused before it reset any drive. Any other error leaves the extent of the reset unknown.
                if e.to_string().contains("it cannot be reset") {
                    (self.sink)(Mark::Refused { zone });
                }
                return Ok(());
            }
            Err(e) => return Err(format!("a reset: {e}")),
        }
        (self.sink)(Mark::Reset { zone });
        (ours.life, ours.written, ours.over, ours.lost) = (ours.life + 1, 0, false, false);
        Ok(())
    }

    async fn finish(&mut self, at: usize) -> Result<(), String> {
        let Some(ours) = self.zones.get_mut(at) else { return Ok(()) };
        let zone = ours.zone.index();
        let was_full = ours.written >= self.device.geometry().zone_capacity.0 as usize;
        ours.over = true;
        (self.sink)(Mark::Finishing { zone });
        match self.device.zone(ours.zone, Action::Finish).await {
            Ok(()) => {}
            Err(e) if ours.wears && is_worn(&e) => return Ok(()),
            Err(e) => return Err(format!("a finish: {e}")),
        }
        // The finish of a full zone changes nothing: a power cut may still take blocks that are not durable.
        if !was_full {
            (self.sink)(Mark::Finished { zone });
        }
        Ok(())
    }

    async fn write(&mut self, at: usize) -> Result<(), String> {
        let geometry = self.device.geometry();
        let (size, capacity) = (geometry.block_size as usize, geometry.zone_capacity.0 as usize);
        let Some(ours) = self.zones.get_mut(at) else { return Ok(()) };
        let mut ios = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            let most = if self.rng.chance(25) { 24 } else { 3 };
            let count = (1 + self.rng.index(most)).min(capacity - ours.written.min(capacity));
            if ours.over || count == 0 {
                break;
            }
            let data: Vec<u8> = (0..count * size / 8).flat_map(|_| self.rng.draw().to_le_bytes()).collect();
            let how = if self.rng.chance(15) { Durability::Durable } else { Durability::Cached };
            let blocks = data.chunks(size).map(digest).collect();
            let data = Buf::copy_from(&data);
            // Before the submission: from the submission on a cut may leave the blocks on a drive.
            (self.sink)(Mark::Write { zone: ours.zone.index(), blocks });
            let io = if self.rng.chance(50) {
                self.device.submit(Op::Append { zone: ours.zone, data, how })
            } else {
                let at = geometry.start(ours.zone).plus(Blocks(ours.written as u64));
                self.device.submit(Op::Write { at, data, how })
            };
            ours.written += count;
            ios.push((io, ours.written, how));
        }
        for (io, end, how) in ios {
            let durable = how == Durability::Durable || !geometry.volatile_cache;
            let (zone, life) = (ours.zone.index(), ours.life);
            match io.await {
                Ok(Done::Unit | Done::At(_)) => (self.sink)(Mark::Acked { zone, life, end, durable }),
                Ok(other) => return Err(format!("a write gave {other:?}")),
                // Too many active zones: the blocks were not written.
                Err(e) if e.kind() == ErrorKind::TooManyActive => return Ok(()),
                Err(e) if ours.wears && is_worn(&e) => ours.over = true,
                Err(e) => return Err(format!("a write: {e}")),
            }
        }
        Ok(())
    }
}

/// Whether an error says that a physical zone has worn out.
fn is_worn(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline)
}
