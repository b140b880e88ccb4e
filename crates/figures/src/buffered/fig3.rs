//! Fig. 3: records written in random order by the share of the drive that is in use, beside a model of a drive that collects garbage.
//!
//! All records are written once in a random order, and once again in the same order. A file of zeros takes the rest of what is in use.
//! The block drive is a model: the run on zones with as much of the drive in use, and for each byte of it the bytes that
//! [garbage collection](super::ftl) moves, at the drive's bandwidth, while the host waits.

use bench::ycsb::{self, Engine, Workload, YcsbLoad};
use units::Bytes;

use super::ftl::write_amplification;
use super::setup::{ZONE, drive, engine_name, note, of_records, records};
use crate::spread::Spread;
use crate::{Better, Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "in use, % of the drive";
const RATE: &str = "records, thousand a second";
const MOVED: &str = "moved bytes for each other byte written";

/// Fig. 3 of the paper.
pub(super) const FIGURE: Figure = Figure {
    name: "buffered-fig3",
    title: "Fig. 3: fillrandom by the drive's use",
    panels: &[
        Panel::new("buffered3-rocksdb", "RocksDB", X, RATE, Shape::LINES),
        Panel::new("buffered3-leveldb", "LevelDB", X, RATE, Shape::LINES),
        Panel::new("buffered3-rocksdb-moved", "RocksDB", X, MOVED, Shape::LINES),
        Panel::new("buffered3-leveldb-moved", "LevelDB", X, MOVED, Shape::LINES),
    ],
    measure,
};

/// The panels of an engine, and the name of the rows of moved MiB, which are in the files only.
const PLACES: [(Engine, [&str; 3]); 2] = [
    (Engine::RocksDb, ["buffered3-rocksdb", "buffered3-rocksdb-moved", "buffered3-rocksdb-moved-mib"]),
    (Engine::LevelDb, ["buffered3-leveldb", "buffered3-leveldb-moved", "buffered3-leveldb-moved-mib"]),
];

pub(super) const ZONE_TABLES: &str = "tables of a zone";
pub(super) const SMALL_TABLES: &str = "small tables";
pub(super) const MODEL: &str = "block drive (model), tables of a zone";

/// The share of the drive in use, in percent.
const USES: &[u32] = &[50, 60, 70, 80, 90];
const QUICK_USES: &[u32] = &[90];

/// The most records, with which zones are as large as the paper's. Zones are smaller in proportion to fewer records, but not smaller than 1 MiB.
///
/// The records then have a 25th of the drive, as an engine that is written to faster than it compacts holds some of them three or four times.
const MAX_RECORDS: u64 = 320_000;
const ZONE_MIN: u64 = 1 << 20;

/// Records of a run that does not say how many: no memory is to be a share of them.
const RECORDS: u64 = 40_000;

/// Small tables for each zone: LevelDB's 2 MiB in the paper's zones; the smallest that LevelDB takes have 1 MiB.
const SMALL_TABLES_PER_ZONE: u64 = 16;
const TABLE_MIN: u64 = 1 << 20;

/// Times that all records are written.
const PASSES: usize = 2;

/// Runs of which each number is the median.
const RUNS: u32 = 1;

/// Bytes a second that the model's drive writes: those of the profile `zn540`.
const BANDWIDTH: f64 = 1145.0 * 1024.0 * 1024.0;

/// A table is longer than the size that an engine aims at, by its index: engines aim at this part of a zone.
const TABLE_OF_ZONE: (u64, u64) = (49, 50);

/// The sums of a run's passes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    records: f64,
    seconds: f64,
    /// Bytes that were written to data zones and not moved.
    written: f64,
    /// Bytes that reclaim moved.
    moved: f64,
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let records = records(run, RECORDS).min(MAX_RECORDS);
    let zone = zone(records);
    let small = Bytes((zone.0 / SMALL_TABLES_PER_ZONE).max(TABLE_MIN));
    let (part, of) = TABLE_OF_ZONE;
    let whole = Bytes(zone.0 / of * part);
    let tables = run.pick(vec![(ZONE_TABLES, whole), (SMALL_TABLES, small)], vec![(ZONE_TABLES, whole)]);
    let mut rows = Vec::new();
    for (engine, figures) in PLACES {
        for used in run.pick(USES, QUICK_USES) {
            for &(series, table) in &tables {
                let load = YcsbLoad {
                    device: drive(zone),
                    workloads: vec![Workload::Load; PASSES],
                    table_size: Some(table),
                    utilisation: f64::from(*used) / 100.0,
                    ..of_records(engine, records, records)
                };
                let what = format!("{}, {used} %, {series}", engine_name(engine));
                let runs = (0..run.runs.unwrap_or(RUNS)).map(|number| {
                    (run.progress)(&format!("{what}, run {}", number + 1));
                    sums(&YcsbLoad { seed: load.seed + u64::from(number), ..load.clone() })
                        .map_err(|e| Error::new(what.clone(), e))
                });
                let runs: Vec<Sums> = runs.collect::<Result<_>>()?;
                let [zone, table] = [zone, table].map(|size| size.0 >> 20);
                let note = note(&load);
                let note =
                    format!("{note}; zones of {zone} MiB, tables of {table} MiB, written {PASSES} times");
                rows.extend(rows_of(figures, series, *used, &runs, &note));
                if series == ZONE_TABLES {
                    rows.extend(rows_of_model(figures, *used, &runs, &note));
                }
            }
        }
    }
    Ok(rows)
}

