//! Events of an array, for monitors.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::sync::Event as Signal;
use uuid::Uuid;
use zoned::{Blocks, Driver, ZoneId, ZoneState};

use crate::layout::Slot;

/// Most events that wait for a slow monitor. Older ones are dropped, and counted in [`EventKind::Dropped`].
const MAX_WAITING_EVENTS: usize = 1024;

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The time of the event, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The event itself.
    pub kind: EventKind,
}

/// The kinds of events.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A drive failed, or was failed on request: the array works without the drive.
    DriveFailed {
        /// The drive.
        slot: Slot,
        /// The drive's error.
        why: String,
    },
    /// Another drive failed while one had failed already: the array takes no more writes.
    SecondFailure {
        /// The drive.
        slot: Slot,
        /// The drive's error.
        why: String,
    },
    /// An idle spare takes the place of a failed drive: its rebuild begins.
    SpareUsed {
        /// The slot of the failed drive.
        slot: Slot,
        /// The spare's identity, and from now on the new drive's.
        spare: Uuid,
    },
    /// The drive of an idle spare is missing, or cannot take the place of a failed one.
    SpareMissing {
        /// The spare's identity.
        spare: Uuid,
        /// The reason.
        why: String,
    },
    /// A rebuild began.
    RebuildStarted {
        /// The slot of the new drive.
        slot: Slot,
        /// True if the rebuild resumes one that a restart interrupted.
        resumed: bool,
    },
    /// A rebuild ended.
    RebuildEnded {
        /// The slot of the new drive.
        slot: Slot,
        /// Why the rebuild failed; `None` after success.
        error: Option<String>,
    },
    /// Blocks that a drive could not read were reconstructed from the other drives.
    Repaired {
        /// The drive.
        slot: Slot,
        /// The logical zone.
        zone: ZoneId,
        /// The first reconstructed block, counted from the start of the logical zone.
        block: Blocks,
        /// The number of reconstructed blocks.
        blocks: u64,
        /// True if the content is relocated, so that the next read finds it.
        relocated: bool,
    },
    /// A rebuild could not reconstruct blocks of a zone, because another drive could not read its part.
    BlocksLost {
        /// The new drive.
        slot: Slot,
        /// The logical zone.
        zone: ZoneId,
        /// The number of lost blocks, of data or parity.
        blocks: u64,
    },
    /// A physical zone became read-only or offline.
    ZoneWorn {
        /// The drive.
        slot: Slot,
        /// The logical zone.
        zone: ZoneId,
        /// The new state.
        state: ZoneState,
    },
    /// A drive gave so many media errors that it should be replaced.
    ManyErrors {
        /// The drive.
        slot: Slot,
        /// The number of the drive's media errors so far.
        errors: u64,
    },
    /// A scrub began.
    ScrubStarted,
    /// A scrub ended.
    ScrubEnded {
        /// Stripe units in which the scrub found unreadable blocks.
        errors: u64,
        /// Stripes whose parity does not match their data.
        mismatches: u64,
    },
    /// The parts of lost drives move to other drives, as far as these have spare room.
    RestoreStarted {
        /// The number of lost parts with content.
        parts: u32,
    },
    /// The parts of lost drives were moved.
    RestoreEnded {
        /// Parts that have a place on another drive now.
        moved: u32,
        /// Parts with content that are still lost.
        left: u32,
    },
    /// This number of events was dropped from the monitor's queue, because the monitor was too slow.
    Dropped(u64),
}

