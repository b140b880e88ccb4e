//! Fig. 5 of the ZWAL paper: how long RocksDB takes to replay a log of 4 KiB entries, by the log's size, and where the time
//! goes.

use fs::wal::IoMode;
use units::Bytes;

use super::drive::Drive;
use super::recovered::recover_one_log;
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::recovery::{RecoveredLog, RecoveryLoad};
use bench::wal::io_name;

const X: &str = "size of the log, MiB";
const Y: &str = "replay, s";

/// Fig. 5 of the ZWAL paper.
pub const FIGURE: Figure = Figure {
    name: "zwal-fig5",
    title: "Fig. 5: recovery of a log through RocksDB",
    panels: &[
        Panel::new("fig5a", "a: confzns", X, Y, Shape::LOG_LINES),
        Panel::new("fig5b", "b: confzns, RocksDB's thread", X, Y, Shape::Stack),
        Panel::new("fig5c", "c: zn540", X, Y, Shape::LOG_LINES),
        Panel::new("fig5d", "d: zn540, RocksDB's thread", X, Y, Shape::Stack),
    ],
    measure,
};

/// Sizes of the log in MiB, and published seconds of ZenFS and of ZWAL on `confzns`.
const SIZES: [(u32, f64, f64); 5] =
    [(64, 0.35, 0.30), (128, 1.10, 0.65), (256, 5.15, 1.10), (512, 20.5, 2.71), (1024, 84.7, 6.13)];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let sizes = SIZES.get(..run.pick(SIZES.len(), 1)).unwrap_or_default();
    for drive in Drive::BOTH {
        for io in [IoMode::Write, IoMode::Append] {
            for (mib, zenfs, zwal) in sizes {
                (run.progress)(&format!("{}, {}, {mib} MiB", drive.profile(), io_name(io)));
                let size = Bytes(u64::from(*mib) << 20);
                let log = recover_one_log(
                    drive,
                    RecoveryLoad { io, sizes: vec![size], ..RecoveryLoad::default() },
                )?;
                match io {
                    IoMode::Write => rows.push(row_of_writes(drive, *mib, *zenfs, &log)),
                    IoMode::Append => rows.extend(rows_of_appends(drive, *mib, *zwal, &log)),
                }
            }
        }
    }
    Ok(rows)
}

fn row(drive: Drive, series: &str, mib: u32, seconds: f64) -> Row {
    Row::new(drive.pick("fig5c", "fig5a"), series, mib, Unit::Seconds, seconds)
}

/// The row of the baseline: the replay of a log that was written by writes, one after the other.
fn row_of_writes(drive: Drive, mib: u32, zenfs: f64, log: &RecoveredLog) -> Row {
    let row = row(drive, "write", mib, log.replay_s).note("real clock, a log closed well");
    match drive {
        Drive::Zn540 => row,
        Drive::Confzns => {
            row.paper(zenfs).note("published: ZenFS, whose search for extents is quadratic in the log's size")
        }
    }
}

fn rows_of_appends(drive: Drive, mib: u32, zwal: f64, log: &RecoveredLog) -> Vec<Row> {
    let row = |series: &str, seconds: f64| row(drive, series, mib, seconds);
    let ours = row("append", log.replay_s).note("real clock, a log closed well, barriers at zones");
    let ours = match drive {
        Drive::Zn540 => ours,
        Drive::Confzns => ours.paper(zwal).note("published: ZWAL"),
    };
    let part = |series: &str, seconds: f64, note: &str| {
        Row::new(drive.pick("fig5d", "fig5b"), series, mib, Unit::Seconds, seconds).note(note)
    };
    let beside = |series: &str, seconds: f64, note: &str| {
        Row::new(drive.pick("fig5d-beside", "fig5b-beside"), series, mib, Unit::Seconds, seconds).note(note)
    };
    let shares = "published as shares only: memtable close to 40 %, reading close to 30 %, sorting, taking apart and \
                  copying 24.39 % at most";
    let (parts, other) = (&log.breakdown, "on the thread that reads ahead");
    vec![
        ours,
        row("append (after a kill)", log.killed.mount_s + log.killed.replay_s)
            .note("the mount, which reads the log to find its end, and the replay"),
        row("stock RocksDB on tmpfs", log.tmpfs_replay_s)
            .note("the same log without a drive, in the same run"),
        row("the drive's reads alone", log.drive_s).note("bytes over the profile's read bandwidth"),
        part("memtable and records", parts.memtable_s, shares),
        part("copy", parts.copy_s, ""),
        part("waiting for the log", parts.wait_s, "for reading, checking and sorting, which go on beside"),
        beside("reading", parts.read_s, other),
        beside("checking and sorting", parts.sort_s, other),
        beside("waiting for RocksDB", parts.room_s, other),
    ]
}
