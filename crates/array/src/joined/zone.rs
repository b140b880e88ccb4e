//! A joined zone in memory, and the order in which its writes are acknowledged.

use std::collections::VecDeque;

use zoned::{
    Action, Blocks, Buf, BufMut, Completer, Done, Durability, Error, IoClass, Resources, Result, ZoneId,
    ZoneState,
};

use crate::deferred::Deferred;
use crate::layout::joined::JoinedLayout;
use crate::zone::MAX_BYTES_IN_FLIGHT;

/// An operation that waits for its joined zone, or is carried out there.
pub(super) enum Work {
    Read {
        class: IoClass,
        offset: Blocks,
        into: BufMut,
    },
    /// A write at `offset`, or an append (`None`).
    Write {
        class: IoClass,
        offset: Option<Blocks>,
        data: Buf,
        how: Durability,
    },
    Act(Action),
}

/// A write that was submitted to sections.
struct Flight {
    number: u64,
    /// One past the write's last block, from the zone's start.
    end: Blocks,
    bytes: u64,
    how: Durability,
    done: Done,
    completer: Completer,
    /// `None` while a piece is under way.
    landed: Option<Landed>,
}

/// The outcome of a write all of whose pieces have ended.
#[derive(Clone, Copy)]
struct Landed {
    has_failed: bool,
    /// True if a section took a piece.
    any: bool,
}

/// The sections' answers to all pieces of one write.
pub(super) struct Landing {
    /// The error of the first piece that failed.
    pub result: Result<()>,
    /// True if a section took a piece.
    pub any: bool,
}

/// A durable write whose blocks, and all below, are acknowledged by the sections: a flush makes them durable.
pub(super) struct AwaitsFlush {
    pub done: Done,
    pub completer: Completer,
}

/// A joined zone.
pub(super) struct JoinedZone {
    /// The state as the client's operations made it. A section that wore out or failed shows in reports only.
    pub state: ZoneState,
    /// Blocks that were submitted, from the zone's start.
    pub pointer: Blocks,
    /// Where the content of a full zone ends; `None` for the pointer.
    pub end: Option<Blocks>,
    /// True while a reset, a finish or a write over a border of sections is under way: all other operations wait.
    pub busy: bool,
    pub queue: VecDeque<(Work, Completer)>,
    /// The error that the zone gives to writes, because a section lacks a block below one that another section holds.
    pub poison: Option<Error>,
    /// True if a reset failed that some sections carried out: the content is unknown until a reset succeeds.
    pub is_half_reset: bool,
    flights: VecDeque<Flight>,
    next_flight: u64,
    in_flight: u64,
    /// The end of the blocks that the sections acknowledged without a gap.
    covered: Blocks,
    /// True if all writes in flight lie behind one that failed.
    is_behind_failed: bool,
    /// True if a section holds blocks above `covered` of a write that failed, or of a later one.
    is_ahead: bool,
}

impl JoinedZone {
    pub(super) fn new(
        state: ZoneState,
        pointer: Blocks,
        end: Option<Blocks>,
        poison: Option<Error>,
    ) -> JoinedZone {
        JoinedZone {
            state,
            pointer,
            end,
            busy: false,
            queue: VecDeque::new(),
            poison,
            is_half_reset: false,
            flights: VecDeque::new(),
            next_flight: 0,
            in_flight: 0,
            covered: pointer,
            is_behind_failed: false,
            is_ahead: false,
        }
    }

    /// Makes the zone empty, after a reset.
    pub(super) fn make_empty(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        *self = JoinedZone { queue, ..JoinedZone::new(ZoneState::Empty, Blocks::ZERO, None, None) };
    }

    /// The number of blocks with content. Blocks above read as zeros.
    pub(super) fn readable(&self) -> Blocks {
        self.end.unwrap_or(self.pointer)
    }

    /// True if `work` leaves the zone's state as it is: other zones are not concerned.
    pub(super) fn changes_no_state(&self, work: &Work) -> bool {
        match work {
            Work::Read { .. } => true,
            Work::Write { .. } => self.state.is_open(),
            Work::Act(_) => false,
        }
    }

