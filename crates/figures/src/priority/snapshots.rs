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
        Panel::new("priority4-ratio", "writes by those at 100 MiB", X, "x", Shape::LINES),
        Panel::new("priority4-bulk", "snapshots written, all servers", X, "MiB a second", Shape::LINES),
    ],
    measure,
};

/// Sizes of a snapshot in MiB.
const SIZES: [u32; 3] = [SMALLEST, 1000, LARGEST];
const QUICK_SIZES: [u32; 2] = [SMALLEST, 300];

/// The size of a snapshot with which the paper's text compares, and the size that the comparison is about ("3GB").
const SMALLEST: u32 = 100;
const LARGEST: u32 = 3000;

/// Numbers of the paper's text. The figures' lines have no others.
pub(super) struct Published {
    /// Writes by those at 100 MB.
    pub(super) ratio: Option<f64>,
    ratio_note: &'static str,
    /// The longest write in ms.
    pub(super) longest: Option<f64>,
    longest_note: &'static str,
}

/// The paper's numbers for a series at a size. The paper's servers decide by themselves, or by the authors' patch, and have no scheduler before the drive; of 3 GB alone
/// its text has numbers.
pub(super) fn published(policy: Policy, scheduler: bool, size: u32) -> Published {
    match (policy, scheduler, size) {
        (Policy::Random, false, LARGEST) => Published {
            ratio: Some(0.25),
            ratio_note: "paper: less than a quarter at 3 GB",
            longest: Some(3000.0),
            longest_note: "paper: some writes over 3 s, at a size that its Fig. 5 does not say",
        },
        (Policy::Patch, false, LARGEST) => Published {
            ratio: None,
            ratio_note: "paper: only slightly less",
            longest: Some(200.0),
            longest_note: "paper: all writes well under 200 ms, at a size that its Fig. 5 does not say",
        },
        _ => Published { ratio: None, ratio_note: "", longest: None, longest_note: "" },
    }
}

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
            let mut of_smallest = None;
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
                let published = published(policy, scheduler, *size);
                let longest = row("priority5", Unit::Ms, line.write_latency.max / 1000.0);
                rows.push(longest.paper(published.longest).note(published.longest_note));
                if *size == SMALLEST {
                    of_smallest = Some(line.writes_per_s);
                }
                if let Some(of_smallest) = of_smallest {
                    let ratio = row("priority4-ratio", Unit::Times, line.writes_per_s / of_smallest);
                    rows.push(ratio.paper(published.ratio).note(published.ratio_note));
                }
                let bulk = line.bulk_bytes_per_s / f64::from(1 << 20);
                rows.push(row("priority4-bulk", Unit::MibPerS, bulk));
            }
        }
    }
    Ok(rows)
}
