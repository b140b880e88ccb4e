//! The sentences of the paper, as the names of series, and their rows.

use crate::{Better, Row, Unit};

/// Section 3.1: the snapshot scheduler is to "prevent the majority from taking snapshot at the same time".
pub(in crate::priority) const NO_MAJORITY: &str =
    "3.1: the majority does not take snapshots at the same time";
/// "Priorities allow us to get our important request quickly to the front" (section 4).
pub(in crate::priority) const IMPORTANT_FIRST: &str =
    "4: priorities bring the important request to the front";
/// "Getting to the front of the operating system I/O queue is sufficient" (section 4).
pub(in crate::priority) const FRONT_OF_THE_QUEUE: &str = "4: the front of the OS queue suffices";
/// Other writes "are background writes, so it is okay if they are delayed" (section 4); no figure has their rate.
pub(in crate::priority) const BULK_MAY_WAIT: &str = "4: background writes may be delayed";
/// The drive is a SATA one in section 4.1, and NVMe in the text around it.
pub(in crate::priority) const DRIVE: &str = "4.1: 536 MiB in 0.25 to 0.45 s on a Samsung SSD 860";
/// `ioprio_set` "is running at a process level" (section 4.2).
pub(in crate::priority) const PROCESS_LEVEL: &str = "4.2: ioprio_set runs at a process level";
/// "Similar consistent performance" (section 4.2).
pub(in crate::priority) const AS_ALONE: &str = "4.2: as when the writes ran on their own";
/// High-priority writes "are sent straight to the storage device" (section 4.3), by direct I/O.
pub(in crate::priority) const SENT_STRAIGHT: &str = "4.3: direct writes are sent straight to the device";
/// "The natural entity for attaching I/O priorities is file descriptors" (section 5).
pub(in crate::priority) const DESCRIPTORS: &str = "5: priorities should belong to file descriptors";
/// BFQ is "the only modern scheduler that recognizes ionice" (section 6.1).
pub(in crate::priority) const ONLY_BFQ: &str = "6.1: BFQ alone recognizes priorities";

/// A row of a sentence. Ratios here are of latencies: lower ones are better.
pub(super) fn row(sentence: &str, x: &str, unit: Unit, value: f64) -> Row {
    let row = Row::new("priority-sentences", sentence, x, unit, value);
    if unit == Unit::Times { Row { better: Better::Lower, ..row } } else { row }
}