    /// True if `work` must wait for earlier work of the zone.
    pub(super) fn must_wait(&self, layout: &JoinedLayout, work: &Work) -> bool {
        !self.queue.is_empty() || self.holds_back(layout, work)
    }

    /// True if `work` at the head of the queue must wait.
    pub(super) fn holds_back(&self, layout: &JoinedLayout, work: &Work) -> bool {
        self.busy
            || match work {
                Work::Write { data, .. } => {
                    let begins_section = !layout.interleaved && self.pointer.0.is_multiple_of(layout.section);
                    // Once no write is in flight, the section below is full, and no longer active.
                    begins_section && !self.flights.is_empty()
                        || self.in_flight > 0
                            && self.in_flight.saturating_add(data.len() as u64) > MAX_BYTES_IN_FLIGHT
                }
                Work::Act(Action::Reset | Action::Finish) => !self.flights.is_empty(),
                Work::Act(_) | Work::Read { .. } => false,
            }
    }

    /// Adds a write at the pointer that ends at `end`. Returns its number.
    pub(super) fn begin_write(
        &mut self,
        end: Blocks,
        bytes: usize,
        how: Durability,
        done: Done,
        completer: Completer,
    ) -> u64 {
        let (number, bytes) = (self.next_flight, bytes as u64);
        self.next_flight += 1;
        self.in_flight += bytes;
        self.pointer = end;
        self.flights.push_back(Flight { number, end, bytes, how, done, completer, landed: None });
        number
    }

