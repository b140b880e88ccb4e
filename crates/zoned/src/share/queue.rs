//! Operations that a drive's scheduler holds, in the order in which they may go.
//!
//! The operations of a zone keep their order across classes: each waits for those before it in the zone's queue, so that a zone has the highest class of its operations. Classes share
//! the rate by weight (start-time fair queueing): the class with the least bytes by weight is next, after classes that had less than their least rate.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use units::{Instant, ZoneId};

use crate::IoClass;

/// Bytes of one zone that go in a row where its class has others too: a disk's head moves for each change of the zone.
const RUN_BYTES: u64 = 2 << 20;
/// A class makes up for so much time in which it had less than its least rate.
const LATE_AT_MOST: Duration = Duration::from_secs(1);

/// The held operations of a drive.
#[derive(Debug)]
pub(super) struct HeldQueue<T> {
    zones: BTreeMap<ZoneId, Waiting<T>>,
    /// The zones of each class, in the order in which their operations go.
    classes: BTreeMap<IoClass, Class>,
    /// The least rate of each class with held operations, in bytes per second.
    least_rate: f64,
    /// The weighted bytes of the class that was served last.
    served: f64,
    held: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    class: IoClass,
    operations: VecDeque<Operation<T>>,
}

#[derive(Debug)]
struct Operation<T> {
    class: IoClass,
    bytes: u64,
    operation: T,
}

impl<T> Waiting<T> {
    /// The highest class of the operations.
    fn highest_class(&self) -> Option<IoClass> {
        // Mostly the zone's first operation has the zone's present class, so that the search for that class ends at once.
        let has_class = |class| self.operations.iter().any(|operation| operation.class == class);
        if has_class(self.class) {
            return Some(self.class);
        }
        self.operations.iter().map(|operation| operation.class).min()
    }
}

#[derive(Debug, Default)]
struct Class {
    zones: VecDeque<ZoneId>,
    /// Bytes by weight.
    served: f64,
    /// The time from which on the class has had less than its least rate.
    due: Instant,
    /// The zone whose operation was served last, with the bytes served of it in a row.
    run: Option<(ZoneId, u64)>,
}

/// The share of a class, beside those of others.
fn weight(class: IoClass) -> f64 {
    match class {
        IoClass::Log | IoClass::Metadata | IoClass::Read => 16.0,
        IoClass::Flush => 8.0,
        IoClass::Compaction => 4.0,
        IoClass::Reclaim => 2.0,
        IoClass::Rebuild | IoClass::Scrub => 1.0,
    }
}

