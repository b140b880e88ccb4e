//! Counters of an array: bytes by purpose, reads that needed other drives, repairs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::record::Body;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the array was opened. Each number is exact; they are not read at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters of an array in use.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub $name: AtomicU64,)*
        }

        impl Metrics {
            /// The values of all counters as they are now.
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counters {
            /// Each counter's name and value, in the order of the fields.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Bytes that clients wrote.
    data_bytes,
    /// Bytes of parity written to its place.
    parity_bytes,
    /// Bytes of partial parity, headers included, written to the metadata logs.
    partial_parity_bytes,
    /// Bytes written to the metadata logs, apart from partial parity.
    metadata_bytes,
    /// Bytes written to new drives by rebuilds.
    rebuilt_bytes,
    /// Bytes of parts that were moved to other physical zones.
    moved_bytes,
    /// Physical zones that reclaims freed.
    reclaimed_zones,
    /// Times that the first write of a zone waited for a reclaim.
    waits_for_room,
    /// Runs of blocks, at most one stripe unit each, that were reconstructed from the other drives.
    degraded_reads,
    /// Reads of a drive that failed with an error of the medium.
    read_errors,
    /// Reads that failed with an error of the medium and were answered from the other drives.
    read_repairs,
    /// Stripe units whose content was relocated.
    relocations,
    /// Times that appends landed in another order than submitted, so that logged parity was corrected.
    reorderings,
    /// Times that latencies changed how appends of a length and a number in flight go to the drives (`AppendMode::Auto`).
    append_changes,
    /// Bytes that scrubs read.
    scrub_bytes,
    /// Reads of scrubs that failed.
    scrub_errors,
    /// Stripes whose parity did not match their data.
    scrub_mismatches,
    /// Flushes sent to drives, for durable writes and for flushes.
    flushes,
    /// Flushes of drives that durable writes did not need: the blocks of the zone there were durable already.
    flushes_spared,
    /// Drives that failed while the array was in use.
    drive_failures,
}

/// Adds `n` to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Metrics {
    /// Counts a record that was written to a log.
    pub(crate) fn logged(&self, body: &Body, bytes: usize) {
        let counter = match body {
            Body::PartialParity { .. } | Body::Frames { parity: Some(_), .. } | Body::Reorder { .. } => {
                &self.partial_parity_bytes
            }
            _ => &self.metadata_bytes,
        };
        add(counter, bytes as u64);
    }

    /// Counts bytes that were written to a new drive.
    pub(crate) fn rebuilt(&self, bytes: usize) {
        add(&self.rebuilt_bytes, bytes as u64);
    }
}
