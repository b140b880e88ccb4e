//! Fig. 15 of the WALTZ paper: the 99th percentile of puts, interval by interval.

use std::time::Duration;

use super::step::{Drive, Step, measure as run_load, note};
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit, X};
use bench::kv::KvLoad;

const X_AXIS: &str = "time, s";

/// Fig. 15 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig15",
    title: "Fig. 15: 99th percentile of puts over time",
    panels: &[
        Panel::new("waltz15a", "smallzone", X_AXIS, "us", Shape::LOG_LINES),
        Panel::new("waltz15b", "zn540", X_AXIS, "us", Shape::LOG_LINES),
    ],
    measure,
};

/// Fig. 15 measures this many times the puts of the paper's other figures.
const PUTS_FACTOR: u64 = 3;

/// The lengths of intervals over which puts are summed up: a run has some dozens of them.
const INTERVALS: [(Drive, &str, Duration); 2] = [
    (Drive::SmallZone, "waltz15a", Duration::from_millis(50)),
    (Drive::Zn540, "waltz15b", Duration::from_millis(50)),
];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (drive, figure, interval) in INTERVALS {
        for step in [Step::Base, Step::Waltz] {
            let load = step.load(drive, run);
            // The run is long enough for RocksDB to slow its writers down, as in the paper's runs of minutes.
            let operations = load.operations * run.pick(PUTS_FACTOR, 1);
            let load = KvLoad { operations, interval: Some(interval), ..load };
            let outcome = run_load(run, &format!("{}, {}", drive.name(), step.name()), &load)?;
            let note = format!("{}; intervals of {} ms, published: 1 s", note(&load), interval.as_millis());
            for of in &outcome.intervals {
                let x = X::Number(of.seconds);
                rows.push(Row::new(figure, step.name(), x, Unit::Us, of.latency_us.p99).note(&note));
            }
        }
    }
    Ok(rows)
}
