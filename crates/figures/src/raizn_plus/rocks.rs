//! Fig. 5.15: stock `db_bench` on an array with two zones in a physical one, beside one with RAIZN's placement, in dilated time. The two
//! take turns, and each number is the median of five runs, as the machine's own time is in each of them.

use std::path::Path;

use crate::db_bench::DbBench;
use crate::raizn::rocks::{Bench, MEMORY_DIRECTORY, Place, Size, WORKLOADS, workloads};
use crate::spread::Spread;
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "db_bench workload";

/// Fig. 5.15 of the dissertation.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-fig15",
    title: "Fig. 5.15: RocksDB on arrays of five zn540, two zones in a physical one beside RAIZN's placement",
    panels: &[
        Panel::new("fig5.15", "values of 4,000 bytes", X, "thousand operations a second", Shape::Bars),
        Panel::new("fig5.15-ratio", "over RAIZN's placement", X, "times", Shape::Bars),
    ],
    measure,
};

/// Bytes of a value.
const VALUE: u64 = 4000;
/// Runs of each workload on each array.
const RUNS: usize = 5;
/// The array with RAIZN's placement, and RAIZN+'s.
const PLACES: [Place; 2] = [Place::Array, Place::ArrayOfHalves];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    rows(run, Path::new(MEMORY_DIRECTORY), &DbBench::run)
}

/// Measures the rows of the figure, with drives in files of `dir`.
pub(super) fn rows(run: &Run<'_>, dir: &Path, bench: Bench<'_>) -> Result<Vec<Row>> {
    let size = Size::of(run, VALUE);
    // By place and workload: the rate of each run.
    let mut rates = PLACES.map(|_| WORKLOADS.map(|_| Vec::new()));
    for _ in 0..run.pick(RUNS as u64, 1) {
        for (place, rates) in PLACES.into_iter().zip(&mut rates) {
            let ran = workloads(run, dir, bench, place, size, &WORKLOADS)?;
            rates.iter_mut().zip(ran).for_each(|(rates, (_, ran))| rates.push(ran.kiops()));
        }
    }
    let mut rows = Vec::new();
    let [fixed, halves] = &rates;
    for (name, (fixed, halves)) in WORKLOADS.into_iter().zip(fixed.iter().zip(halves)) {
        let medians = [Spread::of(fixed), Spread::of(halves)];
        for (place, spread) in PLACES.into_iter().zip(medians) {
            let note = format!("{}; {}", spread.note(), size.note(name));
            rows.push(Row::new("fig5.15", place.series(), name, Unit::Kiops, spread.median).note(&note));
        }
        let [fixed, halves] = medians.map(|spread| spread.median);
        let ratio =
            Row::new("fig5.15-ratio", Place::ArrayOfHalves.series(), name, Unit::Times, halves / fixed);
        rows.push(ratio.note("goal 0.97"));
    }
    Ok(rows)
}