    /// All pieces of a write have ended. Completes the writes that can be acknowledged now, or that have failed; gives those that a
    /// flush has to make durable first. A zone all of whose blocks are acknowledged is full: until then its sections may be active.
    ///
    /// A write behind a failed one fails too, as a gap lies below. If no section took blocks of any of them, the zone goes on at the
    /// failed write; otherwise it takes no more writes until it is reset, or the array is opened anew.
    pub(super) fn write_ended(
        &mut self,
        id: ZoneId,
        layout: &JoinedLayout,
        (number, landing): (u64, Landing),
        limits: &mut Resources,
        deferred: &mut Deferred,
    ) -> Vec<AwaitsFlush> {
        let mut durable = Vec::new();
        let has_failed = landing.result.is_err();
        if let Err(error) = landing.result {
            self.poison.get_or_insert(error);
        }
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.landed = Some(Landed { has_failed, any: landing.any });
        }
        while let Some(landed) = self.flights.front().and_then(|flight| flight.landed) {
            self.is_behind_failed |= landed.has_failed;
            if self.is_behind_failed {
                break;
            }
            let Some(flight) = self.flights.pop_front() else { break };
            self.in_flight -= flight.bytes;
            self.covered = flight.end;
            match flight.how {
                Durability::Durable => {
                    durable.push(AwaitsFlush { done: flight.done, completer: flight.completer });
                }
                Durability::Cached => deferred.complete(flight.completer, Ok(flight.done)),
            }
        }
        if self.is_behind_failed {
            self.fail_landed(deferred);
        }
        let to = match (self.state, self.flights.is_empty()) {
            (_, true) if self.covered == layout.capacity() => ZoneState::Full,
            (ZoneState::ImplicitOpen, true) if self.pointer == Blocks::ZERO => ZoneState::Empty,
            (state, _) => state,
        };
        limits.moved(id, self.state, to);
        self.state = to;
        durable
    }

    /// Completes the writes that have ended, all of which lie behind a failed one.
    fn fail_landed(&mut self, deferred: &mut Deferred) {
        self.pointer = self.covered;
        let (ended, flights): (Vec<_>, Vec<_>) =
            self.flights.drain(..).partition(|flight| flight.landed.is_some());
        self.flights = flights.into();
        for flight in ended {
            self.in_flight -= flight.bytes;
            self.is_ahead |= flight.landed.is_some_and(|landed| landed.any);
            let error = self.poison.as_ref().map(Error::duplicate).expect("a write has failed");
            deferred.complete(flight.completer, Err(error));
        }
        if self.flights.is_empty() {
            self.is_behind_failed = false;
            if !self.is_ahead {
                self.poison = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{Driver, VirtualDriver};
    use zoned::{ErrorKind, Io};

    use super::*;

    const LAYOUT: JoinedLayout = JoinedLayout { sections: 2, interleaved: true, stripe: 4, section: 8 };
    const ID: ZoneId = ZoneId(0);

    /// A joined zone with writes of four blocks in flight.
    struct Writes {
        zone: JoinedZone,
        limits: Resources,
        ios: Vec<Io>,
    }

    impl Writes {
        fn new(count: u64) -> Writes {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let (mut zone, mut limits) =
                (JoinedZone::new(ZoneState::ImplicitOpen, Blocks::ZERO, None, None), Resources::default());
            limits.moved(ID, ZoneState::Empty, ZoneState::ImplicitOpen);
            let begin = |n| {
                let (completer, io) = Io::pair(&driver, &Arc::from("array"));
                zone.begin_write(Blocks(4 * (n + 1)), 4, Durability::Cached, Done::Unit, completer);
                io
            };
            let ios = (0..count).map(begin).collect();
            Writes { zone, limits, ios }
        }

        /// The pieces of a write have ended. `any`: a section took one.
        fn end(&mut self, number: u64, ok: bool, any: bool) {
            let error = || zoned::Error::new(ErrorKind::NoSpace, &Arc::from("array"), "write");
            let landing = Landing { result: if ok { Ok(()) } else { Err(error()) }, any };
            let mut deferred = Deferred::default();
            let durable =
                self.zone.write_ended(ID, &LAYOUT, (number, landing), &mut self.limits, &mut deferred);
            assert!(durable.is_empty());
            deferred.complete_all();
        }

        /// Whether each write was acknowledged; they have all ended.
        fn acknowledged(self) -> (Vec<bool>, JoinedZone) {
            (self.ios.into_iter().map(|io| io.wait().is_ok()).collect(), self.zone)
        }
    }

    #[test]
    fn a_zone_is_full_once_its_last_write_is_acknowledged() {
        let mut writes = Writes::new(4);
        for number in [3, 1, 2] {
            writes.end(number, true, true);
            assert_eq!((writes.zone.state, writes.limits.active()), (ZoneState::ImplicitOpen, 1));
        }
        writes.end(0, true, true);
        assert_eq!(writes.limits.active(), 0);
        let (acknowledged, zone) = writes.acknowledged();
        assert_eq!((acknowledged, zone.state), (vec![true; 4], ZoneState::Full));
    }

    #[test]
    fn writes_below_a_failed_one_are_acknowledged_and_those_above_fail() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut writes = Writes::new(3);
            for number in order {
                writes.end(number, number != 1, number != 1);
            }
            let (acknowledged, zone) = writes.acknowledged();
            assert_eq!(acknowledged, [true, false, false], "{order:?}");
            // A section holds blocks of the third write.
            assert!(zone.poison.is_some() && zone.pointer == Blocks(4), "{order:?}");
        }
    }

    #[test]
    fn a_zone_goes_on_where_no_section_took_blocks_of_the_writes_that_failed() {
        for order in [[0, 1, 2], [2, 1, 0], [2, 0, 1]] {
            let mut writes = Writes::new(3);
            for number in order {
                writes.end(number, number == 0, number == 0);
            }
            let (acknowledged, zone) = writes.acknowledged();
            assert_eq!(acknowledged, [true, false, false], "{order:?}");
            assert!(zone.poison.is_none() && zone.pointer == Blocks(4), "{order:?}");
        }
        let mut writes = Writes::new(1);
        writes.end(0, false, false);
        assert_eq!(writes.limits.active(), 0);
        assert_eq!(writes.acknowledged().1.state, ZoneState::Empty);
    }
}
