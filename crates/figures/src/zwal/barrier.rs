//! Section 4.4 of the ZWAL paper: the distance of barriers, against the rate of a log and the time of its recovery.

use fs::wal::IoMode;
use units::Bytes;

use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::recovery::RecoveryLoad;
use bench::wal::WalLoad;

use super::alone::log_alone_rate;
use super::drive::{Drive, PAIR_BYTES};
use super::recovered::recover_one_log;

const X: &str = "barrier";
const Y: &str = "4 KiB records, thousand a second";
const REPLAY: &str = "replay of the log, s";

/// The figure of section 4.4 of the ZWAL paper.
pub const FIGURE: Figure = Figure {
    name: "zwal-barrier",
    title: "Section 4.4: the distance between barriers",
    panels: &[
        Panel::new("barrier-a", "a: confzns", X, Y, Shape::LOG_LINES),
        Panel::new("barrier-b", "b: zn540", X, Y, Shape::LINES),
        Panel::new("barrier-c", "c: confzns", X, REPLAY, Shape::LOG_LINES),
        Panel::new("barrier-d", "d: zn540", X, REPLAY, Shape::LINES),
    ],
    measure,
};

/// A distance of barriers, and ZWAL's published numbers for `confzns`.
struct Barrier {
    name: &'static str,
    /// Bytes between two barriers; 0 for a barrier at each zone's end.
    bytes: u64,
    /// Published rate in thousands of records a second. The rate at a zone is 3.91 % above the rate at 16 MiB.
    rate: Option<f64>,
    /// Published seconds to replay 1 GiB; `None` if the distance is not measured, `Some(None)` if the paper has no number.
    replay: Option<Option<f64>>,
}

const fn barrier(name: &'static str, bytes: u64) -> Barrier {
    Barrier { name, bytes, rate: None, replay: None }
}

const BARRIERS: [Barrier; 8] = [
    Barrier { rate: Some(1.99), replay: Some(Some(31.87)), ..barrier("4K", 4 << 10) },
    barrier("16K", 16 << 10),
    Barrier { replay: Some(None), ..barrier("64K", 64 << 10) },
    barrier("256K", 256 << 10),
    Barrier { replay: Some(None), ..barrier("1M", 1 << 20) },
    barrier("4M", 4 << 20),
    Barrier { rate: Some(28.25), replay: Some(None), ..barrier("16M", 16 << 20) },
    Barrier { rate: Some(29.35), replay: Some(Some(6.13)), ..barrier("zone", 0) },
];

/// Bytes of the log whose rate is measured.
const LOG_BYTES: u64 = 128 << 20;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        for barrier in &BARRIERS {
            (run.progress)(&format!("{}, barrier {}", drive.profile(), barrier.name));
            rows.push(rate_row(run, drive, barrier)?);
            if let Some(paper) = barrier.replay {
                rows.push(replay_row(run, drive, barrier, paper)?);
            }
        }
    }
    Ok(rows)
}

fn rate_row(run: &Run<'_>, drive: Drive, barrier: &Barrier) -> Result<Row> {
    let load = WalLoad {
        io: IoMode::Append,
        buffer: Bytes(PAIR_BYTES),
        barrier: Bytes(barrier.bytes),
        total: Bytes(LOG_BYTES / run.pick(1, 8)),
        ..WalLoad::default()
    };
    let (rate, note) = log_alone_rate(drive, load)?;
    let row =
        Row::new(drive.pick("barrier-b", "barrier-a"), "append", barrier.name, Unit::Kiops, rate).note(note);
    Ok(match drive.pick(None, barrier.rate) {
        Some(paper) => row.paper(paper).note("published: through RocksDB, on the real clock"),
        None => row,
    })
}

fn replay_row(run: &Run<'_>, drive: Drive, barrier: &Barrier, paper: Option<f64>) -> Result<Row> {
    // The published numbers are of `confzns` and of a log of this size.
    let mib = run.pick(drive.pick(256, 1024), 16);
    let (size, bytes) = (Bytes(mib << 20), Bytes(barrier.bytes));
    let log = recover_one_log(
        drive,
        RecoveryLoad { barrier: bytes, sizes: vec![size], ..RecoveryLoad::default() },
    )?;
    let figure = drive.pick("barrier-d", "barrier-c");
    let row = Row::new(figure, "append", barrier.name, Unit::Seconds, log.replay_s)
        .note(format!("through RocksDB, real clock, {mib} MiB of 4 KiB entries"));
    Ok(match drive.pick(None, paper).filter(|_| !run.quick) {
        Some(paper) => row.paper(paper).note("published: 1 GiB; it reads one barrier's bytes at a time"),
        None => row,
    })
}