impl EventKind {
    /// The event's short name for programs, for example `drive-failed`.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::DriveFailed { .. } => "drive-failed",
            EventKind::SecondFailure { .. } => "second-failure",
            EventKind::SpareUsed { .. } => "spare-used",
            EventKind::SpareMissing { .. } => "spare-missing",
            EventKind::RebuildStarted { .. } => "rebuild-started",
            EventKind::RebuildEnded { .. } => "rebuild-ended",
            EventKind::Repaired { .. } => "repaired",
            EventKind::BlocksLost { .. } => "blocks-lost",
            EventKind::ZoneWorn { .. } => "zone-worn",
            EventKind::ManyErrors { .. } => "many-errors",
            EventKind::ScrubStarted => "scrub-started",
            EventKind::ScrubEnded { .. } => "scrub-ended",
            EventKind::RestoreStarted { .. } => "restore-started",
            EventKind::RestoreEnded { .. } => "restore-ended",
            EventKind::Dropped(_) => "dropped",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::DriveFailed { slot, why } => {
                write!(f, "drive {} failed, the array goes on without it: {why}", slot.0)
            }
            EventKind::SecondFailure { slot, why } => {
                write!(f, "drive {} failed too, nothing more is written: {why}", slot.0)
            }
            EventKind::SpareUsed { slot, spare } => {
                write!(f, "spare {spare} takes the place of drive {}", slot.0)
            }
            EventKind::SpareMissing { spare, why } => write!(f, "spare {spare} cannot be used: {why}"),
            EventKind::RebuildStarted { slot, resumed: false } => {
                write!(f, "the rebuild of drive {} began", slot.0)
            }
            EventKind::RebuildStarted { slot, resumed: true } => {
                write!(f, "the rebuild of drive {} goes on", slot.0)
            }
            EventKind::RebuildEnded { slot, error: None } => {
                write!(f, "drive {} is rebuilt: the array has all its drives", slot.0)
            }
            EventKind::RebuildEnded { slot, error: Some(why) } => {
                write!(f, "the rebuild of drive {} ended: {why}", slot.0)
            }
            EventKind::Repaired { slot, zone, block, blocks, relocated } => {
                let kept = if *relocated { ", and recorded" } else { "" };
                write!(
                    f,
                    "drive {} could not read {blocks} blocks at block {} of zone {zone}: answered from the others{kept}",
                    slot.0, block.0
                )
            }
            EventKind::BlocksLost { slot, zone, blocks } => {
                write!(f, "{blocks} blocks of zone {zone} are lost: drive {} is rebuilt without them", slot.0)
            }
            EventKind::ZoneWorn { slot, zone, state } => {
                write!(f, "zone {zone} of drive {} became {state:?}", slot.0)
            }
            EventKind::ManyErrors { slot, errors } => {
                write!(f, "drive {} gave {errors} errors of the medium: replace it", slot.0)
            }
            EventKind::ScrubStarted => write!(f, "a scrub began"),
            EventKind::ScrubEnded { errors, mismatches } => {
                write!(
                    f,
                    "the scrub is over: {errors} reads failed, {mismatches} stripes do not fit their parity"
                )
            }
            EventKind::RestoreStarted { parts } => {
                write!(f, "{parts} parts of lost drives move to the spare room of other drives")
            }
            EventKind::RestoreEnded { moved, left: 0 } => {
                write!(f, "{moved} parts of lost drives were moved: all content has its redundancy again")
            }
            EventKind::RestoreEnded { moved, left } => {
                write!(f, "{moved} parts of lost drives were moved, and {left} are still lost")
            }
            EventKind::Dropped(count) => write!(f, "{count} events were dropped"),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<(VecDeque<Event>, u64)>,
    signal: Signal,
    /// True once the array is gone.
    closed: AtomicBool,
}

/// A subscription: the array's events since the subscription was made, in order.
#[derive(Debug)]
pub struct Events(Arc<Queue>);

impl Events {
    /// The next event of the subscription, if one waits.
    pub fn try_next(&self) -> Option<Event> {
        let mut waiting = self.0.waiting.lock();
        if waiting.1 > 0 {
            let unix_ms = waiting.0.front().map_or(0, |event| event.unix_ms);
            return Some(Event { unix_ms, kind: EventKind::Dropped(std::mem::take(&mut waiting.1)) });
        }
        waiting.0.pop_front()
    }

    /// Waits for the next event; for ever once the array is gone.
    pub async fn next(&self) -> Event {
        match self.next_until_closed().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Waits for the next event; `None` once the array is gone.
    pub(crate) async fn next_until_closed(&self) -> Option<Event> {
        loop {
            let seen = self.0.signal.version();
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.0.closed.load(Ordering::Acquire) {
                return None;
            }
            self.0.signal.changed_since(seen).await;
        }
    }
}

/// The subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Bus(Mutex<Vec<Weak<Queue>>>);

impl Drop for Bus {
    fn drop(&mut self) {
        for queue in self.0.get_mut().iter().filter_map(Weak::upgrade) {
            queue.closed.store(true, Ordering::Release);
            queue.signal.notify();
        }
    }
}

impl Bus {
    /// A new subscription.
    pub(crate) fn subscribe(&self) -> Events {
        let queue = Arc::new(Queue::default());
        self.0.lock().push(Arc::downgrade(&queue));
        Events(queue)
    }

    /// Publishes an event.
    pub(crate) fn publish(&self, driver: &dyn Driver, kind: EventKind) {
        let event = Event { unix_ms: driver.unix_millis(), kind };
        let queues: Vec<Arc<Queue>> = {
            let mut watchers = self.0.lock();
            watchers.retain(|queue| queue.strong_count() > 0);
            watchers.iter().filter_map(Weak::upgrade).collect()
        };
        for queue in queues {
            {
                let mut waiting = queue.waiting.lock();
                if waiting.0.len() >= MAX_WAITING_EVENTS {
                    waiting.0.pop_front();
                    waiting.1 += 1;
                }
                waiting.0.push_back(event.clone());
            }
            queue.signal.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use units::VirtualDriver;

    use super::*;

    #[test]
    fn a_slow_subscriber_gets_the_number_of_dropped_events() {
        let driver = VirtualDriver::new(1);
        let bus = Bus::default();
        let events = bus.subscribe();
        for n in 0..MAX_WAITING_EVENTS as u64 + 5 {
            bus.publish(&*driver, EventKind::ScrubEnded { errors: n, mismatches: 0 });
        }
        assert_eq!(events.try_next().map(|event| event.kind), Some(EventKind::Dropped(5)));
        let next = events.try_next().map(|event| event.kind);
        assert_eq!(next, Some(EventKind::ScrubEnded { errors: 5, mismatches: 0 }));
        assert_eq!(std::iter::from_fn(|| events.try_next()).count(), MAX_WAITING_EVENTS - 1);
    }
}
