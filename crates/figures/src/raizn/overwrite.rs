//! Fig. 4.10 of the RAIZN paper: five threads fill the whole array, then one thread overwrites it, zone after zone; the same on
//! [a model of md](super::md), whose drives collect garbage.

use std::sync::Arc;

use units::Bytes;
use zoned::{ZoneId, ZonedDevice};

use super::md;
use super::setup::{MIB, MODEL, MeasuredArray, OURS, setup};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::Recorder;
use bench::array::{Kind, Load, Time, reset};

const X: &str = "written, % of the capacity";

/// Fig. 4.10 of the RAIZN paper.
pub(super) const FIGURE: Figure = Figure {
    name: "raizn-fig10",
    title: "Fig. 4.10: the whole array filled (to 100 %), and overwritten (to 200 %)",
    panels: &[
        Panel::new("fig4.10a", "throughput", X, "MiB/s", Shape::LINES),
        Panel::new("fig4.10b", "latency", X, "us", Shape::LOG_LINES),
    ],
    measure,
};

/// Number of threads that fill the array at the same time.
const FILLING_THREADS: u32 = 5;
/// Operations in flight of each thread.
const QUEUE_DEPTH: usize = 8;
/// Number of points in each half of the figure.
const POINTS_PER_HALF: usize = 40;
/// The stripe unit of Furrow's array, and md's chunk.
const STRIPE_UNIT: Bytes = Bytes(64 << 10);

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let per_stream = run.pick(2, 1);
    let zones = FILLING_THREADS * per_stream;
    let failed = |e| Error::new("overwriting the array", e);
    for whose in MeasuredArray::ALL {
        let device = match whose {
            MeasuredArray::Furrow => setup(zones, STRIPE_UNIT).build().map_err(failed)?.device,
            MeasuredArray::Md => md::Setup { zones, chunk: STRIPE_UNIT, lost: None, collects: true }.build(),
        };
        let note = format!(
            "virtual clock, {zones} zones, {FILLING_THREADS} threads and then one, {QUEUE_DEPTH} writes of 1 MiB in flight each"
        );
        let [first, second] = fill_and_overwrite(run, whose, &device, per_stream).map_err(failed)?;
        for (half, times) in [first, second].iter().enumerate() {
            for (x, mib, us) in samples(times, half) {
                rows.push(
                    Row::new("fig4.10a", whose.name(), x, Unit::MibPerS, mib)
                        .note(&note)
                        .note(extra_note(whose)),
                );
                rows.push(
                    Row::new("fig4.10b", whose.name(), x, Unit::Us, us).note(&note).note(extra_note(whose)),
                );
            }
        }
    }
    let lowest = rows_where_md_is_slowest(&rows);
    rows.extend(lowest.into_iter().flatten());
    Ok(rows)
}

fn extra_note(whose: MeasuredArray) -> &'static str {
    match whose {
        MeasuredArray::Furrow => "resets included",
        MeasuredArray::Md => {
            "a model, not md: its drives have 7 % spare and collect garbage; the paper says steady again after 180 %"
        }
    }
}

/// Runs the filling and the overwriting of an array.
fn fill_and_overwrite(
    run: &Run<'_>,
    whose: MeasuredArray,
    device: &Arc<dyn ZonedDevice>,
    per_stream: u32,
) -> zoned::Result<[Vec<Time>; 2]> {
    let geometry = device.geometry().clone();
    let count = geometry.zone_capacity.bytes(geometry.block_size).0.div_ceil(MIB);
    (run.progress)(&format!("{}: filling", whose.name()));
    let fill = Load {
        jobs: FILLING_THREADS,
        ..Load::new(Kind::Write, Bytes(MIB), QUEUE_DEPTH, count * u64::from(per_stream))
    };
    let first = fill.run(device)?;
    let mut second = Vec::new();
    // The overwriting takes one filling thread's zones after another's: the order of the addresses, where each thread filled a
    // fifth of them.
    let zones =
        (0..FILLING_THREADS).flat_map(|stream| (0..per_stream).map(move |n| stream + n * FILLING_THREADS));
    for zone in zones {
        (run.progress)(&format!("{}: overwriting", whose.name()));
        let begin = device.driver().now();
        if whose == MeasuredArray::Furrow {
            reset(device, ZoneId(zone))?;
        }
        let load = Load { first: zone, ..Load::new(Kind::Write, Bytes(MIB), QUEUE_DEPTH, count) };
        let mut times = load.run(device)?;
        // The reset of the first zone is part of overwriting.
        if let Some(time) = times.first_mut() {
            time.0 = begin;
        }
        second.extend(times);
    }
    Ok([first, second])
}

/// The numbers in the paper's text: the rate of RAIZN over md's where md is slowest, and md's loss of rate there.
pub(super) fn rows_where_md_is_slowest(rows: &[Row]) -> Option<[Row; 2]> {
    let of = |whose: MeasuredArray| {
        rows.iter().filter(move |row| row.figure == "fig4.10a" && row.series == whose.name())
    };
    let at = of(MeasuredArray::Md).min_by(|a, b| a.ours.total_cmp(&b.ours))?;
    let best = of(MeasuredArray::Md).map(|row| row.ours).fold(0.0, f64::max);
    let ours = of(MeasuredArray::Furrow).find(|row| row.x == at.x)?;
    let note = format!("at {} %: {}", at.x, MeasuredArray::Md.note());
    Some([
        Row::new(
            "fig4.10-lowest",
            format!("{OURS} over {MODEL}"),
            "throughput",
            Unit::Times,
            ours.ours / at.ours,
        )
        .paper(14.0)
        .note(format!("{note}; the paper: up to 14 times")),
        Row::new(
            "fig4.10-lowest",
            format!("{MODEL}: lowest over highest"),
            "throughput",
            Unit::Times,
            at.ours / best,
        )
        .paper(0.2)
        .note(format!("{note}; the paper: over 80 % lost")),
    ])
}

/// The place, the rate in MiB/s and the mean latency in us at each point.
pub(crate) fn samples(times: &[Time], half: usize) -> Vec<(u32, f64, f64)> {
    let mut samples = Vec::new();
    let size = times.len().div_ceil(POINTS_PER_HALF).max(1);
    let mut since = times.iter().map(|(begin, _)| *begin).min();
    for (n, part) in (1_u32..).zip(times.chunks(size)) {
        let end = part.iter().map(|(_, end)| *end).max();
        if let (Some(from), Some(to)) = (since, end) {
            let seconds = to.since(from).as_secs_f64();
            let mut latencies = Recorder::new();
            part.iter().for_each(|(begin, end)| latencies.record(end.since(*begin)));
            let x = n * 100 / POINTS_PER_HALF as u32 + 100 * u32::try_from(half).unwrap_or(0);
            samples.push((x, part.len() as f64 / seconds, latencies.summary(1).mean));
        }
        since = end;
    }
    samples
}
