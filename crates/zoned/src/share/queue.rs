//! Operations that a drive's scheduler holds, in the order in which they may go.
//!
//! The operations of a zone keep their order across classes: they wait in a queue of the zone, which has the highest class that came since it was empty. Classes share
//! the rate by weight (start-time fair queueing): the class with the least bytes by weight is next.

use std::collections::{BTreeMap, VecDeque};

use units::ZoneId;

use crate::IoClass;

/// Bytes of one zone that go in a row where its class has others too: a disk's head moves for each change of the zone.
const RUN_BYTES: u64 = 2 << 20;

/// The held operations of a drive.
#[derive(Debug)]
pub(super) struct HeldQueue<T> {
    zones: BTreeMap<ZoneId, Waiting<T>>,
    /// Zones by class, in the order of arrival. A zone whose class rose is in its former class's list too, and is passed over there.
    classes: BTreeMap<IoClass, Class>,
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

impl<T> Default for HeldQueue<T> {
    fn default() -> HeldQueue<T> {
        HeldQueue { zones: BTreeMap::new(), classes: BTreeMap::new(), served: 0.0, run: None, held: 0 }
    }
}

impl<T> HeldQueue<T> {
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
    pub(super) fn push(&mut self, class: IoClass, zone: ZoneId, bytes: u64, operation: T) {
        self.held += 1;
        let waiting = self
            .zones
            .entry(zone)
            .or_insert_with(|| Waiting { class: IoClass::Scrub, operations: VecDeque::new() });
        let (is_new, rises) = (waiting.operations.is_empty(), class < waiting.class);
        waiting.operations.push_back((bytes, operation));
        if is_new || rises {
            waiting.class = class;
            self.enter(zone, class);
        }
    }

    /// Takes the next operation by shares, with its bytes.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        loop {
            let next = self.classes.iter_mut().filter(|(_, entry)| !entry.zones.is_empty());
            let (class, entry) = next.min_by(|a, b| a.1.served.total_cmp(&b.1.served))?;
            let class = *class;
            let Some(zone) = entry.zones.pop_front() else { continue };
            let Some(waiting) = self.zones.get_mut(&zone).filter(|waiting| waiting.class == class) else {
                continue;
            };
            let Some((bytes, operation)) = waiting.operations.pop_front() else { continue };
            entry.served += bytes as f64 / weight(class);
            self.served = entry.served;
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
    pub(super) fn raise(&mut self, zone: ZoneId, class: IoClass) {
        let Some(waiting) = self.zones.get_mut(&zone).filter(|waiting| class < waiting.class) else { return };
        waiting.class = class;
        self.enter(zone, class);
    }

    /// Puts `zone` into the list of `class`.
    fn enter(&mut self, zone: ZoneId, class: IoClass) {
        let entry = self.classes.entry(class).or_default();
        if entry.zones.is_empty() {
            // A class that had nothing to do saves up no share.
            entry.served = entry.served.max(self.served);
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
