//! The workload of the crash explorer's target `array`: writes and appends of every length, several in flight, flushes, durable
//! writes, resets, finishes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use zoned::{
    Action, Blocks, Buf, BufMut, Done, Durability, Error, ErrorKind, Op, ZoneId, ZoneState, ZonedDevice,
};

use super::model::{ShownZone, UNREADABLE_BLOCK_DIGEST, WorkloadEvent};
use super::shape::{LOGICAL_ZONES, Shape};
use crate::Rng;
use crate::drive::random_class;

/// A function that takes the events of an array's workload.
pub(crate) type WorkloadEventSink = Arc<dyn Fn(WorkloadEvent) + Send + Sync>;

/// A zone that a task of the workload writes.
struct TaskZone {
    zone: ZoneId,
    life: usize,
    written: usize,
    over: bool,
    /// The zone is failed: a reset is the only operation that it takes, once no drive is missing.
    failed: bool,
    /// A physical zone wears out during the workload (`allow_wear`), and a reset was refused for that (`reset_refused`).
    wears: bool,
    reset_refused: bool,
}

/// A task of the array's workload, with zones of its own.
pub(crate) struct Task {
    device: Arc<dyn ZonedDevice>,
    sink: WorkloadEventSink,
    rng: Rng,
    zones: Vec<TaskZone>,
    steps: usize,
    flushes: u64,
    /// Most writes are appends, and more of them are in flight.
    appends: bool,
    /// Draws the classes of operations. The draws have a generator of their own: the other draws of a workload are as they were before operations had classes.
    classes: Option<Rng>,
}

/// The zones that one of the two tasks of a workload writes: no more than may be active.
pub(crate) fn zones_of_task(task: u32, device: &Arc<dyn ZonedDevice>) -> Range<u32> {
    let most = device.geometry().max_active.map_or(LOGICAL_ZONES, |limit| limit.max(2)) / 2;
    let first = task * LOGICAL_ZONES / 2;
    first..first + most.min(LOGICAL_ZONES / 2)
}

/// The digest of a block's content.
pub(crate) fn digest(block: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, block)
}

/// Reads the state and the content of all zones of an array. `may`: whether the read of a block may be a media error.
pub(crate) async fn read_all_zones(
    device: &Arc<dyn ZonedDevice>,
    may: &(dyn Fn(ZoneId, u64) -> bool + Sync),
) -> Result<Vec<ShownZone>, String> {
    let geometry = device.geometry();
    let size = geometry.block_size as usize;
    let mut all = Vec::new();
    for info in device.report(0..geometry.zones).await.map_err(|e| format!("the report: {e}"))? {
        let mut blocks = Vec::new();
        // An offline zone is not read: some blocks of a joined zone with an offline section can be, others cannot.
        let mut at = if info.state == ZoneState::Offline { info.pointer.0 } else { 0 };
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
                                blocks.push(UNREADABLE_BLOCK_DIGEST)
                            }
                            Err(e) => return Err(format!("a read of zone {}, block {n}: {e}", info.zone)),
                        }
                    }
                }
                Err(e) => return Err(format!("a read of zone {}, block {at}: {e}", info.zone)),
            }
            at += count;
        }
        all.push(ShownZone { state: info.state, blocks });
    }
    Ok(all)
}

impl Task {
    /// A task that writes `zones`; `shown` is the content of all zones of the array.
    pub(crate) fn new(
        device: &Arc<dyn ZonedDevice>,
        sink: WorkloadEventSink,
        seed: u64,
        zones: Range<u32>,
        shown: &[ShownZone],
        steps: usize,
    ) -> Task {
        let task_zone = |zone: u32| {
            let shown = shown.get(zone as usize);
            let written = shown.map_or(0, |shown| shown.blocks.len());
            let over = shown.is_some_and(|s| matches!(s.state, ZoneState::Full | ZoneState::ReadOnly));
            let failed = shown.is_some_and(|shown| shown.state == ZoneState::Offline);
            TaskZone {
                zone: ZoneId(zone),
                life: 0,
                written,
                over,
                failed,
                wears: false,
                reset_refused: false,
            }
        };
        Task {
            device: Arc::clone(device),
            sink,
            rng: Rng::new(seed),
            zones: zones.map(task_zone).collect(),
            steps,
            flushes: seed << 16,
            appends: false,
            classes: None,
        }
    }

