//! Figs 4.7, 4.8, 4.9 and 4.11: writes, sequential and random reads by block size, as fio puts them on the device.
//!
//! Writes and sequential reads come from 8 jobs with 64 operations in flight each, random reads from one with 256.

use zoned::{Bytes, Result as DeviceResult};

use super::{DRIVES, KIB, MIB, OURS, md, setup};
use crate::array::{Bed, Kind, Load, Summary, prime};
use crate::figures::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "block size, KiB";
const RATE: &str = "MiB/s";
const LINES: Shape = Shape::Lines { log: true };

/// Figs 4.7 and 4.8.
pub(super) const UNITS: Figure = Figure {
    name: "raizn-fig8",
    title: "Figs 4.7 and 4.8: throughput by block size and stripe unit, five zn540",
    panels: &[
        Panel { figure: "fig4.8a", title: "sequential write", x: X, y: RATE, shape: LINES },
        Panel { figure: "fig4.8b", title: "sequential read", x: X, y: RATE, shape: LINES },
        Panel { figure: "fig4.8c", title: "random read", x: X, y: RATE, shape: LINES },
        Panel { figure: "fig4.7", title: "md: a model, its drives' limits", x: X, y: RATE, shape: LINES },
    ],
    measure: units,
};

/// Fig. 4.9.
pub(super) const WORKLOADS: Figure = Figure {
    name: "raizn-fig9",
    title: "Fig. 4.9: throughput and latency, stripe units of 64 KiB",
    panels: &[
        Panel { figure: "fig4.9a", title: "throughput", x: X, y: RATE, shape: LINES },
        Panel { figure: "fig4.9b", title: "median", x: X, y: "us", shape: LINES },
        Panel { figure: "fig4.9c", title: "99.9th percentile", x: X, y: "us", shape: LINES },
    ],
    measure: |run| {
        let all: Vec<_> = ALL.map(|(workload, name)| (workload, false, name.to_owned())).into();
        by_size(run, ["fig4.9a", "fig4.9b", "fig4.9c"], all)
    },
};

/// Fig. 4.11.
pub(super) const DEGRADED: Figure = Figure {
    name: "raizn-fig11",
    title: "Fig. 4.11: reads while a drive is lost, stripe units of 64 KiB",
    panels: &[
        Panel { figure: "fig4.11a", title: "throughput", x: X, y: RATE, shape: LINES },
        Panel { figure: "fig4.11b", title: "median", x: X, y: "us", shape: LINES },
        Panel { figure: "fig4.11c", title: "99.9th percentile", x: X, y: "us", shape: LINES },
    ],
    measure: |run| {
        let reads = [ALL[1], ALL[2]].into_iter();
        let all = reads.flat_map(|(workload, name)| {
            [(workload, false, format!("{name}, all drives")), (workload, true, format!("{name}, one lost"))]
        });
        by_size(run, ["fig4.11a", "fig4.11b", "fig4.11c"], all.collect())
    },
};

/// The stripe unit of all but Fig. 4.8.
const UNIT: Bytes = Bytes(64 * KIB);
const ALL: [(Kind, &str); 3] =
    [(Kind::Write, "sequential write"), (Kind::Sequential, "sequential read"), (Kind::Random, "random read")];
const JOBS: u32 = 8;
const DEPTH: usize = 64;
const RANDOM_DEPTH: usize = 256;
/// Bytes at the beginning of each job's zone that reads are of. The paper's are 128 GiB: on drives without a cache
/// for reads that makes no difference.
const SPAN: Bytes = Bytes(64 * MIB);

fn sizes(run: &Run<'_>) -> Vec<u32> {
    run.pick(vec![4, 8, 16, 32, 64, 128, 256, 512, 1024], vec![4, 64, 1024])
}

