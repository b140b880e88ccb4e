//! Appends of a zone that went to their drive as appends: the rows that the drive gave them, and their order after a reordering.
//!
//! A drive gives its appends in flight any order. The array submits an append with the address that it has if the drive keeps the
//! order, and computes parity for that order. All appends of one unit that are in flight at a time lie between two operations whose
//! rows are known, so that a reordering only exchanges addresses within the unit.
//!
//! ```text
//!   submitted     A B C D    parity of A B C D logged
//!   landed        A C B D    A is acknowledged; the zone takes no more writes until all in flight have ended
//!   settled       A C B D    addresses exchanged, parity corrected, a reorder record logged; then C B D are acknowledged
//! ```

use std::collections::VecDeque;

use zoned::Blocks;

use crate::layout::Layout;
use crate::zone::append_choice::RecentDepth;
use crate::zone::write_in_flight::{Address, WriteInFlight};

/// The appends of a zone whose drive has not given them an address, or another one than submitted.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    in_flight: u32,
    /// True from the first append with another address than submitted until the zone is settled.
    reordered: bool,
    /// The end of the stripe of the appends in flight. Whatever completes the stripe waits for them, because the stripe's parity
    /// is written once.
    pub stripe_end: Blocks,
    /// Bytes in a block.
    pub block: usize,
    /// How many appends of the zone were in flight lately.
    pub depth: RecentDepth,
}

impl Appends {
    /// True if rows of the open stripe are not known yet.
    pub(crate) fn are_unsettled(&self) -> bool {
        self.in_flight > 0 || self.reordered
    }

    /// True if an append has another address than submitted.
    pub(crate) fn are_reordered(&self) -> bool {
        self.reordered
    }

    /// True if every append has ended, and one has another address than submitted.
    pub(crate) fn may_settle(&self) -> bool {
        self.in_flight == 0 && self.reordered
    }

    /// True if a write of `bytes` at `pointer` has to wait until the addresses of all appends are known.
    pub(crate) fn hold_back(&self, pointer: Blocks, bytes: usize) -> bool {
        let completes = || {
            let blocks = bytes.checked_div(self.block).unwrap_or(0) as u64;
            pointer.plus(Blocks(blocks)) >= self.stripe_end
        };
        self.reordered || self.in_flight > 0 && completes()
    }

    /// Counts an append that was submitted.
    pub(crate) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// An append has ended. `as_submitted`: its address is the submitted one.
    pub(crate) fn end(&mut self, as_submitted: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.reordered |= !as_submitted;
    }

    /// The addresses of all appends are known and corrected.
    pub(crate) fn settle(&mut self) {
        self.reordered = false;
    }
}

