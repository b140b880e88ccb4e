//! Fig. 5 of the WALTZ paper: where a put of RocksDB's group commit spends its time, by threads.

use super::step::{Drive, Step, measure as run_load, note};
use crate::{Better, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::kv::{KvLoad, KvOutcome, SlowWrite};

const X: &str = "threads";

/// Fig. 5 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig5",
    title: "Fig. 5: group commit by threads",
    panels: &[
        Panel::new("waltz5a", "smallzone", X, "mean put of a group, us", Shape::Stack),
        Panel::new("waltz5b", "zn540", X, "mean put of a group, us", Shape::Stack),
        Panel::new("waltz5c", "waiting for the turn", X, "share of the mean put", Shape::Bars),
    ],
    measure,
};

/// Numbers of threads, and the published share of the leader's election in a put.
const THREADS: [(u32, Option<f64>); 3] = [(2, Some(0.38)), (4, None), (8, Some(0.61))];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        for (threads, election) in THREADS {
            let load = KvLoad { threads, slowest: 1, ..Step::Base.load(drive, run) };
            let what = format!("{}, {threads} threads", drive.name());
            rows.extend(rows_of_group_commit(drive, election, &run_load(run, &what, &load)?));
        }
    }
    Ok(rows)
}

fn rows_of_group_commit(drive: Drive, election: Option<f64>, outcome: &KvOutcome) -> Vec<Row> {
    let parts = match drive {
        Drive::SmallZone => "waltz5a",
        Drive::Zn540 => "waltz5b",
    };
    let (threads, note) = (outcome.load.threads, note(&outcome.load));
    let SlowWrite { us, engine, wait, log, memtable, delay, switch, .. } =
        outcome.mean_write.unwrap_or_default();
    let mut rows: Vec<Row> = [
        ("election and the group before", wait),
        ("log", log),
        ("memtable", memtable),
        ("stalls", delay + switch),
        ("rest", engine),
    ]
    .into_iter()
    .map(|(series, us)| Row::new(parts, series, threads, Unit::Us, us).note(&note))
    .collect();
    let share = wait / us.max(f64::MIN_POSITIVE);
    let row = Row::new("waltz5c", drive.name(), threads, Unit::Times, share).paper(election).note(&note);
    rows.push(Row { better: Better::Lower, ..row }.note(
        "RocksDB counts the whole wait for a leader, the log's write included; published: the election",
    ));
    rows
}
