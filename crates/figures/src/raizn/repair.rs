//! Fig. 4.12 of the RAIZN paper: the time of a rebuild, by the data on the new drive.

use units::Bytes;

use super::md;
use super::setup::{MODEL, OURS, setup};
use crate::{Better, Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::array::rebuild;

/// Fig. 4.12 of the RAIZN paper.
pub(super) const FIGURE: Figure = Figure {
    name: "raizn-fig12",
    title: "Fig. 4.12: time to repair by valid data on the drive",
    panels: &[
        Panel::new("fig4.12", "measured", "GiB of the new drive", "s", Shape::LINES),
        Panel::new(
            "fig4.12-drive",
            "a drive of 946 GiB, from these",
            "GiB of the new drive",
            "s",
            Shape::LINES,
        ),
    ],
    measure,
};

/// The capacity of the paper's drives in GiB.
const CAPACITY_GIB: f64 = 946.0;

/// The stripe unit of Furrow's array, and md's chunk.
const STRIPE_UNIT: Bytes = Bytes(64 << 10);
/// Number of stripes that md's resync has in flight.
const RESYNC_WINDOW: usize = 64;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let (mut last, mut largest) = (0.0, 0.0);
    let row = |figure, series, gib: f64, seconds| {
        Row::new(figure, series, (gib * 100.0).round() / 100.0, Unit::Seconds, seconds)
    };
    let counts = run.pick(vec![1, 2, 4, 8], vec![1, 2]);
    let mut measured = Vec::new();
    for zones in &counts {
        (run.progress)(&format!("{zones} zones"));
        let rebuilt = rebuild(&setup(*zones, STRIPE_UNIT), *zones)
            .map_err(|e| Error::new(format!("rebuilding {zones} zones"), e))?;
        largest = rebuilt.bytes as f64 / f64::from(1 << 30);
        last = rebuilt.seconds / largest;
        measured.push(largest);
        let row = row("fig4.12", OURS, largest, rebuilt.seconds);
        rows.push(row.note(format!("virtual clock, {zones} full zones: {:.0} MiB/s", rebuilt.mib())));
    }
    (run.progress)("md's resync");
    let zones = counts.last().copied().unwrap_or(1);
    let whole = md::Setup { zones, chunk: STRIPE_UNIT, lost: None, collects: false }.build().resync(
        0,
        zones,
        RESYNC_WINDOW,
    );
    let of_md = |figure, gib, seconds, how: &str| {
        row(figure, MODEL, gib, seconds).note(format!(
            "a model, not md: the whole new drive is written, with {RESYNC_WINDOW} stripes in flight; {how}"
        ))
    };
    let drive = format!("virtual clock, drives of {largest:.2} GiB: {:.0} MiB/s", largest * 1024.0 / whole);
    rows.extend(measured.into_iter().map(|gib| of_md("fig4.12", gib, whole, &drive)));
    for gib in [64.0, 128.0, 256.0, 512.0, CAPACITY_GIB] {
        let ours = row("fig4.12-drive", OURS, gib, gib * last);
        rows.push(ours.note("extrapolated: the time of the largest that was measured, for each GiB"));
        rows.push(of_md("fig4.12-drive", gib, CAPACITY_GIB / largest * whole, "extrapolated likewise"));
    }
    // The paper's text says that a full volume takes both arrays the same time.
    let ratio = last * largest / whole;
    rows.push(
        Row {
            better: Better::Lower,
            ..Row::new("fig4.12-full", format!("{OURS} over {MODEL}"), "a full drive", Unit::Times, ratio)
        }
        .paper(1.0)
        .note("published: the same time for a full volume; md's drives write 2 % more"),
    );
    Ok(rows)
}
