//! Figs. 7, 8, 10 and 11: a log alone, beside bulk writes, and beside bulk writes behind the drive's scheduler.

use std::time::Duration;

use bench::share::{self, Admit, LogLoad, ShareLoad};

use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "drive";

/// Figs. 7, 8, 10 and 11 of the paper.
pub(super) const FIGURE: Figure = Figure {
    name: "priority-fig11",
    title: "Figs. 7, 8, 10, 11: a log of 4 KiB beside bulk writes",
    panels: &[
        Panel::new("priority11-log", "the log: mean latency", X, "ms", Shape::Bars),
        Panel::new("priority11-bulk", "the bulk beside it", X, "MiB a second", Shape::Bars),
    ],
    measure,
};

/// The series of the log alone, as in Fig. 7.
pub(super) const ALONE: &str = "alone";
/// The series beside bulk that goes to the drive at once, as in Fig. 8.
pub(super) const AT_ONCE: &str = "bulk at once";
/// The series beside bulk that the drive's scheduler admits; the paper's Fig. 10 has its high-priority process there.
pub(super) const SCHEDULED: &str = "bulk by the scheduler";

/// Operations of the log a second.
const RATE: u32 = 2000;
/// The same on a disk, whose head moves for each of them.
const RATE_OF_A_DISK: u32 = 10;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for profile in ["zn540", "confzns", "smr"] {
        (run.progress)(profile);
        let is_disk = profile == "smr";
        let rate = if is_disk { RATE_OF_A_DISK } else { RATE };
        let time = Duration::from_secs(run.pick(if is_disk { 60 } else { 6 }, if is_disk { 20 } else { 2 }));
        let load =
            ShareLoad { profile: profile.into(), log: LogLoad::Rate(rate), time, ..ShareLoad::default() };
        let failed = |e| Error::new(profile, e);
        let alone = share::measure_alone(&load).map_err(failed)?;
        let at_once = share::measure(&load, Admit::Unbounded, &alone).map_err(failed)?;
        let scheduled = share::measure(&load, Admit::Controller, &alone).map_err(failed)?;
        let ms = |us: f64| us / 1000.0;
        let note = format!("virtual {profile}, {rate} operations of the log a second");
        let log = |series: &str, mean: f64, paper: Option<f64>| {
            // The paper's one drive is none of these: its numbers stand beside the first.
            let paper = paper.filter(|_| profile == "zn540");
            Row::new("priority11-log", series, profile, Unit::Ms, ms(mean)).paper(paper).note(&note)
        };
        let note_of_paper = if profile == "zn540" { "paper: 0.05 to 0.15 ms" } else { "" };
        rows.push(log(ALONE, at_once.log_alone.log_latency.mean, None).note(note_of_paper));
        rows.push(log(AT_ONCE, at_once.beside.log_latency.mean, Some(45.0)));
        rows.push(log(SCHEDULED, scheduled.beside.log_latency.mean, Some(0.2)));
        let bulk = |series: &str, rate: f64| {
            let mib = rate / f64::from(1 << 20);
            Row::new("priority11-bulk", series, profile, Unit::MibPerS, mib).note(&note)
        };
        rows.push(bulk(ALONE, at_once.bulk_alone.bulk_rate).note("no log"));
        rows.push(bulk(AT_ONCE, at_once.beside.bulk_rate));
        rows.push(bulk(SCHEDULED, scheduled.beside.bulk_rate));
    }
    Ok(rows)
}
