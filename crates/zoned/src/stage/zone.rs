//! The staged writes of one zone: they wait until the blocks below them have been submitted.
//!
//! No clock, lock or thread: the [`Stage`](super::Stage) calls a zone under its lock, and carries out what the zone gives.

use std::collections::BTreeMap;

use units::Instant;

use crate::{Buf, IoClass, ZoneInfo, ZoneState};

/// A write that was submitted to the stage. `W`: the type of its completer.
#[derive(Debug)]
pub(super) struct StagedWrite<W> {
    /// Blocks from the zone's start to the first block.
    pub offset: u64,
    pub blocks: u64,
    pub data: Buf,
    pub durable: bool,
    pub class: IoClass,
    pub waiter: W,
}

/// Writes to blocks one after the other, which go to the device as one.
#[derive(Debug)]
pub(super) struct Run<W>(pub Vec<StagedWrite<W>>);

/// The result of [`StagedZone::put`].
#[derive(Debug)]
pub(super) enum Put<W> {
    /// The zone holds the write: [`StagedZone::next_run`] gives it, now or later.
    Held,
    /// The device refuses the write, and says why: below the pointer, or past the zone's capacity.
    Device(StagedWrite<W>),
    /// The stage refuses the write.
    Refused(StagedWrite<W>, Refusal),
}

/// Why the stage refuses a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// The write ends further above the pointer than the window is long.
    BeyondWindow {
        /// Blocks from the zone's start to the pointer.
        pointer: u64,
    },
    /// The stage holds as much as it may.
    NoRoom,
    /// A window of writes waits already for a report, which has to tell the pointer after a failure.
    PointerUnknown,
    /// Some of the write's blocks belong to another write that waits.
    Overlaps,
}

/// Where the next write of a zone must begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pointer {
    /// At this offset, if everything in flight succeeds.
    At(u64),
    /// An operation failed: a report tells, once nothing is in flight.
    Unknown,
    /// The zone is worn: the device refuses all writes.
    Worn,
}

/// The writes that waited for a report, and cannot go on.
#[derive(Debug)]
pub(super) struct Reported<W> {
    /// Writes below the pointer, or to a worn zone: the device has to refuse them.
    pub refused: Vec<StagedWrite<W>>,
    /// Writes above the missing block: they fail at once, since the writer of the missing block may have received an error already.
    pub above: Vec<StagedWrite<W>>,
    /// The first block, from the zone's start, that neither the device nor a waiting write has.
    pub missing: u64,
}

/// The write pointer of a zone, and the writes that wait for it.
#[derive(Debug)]
pub(super) struct StagedZone<W> {
    pointer: Pointer,
    capacity: u64,
    /// By offset.
    waiting: BTreeMap<u64, StagedWrite<W>>,
    waiting_blocks: u64,
    /// When the pointer last moved, or the first of the waiting writes came, whichever was later.
    since: Instant,
    /// Writes, appends and zone commands in flight.
    in_flight: u32,
    /// Number of operations submitted so far.
    submitted: u64,
    /// While a report of the zone is under way: the number of operations submitted before it.
    reporting: Option<u64>,
    /// True while a task watches the age of the gap.
    pub watched: bool,
}

impl<W> StagedZone<W> {
    /// The zone as a report describes it, with no write waiting.
    pub fn new(info: &ZoneInfo) -> StagedZone<W> {
        let mut zone = StagedZone {
            pointer: Pointer::Unknown,
            capacity: info.capacity.0,
            waiting: BTreeMap::new(),
            waiting_blocks: 0,
            since: Instant(0),
            in_flight: 0,
            submitted: 0,
            reporting: None,
            watched: false,
        };
        zone.apply(info);
        zone
    }

    fn apply(&mut self, info: &ZoneInfo) {
        self.pointer = match info.state {
            ZoneState::ReadOnly | ZoneState::Offline => Pointer::Worn,
            _ => Pointer::At(info.pointer.0),
        };
    }

    /// Blocks of the waiting writes.
    pub fn waiting_blocks(&self) -> u64 {
        self.waiting_blocks
    }

