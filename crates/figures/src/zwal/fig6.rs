//! Fig. 6 of the ZWAL paper: YCSB on RocksDB over the file system, with the `write` and the `append` mode, on the real clock.

use fs::wal::{IoMode, LogOptions};
use units::Bytes;

use super::drive::{APPENDS_IN_FLIGHT, Drive};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::Clock;
use bench::wal::io_name;
use bench::ycsb::{self, Phase, Workload, YcsbLoad};

const X: &str = "YCSB workload";
const Y: &str = "operations, thousand a second";
const RATIO_AXIS: &str = "append over write";

/// Fig. 6 of the ZWAL paper.
pub const FIGURE: Figure = Figure {
    name: "zwal-fig6",
    title: "Fig. 6: YCSB on RocksDB",
    panels: &[
        Panel::new("fig6a", "a: confzns", X, Y, Shape::Bars),
        Panel::new("fig6b", "b: zn540", X, Y, Shape::Bars),
        Panel::new("fig6a-over", "confzns", X, RATIO_AXIS, Shape::Bars),
        Panel::new("fig6b-over", "zn540", X, RATIO_AXIS, Shape::Bars),
    ],
    measure,
};

/// A YCSB workload under the paper's name, and the numbers of the paper's text.
struct Published {
    workload: Workload,
    name: &'static str,
    /// Published rates of ZenFS and ZWAL, in thousand operations a second.
    rates: Option<(f64, f64)>,
    /// Published rate of ZWAL over that of ZenFS.
    over: Option<f64>,
}

const fn published(workload: Workload, name: &'static str, over: Option<f64>) -> Published {
    Published { workload, name, rates: None, over }
}

/// The workloads whose bars have published numbers; ZenFS' load follows from that of ZWAL and their ratio.
const CONFZNS: [Published; 5] = [
    Published { rates: Some((27.8 / 8.56, 27.8)), ..published(Workload::Load, "Load", Some(8.56)) },
    published(Workload::A, "A", None),
    published(Workload::B, "B", None),
    published(Workload::D, "D", Some(2.96)),
    published(Workload::E, "E", None),
];
const ZN540: [Published; 5] = [
    Published { rates: Some((51.9, 66.1)), ..published(Workload::Load, "Load", Some(1.2739)) },
    published(Workload::A, "A", Some(1.1251)),
    published(Workload::B, "B", None),
    published(Workload::D, "D", Some(1.3302)),
    published(Workload::E, "E", Some(1.0626)),
];

/// Bytes of the database. The paper's databases are 20 and 25 GiB, and its memtable is a tenth of that or less.
const DATABASE_BYTES: u64 = 200 << 20;
const MEMTABLE: Bytes = Bytes(20 << 20);

/// Number of operations of each workload; the paper has a million.
const OPERATIONS: u64 = 10_000;

/// Bytes of the log's buffer, as in the paper.
const LOG_BUFFER_BYTES: usize = 8192;

/// Bytes of the block cache, RocksDB's own default.
const BLOCK_CACHE: Bytes = Bytes(8 << 20);

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        let (published, value) = drive.pick((&ZN540, 1024), (&CONFZNS, 4096));
        let mut load = YcsbLoad {
            device: drive.url(),
            clock: Some(Clock::Real),
            workloads: published.iter().map(|bar| bar.workload).collect(),
            records: DATABASE_BYTES / value / run.pick(1, 10),
            operations: run.pick(OPERATIONS, OPERATIONS / 10),
            value: Bytes(value),
            write_buffer: Some(MEMTABLE),
            block_cache: Some(BLOCK_CACHE),
            // As in the paper.
            reopen: true,
            ..YcsbLoad::default()
        };
        let mut of = |mode| {
            load.log = LogOptions {
                mode,
                buffer: LOG_BUFFER_BYTES,
                window: APPENDS_IN_FLIGHT as usize,
                ..LogOptions::default()
            };
            let report = |what: &str| {
                (run.progress)(&format!("{}, {}: {what}", drive.profile(), io_name(mode)));
            };
            report("load");
            let outcome = ycsb::run(&load, &|phase| report(&format!("after {:?}", phase.workload)));
            outcome.map(|outcome| outcome.phases).map_err(|e| {
                Error::new(format!("YCSB on {} in the {} mode", drive.profile(), io_name(mode)), e)
            })
        };
        let (write, append) = (of(IoMode::Write)?, of(IoMode::Append)?);
        let note = format!(
            "real clock, {} records of {value} bytes, {} operations, one thread, window {APPENDS_IN_FLIGHT}, never synced; \
             opening the database not counted",
            load.records, load.operations
        );
        for (bar, (write, append)) in published.iter().zip(write.iter().zip(&append)) {
            rows.extend(bar.rows(drive, write, append, &note));
        }
    }
    Ok(rows)
}

impl Published {
    fn rows(&self, drive: Drive, write: &Phase, append: &Phase, note: &str) -> Vec<Row> {
        let figure = drive.pick("fig6b", "fig6a");
        let theirs = |any: bool, row: Row| match (any, self.workload) {
            (false, _) => row,
            (true, Workload::Load) => row.note("published: 20 or 25 GiB"),
            (true, _) => row.note("published: 20 or 25 GiB; counts opening the database"),
        };
        let rate = |mode, phase: &Phase, paper: Option<f64>| {
            let row = Row::new(figure, io_name(mode), self.name, Unit::Kiops, phase.ops_per_s / 1e3);
            theirs(paper.is_some(), row.paper(paper).note(note))
        };
        let open = |mode, phase: &Phase| {
            let series = format!("opening the database, {}", io_name(mode));
            Row::new(
                drive.pick("fig6b-open", "fig6a-open"),
                series,
                self.name,
                Unit::Seconds,
                phase.open_seconds.unwrap_or_default(),
            )
            .note("real clock, the replay of its log included")
        };
        let over = append.ops_per_s / write.ops_per_s;
        let over = Row::new(drive.pick("fig6b-over", "fig6a-over"), RATIO_AXIS, self.name, Unit::Times, over);
        vec![
            rate(IoMode::Write, write, self.rates.map(|(zenfs, _)| zenfs)),
            rate(IoMode::Append, append, self.rates.map(|(_, zwal)| zwal)),
            theirs(self.over.is_some(), over.paper(self.over).note(note)),
            open(IoMode::Write, write),
            open(IoMode::Append, append),
        ]
    }
}
