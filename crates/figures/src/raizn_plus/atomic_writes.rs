//! Fig. 5.14a: writes and appends whose content is there as a whole after a power cut or not at all, one at a time, beside RAIZN and md.

use std::sync::Arc;

use ::array::Placement;
use bench::array::{Kind, Load, Setup, Summary};
use zoned::{Bytes, ZonedDevice};

use crate::raizn::md;
use crate::raizn::setup::{KIB, MIB, MeasuredArray, setup};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "block size, KiB";
const LINES: Shape = Shape::LOG_LINES;

/// Fig. 5.14a of the dissertation.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-fig14a",
    title: "Fig. 5.14a: atomic writes and appends, one at a time, five zn540",
    panels: &[
        Panel::new("fig5.14a-rate", "throughput", X, "MiB/s", LINES),
        Panel::new("fig5.14a-p99", "99th percentile", X, "us", LINES),
        Panel::new("fig5.14a-p99.9", "99.9th percentile", X, "us", LINES),
    ],
    measure,
};

/// The names of the series: RAIZN, and RAIZN+ for writes and for appends.
pub(super) const PLAIN: &str = "Furrow: fixed placement";
pub(super) const WRITES: &str = "Furrow: stored maps, atomic writes";
pub(super) const APPENDS: &str = "Furrow: stored maps, atomic appends";

/// The stripe unit, and md's chunk.
const STRIPE_UNIT: Bytes = Bytes(64 * KIB);
/// Zones that the writes may take.
const ZONES: u32 = 2;

/// A series of the figure.
#[derive(Clone, Copy)]
struct Series {
    name: &'static str,
    whose: MeasuredArray,
    atomic: bool,
    kind: Kind,
}

const SERIES: [Series; 4] = [
    Series { name: "md (model)", whose: MeasuredArray::Md, atomic: false, kind: Kind::Write },
    Series { name: PLAIN, whose: MeasuredArray::Furrow, atomic: false, kind: Kind::Write },
    Series { name: WRITES, whose: MeasuredArray::Furrow, atomic: true, kind: Kind::Write },
    Series { name: APPENDS, whose: MeasuredArray::Furrow, atomic: true, kind: Kind::Append },
];

impl Series {
    fn device(&self) -> zoned::Result<Arc<dyn ZonedDevice>> {
        if self.whose == MeasuredArray::Md {
            return Ok(
                md::Setup { zones: ZONES, chunk: STRIPE_UNIT, lost: None, collects: false }.build() as _
            );
        }
        let placement = if self.atomic { Placement::Stored } else { Placement::Fixed };
        let setup = Setup { atomic_writes: self.atomic, placement, ..setup(ZONES, STRIPE_UNIT) };
        Ok(setup.build()?.device)
    }

    fn measure(&self, size: u64, count: u64) -> zoned::Result<Summary> {
        let times = Load::new(self.kind, Bytes(size), 1, count).run(&self.device()?)?;
        Ok(Summary::of(&times, Bytes(size)))
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let sizes: Vec<u32> = run.pick(vec![4, 8, 16, 32, 64, 128, 256, 512, 1024], vec![4, 64, 1024]);
    let total = run.pick(1024 * MIB, 128 * MIB);
    let mut rows = Vec::new();
    for series in SERIES {
        for size in &sizes {
            (run.progress)(&format!("{}, {size} KiB", series.name));
            let bytes = u64::from(*size) * KIB;
            let summary = series
                .measure(bytes, (total / bytes).clamp(1000, 20_000))
                .map_err(|e| Error::new("measuring the array", e))?;
            let values = [
                ("fig5.14a-rate", Unit::MibPerS, summary.mib),
                ("fig5.14a-p99", Unit::Us, summary.p99),
                ("fig5.14a-p99.9", Unit::Us, summary.p99_9),
            ];
            rows.extend(values.map(|(figure, unit, value)| {
                Row::new(figure, series.name, *size, unit, value)
                    .note("virtual clock; one in flight; the paper's curves have no numbers")
                    .note(series.whose.note())
            }));
        }
    }
    Ok(rows)
}
