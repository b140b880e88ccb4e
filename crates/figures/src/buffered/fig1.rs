//! Fig. 1: one zone written by eight threads, in the ways that keep its writes in order. In virtual time: the numbers are those of the drive, and
//! of no host.

use bench::stage::{self, StageLoad, Way};
use units::Bytes;

use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "bytes of a write, KiB";

/// Fig. 1 of the paper.
pub(super) const FIGURE: Figure = Figure {
    name: "buffered-fig1",
    title: "Fig. 1: eight threads on a zone",
    panels: &[
        Panel::new("buffered1-one", "one write of a zone in flight", X, "MiB a second", Shape::LINES),
        Panel::new("buffered1-many", "any number in flight", X, "MiB a second", Shape::LINES),
    ],
    measure,
};

/// Sizes of a write in KiB. From 64 KiB on one write at a time fills the drive.
const SIZES: [u32; 3] = [4, 16, 64];

/// Writes of a run, and of a quick one.
const COUNT: u64 = 4096;
const QUICK_COUNT: u64 = 512;

pub(super) fn name(way: Way) -> &'static str {
    match way {
        Way::Ordered => "one thread, in order",
        Way::Lock => "lock",
        Way::Lane => "lane",
        Way::Staged => "staged",
        Way::Append => "append",
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (figure, one_write) in [("buffered1-one", true), ("buffered1-many", false)] {
        for size in SIZES {
            let what = format!("{figure}, {size} KiB");
            (run.progress)(&what);
            let count = run.pick(COUNT, QUICK_COUNT);
            let load =
                StageLoad { one_write, size: Bytes(u64::from(size) << 10), count, ..StageLoad::default() };
            let outcomes = stage::measure(&load).map_err(|e| Error::new(what, e))?;
            rows.extend(outcomes.into_iter().map(|outcome| {
                let note = format!(
                    "virtual {}, {} writes, p99 {:.0} us",
                    load.profile, count, outcome.latency_us.p99
                );
                Row::new(figure, name(outcome.way), size, Unit::MibPerS, outcome.mib_per_s).note(note)
            }));
        }
    }
    Ok(rows)
}
