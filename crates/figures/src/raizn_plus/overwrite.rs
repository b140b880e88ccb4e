//! Fig. 5.17: five streams fill an array with two zones in a physical one, and overwrite it: as fast as they can (workload A), at
//! 4.4 GiB/s together (workload B) on five drives and on six (RAIZN+DP), and zone after zone in random order, which the paper does not have.

use bench::array::{Order, Overwrite};
use units::Bytes;

use crate::raizn::overwrite::samples;
use crate::raizn::setup::{DRIVES, MIB};
use crate::{Better, Error, Figure, Panel, Result, Row, Run, Shape, Unit};

/// Fig. 5.17 of the dissertation.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-fig17",
    title: "Fig. 5.17: arrays of five and six zn540, stripes of five, two zones in a physical one, filled (to 100 %) and overwritten (to 200 %)",
    panels: &[
        Panel::new("fig5.17", "throughput", "written, % of the capacity", "MiB/s", Shape::LINES),
        Panel::new("fig5.17-copied", "copied by reclaim, for each byte written", "", "times", Shape::Bars),
    ],
    measure,
};

/// The names of the workloads.
pub(super) const A: &str = "A: five streams";
pub(super) const B: &str = "B: five streams, 4.4 GiB/s";
pub(super) const DP: &str = "B on six drives (RAIZN+DP)";
pub(super) const RANDOM: &str = "five streams, random zones";

/// Drives of the paper's RAIZN+DP.
const DRIVES_OF_DP: u32 = 6;
/// The rate of workload B in MiB a second.
const RATE_OF_B: f64 = 4.4 * 1024.0;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let zone_size = Bytes(run.pick(64, 16) * MIB);
    let streams = Overwrite::of(DRIVES, zone_size);
    // A move costs a few commands beside its copies: zones in random order are not much smaller than a drive's.
    let mut large = Overwrite { order: Order::Random, ..streams };
    (large.setup.zones, large.setup.zone_size) = (run.pick(128, 64), Some(Bytes(run.pick(512, 128) * MIB)));
    let at_rate = |load| Overwrite { rate: Some(RATE_OF_B), ..load };
    let wide = Overwrite::of(DRIVES_OF_DP, zone_size);
    let loads = [(A, streams), (B, at_rate(streams)), (DP, at_rate(wide)), (RANDOM, large)];
    // Each load has a virtual clock of its own.
    let measured = std::thread::scope(|scope| {
        let running = loads.map(|(name, load)| {
            (run.progress)(name);
            scope.spawn(move || load.run())
        });
        running.map(|load| load.join().expect("a load that panics is a defect"))
    });
    for ((name, load), passes) in loads.into_iter().zip(measured) {
        let passes = passes.map_err(|e| Error::new("overwriting the array", e))?;
        let size = load.setup.zone_size.map_or(0, |size| size.0 / MIB);
        let note = format!(
            "virtual clock, {} zones of {size} MiB a drive, 8 writes of 1 MiB in flight each; {} first writes waited for a reclaim",
            load.setup.zones, passes.waits
        );
        for (half, pass) in passes.passes.iter().enumerate() {
            for (x, mib, _) in samples(&pass.times, half) {
                rows.push(Row::new("fig5.17", name, x, Unit::MibPerS, mib).note(&note));
            }
        }
        let [_, second] = &passes.passes;
        let copied = passes.copied.0 as f64 / (second.times.len() as f64 * MIB as f64);
        let row = Row::new("fig5.17-copied", name, "second pass", Unit::Times, copied);
        let row = Row { better: Better::Lower, ..row }.note(&note);
        rows.push(match name {
            B => {
                row.note("the paper: 20 % of the physical zones of RAIZN+ are mixed, with major loss of rate")
            }
            _ => row,
        });
    }
    Ok(rows)
}
