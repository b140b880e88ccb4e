//! Finds an ordered log's bytes in its segments.

use std::sync::Arc;

use uuid::Uuid;
use zoned::ZonedDevice;

use crate::error::Result;
use crate::rules::Rules;
use crate::wal::chunk::Memory;
use crate::wal::ordered::recovered::{Cut, Recovered, check_order};
use crate::wal::ordered::sort::{Part, Sorter};
use crate::wal::scan::Scan;
use crate::wal::segment::Segment;

/// Finds the log's bytes in its segments.
///
/// `cuts`: the log's epochs in order, the first one with the log's first sequence. `segments`: the log's segments in the
/// metadata, in the order in which the log got them. An entry counts only if
///
/// - its checksum, log and zone generation are right,
/// - its sequence lies between its epoch's cut and the next one's,
/// - all its parts exist, and
/// - **every sequence below its `needs` exists**. In an ordered log `needs` is the entry's own sequence, so a
///   gap ends the log. A version of a block that was rewritten in place stands for every sequence from `needs` to its own.
///
/// An entry is looked for within its region and segment, as [`entry`](crate::wal::entry) describes them.
///
/// Reads each block below the zones' write pointers, and each block of segments in conventional zones, once, in large reads. Memory: the reads in flight, some 100 bytes
/// for each entry of a region, and the index. Fails where the device fails, and where the cuts are not in order.
///
/// A caller that relies on the result flushes a volatile device cache first, as a mount does: entries of a killed
/// process may still be in the cache.
pub async fn recover(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log_id: u64,
    cuts: &[Cut],
    segments: &[Segment],
) -> Result<Recovered> {
    recover_with(dev, uuid, log_id, cuts, segments, Rules::default()).await
}

/// Like [`recover`], under `rules`.
pub(crate) async fn recover_with(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log_id: u64,
    cuts: &[Cut],
    segments: &[Segment],
    rules: Rules,
) -> Result<Recovered> {
    check_order(cuts)?;
    let memory = Arc::new(Memory::default());
    let mut scan = Scan::begin(dev, uuid, log_id, segments, &memory).await?;
    let mut sorter = Sorter::new(cuts, segments, rules.keeps_entries_behind_gaps());
    while let Some(step) =
        scan.next(|found, _payload, at| sorter.push(Part { found, payload: None }, at)).await?
    {
        if step.segment_over {
            sorter.end_of_segment();
        }
        sorter.ready().for_each(drop);
    }
    sorter.finish();
    Ok(sorter.recovered().traced(log_id))
}
