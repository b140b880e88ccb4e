//! The memory of an array's logical zones.

use zoned::{Blocks, Bytes, Completer};

use crate::layout::Slot;
use crate::zone::Zone;
use crate::zone::coverage::Coverage;
use crate::zone::work::Work;
use crate::zone::write_in_flight::WriteInFlight;

/// The memory that an array takes beside the data of its clients' operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Tables: the logical zones and their places, and the drives' free physical zones.
    pub tables: Bytes,
    /// Parity of stripes that are partly written: at most a stripe unit for each parity and open zone.
    pub parity: Bytes,
    /// Content that the metadata logs hold because its place does not take it.
    pub relocated: Bytes,
}

impl Zone {
    /// Bytes that the zone takes beside its own size, its parity, its relocated content and the data of operations.
    pub(crate) fn heap_bytes(&self) -> usize {
        let frames = self.frames.as_ref().map_or(0, super::frames::Frames::heap_bytes);
        let commits: usize = self.coverage.iter().map(Coverage::heap_bytes).sum();
        frames
            + commits
            + self.flights.capacity() * size_of::<WriteInFlight>()
            + self.queue.capacity() * size_of::<(Work, Completer)>()
            + self.barriers.capacity() * size_of::<(Blocks, Completer)>()
            + self.stamps.capacity() * size_of::<u64>()
            + self.map_record.capacity() * size_of::<Slot>()
    }
}
