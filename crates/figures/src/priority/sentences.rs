//! Sentences of the paper that its own numbers, or a measurement, contradict.

use std::time::Duration;

use bench::share::{self, Admit, LogLoad, ShareLoad};

use crate::{Error, Figure, Result, Row, Run, Unit};

/// The sentences, without a chart.
pub(super) const FIGURE: Figure = Figure {
    name: "priority-sentences",
    title: "Sentences of the paper beside numbers",
    panels: &[],
    measure,
};

/// "Getting to the front of the operating system I/O queue is sufficient" (section 4.1).
pub(super) const FRONT_OF_THE_QUEUE: &str = "4.1: the front of the OS queue suffices";
/// The drive is a SATA one in section 4.1, and NVMe in the text before it.
pub(super) const DRIVE: &str = "4.1: 536 MiB in 0.25 to 0.45 s on a Samsung SSD 860";
/// "Similar consistent performance" (section 4.2).
pub(super) const AS_ALONE: &str = "4.2: as when the writes ran on their own";

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    (run.progress)(FRONT_OF_THE_QUEUE);
    let time = Duration::from_secs(run.pick(6, 2));
    let load = ShareLoad { log: LogLoad::OneAfterTheOther, time, ..ShareLoad::default() };
    let failed = |e| Error::new(FRONT_OF_THE_QUEUE, e);
    let alone = share::measure_alone(&load).map_err(failed)?;
    let at_once = share::measure(&load, Admit::Unbounded, &alone).map_err(failed)?;
    let scheduled = share::measure(&load, Admit::Controller, &alone).map_err(failed)?;
    let row = |sentence: &str, x: &str, unit: Unit, value: f64| {
        Row::new("priority-sentences", sentence, x, unit, value)
    };
    Ok(vec![
        row(FRONT_OF_THE_QUEUE, "log beside bulk, nothing queued in the host", Unit::Times, at_once.mean)
            .note("virtual zn540; mean latency by that alone: the drive's own buffer is the queue"),
        row(FRONT_OF_THE_QUEUE, "bulk at the scheduler's rate", Unit::Times, scheduled.mean)
            .note("the same; what is admitted decides"),
        row(DRIVE, "0.25 s", Unit::MibPerS, 536.0 / 0.25)
            .note("arithmetic: SATA carries 572 MiB/s at most, so that the page cache was measured"),
        row(DRIVE, "0.45 s", Unit::MibPerS, 536.0 / 0.45).note("arithmetic"),
        row(AS_ALONE, "0.2 ms by 0.15 ms", Unit::Times, 0.2 / 0.15).note("arithmetic, of Figs. 7 and 10"),
        row(AS_ALONE, "0.2 ms by 0.05 ms", Unit::Times, 0.2 / 0.05).note("arithmetic, of Figs. 7 and 10"),
    ])
}
