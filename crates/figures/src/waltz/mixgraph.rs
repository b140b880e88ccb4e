//! Figs. 10 and 11 and Table 3 of the WALTZ paper: MixGraph.

use super::step::{Drive, Step, measure as run_load, note, percentiles, writes};
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::kv::mixgraph::Variant;
use bench::kv::{KvLoad, Mix};

const X: &str = "percentile";
const Y: &str = "puts, us";

/// Figs. 10 and 11 and Table 3 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig10",
    title: "Figs. 10 and 11, Table 3: MixGraph",
    panels: &[
        Panel::new("waltz10a", "AllRand", X, Y, Shape::LOG_LINES),
        Panel::new("waltz10b", "AllDist", X, Y, Shape::LOG_LINES),
        Panel::new("waltz10c", "PreRand", X, Y, Shape::LOG_LINES),
        Panel::new("waltz10d", "PreDist", X, Y, Shape::LOG_LINES),
        Panel::new("waltz11", "Fig. 11", "workload", "operations, thousand a second", Shape::Bars),
        Panel::new("waltz-table3", "Table 3", "workload", "mean put, us", Shape::Bars),
    ],
    measure,
};

/// For each MixGraph variant its panel, its short name, and the published means of ZenFS and WALTZ in us.
const VARIANTS: [(Variant, &str, &str, f64, f64); 4] = [
    (Variant::AllRandom, "waltz10a", "AllRand", 1304.55, 1195.98),
    (Variant::AllDist, "waltz10b", "AllDist", 1158.41, 1041.66),
    (Variant::PrefixRandom, "waltz10c", "PreRand", 1218.45, 1109.30),
    (Variant::PrefixDist, "waltz10d", "PreDist", 1129.41, 1012.15),
];

/// The load of MixGraph with values as long as in the rest of the figures. One operation in seven is a put.
pub(super) fn load(step: Step, drive: Drive, mix: Mix, run: &Run<'_>) -> KvLoad {
    KvLoad { mix, ..step.load(drive, run) }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (variant, figure, name, zenfs, waltz) in VARIANTS {
        for (step, mean) in [(Step::Base, zenfs), (Step::Waltz, waltz)] {
            let load = load(step, Drive::SmallZone, Mix::MixGraph(variant), run);
            let outcome = run_load(run, &format!("{name}, {}", step.name()), &load)?;
            let (found, note) = (writes(&outcome), format!("smallzone, {}", note(&load)));
            rows.extend(percentiles(figure, step.name(), &found, &note));
            rows.push(
                Row::new("waltz11", step.name(), name, Unit::Kiops, outcome.ops_per_s / 1e3).note(&note),
            );
            rows.push(
                Row::new("waltz-table3", step.name(), name, Unit::Us, found.mean).paper(mean).note(&note),
            );
        }
    }
    Ok(rows)
}