    /// Gives each write, reset and finish a random class, so that a scheduler holds some of a zone's operations.
    pub(crate) fn with_classes(self, seed: u64) -> Task {
        Task { classes: Some(Rng::at(seed, &[0xc1a5])), ..self }
    }

    /// Makes most writes appends, and keeps more of them in flight.
    pub(crate) fn with_appends(self, appends: bool) -> Task {
        Task { appends, ..self }
    }

    /// Allows the array to refuse the task's operations on the zone with the worn physical zone.
    pub(crate) fn allow_wear(mut self, shape: &Shape) -> Task {
        for task_zone in &mut self.zones {
            let zone = task_zone.zone.index();
            task_zone.wears = shape.worn().is_some_and(|worn| shape.may_wear(worn, zone));
        }
        self
    }

    /// Writes to the first zone of the task, then runs `fail`, which fails the zone.
    pub(crate) async fn fails_first_zone(
        mut self,
        fail: impl Future<Output = zoned::Result<()>>,
    ) -> Result<Task, String> {
        for _ in 0..3 {
            self.write(0).await?;
        }
        let Some(task_zone) = self.zones.first_mut() else { return Ok(self) };
        task_zone.failed = true;
        let zone = task_zone.zone.index();
        (self.sink)(WorkloadEvent::FailingZone { zone });
        fail.await.map_err(|e| format!("failing a zone: {e}"))?;
        (self.sink)(WorkloadEvent::ZoneFailed { zone });
        Ok(self)
    }

