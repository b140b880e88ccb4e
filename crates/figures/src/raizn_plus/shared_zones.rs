//! Fig. 5.14b: sequential writes and reads of an array with two zones in a physical one, beside an array with RAIZN's placement.

use ::array::Placement;
use bench::array::{Kind, Load, Setup, Summary, fill_with_zeros};
use zoned::Bytes;

use crate::raizn::setup::{KIB, MIB, setup};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "block size, KiB";
const LINES: Shape = Shape::LOG_LINES;

/// Fig. 5.14b of the dissertation.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-fig14b",
    title: "Fig. 5.14b: two zones in a physical one beside RAIZN's placement, five zn540, 32 in flight",
    panels: &[
        Panel::new("fig5.14b-rate", "throughput", X, "MiB/s", LINES),
        Panel::new("fig5.14b-p99.9", "99.9th percentile", X, "us", LINES),
    ],
    measure,
};

/// The names of the series.
pub(super) const WRITES: [&str; 2] = ["written: fixed placement", "written: two zones in a physical one"];
pub(super) const READS: [&str; 2] = ["read: fixed placement", "read: two zones in a physical one"];

const STRIPE_UNIT: Bytes = Bytes(64 * KIB);
/// Zones of a drive, so that an array of halves has two zones and its reserve.
const ZONES: u32 = 16;
/// Operations in flight.
const DEPTH: usize = 32;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let sizes: Vec<u32> = run.pick(vec![4, 8, 16, 32, 64, 128, 256, 512, 1024], vec![4, 64, 1024]);
    let total = run.pick(1024 * MIB, 128 * MIB);
    let mut rows = Vec::new();
    for (kind, names) in [(Kind::Write, WRITES), (Kind::Sequential, READS)] {
        for (name, shares) in names.into_iter().zip([1, 2]) {
            for size in &sizes {
                (run.progress)(&format!("{name}, {size} KiB"));
                let bytes = u64::from(*size) * KIB;
                let summary = measure_one(kind, shares, bytes, (total / bytes).clamp(1000, 20_000))
                    .map_err(|e| Error::new("measuring the array", e))?;
                let values = [
                    ("fig5.14b-rate", Unit::MibPerS, summary.mib),
                    ("fig5.14b-p99.9", Unit::Us, summary.p99_9),
                ];
                rows.extend(values.map(|(figure, unit, value)| {
                    Row::new(figure, name, *size, unit, value)
                        .note("virtual clock; 32 in flight; the paper: within error of each other")
                }));
            }
        }
    }
    Ok(rows)
}

fn measure_one(kind: Kind, shares: u32, size: u64, count: u64) -> zoned::Result<Summary> {
    let placement = if shares > 1 { Placement::Stored } else { Placement::Fixed };
    let bed = Setup { placement, shares, ..setup(ZONES, STRIPE_UNIT) }.build()?;
    if kind == Kind::Sequential {
        fill_with_zeros(&bed.device, 1, Bytes(count * size))?;
    }
    let times = Load::new(kind, Bytes(size), DEPTH, count).run(&bed.device)?;
    Ok(Summary::of(&times, Bytes(size)))
}