    /// Takes a write. `window`: how far above the pointer a write may end; `room`: how much may wait. Both in blocks.
    pub fn put(&mut self, write: StagedWrite<W>, (window, room): (u64, u64), now: Instant) -> Put<W> {
        let (from, end) = (write.offset, write.offset.saturating_add(write.blocks));
        match self.pointer {
            Pointer::Worn => return Put::Device(write),
            Pointer::At(pointer) if from < pointer || end > self.capacity => return Put::Device(write),
            Pointer::At(pointer) if from > pointer && end > pointer.saturating_add(window) => {
                return Put::Refused(write, Refusal::BeyondWindow { pointer });
            }
            Pointer::At(pointer) if from > pointer && write.blocks > room => {
                return Put::Refused(write, Refusal::NoRoom);
            }
            Pointer::Unknown if write.blocks > room => return Put::Refused(write, Refusal::NoRoom),
            Pointer::Unknown if !self.waiting.is_empty() && self.waiting_blocks + write.blocks > window => {
                return Put::Refused(write, Refusal::PointerUnknown);
            }
            Pointer::At(_) | Pointer::Unknown => {}
        }
        let below = self.waiting.range(..end).next_back();
        if below.is_some_and(|(_, below)| below.offset + below.blocks > from) {
            return Put::Refused(write, Refusal::Overlaps);
        }
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.waiting_blocks += write.blocks;
        self.waiting.insert(from, write);
        Put::Held
    }

    /// The next writes to submit: those at the pointer, as far as they follow one another, at most `longest` blocks.
    pub fn next_run(&mut self, longest: u64, now: Instant) -> Option<Run<W>> {
        let Pointer::At(pointer) = self.pointer else { return None };
        let (mut run, mut end) = (Vec::new(), pointer);
        while let Some(next) = self.waiting.get(&end)
            && (run.is_empty() || end + next.blocks - pointer <= longest)
            && let Some(next) = self.waiting.remove(&end)
        {
            end += next.blocks;
            run.push(next);
        }
        if run.is_empty() {
            return None;
        }
        self.pointer = Pointer::At(end);
        self.waiting_blocks -= end - pointer;
        self.since = now;
        self.begin_operation();
        Some(Run(run))
    }

    /// An append of `blocks` is submitted. Returns the waiting writes whose place it takes.
    pub fn appended(&mut self, blocks: u64, now: Instant) -> Vec<StagedWrite<W>> {
        self.begin_operation();
        if let Pointer::At(pointer) = &mut self.pointer {
            *pointer += blocks;
            self.since = now;
        }
        self.take_below_pointer()
    }

    /// A write that the device is expected to refuse, or a command that leaves the pointer, is submitted.
    pub fn passed(&mut self) {
        self.begin_operation();
    }

    fn begin_operation(&mut self) {
        self.in_flight += 1;
        self.submitted += 1;
    }

    /// A finish is submitted.
    pub fn finished(&mut self) {
        self.begin_operation();
        self.pointer = Pointer::At(self.capacity);
    }

    /// A reset is submitted.
    pub fn reset(&mut self) {
        self.begin_operation();
        self.pointer = Pointer::At(0);
    }

    /// An operation in flight has ended. `known`: the pointer is where the zone expects it. Otherwise a report has to tell, and all
    /// writes that wait are returned, which fail with the operation. Writes that came after an earlier failure go on waiting.
    #[must_use]
    pub fn ended(&mut self, known: bool) -> Vec<StagedWrite<W>> {
        self.in_flight -= 1;
        if known || self.pointer == Pointer::Unknown {
            return Vec::new();
        }
        self.pointer = Pointer::Unknown;
        self.take_waiting()
    }

    /// True if a report must tell the zone's pointer now; the caller submits it.
    #[must_use]
    pub fn begin_report(&mut self) -> bool {
        let needed = self.pointer == Pointer::Unknown && self.in_flight == 0 && !self.waiting.is_empty();
        let begins = needed && self.reporting.is_none();
        if begins {
            self.reporting = Some(self.submitted);
        }
        begins
    }

    /// A report has ended; `None` if it failed, and all waiting writes with it.
    pub fn reported(&mut self, info: Option<&ZoneInfo>) -> Reported<W> {
        let before = self.reporting.take();
        let nothing = Reported { refused: Vec::new(), above: Vec::new(), missing: 0 };
        // A reset or finish that was submitted meanwhile has set the pointer; after any other operation the report is out of date, and the
        // zone needs another one.
        if self.pointer != Pointer::Unknown || before != Some(self.submitted) {
            return nothing;
        }
        let Some(info) = info else { return Reported { refused: self.take_waiting(), ..nothing } };
        self.apply(info);
        let Pointer::At(mut missing) = self.pointer else {
            return Reported { refused: self.take_waiting(), ..nothing };
        };
        let refused = self.take_below_pointer();
        while let Some(next) = self.waiting.get(&missing) {
            missing += next.blocks;
        }
        let above: Vec<StagedWrite<W>> = self.waiting.split_off(&missing).into_values().collect();
        self.waiting_blocks -= above.iter().map(|write| write.blocks).sum::<u64>();
        Reported { refused, above, missing }
    }

