//! Figs. 4a and 4b: YCSB by memory, with writes that stay in the page cache and with writes that go past it.
//!
//! The workloads run one after the other on one open database. So load and A are as the paper has them; B and the others find a warm cache.

use bench::ycsb::{Engine, Workload, YcsbLoad};

use super::comparison::compare;
use super::setup::load;
use crate::{Figure, Panel, Result, Row, Run, Shape};

const X: &str = "memory, times the data";
const RATE: &str = "operations, thousand a second";
const READ: &str = "read from the drive, MiB";
const OVER: &str = "buffered over direct";

/// Figs. 4a and 4b of the paper.
pub(super) const FIGURE: Figure = Figure {
    name: "buffered-fig4",
    title: "Figs. 4a and 4b: YCSB by memory, buffered and direct",
    panels: &[
        Panel::new("buffered4a-rocksdb", "a: RocksDB, load", X, RATE, Shape::LINES),
        Panel::new("buffered4a-leveldb", "a: LevelDB, load", X, RATE, Shape::LINES),
        Panel::new("buffered4b-rocksdb-load", "b: RocksDB, load", X, READ, Shape::LINES),
        Panel::new("buffered4b-leveldb-load", "b: LevelDB, load", X, READ, Shape::LINES),
        Panel::new("buffered4b-rocksdb-a", "b: RocksDB, A", X, READ, Shape::LINES),
        Panel::new("buffered4b-leveldb-a", "b: LevelDB, A", X, READ, Shape::LINES),
        Panel::new("buffered4-over-rocksdb", "RocksDB, rates", X, OVER, Shape::LINES),
        Panel::new("buffered4-over-leveldb", "LevelDB, rates", X, OVER, Shape::LINES),
    ],
    measure,
};

/// The panels of an engine, and the names of the rows of A to D, which are in the files only.
struct Place {
    engine: Engine,
    load_rate: &'static str,
    load_read: &'static str,
    a_read: &'static str,
    over: &'static str,
    other_rate: &'static str,
    other_read: &'static str,
}

const PLACES: [Place; 2] = [
    Place {
        engine: Engine::RocksDb,
        load_rate: "buffered4a-rocksdb",
        load_read: "buffered4b-rocksdb-load",
        a_read: "buffered4b-rocksdb-a",
        over: "buffered4-over-rocksdb",
        other_rate: "buffered4-rate-rocksdb",
        other_read: "buffered4-read-rocksdb",
    },
    Place {
        engine: Engine::LevelDb,
        load_rate: "buffered4a-leveldb",
        load_read: "buffered4b-leveldb-load",
        a_read: "buffered4b-leveldb-a",
        over: "buffered4-over-leveldb",
        other_rate: "buffered4-rate-leveldb",
        other_read: "buffered4-read-leveldb",
    },
];

/// The memory over the data; the paper's database of some 10 GB has up to 16 GB.
const MEMORY: &[f64] = &[0.1, 0.2, 0.4, 0.8, 1.6];
/// A compaction's input and output are in a memory of this size at once.
const QUICK_MEMORY: &[f64] = &[3.2];

/// Runs of which each number is the median.
const RUNS: u32 = 1;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let workloads = run.pick(
        vec![Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D],
        vec![Workload::Load, Workload::A],
    );
    let mut rows = Vec::new();
    for place in &PLACES {
        for share in run.pick(MEMORY, QUICK_MEMORY) {
            let load = YcsbLoad { workloads: workloads.clone(), ..load(place.engine, run) };
            for compared in compare(run, load, *share, run.runs.unwrap_or(RUNS))? {
                let (rate, read) = match compared.name {
                    "load" => (place.load_rate, place.load_read),
                    "A" => (place.other_rate, place.a_read),
                    _ => (place.other_rate, place.other_read),
                };
                let named = |row: Row| match row.figure {
                    figure if figure == place.other_rate || figure == place.other_read => {
                        Row { series: format!("{}, {}", compared.name, row.series), ..row }
                    }
                    _ => row,
                };
                rows.extend(compared.rates(rate, *share).into_iter().map(named));
                rows.extend(compared.reads(read, *share).into_iter().map(named));
                rows.push(compared.over(place.over, compared.name, *share));
            }
        }
    }
    Ok(rows)
}
