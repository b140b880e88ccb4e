//! Numbers of real kernels, which this figure repeats and does not measure.

use super::quoted::{BULK_MAY_WAIT, DESCRIPTORS, FRONT_OF_THE_QUEUE, ONLY_BFQ, PROCESS_LEVEL, row};
use crate::{Row, Unit};

/// A log's synced writes of 4 KiB beside four writers of 1 MiB at a time, on a loop device.
struct OnLoop {
    name: &'static str,
    /// The sentences that the latency answers.
    sentences: &'static [&'static str],
    /// The mean latency of the log.
    log_ms: f64,
    /// The rate of the bulk, where it was noted.
    bulk_mib: Option<f64>,
}

const LOOP: &str = "loop device, no spread, mean of a synced write of 4 KiB beside four writers of 1 MiB (docs/figures/README.md)";

const ON_LOOP: [OnLoop; 7] = [
    OnLoop { name: "BFQ, no priority", sentences: &[PROCESS_LEVEL], log_ms: 3.71, bulk_mib: Some(2291.0) },
    OnLoop {
        name: "BFQ, getpid() in a worker: the main thread has the priority",
        sentences: &[PROCESS_LEVEL],
        log_ms: 4.52,
        bulk_mib: None,
    },
    OnLoop {
        name: "BFQ, the log's thread",
        sentences: &[PROCESS_LEVEL],
        log_ms: 0.20,
        bulk_mib: Some(245.0),
    },
    OnLoop {
        name: "BFQ, a process of the log's",
        sentences: &[PROCESS_LEVEL],
        log_ms: 0.20,
        bulk_mib: Some(250.0),
    },
    OnLoop { name: "BFQ, each request", sentences: &[DESCRIPTORS], log_ms: 1.80, bulk_mib: Some(2116.0) },
    OnLoop { name: "mq-deadline, no priority", sentences: &[ONLY_BFQ], log_ms: 5.52, bulk_mib: Some(1997.0) },
    OnLoop {
        name: "mq-deadline, each request",
        sentences: &[DESCRIPTORS, ONLY_BFQ],
        log_ms: 1.51,
        bulk_mib: Some(2221.0),
    },
];

/// Mean latencies of a log on a throttled NVMe drive under `none`, by that alone, from the table of docs/benchmarks.md.
const IN_GUEST: [(&str, f64); 3] =
    [("no priority", 7.80), ("real-time", 7.84), ("real-time, bulk by admission", 3.58)];

/// The rows of these numbers.
pub(super) fn rows() -> Vec<Row> {
    let elsewhere = |sentence: &str, x: &str, unit: Unit, value: f64, conditions: &str| {
        row(sentence, x, unit, value).note(format!("measured elsewhere: {conditions}"))
    };
    let mut rows = Vec::new();
    for OnLoop { name, sentences, log_ms, bulk_mib } in ON_LOOP {
        for sentence in sentences {
            rows.push(elsewhere(sentence, name, Unit::Ms, log_ms, LOOP));
        }
        if let Some(mib) = bulk_mib {
            rows.push(elsewhere(
                BULK_MAY_WAIT,
                name,
                Unit::MibPerS,
                mib,
                &format!("{LOOP}; the bulk's rate, at a mean of {log_ms} ms of the log"),
            ));
        }
    }
    for (name, times) in IN_GUEST {
        rows.push(elsewhere(
            FRONT_OF_THE_QUEUE,
            &format!("throttled NVMe under none, {name}"),
            Unit::Times,
            times,
            "guest, Linux 6.12, one log beside four writers of 256 KiB, mean by that alone (docs/benchmarks.md)",
        ));
    }
    rows
}