    /// Since when writes wait, and the first block that is missing below them, where the pointer is known; `None` if none waits.
    pub fn gap(&self) -> Option<(Option<u64>, Instant)> {
        let missing = match self.pointer {
            Pointer::At(pointer) => Some(pointer),
            Pointer::Unknown | Pointer::Worn => None,
        };
        (!self.waiting.is_empty()).then_some((missing, self.since))
    }

    /// Takes all waiting writes.
    #[must_use]
    pub fn take_waiting(&mut self) -> Vec<StagedWrite<W>> {
        self.waiting_blocks = 0;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    fn take_below_pointer(&mut self) -> Vec<StagedWrite<W>> {
        let Pointer::At(pointer) = self.pointer else { return Vec::new() };
        let capacity = self.capacity;
        let stays =
            |write: &StagedWrite<W>| write.offset >= pointer && write.offset + write.blocks <= capacity;
        let (above, below): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_values().partition(stays);
        self.waiting_blocks = above.iter().map(|write| write.blocks).sum();
        self.waiting = above.into_iter().map(|write| (write.offset, write)).collect();
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blocks, ZoneId, ZoneKind};

    const WINDOW: u64 = 16;
    const ROOM: u64 = 60;

    fn zone() -> StagedZone<u64> {
        info_at(ZoneState::Empty, 0)
    }

    fn info(state: ZoneState, pointer: u64) -> ZoneInfo {
        ZoneInfo {
            zone: ZoneId(3),
            kind: ZoneKind::Sequential,
            state,
            pointer: Blocks(pointer),
            capacity: Blocks(64),
        }
    }

    fn info_at(state: ZoneState, pointer: u64) -> StagedZone<u64> {
        StagedZone::new(&info(state, pointer))
    }

    /// Puts a write of `blocks` at `offset`; the waiter is the offset.
    fn put(zone: &mut StagedZone<u64>, offset: u64, blocks: u64) -> Put<u64> {
        let data = Buf::copy_from(&[]);
        zone.put(
            StagedWrite { offset, blocks, data, durable: false, class: IoClass::default(), waiter: offset },
            (WINDOW, ROOM),
            Instant(7),
        )
    }

    fn run(zone: &mut StagedZone<u64>) -> Vec<u64> {
        zone.next_run(8, Instant(9))
            .map_or_else(Vec::new, |run| run.0.into_iter().map(|write| write.waiter).collect())
    }

    fn waiters(writes: Vec<StagedWrite<u64>>) -> Vec<u64> {
        writes.into_iter().map(|write| write.waiter).collect()
    }

    #[test]
    fn writes_ahead_wait_and_neighbours_go_out_as_one() {
        let mut zone = zone();
        for offset in [6, 2, 4] {
            assert!(matches!(put(&mut zone, offset, 2), Put::Held));
            assert!(run(&mut zone).is_empty());
        }
        assert_eq!(zone.gap(), Some((Some(0), Instant(7))));
        assert!(matches!(put(&mut zone, 0, 2), Put::Held));
        assert_eq!(run(&mut zone), [0, 2, 4, 6]);
        assert_eq!((zone.gap(), zone.waiting_blocks()), (None, 0));
    }

    #[test]
    fn a_run_is_no_longer_than_a_transfer() {
        let mut zone = zone();
        for offset in [3, 6, 0] {
            assert!(matches!(put(&mut zone, offset, 3), Put::Held));
        }
        assert_eq!(run(&mut zone), [0, 3]);
        assert_eq!(run(&mut zone), [6]);
    }

    #[test]
    fn writes_beyond_the_window_and_over_waiting_ones_are_refused() {
        let mut zone = zone();
        assert!(matches!(put(&mut zone, 14, 3), Put::Refused(_, Refusal::BeyondWindow { pointer: 0 })));
        assert!(matches!(put(&mut zone, 8, 4), Put::Held));
        for (offset, blocks) in [(8, 4), (11, 1), (7, 2), (6, 8)] {
            assert!(matches!(put(&mut zone, offset, blocks), Put::Refused(_, Refusal::Overlaps)), "{offset}");
        }
        assert!(matches!(put(&mut zone, 12, 4), Put::Held));
        assert!(matches!(put(&mut zone, 7, 1), Put::Held));
        // A write at the pointer may be longer than the window.
        let mut zone = self::zone();
        assert!(matches!(put(&mut zone, 0, 40), Put::Held));
        assert_eq!(run(&mut zone), [0]);
        assert!(matches!(put(&mut zone, 39, 1), Put::Device(_)), "below the pointer");
        assert!(matches!(put(&mut zone, 60, 5), Put::Device(_)), "past the capacity");
    }

    #[test]
    fn after_a_failure_all_above_fails_and_a_report_tells_the_pointer() {
        let mut zone = zone();
        for offset in [0, 4, 12] {
            assert!(matches!(put(&mut zone, offset, 4), Put::Held));
        }
        assert_eq!(run(&mut zone), [0, 4]);
        assert_eq!(waiters(zone.ended(false)), [12]);
        assert!(!zone.begin_report(), "nothing waits");
        assert!(matches!(put(&mut zone, 0, 4), Put::Held));
        assert!(matches!(put(&mut zone, 4, 4), Put::Held));
        assert!(run(&mut zone).is_empty());
        assert!(zone.begin_report());
        assert!(!zone.begin_report(), "one report is enough");
        assert!(matches!(put(&mut zone, 10, 2), Put::Held));
        assert!(matches!(put(&mut zone, 20, 7), Put::Refused(_, Refusal::PointerUnknown)));
        let too_long = StagedWrite {
            offset: 30,
            blocks: 3,
            data: Buf::copy_from(&[]),
            durable: false,
            class: IoClass::default(),
            waiter: 30,
        };
        assert!(matches!(zone.put(too_long, (WINDOW, 2), Instant(8)), Put::Refused(_, Refusal::NoRoom)));
        assert_eq!(
            zone.gap(),
            Some((None, Instant(7))),
            "writes that wait for a report fail after a time too"
        );
        // The first of the three is there already, and the last lies above a gap.
        let reported = zone.reported(Some(&info(ZoneState::ImplicitOpen, 4)));
        assert_eq!(
            (waiters(reported.refused), waiters(reported.above), reported.missing),
            (vec![0], vec![10], 8)
        );
        assert_eq!(run(&mut zone), [4]);
        assert_eq!(zone.waiting_blocks(), 0);
    }

    #[test]
    fn a_report_that_an_append_overtook_is_asked_for_again() {
        let mut zone = zone();
        assert!(zone.appended(1, Instant(8)).is_empty());
        assert!(zone.ended(false).is_empty());
        drop(put(&mut zone, 6, 2));
        assert!(zone.begin_report());
        assert!(zone.appended(2, Instant(9)).is_empty());
        assert!(zone.ended(true).is_empty());
        assert!(zone.reported(Some(&info(ZoneState::ImplicitOpen, 4))).refused.is_empty());
        assert!(run(&mut zone).is_empty());
        assert!(zone.begin_report(), "the first one may be older than the append");
        assert!(zone.reported(Some(&info(ZoneState::ImplicitOpen, 6))).above.is_empty());
        assert_eq!(run(&mut zone), [6]);
    }

    #[test]
    fn a_report_waits_for_what_is_in_flight_and_gives_way_to_a_reset() {
        let mut zone = zone();
        for offset in [0, 20] {
            drop(put(&mut zone, offset, 20));
            assert_eq!(run(&mut zone), [offset]);
        }
        assert!(zone.ended(false).is_empty());
        assert!(matches!(put(&mut zone, 0, 4), Put::Held));
        assert!(!zone.begin_report(), "the second write is in flight");
        assert!(zone.ended(false).is_empty(), "the write came after the failure");
        assert!(zone.begin_report());
        zone.reset();
        assert!(zone.reported(Some(&info(ZoneState::ImplicitOpen, 20))).above.is_empty());
        assert_eq!(run(&mut zone), [0]);
    }

    #[test]
    fn an_append_takes_the_place_of_a_waiting_write() {
        let mut zone = zone();
        for offset in [1, 4] {
            drop(put(&mut zone, offset, 1));
        }
        assert_eq!(waiters(zone.appended(2, Instant(8))), [1]);
        drop(put(&mut zone, 2, 2));
        assert_eq!(run(&mut zone), [2, 4]);
    }

    #[test]
    fn a_worn_zone_takes_no_write() {
        for state in [ZoneState::ReadOnly, ZoneState::Offline] {
            assert!(matches!(put(&mut info_at(state, 3), 3, 1), Put::Device(_)));
            let mut zone = zone();
            drop(put(&mut zone, 0, 1));
            assert_eq!(run(&mut zone), [0]);
            assert!(zone.ended(false).is_empty());
            drop(put(&mut zone, 0, 1));
            assert!(zone.begin_report());
            assert_eq!(waiters(zone.reported(Some(&info(state, 0))).refused), [0]);
        }
    }
}