    /// Runs all steps of the task. The error is an answer that the array must not give.
    pub(crate) async fn run(mut self) -> Result<(), String> {
        for _ in 0..self.steps {
            let at = self.rng.index(self.zones.len());
            if self.zones.get(at).is_some_and(|task_zone| task_zone.failed) {
                // A failed zone takes only a reset.
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
        (self.sink)(WorkloadEvent::Flushing { id });
        self.device.flush().await.map_err(|e| format!("a flush: {e}"))?;
        (self.sink)(WorkloadEvent::Flushed { id });
        Ok(())
    }

    async fn reset(&mut self, at: usize) -> Result<(), String> {
        let device = by_class(&self.device, &mut self.classes);
        let Some(task_zone) = self.zones.get_mut(at) else { return Ok(()) };
        let zone = task_zone.zone.index();
        if task_zone.reset_refused {
            return Ok(());
        }
        (self.sink)(WorkloadEvent::Resetting { zone });
        match device.zone(task_zone.zone, Action::Reset).await {
            Ok(()) => {}
            Err(e) if task_zone.failed && e.to_string().contains("is lacking") => {
                (self.sink)(WorkloadEvent::Refused { zone });
                return Ok(());
            }
            Err(e) if task_zone.wears && is_worn(&e) => {
                (task_zone.reset_refused, task_zone.over) = (true, true);
                // The array refused the reset before it reset any drive. Any other error leaves the extent of the reset
                // unknown.
                if e.to_string().contains("it cannot be reset") {
                    (self.sink)(WorkloadEvent::Refused { zone });
                }
                return Ok(());
            }
            Err(e) => return Err(format!("a reset: {e}")),
        }
        (self.sink)(WorkloadEvent::Reset { zone });
        (task_zone.life, task_zone.written, task_zone.over, task_zone.failed) =
            (task_zone.life + 1, 0, false, false);
        Ok(())
    }

    async fn finish(&mut self, at: usize) -> Result<(), String> {
        let device = by_class(&self.device, &mut self.classes);
        let Some(task_zone) = self.zones.get_mut(at) else { return Ok(()) };
        let zone = task_zone.zone.index();
        let was_full = task_zone.written >= self.device.geometry().zone_capacity.0 as usize;
        task_zone.over = true;
        (self.sink)(WorkloadEvent::Finishing { zone });
        match device.zone(task_zone.zone, Action::Finish).await {
            Ok(()) => {}
            Err(e) if task_zone.wears && is_worn(&e) => return Ok(()),
            Err(e) => return Err(format!("a finish: {e}")),
        }
        // The finish of a full zone changes nothing: a power cut may still take blocks that are not durable.
        if !was_full {
            (self.sink)(WorkloadEvent::Finished { zone });
        }
        Ok(())
    }

    async fn write(&mut self, at: usize) -> Result<(), String> {
        let geometry = self.device.geometry();
        let (size, capacity) = (geometry.block_size as usize, geometry.zone_capacity.0 as usize);
        let Some(task_zone) = self.zones.get_mut(at) else { return Ok(()) };
        let mut ios = Vec::new();
        let (from, most_in_flight) = (task_zone.written, if self.appends { 9 } else { 4 });
        for _ in 0..1 + self.rng.below(most_in_flight) {
            let most = if self.rng.chance(25) { 24 } else { 3 };
            let count = (1 + self.rng.index(most)).min(capacity - task_zone.written.min(capacity));
            if task_zone.over || count == 0 {
                break;
            }
            let data: Vec<u8> = (0..count * size / 8).flat_map(|_| self.rng.draw().to_le_bytes()).collect();
            let how = if self.rng.chance(15) { Durability::Durable } else { Durability::Cached };
            let blocks: Vec<u64> = data.chunks(size).map(digest).collect();
            let data = Buf::copy_from(&data);
            // The event is made before the submission: from the submission on a cut may leave the blocks on a drive.
            (self.sink)(WorkloadEvent::Write { zone: task_zone.zone.index(), blocks: blocks.clone() });
            let device = by_class(&self.device, &mut self.classes);
            let io = if self.rng.chance(if self.appends { 85 } else { 50 }) {
                device.submit(Op::Append { zone: task_zone.zone, data, how })
            } else {
                let at = geometry.start(task_zone.zone).plus(Blocks(task_zone.written as u64));
                device.submit(Op::Write { at, data, how })
            };
            task_zone.written += count;
            ios.push((io, task_zone.written - count, blocks, how));
        }
        // Acknowledged writes above one whose acknowledgement is to come: an append may lie below an earlier one.
        let (mut acked, mut above) = (from, BTreeMap::new());
        for (io, at, blocks, how) in ios {
            let durable = how == Durability::Durable || !geometry.volatile_cache;
            let (zone, life) = (task_zone.zone.index(), task_zone.life);
            match io.await {
                Ok(done @ (Done::Unit | Done::At(_))) => {
                    let at = match done {
                        Done::At(at) => at.since(geometry.start(task_zone.zone)).0 as usize,
                        _ => at,
                    };
                    let end = at + blocks.len();
                    (self.sink)(WorkloadEvent::Landed { zone, life, at, blocks });
                    if above.insert(at, (end, durable)).is_some() {
                        return Err(format!("two writes lie at block {at} of zone {zone}"));
                    }
                    while let Some((end, durable)) = above.remove(&acked) {
                        (self.sink)(WorkloadEvent::Acked { zone, life, end, durable });
                        acked = end;
                    }
                }
                Ok(other) => return Err(format!("a write gave {other:?}")),
                // The write found too many active zones: its blocks were not written, and the writes behind it are off the pointer. The
                // task writes to the zone no more before a reset.
                Err(e) if e.kind() == ErrorKind::TooManyActive => task_zone.over = true,
                Err(e) if task_zone.over && e.kind() == ErrorKind::NotAtWritePointer => {}
                Err(e) if task_zone.wears && is_worn(&e) => task_zone.over = true,
                Err(e) => return Err(format!("a write: {e}")),
            }
        }
        Ok(())
    }
}

/// The device for the next operation of a task.
fn by_class(device: &Arc<dyn ZonedDevice>, classes: &mut Option<Rng>) -> Arc<dyn ZonedDevice> {
    match classes {
        Some(rng) => device.class(random_class(rng)),
        None => Arc::clone(device),
    }
}

/// Whether an error says that a physical zone has worn out.
fn is_worn(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline)
}
