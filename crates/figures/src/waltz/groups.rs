//! Figs. 16 to 18 and Table 4 of the WALTZ paper: the latency of a put under RocksDB's group commit, by the size of its group.

use super::mixgraph;
use super::step::{Drive, Step, measure as run_load, note};
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit, X};
use bench::kv::mixgraph::Variant;
use bench::kv::{KvLoad, KvOutcome, Mix};

/// Figs. 16 to 18 and Table 4 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig16",
    title: "Figs. 16 to 18, Table 4: puts by the size of their group",
    panels: &[
        Panel::new(
            "waltz16",
            "Fig. 16: distribution",
            "share of the puts, %",
            "not above, us",
            Shape::LOG_LINES,
        ),
        Panel::new("waltz17", "Fig. 17", "percentile", "us", Shape::Bars),
        Panel::new("waltz-table4", "Table 4", "writers in the group", "mean, us", Shape::LOG_LINES),
        Panel::new("waltz18", "Fig. 18: the longest puts", "began, ms", "us", Shape::Bars),
    ],
    measure,
};

/// Published mean latency of puts in us by the writers of a group, from 1 on.
const TABLE_4: [f64; 4] = [625.51, 10_834.81, 15_785.25, 16_388.01];

/// Number of the longest puts in Fig. 18.
const LONGEST_PUTS: usize = 8;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mix = Mix::MixGraph(Variant::PrefixDist);
    let load = KvLoad { slowest: LONGEST_PUTS, ..mixgraph::load(Step::Base, Drive::SmallZone, mix, run) };
    // Only one operation in seven is a put, and few puts come in the larger groups.
    let load = KvLoad { operations: load.operations * 4, ..load };
    let outcome = run_load(run, "groups", &load)?;
    let note = format!("smallzone, {}", note(&load));
    Ok(rows(&outcome).into_iter().map(|row| row.note(&note)).collect())
}

fn rows(outcome: &KvOutcome) -> Vec<Row> {
    let mut rows = Vec::new();
    for of in &outcome.groups {
        let series = format!("{} in the group", of.writers);
        for (step, us) in (1_u32..).zip(&of.steps_us) {
            rows.push(Row::new("waltz16", &series, step * 5, Unit::Us, *us));
        }
        let note = format!("{} puts in such groups", of.groups * of.writers as u64);
        let l = &of.latency_us;
        for (x, us) in [("99 %", l.p99), ("99.9 %", l.p99_9), ("99.99 %", l.p99_99), ("max", l.max)] {
            rows.push(Row::new("waltz17", &series, x, Unit::Us, us).note(&note));
        }
        let writers = u32::try_from(of.writers).unwrap_or(u32::MAX);
        let paper = of.writers.checked_sub(1).and_then(|at| TABLE_4.get(at)).copied();
        rows.push(Row::new("waltz-table4", "mean", writers, Unit::Us, l.mean).paper(paper).note(&note));
    }
    for write in &outcome.slowest {
        let parts = [("waits for its turn", write.wait), ("writes the log", write.log), ("all", write.us)];
        for (series, us) in parts {
            rows.push(Row::new("waltz18", series, X::Name(format!("{:.2}", write.at_ms)), Unit::Us, us));
        }
    }
    rows
}
