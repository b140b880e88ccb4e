//! Figs 4.7, 4.8, 4.9 and 4.11 of the RAIZN paper: writes, sequential and random reads by block size, with fio's parameters, on
//! Furrow's array and on [md's as a model](super::md).
//!
//! Writes and sequential reads come from 8 jobs with 64 operations in flight each, random reads from one with 256.

use std::sync::Arc;
use std::time::Duration;

use units::{block_on, sleep_until};
use zoned::{Bytes, Result as DeviceResult, ZonedDevice};

use super::md;
use super::setup::{KIB, MIB, MeasuredArray, setup};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::array::{Kind, Load, Summary, fill_with_zeros};

const X: &str = "block size, KiB";
const RATE: &str = "MiB/s";
const LINES: Shape = Shape::LOG_LINES;

/// Figs 4.7 and 4.8 of the RAIZN paper: stripe units.
pub(super) const UNITS: Figure = Figure {
    name: "raizn-fig8",
    title: "Figs 4.7 and 4.8: throughput by block size and stripe unit, five zn540",
    panels: &[
        Panel::new("fig4.8a", "sequential write", X, RATE, LINES),
        Panel::new("fig4.8b", "sequential read", X, RATE, LINES),
        Panel::new("fig4.8c", "random read", X, RATE, LINES),
        Panel::new("fig4.7a", "md, a model: sequential write", X, RATE, LINES),
        Panel::new("fig4.7b", "md, a model: sequential read", X, RATE, LINES),
        Panel::new("fig4.7c", "md, a model: random read", X, RATE, LINES),
    ],
    measure: units,
};

/// Fig. 4.9 of the RAIZN paper: workloads by block size.
pub(super) const WORKLOADS: Figure = Figure {
    name: "raizn-fig9",
    title: "Fig. 4.9: throughput and latency, stripe units of 64 KiB",
    panels: &[
        Panel::new("fig4.9a", "throughput", X, RATE, LINES),
        Panel::new("fig4.9b", "median", X, "us", LINES),
        Panel::new("fig4.9c", "99.9th percentile", X, "us", LINES),
    ],
    measure: |run| {
        let all: Vec<_> = ALL.map(|(workload, name)| (workload, false, name.to_owned())).into();
        measure_by_block_size(run, ["fig4.9a", "fig4.9b", "fig4.9c"], all)
    },
};

/// Fig. 4.11 of the RAIZN paper: a degraded array.
pub(super) const DEGRADED: Figure = Figure {
    name: "raizn-fig11",
    title: "Fig. 4.11: reads while a drive is lost, stripe units of 64 KiB",
    panels: &[
        Panel::new("fig4.11a", "throughput", X, RATE, LINES),
        Panel::new("fig4.11b", "median", X, "us", LINES),
        Panel::new("fig4.11c", "99.9th percentile", X, "us", LINES),
    ],
    measure: |run| {
        let reads = [ALL[1], ALL[2]].into_iter();
        let all = reads.flat_map(|(workload, name)| {
            [(workload, false, format!("{name}, all drives")), (workload, true, format!("{name}, one lost"))]
        });
        measure_by_block_size(run, ["fig4.11a", "fig4.11b", "fig4.11c"], all.collect())
    },
};

/// The stripe unit of all figures but Fig. 4.8.
const STRIPE_UNIT: Bytes = Bytes(64 * KIB);
const ALL: [(Kind, &str); 3] =
    [(Kind::Write, "sequential write"), (Kind::Sequential, "sequential read"), (Kind::Random, "random read")];
const JOBS: u32 = 8;
const DEPTH: usize = 64;
const RANDOM_DEPTH: usize = 256;
/// Bytes at the beginning of each job's zone that reads are taken from. The paper's reads span 128 GiB: on drives without a
/// read cache the span makes no difference.
const READ_SPAN: Bytes = Bytes(64 * MIB);
/// Bytes that random reads of md's model are taken from, which need not be written first: more than its cache, which holds 512
/// MiB of data.
const MD_READ_SPAN: Bytes = Bytes(4096 * MIB);
/// Time after which the drives are idle.
const DRIVE_REST: Duration = Duration::from_millis(100);

fn sizes(run: &Run<'_>) -> Vec<u32> {
    run.pick(vec![4, 8, 16, 32, 64, 128, 256, 512, 1024], vec![4, 64, 1024])
}

