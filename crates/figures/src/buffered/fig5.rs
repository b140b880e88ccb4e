//! Fig. 5: YCSB with memory for 0.8 of the data, buffered and direct.
//!
//! `fresh`: each workload comes right after a load of its own. `warm`: load, A, B, C, D, C run one after the other on one open database. The
//! paper does not say which of the two its numbers are.

use bench::ycsb::{Engine, Workload, YcsbLoad};

use super::comparison::{Compared, compare};
use super::setup::{engine_name, load};
use crate::{Figure, Panel, Result, Row, Run, Shape};

const X: &str = "YCSB workload";
const RATE: &str = "operations, thousand a second";
const READ: &str = "read from the drive, MiB";

/// Fig. 5 of the paper.
pub(super) const FIGURE: Figure = Figure {
    name: "buffered-fig5",
    title: "Fig. 5: YCSB with memory for 0.8 of the data, buffered and direct",
    panels: &[
        Panel::new("buffered5-rocksdb", "RocksDB, fresh", X, RATE, Shape::Bars),
        Panel::new("buffered5-leveldb", "LevelDB, fresh", X, RATE, Shape::Bars),
        Panel::new("buffered5-rocksdb-read", "RocksDB, fresh", X, READ, Shape::Bars),
        Panel::new("buffered5-leveldb-read", "LevelDB, fresh", X, READ, Shape::Bars),
        Panel::new("buffered5-over", "rates", X, "buffered over direct", Shape::Bars),
    ],
    measure,
};

/// The memory over the data: the paper has 8 GB for some 10 GB.
pub(super) const MEMORY: f64 = 0.8;

/// Runs of which each number is the median.
const RUNS: u32 = 1;

/// The workloads behind one another on one open database. The first two are fresh too.
const WARM: &[Workload] = &[Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::C];
const FRESH_IN_WARM: usize = 2;
const QUICK_WARM: &[Workload] = &[Workload::Load, Workload::C];

/// The workloads that come right after a load of their own, beside the first ones of [`WARM`].
const FRESH: &[Workload] = &[Workload::B, Workload::C, Workload::D];

/// Where the rows of an engine go; warm rates and reads are in the files only.
struct Place {
    engine: Engine,
    fresh: [&'static str; 2],
    warm: [&'static str; 2],
}

const PLACES: [Place; 2] = [
    Place {
        engine: Engine::RocksDb,
        fresh: ["buffered5-rocksdb", "buffered5-rocksdb-read"],
        warm: ["buffered5-rocksdb-warm", "buffered5-rocksdb-warm-read"],
    },
    Place {
        engine: Engine::LevelDb,
        fresh: ["buffered5-leveldb", "buffered5-leveldb-read"],
        warm: ["buffered5-leveldb-warm", "buffered5-leveldb-warm-read"],
    },
];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let runs = run.runs.unwrap_or(RUNS);
    let mut rows = Vec::new();
    for place in &PLACES {
        let compare = |workloads: &[Workload]| {
            let load = YcsbLoad { workloads: workloads.to_vec(), ..load(place.engine, run) };
            compare(run, load, MEMORY, runs)
        };
        let warm = compare(run.pick(WARM, QUICK_WARM))?;
        let mut fresh: Vec<Compared> = warm.iter().take(FRESH_IN_WARM).cloned().collect();
        for workload in run.pick(FRESH, &[]) {
            fresh.extend(compare(&[Workload::Load, *workload])?.into_iter().skip(1));
        }
        for (how, figures, all) in [("fresh", place.fresh, &fresh), ("warm", place.warm, &warm)] {
            let [rate, read] = figures;
            let series = format!("{}, {how}", engine_name(place.engine));
            for compared in all {
                rows.extend(compared.rates(rate, compared.name));
                rows.extend(compared.reads(read, compared.name));
                let over = compared.over("buffered5-over", &series, compared.name);
                rows.push(over.paper(published(place.engine, compared.name)));
            }
        }
    }
    Ok(rows)
}

/// The published rate of buffered over direct. Of the paper's other workloads there are bars alone.
fn published(engine: Engine, workload: &str) -> Option<f64> {
    match (engine, workload) {
        (Engine::LevelDb, "C") => Some(1.5),
        (Engine::LevelDb, "D") => Some(2.38),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ratios_are_leveldb_s_and_those_of_the_paper_s_text() {
        assert_eq!(
            ["A", "B", "C", "D", "C again"].map(|name| published(Engine::LevelDb, name)),
            [None, None, Some(1.5), Some(2.38), None]
        );
        assert_eq!(published(Engine::RocksDb, "C"), None);
    }
}
