//! Figs. 4 and 5: a replicated group's writes by the size of its snapshots.

use std::time::Duration;

use bench::turns::{self, Policy, TurnsLoad};
use units::Bytes;

use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "size of a snapshot, MiB";

/// Figs. 4 and 5 of the paper.
pub(super) const FIGURE: Figure = Figure {
    name: "priority-fig4",
    title: "Figs. 4, 5: five servers whose snapshots share the drives of their logs",
    panels: &[
        Panel::new("priority4", "writes", X, "thousand a second", Shape::LINES),
        Panel::new("priority5", "the longest write", X, "ms", Shape::LOG_LINES),
        Panel::new("priority4-bulk", "snapshots written, all servers", X, "MiB a second", Shape::LINES),
    ],
    measure,
};

/// Sizes of a snapshot in MiB.
const SIZES: [u32; 3] = [100, 1000, 3000];
const QUICK_SIZES: [u32; 2] = [100, 300];

/// The name of a series.
pub(super) fn series(policy: Policy, scheduler: bool) -> String {
    let name = match policy {
        Policy::None => "no snapshots",
        Policy::Random => "each server by itself",
        Policy::Patch => "the authors' patch",
        Policy::Turns => "turns",
    };
    format!("{name}{}", if scheduler { ", scheduler" } else { "" })
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let sizes = if run.quick { &QUICK_SIZES[..] } else { &SIZES[..] };
    for policy in [Policy::None, Policy::Random, Policy::Patch, Policy::Turns] {
        for scheduler in [false, true] {
            for size in sizes {
                let series = series(policy, scheduler);
                let what = format!("{series}, {size} MiB");
                (run.progress)(&what);
                let load = TurnsLoad {
                    snapshot: Bytes(u64::from(*size) << 20),
                    policy,
                    scheduler,
                    time: Duration::from_secs(run.pick(60, 8)),
                    ..TurnsLoad::default()
                };
                let line = turns::measure(&load).map_err(|e| Error::new(what, e))?;
                let note = format!(
                    "virtual {}; {} snapshots, {} at once at most",
                    load.profile, line.snapshots, line.most_at_once
                );
                let row =
                    |figure, unit, value| Row::new(figure, series.as_str(), *size, unit, value).note(&note);
                rows.push(row("priority4", Unit::Kiops, line.writes_per_s / 1000.0));
                rows.push(row("priority5", Unit::Ms, line.write_latency.max / 1000.0));
                let bulk = line.bulk_bytes_per_s / f64::from(1 << 20);
                rows.push(row("priority4-bulk", Unit::MibPerS, bulk));
            }
        }
    }
    Ok(rows)
}