/// Measures each workload, with all drives or one less, over the block sizes.
fn measure_by_block_size(
    run: &Run<'_>,
    figures: [&'static str; 3],
    series: Vec<(Kind, bool, String)>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (workload, lost, name) in series {
        for whose in MeasuredArray::ALL {
            let name = format!("{}: {name}", whose.name());
            let ground = TestDevice::new(whose, STRIPE_UNIT, workload, lost).map_err(failed)?;
            for size in sizes(run) {
                (run.progress)(&format!("{name}, {size} KiB"));
                rows.extend(rows_of_summary(figures, &name, whose, size, &ground.measure(run, size)?));
            }
        }
    }
    Ok(rows)
}

fn failed(error: zoned::Error) -> Error {
    Error::new("measuring the array", error)
}

/// The device below a workload.
struct TestDevice {
    whose: MeasuredArray,
    kind: Kind,
    unit: Bytes,
    lost: bool,
    /// The device that reads share, filled before them. Each write gets a new device; so does each of md's reads, to begin with
    /// an empty cache.
    device: Option<Arc<dyn ZonedDevice>>,
}

impl TestDevice {
    fn new(whose: MeasuredArray, unit: Bytes, kind: Kind, lost: bool) -> DeviceResult<TestDevice> {
        let mut ground = TestDevice { whose, kind, unit, lost, device: None };
        if kind != Kind::Write && whose == MeasuredArray::Furrow {
            let bed = setup(JOBS, unit).build()?;
            fill_with_zeros(&bed.device, JOBS, READ_SPAN)?;
            // The reads begin when the drives' write buffers are empty.
            block_on(&*bed.driver, sleep_until(&*bed.driver, bed.driver.now().after(DRIVE_REST)));
            let bed = if lost { bed.without(0)? } else { bed };
            ground.device = Some(bed.device);
        }
        Ok(ground)
    }

    fn device(&self) -> DeviceResult<Arc<dyn ZonedDevice>> {
        match (&self.device, self.whose) {
            (Some(device), _) => Ok(Arc::clone(device)),
            (None, MeasuredArray::Furrow) => Ok(setup(JOBS, self.unit).build()?.device),
            (None, MeasuredArray::Md) => {
                let lost = self.lost.then_some(0);
                Ok(md::Setup { zones: JOBS, chunk: self.unit, lost, collects: false }.build())
            }
        }
    }

    fn measure(&self, run: &Run<'_>, size: u32) -> Result<Summary> {
        let bytes = u64::from(size) * KIB;
        let most = run.pick(1, 4);
        let load = match self.kind {
            Kind::Random => Load {
                span: if self.whose == MeasuredArray::Md { MD_READ_SPAN } else { READ_SPAN },
                ..Load::new(
                    Kind::Random,
                    Bytes(bytes),
                    RANDOM_DEPTH,
                    (GIB / bytes).clamp(2_000, 20_000) / most,
                )
            },
            Kind::Sequential => Load {
                jobs: JOBS,
                ..Load::new(self.kind, Bytes(bytes), DEPTH, (READ_SPAN.0 / bytes).min(4_000) / most)
            },
            _ => Load {
                jobs: JOBS,
                ..Load::new(
                    self.kind,
                    Bytes(bytes),
                    DEPTH,
                    (2 * READ_SPAN.0 / bytes).clamp(256, 8_000) / most,
                )
            },
        };
        let times = self.device().and_then(|device| load.run(&device)).map_err(failed)?;
        Ok(Summary::of(&times, Bytes(bytes)))
    }
}

const GIB: u64 = 1 << 30;

fn units(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let figures = [
        (MeasuredArray::Furrow, ["fig4.8a", "fig4.8b", "fig4.8c"]),
        (MeasuredArray::Md, ["fig4.7a", "fig4.7b", "fig4.7c"]),
    ];
    for (whose, figures) in figures {
        for unit in run.pick(vec![8_u64, 16, 32, 64, 128], vec![16, 64]) {
            let series = match whose {
                MeasuredArray::Furrow => format!("stripe unit {unit} KiB"),
                MeasuredArray::Md => format!("{}: chunk {unit} KiB", whose.name()),
            };
            for ((workload, name), figure) in ALL.into_iter().zip(figures) {
                let ground = TestDevice::new(whose, Bytes(unit * KIB), workload, false).map_err(failed)?;
                for size in sizes(run) {
                    (run.progress)(&format!("{series}: {name}, {size} KiB"));
                    let mib = ground.measure(run, size)?.mib;
                    let row = Row::new(figure, &series, size, Unit::MibPerS, mib);
                    rows.push(row.note(note(workload)).note(whose.note()));
                }
            }
        }
    }
    Ok(rows)
}

fn note(workload: Kind) -> String {
    let load = match workload {
        Kind::Random => format!("one job, {RANDOM_DEPTH} in flight"),
        _ => format!("{JOBS} jobs, {DEPTH} in flight each"),
    };
    format!("virtual clock; {load}; the paper's curves have no numbers")
}

/// The rows of a measurement: rate, median and tail.
fn rows_of_summary(
    figures: [&'static str; 3],
    series: &str,
    whose: MeasuredArray,
    size: u32,
    of: &Summary,
) -> Vec<Row> {
    let values = [(of.mib, Unit::MibPerS), (of.p50, Unit::Us), (of.p99_9, Unit::Us)];
    let row = |(figure, (value, unit))| {
        Row::new(figure, series, size, unit, value)
            .note("virtual clock; the paper's curves have no numbers")
            .note(whose.note())
    };
    figures.into_iter().zip(values).map(row).collect()
}
