//! Fig. 4.12: how long a new drive takes to be filled, by how much of it is data.

use units::Bytes;

use super::{OURS, md, setup};
use crate::array::rebuild;
use crate::figures::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "raizn-fig12",
    title: "Fig. 4.12: time to repair by valid data on the drive",
    panels: &[
        Panel {
            figure: "fig4.12",
            title: "measured",
            x: "GiB of the new drive",
            y: "s",
            shape: Shape::Lines { log: false },
        },
        Panel {
            figure: "fig4.12-drive",
            title: "a drive of 946 GiB, from these",
            x: "GiB of the new drive",
            y: "s",
            shape: Shape::Lines { log: false },
        },
    ],
    measure,
};

/// What the paper's drives hold, in GiB.
const CAPACITY: f64 = 946.0;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut last = 0.0;
    for zones in run.pick(vec![1, 2, 4, 8], vec![1, 2]) {
        (run.progress)(&format!("{zones} zones"));
        let rebuilt = rebuild(&setup(zones, Bytes(64 << 10)), zones)
            .map_err(|e| Error::new(format!("rebuilding {zones} zones"), e))?;
        let gib = rebuilt.bytes as f64 / f64::from(1 << 30);
        last = rebuilt.seconds / gib;
        let row = Row::new("fig4.12", OURS, (gib * 100.0).round() / 100.0, Unit::Seconds, rebuilt.seconds);
        rows.push(row.note(format!("virtual clock, {zones} full zones: {:.0} MiB/s", rebuilt.mib())));
    }
    for gib in [64.0, 128.0, 256.0, 512.0, CAPACITY] {
        let row = Row::new("fig4.12-drive", OURS, gib, Unit::Seconds, gib * last);
        rows.push(row.note("extrapolated: the time of the largest that was measured, for each GiB"));
        let row = Row::new("fig4.12-drive", "md (model)", gib, Unit::Seconds, md::rebuild_seconds(CAPACITY));
        rows.push(row.note("a model, not md: the whole new drive is written at its bandwidth"));
    }
    Ok(rows)
}