/// Bytes of a zone of the drive for so many records.
fn zone(records: u64) -> Bytes {
    let part = ZONE.0.saturating_mul(records) / MAX_RECORDS;
    Bytes((part.next_multiple_of(1 << 20)).max(ZONE_MIN))
}

/// Runs a load's passes.
fn sums(load: &YcsbLoad) -> bench::Result<Sums> {
    let mut sums = Sums::default();
    for phase in ycsb::run(load, &|_| ())?.phases {
        let moved = phase.reclaimed_bytes as f64;
        sums.records += phase.operations as f64;
        sums.seconds += phase.seconds;
        sums.written += phase.device_operations.bytes as f64 - moved;
        sums.moved += moved;
    }
    Ok(sums)
}

impl Sums {
    fn kiops(&self) -> f64 {
        self.records / self.seconds / 1e3
    }

    fn moved_share(&self) -> f64 {
        self.moved / self.written
    }

    /// The sums of the same run on the model of a block drive: the host moves nothing, and the drive writes `amplification` times the bytes.
    fn on_block_drive(&self, amplification: f64) -> Sums {
        let moved = self.written * (amplification - 1.0);
        Sums { seconds: self.seconds + (moved - self.moved) / BANDWIDTH, moved, ..*self }
    }
}

fn rows_of(figures: [&'static str; 3], series: &str, used: u32, runs: &[Sums], note: &str) -> Vec<Row> {
    let [rate, share, mib] = figures;
    let row = |figure, unit, value: fn(&Sums) -> f64| {
        let spread = Spread::of(&runs.iter().map(value).collect::<Vec<f64>>());
        let row = Row::new(figure, series, used, unit, spread.median).note(spread.note()).note(note);
        Row { better: if unit == Unit::Kiops { Better::Higher } else { Better::Lower }, ..row }
    };
    vec![
        row(rate, Unit::Kiops, Sums::kiops),
        row(share, Unit::Times, Sums::moved_share),
        row(mib, Unit::Mib, |sums| sums.moved / f64::from(1 << 20)),
    ]
}

fn rows_of_model(figures: [&'static str; 3], used: u32, runs: &[Sums], note: &str) -> Vec<Row> {
    let amplification = write_amplification(f64::from(used) / 100.0);
    let modelled: Vec<Sums> = runs.iter().map(|run| run.on_block_drive(amplification)).collect();
    let note = format!("a model: the run on zones, and garbage collection; {note}");
    rows_of(figures, MODEL, used, &modelled, &note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered::MIN_RECORDS;

    #[test]
    fn a_block_drive_takes_the_time_of_what_it_moves_and_not_of_what_the_host_moved() {
        let run = Sums { records: 2e6, seconds: 10.0, written: 2.0 * BANDWIDTH, moved: 1.0 * BANDWIDTH };
        let model = run.on_block_drive(3.0);
        assert_eq!((model.seconds, model.moved_share()), (13.0, 2.0));
        assert_eq!(run.on_block_drive(1.0).seconds, 9.0);
        assert_eq!(run.kiops(), 200.0);
    }

    #[test]
    fn zones_are_the_paper_s_with_the_most_records() {
        assert_eq!(zone(MAX_RECORDS), ZONE);
        assert_eq!(zone(MIN_RECORDS), Bytes(8 << 20));
        assert_eq!(zone(1), Bytes(ZONE_MIN));
    }
}
