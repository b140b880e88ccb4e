//! Fig. 14 of the WALTZ paper: the longest put, for each step of the ablation.

use super::step::{Drive, Step, measure as run_load, note, writes};
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "step";

/// Fig. 14 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig14",
    title: "Fig. 14: the ablation",
    panels: &[
        Panel::new("waltz14a", "smallzone: max", X, "us", Shape::Bars),
        Panel::new("waltz14b", "zn540: max", X, "us", Shape::Bars),
        Panel::new("waltz14c", "smallzone: 99.9 %", X, "us", Shape::Bars),
        Panel::new("waltz14d", "zn540: 99.9 %", X, "us", Shape::Bars),
        Panel::new("waltz14e", "smallzone", X, "puts, thousand a second", Shape::Bars),
        Panel::new("waltz14f", "zn540", X, "puts, thousand a second", Shape::Bars),
    ],
    measure,
};

/// The longest put that the paper has for a step of the ablation.
fn published_longest_put(step: Step) -> Option<f64> {
    match step {
        Step::Base => Some(196_807.0),
        Step::Reservation => Some(107_867.0),
        Step::Append => Some(107_396.0),
        Step::Waltz => Some(58_712.0),
        Step::Auto => None,
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        let [max, tail, rate] = match drive {
            Drive::SmallZone => ["waltz14a", "waltz14c", "waltz14e"],
            Drive::Zn540 => ["waltz14b", "waltz14d", "waltz14f"],
        };
        for step in Step::ALL {
            let load = step.load(drive, run);
            let outcome = run_load(run, &format!("{}, {}", drive.name(), step.name()), &load)?;
            let (found, note) = (writes(&outcome), note(&load));
            let paper = published_longest_put(step).filter(|_| drive == Drive::SmallZone);
            let row = Row::new(max, step.name(), step.name(), Unit::Us, found.max).note(&note);
            rows.push(row.paper(paper).note("published: 64 GB, 5 M puts, another drive"));
            rows.push(Row::new(tail, step.name(), step.name(), Unit::Us, found.p99_9).note(&note));
            let rate = Row::new(rate, step.name(), step.name(), Unit::Kiops, outcome.ops_per_s / 1e3);
            rows.push(rate.note(&note));
        }
    }
    Ok(rows)
}
