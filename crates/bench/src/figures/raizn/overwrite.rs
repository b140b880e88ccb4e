//! Fig. 4.10: the whole array is filled by five threads, and then overwritten by one, zone after zone. Beside it what
//! md's drives would do, as a model: see [`md`](super::md).

use units::Bytes;
use zoned::ZoneId;

use super::{DRIVES, MIB, OURS, md, setup};
use crate::Recorder;
use crate::array::{Kind, Load, Time, reset};
use crate::figures::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};

const X: &str = "written, % of the capacity";

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "raizn-fig10",
    title: "Fig. 4.10: the whole array filled (to 100 %), and overwritten (to 200 %)",
    panels: &[
        Panel {
            figure: "fig4.10a",
            title: "throughput",
            x: X,
            y: "MiB/s",
            shape: Shape::Lines { log: false },
        },
        Panel { figure: "fig4.10b", title: "latency", x: X, y: "us", shape: Shape::Lines { log: true } },
    ],
    measure,
};

/// As many threads fill it at the same time.
const STREAMS: u32 = 5;
/// In flight for each.
const DEPTH: usize = 8;
/// Points of each half.
const POINTS: usize = 40;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let per_stream = run.pick(2, 1);
    let zones = STREAMS * per_stream;
    let failed = |e| Error::new("overwriting the array", e);
    let bed = setup(zones, Bytes(64 << 10)).build().map_err(failed)?;
    let geometry = bed.device.geometry().clone();
    let count = geometry.zone_capacity.bytes(geometry.block_size).0.div_ceil(MIB);
    (run.progress)("filling");
    let fill =
        Load { jobs: STREAMS, ..Load::new(Kind::Write, Bytes(MIB), DEPTH, count * u64::from(per_stream)) };
    let first = fill.run(&bed.device).map_err(failed)?;
    let mut second = Vec::new();
    for zone in 0..zones {
        (run.progress)("overwriting");
        let begin = bed.driver.now();
        reset(&bed.device, ZoneId(zone)).map_err(failed)?;
        let load = Load { first: zone, ..Load::new(Kind::Write, Bytes(MIB), DEPTH, count) };
        let mut times = load.run(&bed.device).map_err(failed)?;
        // The reset is part of overwriting.
        if let Some(time) = times.first_mut() {
            time.0 = begin;
        }
        second.extend(times);
    }
    let note = format!(
        "virtual clock, {zones} zones, {STREAMS} threads and then one, {DEPTH} writes of 1 MiB in flight each; resets \
         included"
    );
    for (half, times) in [first, second].iter().enumerate() {
        for (x, mib, us) in samples(times, half) {
            rows.push(Row::new("fig4.10a", OURS, x, Unit::MibPerS, mib).note(&note));
            rows.push(Row::new("fig4.10b", OURS, x, Unit::Us, us).note(&note));
        }
    }
    let full = f64::from(DRIVES - 1) * md::WRITE;
    let shares = md::overwritten(STREAMS as usize, POINTS);
    for (n, share) in (1_u32..).zip(&shares) {
        let x = n * 100 / POINTS as u32;
        let row = Row::new("fig4.10a", "md (model)", x, Unit::MibPerS, share * full);
        rows.push(row.note(
            "a model, not md: drives with 7 % spare that collect garbage; the paper says down to a tenth, and \
             steady again after 180 %",
        ));
    }
    Ok(rows)
}

/// Where, MiB/s and mean latency in us at each point.
fn samples(times: &[Time], half: usize) -> Vec<(u32, f64, f64)> {
    let mut samples = Vec::new();
    let size = times.len().div_ceil(POINTS).max(1);
    let mut since = times.iter().map(|(begin, _)| *begin).min();
    for (n, part) in (1_u32..).zip(times.chunks(size)) {
        let end = part.iter().map(|(_, end)| *end).max();
        if let (Some(from), Some(to)) = (since, end) {
            let seconds = to.since(from).as_secs_f64();
            let mut latencies = Recorder::new();
            part.iter().for_each(|(begin, end)| latencies.record(end.since(*begin)));
            let x = n * 100 / POINTS as u32 + 100 * u32::try_from(half).unwrap_or(0);
            samples.push((x, part.len() as f64 / seconds, latencies.summary(1).mean));
        }
        since = end;
    }
    samples
}
