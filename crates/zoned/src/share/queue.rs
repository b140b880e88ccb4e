//! Operations that a drive's scheduler holds, in the order in which they may go.
//!
//! The operations of a zone keep their order across classes: they wait in a queue of the zone, which has the highest class that came since it was empty. Classes share
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
    /// Zones by class, in the order of arrival. A zone whose class rose is in its former class's list too, and is passed over there.
    classes: BTreeMap<IoClass, Class>,
    /// The least rate of each class with held operations, in bytes per second.
    least_rate: f64,
    /// The weighted bytes of the class that was served last.
    served: f64,
    /// The zone whose operation was served last, with the bytes served of it in a row.
    run: Option<(ZoneId, u64)>,
    held: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    class: IoClass,
    operations: VecDeque<(u64, T)>,
}

#[derive(Debug, Default)]
struct Class {
    zones: VecDeque<ZoneId>,
    /// Bytes by weight.
    served: f64,
    /// The time from which on the class has had less than its least rate.
    due: Instant,
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
            run: None,
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
            .flat_map(|waiting| waiting.operations.iter().map(|(_, operation)| operation))
    }

    /// Adds an operation of `bytes` behind the others of its zone.
    pub(super) fn push(&mut self, now: Instant, class: IoClass, zone: ZoneId, bytes: u64, operation: T) {
        self.held += 1;
        let waiting = self
            .zones
            .entry(zone)
            .or_insert_with(|| Waiting { class: IoClass::Scrub, operations: VecDeque::new() });
        let (is_new, rises) = (waiting.operations.is_empty(), class < waiting.class);
        waiting.operations.push_back((bytes, operation));
        if is_new || rises {
            waiting.class = class;
            self.enter(now, zone, class);
        }
    }

    /// The class whose operation is next, and whether by weight: the one that has had less than its least rate for the longest time, else the one with the least bytes by weight.
    fn next_class(&self, now: Instant) -> Option<(IoClass, bool)> {
        let waiting = || self.classes.iter().filter(|(_, entry)| !entry.zones.is_empty());
        let late = waiting().filter(|(_, entry)| entry.due <= now).min_by_key(|(_, entry)| entry.due);
        let by_weight = || waiting().min_by(|a, b| a.1.served.total_cmp(&b.1.served));
        late.map(|(class, _)| (*class, false)).or_else(|| by_weight().map(|(class, _)| (*class, true)))
    }

    /// Takes the next operation, with its bytes.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(u64, T)> {
        loop {
            let (class, by_weight) = self.next_class(now)?;
            if let Some((bytes, operation)) = self.pop_of(class, now) {
                if by_weight {
                    self.served = self.classes.get(&class).map_or(self.served, |entry| entry.served);
                }
                return Some((bytes, operation));
            }
        }
    }

    /// Takes the next operation of `class`, with its bytes.
    pub(super) fn pop_of(&mut self, class: IoClass, now: Instant) -> Option<(u64, T)> {
        loop {
            let entry = self.classes.get_mut(&class)?;
            let zone = entry.zones.pop_front()?;
            let Some(waiting) = self.zones.get_mut(&zone).filter(|waiting| waiting.class == class) else {
                continue;
            };
            let Some((bytes, operation)) = waiting.operations.pop_front() else { continue };
            entry.served += bytes as f64 / weight(class);
            // Service above the least rate gives no credit for later; a pause of all bulk gives that of `LATE_AT_MOST`.
            let earliest = Instant(now.0.saturating_sub(LATE_AT_MOST.as_nanos() as u64));
            let time = Duration::from_secs_f64(bytes as f64 / self.least_rate);
            entry.due = entry.due.clamp(earliest, now).after(time);
            self.held -= 1;
            self.run = match self.run {
                Some((last, run)) if last == zone => Some((zone, run + bytes)),
                _ => Some((zone, bytes)),
            };
            if waiting.operations.is_empty() {
                self.forget(zone);
            } else if self.run.is_some_and(|(_, run)| run < RUN_BYTES) {
                entry.zones.push_front(zone);
            } else {
                entry.zones.push_back(zone);
                self.run = None;
            }
            return Some((bytes, operation));
        }
    }

    /// Takes the first `count` operations of `zone`, in their order.
    pub(super) fn take(&mut self, zone: ZoneId, count: usize) -> VecDeque<(u64, T)> {
        let Some(waiting) = self.zones.get_mut(&zone) else { return VecDeque::new() };
        let rest = waiting.operations.split_off(count.min(waiting.operations.len()));
        let taken = std::mem::replace(&mut waiting.operations, rest);
        self.held -= taken.len();
        if waiting.operations.is_empty() {
            self.forget(zone);
        }
        taken
    }

    /// Gives the operations of `zone` the class `class`, if that is higher than theirs.
    pub(super) fn raise(&mut self, now: Instant, zone: ZoneId, class: IoClass) {
        let Some(waiting) = self.zones.get_mut(&zone).filter(|waiting| class < waiting.class) else { return };
        waiting.class = class;
        self.enter(now, zone, class);
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

    fn forget(&mut self, zone: ZoneId) {
        self.zones.remove(&zone);
        for class in self.classes.values_mut() {
            class.zones.retain(|other| *other != zone);
        }
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
            let (_, class) = queue.pop(now).expect("held");
            bytes[class as usize] += MIB / 4;
            push(&mut queue, now, class);
        }
        let mib = classes.map(|class| bytes[class as usize] / MIB);
        assert!(mib.iter().all(|mib| *mib >= 95), "{mib:?}");
        assert!(mib[0] > 2 * mib[2] && mib[1] > mib[2], "by weight beyond that: {mib:?}");
    }
}
