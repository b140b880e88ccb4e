//! Figs. 8 and 9 and Table 2 of the WALTZ paper: puts and reads in three proportions, with uniform and skewed keys.

use super::step::{Drive, Step, measure as run_load, note, percentiles, writes};
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::kv::{KvLoad, Mix};
use bench::ycsb::Distribution;

const X: &str = "percentile";
const Y: &str = "puts, us";

/// Figs. 8 and 9 and Table 2 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig8",
    title: "Figs. 8 and 9, Table 2: db_bench's mixes",
    panels: &[
        Panel::new("waltz8a", "uniform, 100:0", X, Y, Shape::LOG_LINES),
        Panel::new("waltz8b", "uniform, 70:30", X, Y, Shape::LOG_LINES),
        Panel::new("waltz8c", "uniform, 30:70", X, Y, Shape::LOG_LINES),
        Panel::new("waltz8d", "zipfian, 100:0", X, Y, Shape::LOG_LINES),
        Panel::new("waltz8e", "zipfian, 70:30", X, Y, Shape::LOG_LINES),
        Panel::new("waltz8f", "zipfian, 30:70", X, Y, Shape::LOG_LINES),
        Panel::new("waltz9", "Fig. 9", "keys, share of puts", "operations, thousand a second", Shape::Bars),
        Panel::new("waltz-table2", "Table 2: mean", "share of puts", "us", Shape::Bars),
    ],
    measure,
};

/// Table 2 of the WALTZ paper: the percentage of puts; their median, 75th percentile and mean in us, of ZenFS and of WALTZ.
const TABLE_2: [(u8, [f64; 3], [f64; 3]); 3] = [
    (100, [220.5, 312.71, 2547.84], [152.84, 239.15, 2494.74]),
    (70, [145.77, 203.16, 2408.66], [128.52, 169.54, 2317.09]),
    (30, [98.93, 157.99, 2237.42], [69.7, 120.0, 2043.56]),
];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let panels = ["waltz8a", "waltz8b", "waltz8c", "waltz8d", "waltz8e", "waltz8f"];
    let keys = [(Distribution::Uniform, "uniform"), (Distribution::Zipfian, "zipfian")];
    let all = keys.into_iter().flat_map(|keys| TABLE_2.map(|of| (keys, of)));
    let mut rows = Vec::new();
    for (figure, ((distribution, keys), (share, zenfs, waltz))) in panels.into_iter().zip(all) {
        for (step, paper) in [(Step::Base, zenfs), (Step::Waltz, waltz)] {
            let load = KvLoad {
                mix: Mix::Shares([share, 100 - share, 0]),
                distribution,
                ..step.load(Drive::SmallZone, run)
            };
            let what = format!("{keys}, {share} % puts, {}", step.name());
            let outcome = run_load(run, &what, &load)?;
            let (found, note) = (writes(&outcome), format!("smallzone, {}", note(&load)));
            let uniform = distribution == Distribution::Uniform;
            for row in percentiles(figure, step.name(), &found, &note) {
                let place = ["50 %", "75 %"].iter().position(|x| row.x == (*x).into());
                let known = place.filter(|_| uniform).and_then(|at| paper.get(at)).copied();
                rows.push(row.paper(known));
            }
            let place = format!("{keys}, {share}");
            let row = Row::new("waltz9", step.name(), place, Unit::Kiops, outcome.ops_per_s / 1e3);
            rows.push(row.note(&note).note("published: up to 7.8 % (uniform) and 11.7 % (zipfian) more"));
            if uniform {
                let [_, _, mean] = paper;
                let row = Row::new("waltz-table2", step.name(), share.to_string(), Unit::Us, found.mean);
                rows.push(row.paper(mean).note(&note));
            }
        }
    }
    Ok(rows)
}
