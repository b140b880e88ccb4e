//! Fuzz targets: one for each decoder. A target gets any bytes and fails by a panic: a decoder gives a value or an error, and a
//! value that it gave survives being encoded and decoded again.
//!
//! ```text
//!   TARGETS          name -> function; each corpus/NAME holds inputs that once reached new code
//!   tests/corpus.rs  runs every input of every corpus: part of `cargo test`
//!   main.rs          the same functions under libFuzzer: scripts/fuzz.sh
//! ```
//!
//! Where a checksum guards a structure, the target makes the checksum right first: random bytes would never pass it.
#![forbid(unsafe_code)]

mod targets;

use targets::{array, cluster, database, drive, filesystem, pathprio, prio, server, zookeeper};

/// A decoder under fuzz tests.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its corpus.
    pub name: &'static str,
    /// The function that feeds bytes to the decoder and panics where the decoder is wrong.
    pub run: fn(&[u8]),
    /// Golden files, relative to `crates/`, that the dictionary and the first inputs come from.
    pub golden: &'static [&'static str],
}

const fn target(name: &'static str, run: fn(&[u8]), golden: &'static [&'static str]) -> Target {
    Target { name, run, golden }
}

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    target("array-record", array::record, &["array/tests/golden"]),
    target("array-superblock", array::superblock, &["array/tests/golden"]),
    target("array-payloads", array::payloads, &["array/tests/golden"]),
    target("array-order", server::array_order, &[]),
    target("device-url", drive::device_url, &[]),
    target("drive-contents", drive::signatures_of_users, &["fs/tests/golden", "array/tests/golden"]),
    target("emulated-drive", drive::drive_file, &["zoned/tests/golden"]),
    target("drive-profile", drive::drive_profile, &[]),
    target("nvme-data", drive::nvme_answers, &[]),
    target("fs-superblock", filesystem::superblock, &["fs/tests/golden"]),
    target("fs-metadata", filesystem::metadata, &["fs/tests/golden"]),
    target("fs-record", filesystem::record, &["fs/tests/golden"]),
    target("ordered-log", filesystem::ordered_log, &["fs/tests/golden"]),
    target("parallel-log", filesystem::parallel_log, &["fs/tests/golden"]),
    target("kv-record", database::stored_value, &["kv/tests/golden"]),
    target("once-record", database::once_record, &["kv/tests/golden"]),
    target("write-batch", database::write_batch, &["kv/tests/golden"]),
    target("resp", server::resp, &[]),
    target("prio-message", prio::message, &[]),
    target("prio-page", pathprio::page, &[]),
    target("prio-rules", pathprio::rules, &[]),
    target("zk-answer", zookeeper::answer, &[]),
    target("zk-credentials", zookeeper::credentials, &[]),
    target("zk-ensemble", zookeeper::ensemble, &[]),
    target("groups-record", shard::fuzz_record, &["shard/tests/golden"]),
    target("peer-frame", peers::frame::fuzz_frame, &["peers/tests/golden"]),
    target("peer-message", shard::fuzz_message, &["shard/tests/golden"]),
    target("node-state", node::fuzz_state, &["node/tests/golden"]),
    target("cluster-value", cluster::value, &["placement/tests/golden"]),
    target("crash-trace", database::crash_trace, &["sim/tests/golden"]),
];

/// The fuzz target with a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