/// Each workload, with or without all drives, over the sizes of blocks.
fn by_size(run: &Run<'_>, figures: [&'static str; 3], series: Vec<(Kind, bool, String)>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (workload, lost, name) in series {
        let bed = Ground::new(UNIT, workload, lost).map_err(failed)?;
        for size in sizes(run) {
            (run.progress)(&format!("{name}, {size} KiB"));
            rows.extend(three(figures, &name, size, &bed.measure(run, size)?));
        }
    }
    Ok(rows)
}

fn failed(error: zoned::Error) -> Error {
    Error::new("measuring the array", error)
}

/// What a workload runs on.
struct Ground {
    kind: Kind,
    unit: Bytes,
    /// Of reads: there is something to read. Writes get a new one each.
    bed: Option<Bed>,
}

impl Ground {
    fn new(unit: Bytes, kind: Kind, lost: bool) -> DeviceResult<Ground> {
        if kind == Kind::Write {
            return Ok(Ground { kind, unit, bed: None });
        }
        let bed = setup(JOBS, unit).build()?;
        prime(&bed.device, JOBS, SPAN)?;
        let bed = if lost { bed.without(0)? } else { bed };
        Ok(Ground { kind, unit, bed: Some(bed) })
    }

    fn measure(&self, run: &Run<'_>, size: u32) -> Result<Summary> {
        let bytes = u64::from(size) * KIB;
        let most = run.pick(1, 4);
        let load = match self.kind {
            Kind::Random => Load {
                span: SPAN,
                ..Load::new(
                    Kind::Random,
                    Bytes(bytes),
                    RANDOM_DEPTH,
                    (GIB / bytes).clamp(2_000, 20_000) / most,
                )
            },
            Kind::Sequential => Load {
                jobs: JOBS,
                ..Load::new(self.kind, Bytes(bytes), DEPTH, (SPAN.0 / bytes).min(4_000) / most)
            },
            _ => Load {
                jobs: JOBS,
                ..Load::new(self.kind, Bytes(bytes), DEPTH, (2 * SPAN.0 / bytes).clamp(256, 4_000) / most)
            },
        };
        let measured = || match &self.bed {
            Some(bed) => load.run(&bed.device),
            None => load.run(&setup(JOBS, self.unit).build()?.device),
        };
        let times = measured().map_err(failed)?;
        Ok(Summary::of(&times, Bytes(bytes)))
    }
}

const GIB: u64 = 1 << 30;

fn units(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for unit in run.pick(vec![8_u64, 16, 32, 64, 128], vec![16, 64]) {
        for ((workload, name), figure) in ALL.into_iter().zip(["fig4.8a", "fig4.8b", "fig4.8c"]) {
            let ground = Ground::new(Bytes(unit * KIB), workload, false).map_err(failed)?;
            for size in sizes(run) {
                (run.progress)(&format!("{name}, unit {unit} KiB, {size} KiB"));
                let mib = ground.measure(run, size)?.mib;
                let row = Row::new(figure, format!("stripe unit {unit} KiB"), size, Unit::MibPerS, mib);
                rows.push(row.note(note(workload)));
            }
        }
    }
    let drives = f64::from(DRIVES);
    for size in sizes(run) {
        let model = |series: &str, mib| {
            Row::new("fig4.7", series, size, Unit::MibPerS, mib)
                .note("a model, not md: what its drives carry; the paper's curves have no numbers")
        };
        let reads = (drives * md::READ).min(drives * md::READ_KIOPS * 1e3 * f64::from(size) / 1024.0);
        rows.push(model("md (model): write", (drives - 1.0) * md::WRITE));
        rows.push(model("md (model): read", reads));
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

/// Rate, median and tail.
fn three(figures: [&'static str; 3], series: &str, size: u32, of: &Summary) -> Vec<Row> {
    let values = [(of.mib, Unit::MibPerS), (of.p50, Unit::Us), (of.p99_9, Unit::Us)];
    let row = |(figure, (value, unit))| {
        Row::new(figure, format!("{OURS}: {series}"), size, unit, value)
            .note("virtual clock; the paper's curves have no numbers")
    };
    figures.into_iter().zip(values).map(row).collect()
}
