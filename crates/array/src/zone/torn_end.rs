//! Where a full zone that a power cut tore may end.

use zoned::Blocks;

use crate::zone::stale_rows::RelocatedParities;

/// The end that a zone gets behind its first torn stripe: a whole stripe whose parity was written for other data than the drives
/// hold. A durable stripe has its parity, and so have all stripes below it, so that no block above a torn stripe was ever durable.
#[derive(Clone, Debug)]
pub(crate) struct TornEnd {
    /// The end of the torn stripe, or of the last whole write below, if the array's writes are atomic.
    pub end: Blocks,
    /// The parities of the data below `end` of the last stripe, if that stripe is not whole then. Those in their places cover
    /// blocks above `end`.
    pub parities: RelocatedParities,
}