/// Gives every write in flight the address that it has on its drive, in place of the submitted one, and sorts the writes by address.
/// Appends of a failed drive take the rows of their unit that the others left, in the order of submission. False if the
/// addresses that a drive gave cannot be.
pub(crate) fn assign_addresses(layout: &Layout, flights: &mut VecDeque<WriteInFlight>) -> bool {
    let Some((first, last)) = flights.front().map(|flight| flight.start).zip(flights.back().map(|f| f.end))
    else {
        return true;
    };
    // The first block and the end of the unit with a block.
    let unit_of = |at: Blocks| {
        let piece = layout.locate(at);
        let start = layout.unit_start(piece.stripe, piece.index);
        (start, start.plus(Blocks(layout.unit_of(piece.stripe))))
    };
    let mut taken: Vec<(Blocks, Blocks)> = Vec::new();
    let mut sound = true;
    for flight in flights.iter_mut() {
        let len = flight.end.minus(flight.start);
        match flight.address {
            Address::Known => {}
            Address::Other(at) => {
                let (from, to) = unit_of(flight.start);
                sound &= at >= from && at.plus(len) <= to;
                (flight.start, flight.end) = (at, at.plus(len));
            }
            Address::Expected | Address::Unreported => continue,
        }
        taken.push((flight.start, flight.end));
    }
    for flight in flights.iter_mut().filter(|flight| flight.address == Address::Unreported) {
        let len = flight.end.minus(flight.start);
        taken.sort_unstable();
        // The lowest gap of the unit that is long enough.
        let (from, to) = unit_of(flight.start);
        let mut at = from.max(first);
        for (start, end) in &taken {
            if *end <= at {
                continue;
            }
            if at.plus(len) <= *start {
                break;
            }
            at = *end;
        }
        sound &= at.plus(len) <= to;
        (flight.start, flight.end) = (at, at.plus(len));
        taken.push((at, at.plus(len)));
    }
    flights.make_contiguous().sort_by_key(|flight| flight.start);
    let mut at = first;
    for flight in flights.iter() {
        sound &= flight.start == at && flight.address != Address::Expected;
        at = flight.end;
    }
    sound && at == last
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{Driver, VirtualDriver};
    use zoned::{Buf, Done, Durability, Io, IoClass};

    use super::*;

    /// Units of eight blocks.
    const LAYOUT: Layout = Layout { width: 4, parities: 1, unit: 8, part_rows: 64 };

    fn flights(first: u64, all: &[(u64, Address)]) -> VecDeque<WriteInFlight> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let mut at = first;
        let flight = |(id, (len, address)): (u64, &(u64, Address))| {
            let (completer, io) = Io::pair(&driver, &Arc::from("dev"));
            drop(io);
            let start = Blocks(at);
            at += len;
            WriteInFlight {
                id,
                start,
                end: Blocks(at),
                address: *address,
                data: Buf::copy_from(&[0]),
                parities: Vec::new(),
                landed: false,
                how: Durability::Cached,
                done: Done::Unit,
                class: IoClass::default(),
                sample: None,
                completer,
            }
        };
        (0..).zip(all).map(flight).collect()
    }

    /// The writes by address: number and first block; `None` if the addresses cannot be.
    fn assigned(first: u64, all: &[(u64, Address)]) -> Option<Vec<(u64, u64)>> {
        let mut flights = flights(first, all);
        let sound = assign_addresses(&LAYOUT, &mut flights);
        sound.then(|| flights.iter().map(|flight| (flight.id, flight.start.0)).collect())
    }

    const KNOWN: Address = Address::Known;
    const UNREPORTED: Address = Address::Unreported;

    fn other(at: u64) -> Address {
        Address::Other(Blocks(at))
    }

    #[test]
    fn writes_take_the_addresses_that_the_drive_gave() {
        let all = [(1, KNOWN), (2, other(4)), (1, other(3)), (1, KNOWN), (1, KNOWN)];
        assert_eq!(assigned(2, &all), Some(vec![(0, 2), (2, 3), (1, 4), (3, 6), (4, 7)]));
    }

    #[test]
    fn appends_of_a_failed_drive_take_the_rows_that_are_left_in_order() {
        let all = [(1, KNOWN), (1, UNREPORTED), (1, UNREPORTED), (1, other(3))];
        assert_eq!(assigned(2, &all), Some(vec![(0, 2), (3, 3), (1, 4), (2, 5)]));
        let all = [(2, UNREPORTED), (1, other(1)), (1, UNREPORTED)];
        assert_eq!(assigned(1, &all), Some(vec![(1, 1), (0, 2), (2, 4)]));
    }

    #[test]
    fn impossible_addresses_are_refused() {
        for all in [
            // Two writes at the same block, or a gap between writes.
            [(1, KNOWN), (1, other(2))],
            [(1, KNOWN), (1, other(5))],
            // An address in another unit.
            [(1, KNOWN), (1, other(11))],
            [(1, KNOWN), (1, other(1))],
        ] {
            assert_eq!(assigned(2, &all), None, "{all:?}");
        }
        assert_eq!(assigned(6, &[(1, KNOWN), (2, other(7)), (1, other(9))]), None, "over a unit's border");
    }
}
