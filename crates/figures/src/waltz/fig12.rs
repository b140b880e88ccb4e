//! Figs. 12 and 13 and section 4.4 of the WALTZ paper: MixGraph's PrefixDist by threads, with the share of leaders and the
//! write amplification, and by the size of values.

use units::Bytes;

use super::mixgraph;
use super::step::{Drive, Step, measure as run_load, note, writes};
use crate::{Better, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::kv::mixgraph::Variant;
use bench::kv::{KvLoad, KvOutcome, Mix};

const THREADS: &str = "threads";
const VALUE: &str = "value, bytes";
const RATE: &str = "operations, thousand a second";

/// Figs. 12 a to c, 13 and section 4.4 of the WALTZ paper, which show the same runs.
pub const BY_THREADS: Figure = Figure {
    name: "waltz-fig12a",
    title: "Figs. 12 a to c, 13, section 4.4: PrefixDist by threads",
    panels: &[
        Panel::new("waltz12a", "a: rate", THREADS, RATE, Shape::Bars),
        Panel::new("waltz12b", "b: mean put", THREADS, "us", Shape::Bars),
        Panel::new("waltz12c", "c: longest put", THREADS, "us", Shape::Bars),
        Panel::new("waltz13", "Fig. 13: base", THREADS, "share of puts", Shape::Bars),
        Panel::new("waltz-waf", "section 4.4", THREADS, "bytes written for each byte put", Shape::Bars),
    ],
    measure: by_threads,
};

/// Figs. 12 d to f of the WALTZ paper.
pub const BY_VALUE: Figure = Figure {
    name: "waltz-fig12d",
    title: "Fig. 12 d to f: PrefixDist by the size of values",
    panels: &[
        Panel::new("waltz12d", "d: rate", VALUE, RATE, Shape::Bars),
        Panel::new("waltz12e", "e: mean put", VALUE, "us", Shape::Bars),
        Panel::new("waltz12f", "f: longest put", VALUE, "us", Shape::Bars),
    ],
    measure: by_value,
};

/// Numbers of threads, and the published share of puts that follow a leader.
const BY: [(u32, Option<f64>); 3] = [(2, None), (4, None), (8, Some(0.13))];

fn by_threads(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (threads, followers) in BY {
        for step in [Step::Base, Step::Waltz] {
            let load = KvLoad { threads, slowest: 1, ..of(step, run) };
            let outcome = run_load(run, &format!("{}, {threads} threads", step.name()), &load)?;
            rows.extend(sensitivity(["waltz12a", "waltz12b", "waltz12c"], step, threads, &outcome));
            let note = format!("smallzone, {}", note(&load));
            let lower = |figure, series: &str, ours| {
                let row = Row::new(figure, series, threads, Unit::Times, ours).note(&note);
                Row { better: Better::Lower, ..row }
            };
            if step == Step::Base {
                let share = share_of_followers(&outcome);
                rows.push(lower("waltz13", "leaders", 1.0 - share).paper(followers.map(|share| 1.0 - share)));
                rows.push(lower("waltz13", "followers", share).paper(followers));
            }
            let waf = lower("waltz-waf", step.name(), outcome.write_amplification);
            rows.push(waf.note("published: 1.7 % more with WALTZ"));
        }
    }
    Ok(rows)
}

fn by_value(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for value in [512, 1024, 2048] {
        for step in [Step::Base, Step::Waltz] {
            let load = KvLoad { value: Some(Bytes(u64::from(value))), ..of(step, run) };
            let outcome = run_load(run, &format!("{}, values of {value} B", step.name()), &load)?;
            rows.extend(sensitivity(["waltz12d", "waltz12e", "waltz12f"], step, value, &outcome));
        }
    }
    Ok(rows)
}

fn of(step: Step, run: &Run<'_>) -> KvLoad {
    mixgraph::load(step, Drive::SmallZone, Mix::MixGraph(Variant::PrefixDist), run)
}

fn sensitivity(
    [rate, mean, max]: [&'static str; 3],
    step: Step,
    place: u32,
    outcome: &KvOutcome,
) -> [Row; 3] {
    let (found, note) = (writes(outcome), format!("smallzone, {}", note(&outcome.load)));
    let row = |figure, unit, ours| Row::new(figure, step.name(), place, unit, ours).note(&note);
    [
        row(rate, Unit::Kiops, outcome.ops_per_s / 1e3),
        row(mean, Unit::Us, found.mean),
        row(max, Unit::Us, found.max).note("published: 4.45 times lower in the geometric mean"),
    ]
}

/// The share of the puts whose record another thread wrote, a group's leader.
fn share_of_followers(outcome: &KvOutcome) -> f64 {
    let groups: u64 = outcome.groups.iter().map(|of| of.groups).sum();
    let writes: u64 = outcome.groups.iter().map(|of| of.groups * of.writers as u64).sum();
    if writes > 0 { 1.0 - groups as f64 / writes as f64 } else { 0.0 }
}
