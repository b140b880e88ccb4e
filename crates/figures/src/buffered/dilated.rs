//! The rate of buffered over direct in dilated time: how it grows when the host's time counts less, as a hit costs nothing else.

use std::num::NonZeroU32;

use bench::Clock;
use bench::ycsb::{Engine, Workload, YcsbLoad};

use super::comparison::compare;
use super::fig5::MEMORY;
use super::setup::{engine_name, load};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape};

const X: &str = "dilation";
const OVER: &str = "buffered over direct";

/// The rates of Fig. 5 by dilation.
pub(super) const FIGURE: Figure = Figure {
    name: "buffered-dilated",
    title: "Fig. 5 by dilation: the drive's times N-fold, results divided by N",
    panels: &[
        Panel::new("buffered-dilated-rocksdb", "RocksDB, rates", X, OVER, Shape::LINES),
        Panel::new("buffered-dilated-leveldb", "LevelDB, rates", X, OVER, Shape::LINES),
    ],
    measure,
};

const PLACES: [(Engine, &str); 2] =
    [(Engine::RocksDb, "buffered-dilated-rocksdb"), (Engine::LevelDb, "buffered-dilated-leveldb")];

/// The factors by which the drive's times are stretched.
const DILATIONS: &[u32] = &[1, 4, 16];
const QUICK_DILATIONS: &[u32] = &[2];

/// Records for each operation: with the longest dilation an operation that misses takes over a millisecond.
const RECORDS_PER_OPERATION: u64 = 10;

/// Runs of which each number is the median.
const RUNS: u32 = 1;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let workloads = run.pick(vec![Workload::Load, Workload::C, Workload::D], vec![Workload::Load]);
    let mut rows = Vec::new();
    for (engine, figure) in PLACES {
        for dilation in run.pick(DILATIONS, QUICK_DILATIONS) {
            let factor = NonZeroU32::new(*dilation)
                .ok_or_else(|| Error::new(engine_name(engine), "a dilation of 0"))?;
            let clock = if *dilation == 1 { Clock::Real } else { Clock::Dilated(factor) };
            let load = load(engine, run);
            let load = YcsbLoad {
                clock: Some(clock),
                workloads: workloads.clone(),
                operations: load.records / RECORDS_PER_OPERATION,
                ..load
            };
            for compared in compare(run, load, MEMORY, run.runs.unwrap_or(RUNS))? {
                rows.push(compared.over(figure, compared.name, *dilation));
            }
        }
    }
    Ok(rows)
}
