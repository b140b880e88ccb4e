//! Fig. 2 of the ZWAL paper: 8 KiB appends to one zone by queue depth, and writes at queue depth 1, in virtual time.

use crate::closed_loop::{ClosedLoop, Kind, drive};
use crate::profiles::{CONFZNS_APPEND_8K, ZN540_APPEND_8K, ZN540_WRITE_8K, zn540_under_io_uring};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "queue depth";
const Y: &str = "8 KiB operations, kIOPS";

/// Fig. 2 of the ZWAL paper.
pub const FIGURE: Figure = Figure {
    name: "zwal-fig2",
    title: "Fig. 2: appends by queue depth, and one write at a time",
    panels: &[
        Panel::new("fig2a", "a: zn540", X, Y, Shape::LINES),
        Panel::new("fig2b", "b: confzns", X, Y, Shape::LINES),
    ],
    measure,
};

const OPERATION_BYTES: usize = 8192;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut series = |figure: &'static str, write: f64, appends: &[(u32, f64)], note: &str| {
        (run.progress)(figure);
        let count = run.pick(20_000, 2000);
        let kiops = |kind, depth| {
            let device = match figure {
                "fig2a" => Ok(zn540_under_io_uring()),
                _ => drive("profile=confzns").map(|(device, _)| device),
            };
            let load = ClosedLoop { kind, bytes: OPERATION_BYTES, depth, zones: 1, count };
            let measured = device.and_then(|device| load.run(&device));
            measured
                .map(|measured| measured.kiops())
                .map_err(|e| Error::new(format!("measuring {figure}"), e))
        };
        let row = |name: &str, depth: u32, ours, paper: f64| {
            Row::new(figure, name, depth, Unit::Kiops, ours).paper(paper).note(note)
        };
        rows.push(row("write", 1, kiops(Kind::Write, 1)?, write));
        for (depth, paper) in appends {
            rows.push(row("append", *depth, kiops(Kind::Append, *depth)?, *paper));
        }
        Ok(())
    };
    series(
        "fig2a",
        ZN540_WRITE_8K,
        &ZN540_APPEND_8K,
        "virtual time; the drive behind io_uring, as the paper's",
    )?;
    series("fig2b", 2.064, &CONFZNS_APPEND_8K, "virtual time")?;
    Ok(rows)
}
