//! A joined zone in memory, and the order in which its writes are acknowledged.

use std::collections::VecDeque;

use zoned::{
    Action, Blocks, Buf, BufMut, Completer, Done, Durability, Error, Resources, Result, ZoneId, ZoneState,
};

use crate::deferred::Deferred;
use crate::zone::MAX_BYTES_IN_FLIGHT;

/// An operation that waits for its joined zone, or is carried out there.
pub(super) enum Work {
    Read {
        offset: Blocks,
        into: BufMut,
    },
    /// A write at `offset`, or an append (`None`).
    Write {
        offset: Option<Blocks>,
        data: Buf,
        how: Durability,
    },
    Act(Action),
}

/// A write that was submitted to sections.
struct Flight {
    number: u64,
    start: Blocks,
    bytes: u64,
    how: Durability,
    done: Done,
    completer: Completer,
    landed: bool,
}

/// What the sections answered to the pieces of a write.
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
    /// Where the content of a full zone ends, if that is not the capacity.
    pub end: Option<Blocks>,
    /// True while a reset or a finish is under way: all other operations wait.
    pub busy: bool,
    pub queue: VecDeque<(Work, Completer)>,
    /// Why the zone takes no writes.
    pub poison: Option<Error>,
    flights: VecDeque<Flight>,
    next_flight: u64,
    in_flight: u64,
    /// The end of the blocks that the sections acknowledged without a gap.
    covered: Blocks,
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
            flights: VecDeque::new(),
            next_flight: 0,
            in_flight: 0,
            covered: pointer,
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

    /// True if `work` must wait for earlier work of the zone.
    pub(super) fn must_wait(&self, work: &Work) -> bool {
        !self.queue.is_empty() || self.holds_back(work)
    }

    /// True if `work` at the head of the queue must wait.
    pub(super) fn holds_back(&self, work: &Work) -> bool {
        self.busy
            || match work {
                Work::Write { data, .. } => {
                    self.in_flight > 0
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
        let (number, start, bytes) = (self.next_flight, self.pointer, bytes as u64);
        self.next_flight += 1;
        self.in_flight += bytes;
        self.pointer = end;
        self.flights.push_back(Flight { number, start, bytes, how, done, completer, landed: false });
        number
    }

    /// All pieces of a write have ended. Completes the writes that can be acknowledged now, or that have failed; gives those that a
    /// flush has to make durable first.
    ///
    /// A write behind a failed one fails too, as a gap lies below. If no section took blocks of any of them, the zone goes on at the
    /// failed write; otherwise it takes no more writes until it is reset, or the array is opened anew.
    pub(super) fn write_ended(
        &mut self,
        id: ZoneId,
        number: u64,
        landing: Landing,
        limits: &mut Resources,
        deferred: &mut Deferred,
    ) -> Vec<AwaitsFlush> {
        let Some(at) = self.flights.iter().position(|flight| flight.number == number) else {
            return Vec::new();
        };
        let mut durable = Vec::new();
        if let Err(error) = landing.result {
            self.poison.get_or_insert(error);
        }
        if let Some(flight) = self.flights.get_mut(at) {
            flight.landed = true;
        }
        if self.poison.is_none() {
            while self.flights.front().is_some_and(|flight| flight.landed) {
                let Some(flight) = self.flights.pop_front() else { break };
                self.in_flight -= flight.bytes;
                self.covered = self.flights.front().map_or(self.pointer, |next| next.start);
                match flight.how {
                    Durability::Durable => {
                        durable.push(AwaitsFlush { done: flight.done, completer: flight.completer });
                    }
                    Durability::Cached => deferred.complete(flight.completer, Ok(flight.done)),
                }
            }
            return durable;
        }
        self.is_ahead |= landing.any;
        self.pointer = self.covered;
        let (ended, flights): (Vec<_>, Vec<_>) = self.flights.drain(..).partition(|flight| flight.landed);
        self.flights = flights.into();
        for flight in ended {
            self.in_flight -= flight.bytes;
            let error = self.poison.as_ref().map(Error::duplicate).expect("the zone is poisoned");
            deferred.complete(flight.completer, Err(error));
        }
        if self.flights.is_empty() && !self.is_ahead {
            self.poison = None;
            let to = match self.state {
                ZoneState::ImplicitOpen | ZoneState::Full if self.pointer == Blocks::ZERO => ZoneState::Empty,
                ZoneState::Full => ZoneState::Closed,
                state => state,
            };
            limits.moved(id, self.state, to);
            self.state = to;
        }
        Vec::new()
    }
}
