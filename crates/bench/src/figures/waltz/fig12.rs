//! Fig. 12: MixGraph's PrefixDist by threads, and by the size of values.

use units::Bytes;

use super::{Drive, Step, measure as run_load, mixgraph, note, writes};
use crate::figures::{Figure, Panel, Result, Row, Run, Shape, Unit};
use crate::kv::mixgraph::Variant;
use crate::kv::{KvLoad, Mix};

const THREADS: &str = "threads";
const VALUE: &str = "value, bytes";
const RATE: &str = "operations, thousand a second";

/// Figs. 12 a to c.
pub const BY_THREADS: Figure = Figure {
    name: "waltz-fig12a",
    title: "Fig. 12 a to c: PrefixDist by threads",
    panels: &[
        Panel { figure: "waltz12a", title: "a: rate", x: THREADS, y: RATE, shape: Shape::Bars },
        Panel { figure: "waltz12b", title: "b: mean put", x: THREADS, y: "us", shape: Shape::Bars },
        Panel { figure: "waltz12c", title: "c: longest put", x: THREADS, y: "us", shape: Shape::Bars },
    ],
    measure: |run| {
        let of = |threads: u32, load: KvLoad| KvLoad { threads, ..load };
        measure(run, ["waltz12a", "waltz12b", "waltz12c"], &[2, 4, 8], &of)
    },
};

/// Figs. 12 d to f.
pub const BY_VALUE: Figure = Figure {
    name: "waltz-fig12d",
    title: "Fig. 12 d to f: PrefixDist by the size of values",
    panels: &[
        Panel { figure: "waltz12d", title: "d: rate", x: VALUE, y: RATE, shape: Shape::Bars },
        Panel { figure: "waltz12e", title: "e: mean put", x: VALUE, y: "us", shape: Shape::Bars },
        Panel { figure: "waltz12f", title: "f: longest put", x: VALUE, y: "us", shape: Shape::Bars },
    ],
    measure: |run| {
        let of = |value: u32, load: KvLoad| KvLoad { value: Some(Bytes(u64::from(value))), ..load };
        measure(run, ["waltz12d", "waltz12e", "waltz12f"], &[512, 1024, 2048], &of)
    },
};

fn measure(
    run: &Run<'_>,
    [rate, mean, max]: [&'static str; 3],
    places: &[u32],
    load: &dyn Fn(u32, KvLoad) -> KvLoad,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &place in places {
        for step in [Step::Base, Step::Waltz] {
            let mix = Mix::MixGraph(Variant::PrefixDist);
            let load = load(place, mixgraph::load(step, Drive::SmallZone, mix, run));
            let outcome = run_load(run, &format!("{}, {place}", step.name()), &load)?;
            let (found, note) = (writes(&outcome), format!("smallzone, {}", note(&load)));
            let row = |figure, unit, ours| Row::new(figure, step.name(), place, unit, ours).note(&note);
            rows.push(row(rate, Unit::Kiops, outcome.ops_per_s / 1e3));
            rows.push(row(mean, Unit::Us, found.mean));
            rows.push(
                row(max, Unit::Us, found.max).note("published: 4.45 times lower in the geometric mean"),
            );
        }
    }
    Ok(rows)
}
