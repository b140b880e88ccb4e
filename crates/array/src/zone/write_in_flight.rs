//! A write of a zone from its submission to its acknowledgement.

use zoned::{Blocks, Buf, Completer, Done, Durability, IoClass};

use crate::layout::{Parity, Stripe};
use crate::zone::append_choice::Sample;

/// What is known of the address of a write in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// The blocks lie at the submitted address: the operation was a write, or the drive gave an append this address.
    Known,
    /// The operation is an append in flight.
    Expected,
    /// The drive gave an append this address.
    Other(Blocks),
    /// The append failed: its drive does not say where it lies.
    Unreported,
}

/// A write of a zone that is in flight.
#[derive(Debug)]
pub(crate) struct WriteInFlight {
    pub id: u64,
    pub start: Blocks,
    pub end: Blocks,
    /// Whether the address is known; `start` and `end` are the submitted ones until the zone is settled.
    pub address: Address,
    pub data: Buf,
    /// The parities of the stripes that the write completed.
    pub parities: Vec<(Stripe, Parity, Buf)>,
    /// True if the blocks of the write are on their drives.
    pub landed: bool,
    pub how: Durability,
    pub done: Done,
    /// The class of the write at the drives, or that of a later write which waits for it.
    pub class: IoClass,
    /// Set if the latency of the append counts.
    pub sample: Option<Sample>,
    pub completer: Completer,
}