impl<T> HeldQueue<T> {
    /// An empty queue, of which `least_rate` bytes a second go at least. Half of that rate goes to the bulk classes in equal parts, whatever their weights.
    pub(super) fn new(least_rate: f64) -> HeldQueue<T> {
        let bulk = IoClass::ALL.iter().filter(|class| class.is_bulk()).count();
        HeldQueue {
            zones: BTreeMap::new(),
            classes: BTreeMap::new(),
            least_rate: least_rate / (2 * bulk) as f64,
            served: 0.0,
            held: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// The number of operations.
    pub(super) fn len(&self) -> usize {
        self.held
    }

    /// True if operations of `zone` are held.
    pub(super) fn holds(&self, zone: ZoneId) -> bool {
        self.zones.contains_key(&zone)
    }

    /// The zones that have operations.
    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneId> {
        self.zones.keys().copied()
    }

    /// The operations of `zone`, in their order.
    pub(super) fn of(&self, zone: ZoneId) -> impl Iterator<Item = &T> {
        self.zones
            .get(&zone)
            .into_iter()
            .flat_map(|waiting| waiting.operations.iter().map(|held| &held.operation))
    }

    /// Adds an operation of `bytes` behind the others of its zone.
    pub(super) fn push(&mut self, now: Instant, class: IoClass, zone: ZoneId, bytes: u64, operation: T) {
        self.held += 1;
        let operation = Operation { class, bytes, operation };
        match self.zones.get_mut(&zone) {
            Some(waiting) => {
                waiting.operations.push_back(operation);
                self.raise_zone(now, zone, class);
            }
            None => {
                self.zones.insert(zone, Waiting { class, operations: VecDeque::from([operation]) });
                self.enter(now, zone, class);
            }
        }
    }

    /// The class whose operation is next, and whether by weight: the one that has had less than its least rate for the longest time, else the one with the least bytes by weight.
    fn next_class(&self, now: Instant) -> Option<(IoClass, bool)> {
        let waiting = || self.classes.iter().filter(|(_, entry)| !entry.zones.is_empty());
        let late = waiting().filter(|(_, entry)| entry.due <= now).min_by_key(|(_, entry)| entry.due);
        let by_weight = || waiting().min_by(|a, b| a.1.served.total_cmp(&b.1.served));
        late.map(|(class, _)| (*class, false)).or_else(|| by_weight().map(|(class, _)| (*class, true)))
    }

    /// Takes the next operation, with its bytes and the class of its zone.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(IoClass, u64, T)> {
        let (class, by_weight) = self.next_class(now)?;
        let (bytes, operation) = self.pop_of(class, now)?;
        if by_weight {
            self.served = self.classes.get(&class).map_or(self.served, |entry| entry.served);
        }
        Some((class, bytes, operation))
    }

    /// Takes the next operation of a zone of `class`, with its bytes: one of a lower class, if one of `class` is behind it.
    pub(super) fn pop_of(&mut self, class: IoClass, now: Instant) -> Option<(u64, T)> {
        let entry = self.classes.get_mut(&class)?;
        let zone = entry.zones.pop_front()?;
        let waiting = self.zones.get_mut(&zone)?;
        let Operation { bytes, operation, .. } = waiting.operations.pop_front()?;
        entry.served += bytes as f64 / weight(class);
        // Service above the least rate gives no credit for later; a pause of all bulk gives that of `LATE_AT_MOST`.
        let earliest = Instant(now.0.saturating_sub(LATE_AT_MOST.as_nanos() as u64));
        let time = Duration::from_secs_f64(bytes as f64 / self.least_rate);
        entry.due = entry.due.clamp(earliest, now).after(time);
        self.held -= 1;
        let run = entry.run.filter(|(last, _)| *last == zone).map_or(0, |(_, run)| run) + bytes;
        entry.run = Some((zone, run));
        match waiting.highest_class() {
            None => {
                self.zones.remove(&zone);
            }
            Some(left) if left != class => {
                waiting.class = left;
                self.enter(now, zone, left);
            }
            Some(_) if run < RUN_BYTES => entry.zones.push_front(zone),
            Some(_) => {
                entry.zones.push_back(zone);
                entry.run = None;
            }
        }
        Some((bytes, operation))
    }

    /// Takes the first `count` operations of `zone`, in their order.
    pub(super) fn take(&mut self, now: Instant, zone: ZoneId, count: usize) -> Vec<(u64, T)> {
        let Some(waiting) = self.zones.get_mut(&zone) else { return Vec::new() };
        let count = count.min(waiting.operations.len());
        let taken = waiting.operations.drain(..count).map(|held| (held.bytes, held.operation)).collect();
        self.held -= count;
        let (class, left) = (waiting.class, waiting.highest_class());
        if left != Some(class) {
            self.change_class(now, zone, left);
        }
        taken
    }

    /// Gives the first `count` operations of `zone` the class `class`, where that is higher than theirs.
    pub(super) fn raise(&mut self, now: Instant, zone: ZoneId, class: IoClass, count: usize) {
        let Some(waiting) = self.zones.get_mut(&zone).filter(|_| count > 0) else { return };
        for held in waiting.operations.iter_mut().take(count) {
            held.class = held.class.min(class);
        }
        self.raise_zone(now, zone, class);
    }

    /// Gives `zone` the class `class`, if that is higher than its own.
    fn raise_zone(&mut self, now: Instant, zone: ZoneId, class: IoClass) {
        if self.zones.get(&zone).is_some_and(|waiting| class < waiting.class) {
            self.change_class(now, zone, Some(class));
        }
    }

    /// Puts `zone` into the list of another class; `None`: it has no operations any more.
    fn change_class(&mut self, now: Instant, zone: ZoneId, class: Option<IoClass>) {
        let former = match class {
            Some(class) => {
                self.zones.get_mut(&zone).map(|waiting| std::mem::replace(&mut waiting.class, class))
            }
            None => self.zones.remove(&zone).map(|waiting| waiting.class),
        };
        if let Some(entry) = former.and_then(|former| self.classes.get_mut(&former)) {
            entry.zones.retain(|other| *other != zone);
        }
        if let Some(class) = class {
            self.enter(now, zone, class);
        }
    }

    /// Puts `zone` into the list of `class`.
    fn enter(&mut self, now: Instant, zone: ZoneId, class: IoClass) {
        let entry = self.classes.entry(class).or_default();
        if entry.zones.is_empty() {
            // A class that had nothing to do saves up no share.
            entry.served = entry.served.max(self.served);
            entry.due = entry.due.max(now);
        }
        entry.zones.push_back(zone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_least_rate_beside_classes_of_more_weight() {
        const MIB: u64 = 1 << 20;
        let mut queue = HeldQueue::new((10 * MIB) as f64);
        let mut bytes = [0; IoClass::ALL.len()];
        let mut now = Instant::ORIGIN;
        let classes =
            [IoClass::Flush, IoClass::Compaction, IoClass::Reclaim, IoClass::Rebuild, IoClass::Scrub];
        let push = |queue: &mut HeldQueue<IoClass>, now, class: IoClass| {
            queue.push(now, class, ZoneId(class as u32), MIB / 4, class);
        };
        classes.iter().for_each(|class| push(&mut queue, now, *class));
        // 10 MiB a second for 100 s, all classes always with an operation.
        for _ in 0..4000 {
            now = now.after(Duration::from_millis(25));
            let (_, _, class) = queue.pop(now).expect("held");
            bytes[class as usize] += MIB / 4;
            push(&mut queue, now, class);
        }
        let mib = classes.map(|class| bytes[class as usize] / MIB);
        assert!(mib.iter().all(|mib| *mib >= 95), "{mib:?}");
        assert!(mib[0] > 2 * mib[2] && mib[1] > mib[2], "by weight beyond that: {mib:?}");
    }

    #[test]
    fn zones_of_a_class_take_turns_while_another_class_is_served_between() {
        const MIB: u64 = 1 << 20;
        let (now, flushed) = (Instant::ORIGIN, ZoneId(1));
        let mut queue = HeldQueue::new(1e9);
        for zone in [ZoneId(2), ZoneId(3)] {
            (0..8).for_each(|_| queue.push(now, IoClass::Compaction, zone, MIB, zone));
        }
        let mut served = Vec::new();
        for _ in 0..8 {
            queue.push(now, IoClass::Flush, flushed, MIB, flushed);
            assert_eq!(queue.pop_of(IoClass::Flush, now), Some((MIB, flushed)));
            served.extend(queue.pop_of(IoClass::Compaction, now).map(|(_, zone)| zone.0));
        }
        assert_eq!(served, [2, 2, 3, 3, 2, 2, 3, 3]);
    }

    #[test]
    fn a_zone_has_the_class_of_a_flush_until_the_flush_has_gone() {
        let (now, mixed, other) = (Instant::ORIGIN, ZoneId(1), ZoneId(2));
        let mut queue = HeldQueue::new(1e6);
        for (zone, class, name) in [
            (mixed, IoClass::Compaction, "before"),
            (mixed, IoClass::Flush, "flush"),
            (mixed, IoClass::Compaction, "behind"),
            (other, IoClass::Compaction, "other"),
        ] {
            queue.push(now, class, zone, 4096, name);
        }
        let flushes = |queue: &mut HeldQueue<&'static str>| {
            let names = std::iter::from_fn(|| queue.pop_of(IoClass::Flush, now).map(|(_, name)| name));
            names.collect::<Vec<_>>()
        };
        assert_eq!(flushes(&mut queue), ["before", "flush"]);
        // A caller with the class of flushes waits for the compaction behind the flush.
        queue.raise(now, mixed, IoClass::Flush, 1);
        assert_eq!(flushes(&mut queue), ["behind"]);
        // A zone out of which the flush was taken has the class of its remaining operation, a compaction's.
        queue.push(now, IoClass::Flush, other, 4096, "flush");
        queue.push(now, IoClass::Compaction, other, 4096, "last");
        assert_eq!(queue.take(now, other, 2).len(), 2);
        assert_eq!(flushes(&mut queue), [""; 0]);
        assert_eq!(queue.pop(now), Some((IoClass::Compaction, 4096, "last")));
        assert!(queue.pop(now).is_none() && queue.is_empty());
    }
}
