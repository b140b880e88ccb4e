//! Fig. 4 of the ZWAL paper: RocksDB's `db_bench fillrandom` of 4 KiB pairs, by log buffer, with the `write` and the `append`
//! mode; and the log alone, without RocksDB, in virtual time.

use fs::wal::IoMode;
use units::Bytes;

use super::alone::log_alone_rate;
use super::drive::{APPENDS_IN_FLIGHT, Drive, PAIR_BYTES};
use crate::db_bench::DbBench;
use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::wal::{WalLoad, io_name};

const X: &str = "log buffer, KiB";
const Y: &str = "4 KiB pairs, thousand a second";

/// Fig. 4 of the ZWAL paper.
pub const FIGURE: Figure = Figure {
    name: "zwal-fig4",
    title: "Fig. 4: db_bench fillrandom by log buffer",
    panels: &[
        Panel::new("fig4a", "a: confzns", X, Y, Shape::LOG_LINES),
        Panel::new("fig4b", "b: zn540", X, Y, Shape::LOG_LINES),
    ],
    measure,
};

/// Sizes of the log buffer in KiB, and published pairs a second of ZenFS and of ZWAL on `confzns`.
const BUFFERS: [(u32, f64, f64); 5] = [
    (4, 1_860.0, 26_215.0),
    (8, 3_576.0, 41_648.0),
    (16, 6_782.0, 58_178.0),
    (64, 18_918.0, 76_225.0),
    (256, 41_510.0, 79_614.0),
];

/// Bytes of the key of a pair.
const KEY: u64 = 16;

/// Most key-value pairs of a run, which takes seconds: more where `confzns` is fast.
const MOST_PAIRS: u64 = 300_000;
const RUN_SECONDS: u64 = 6;

/// GiB of the memtable, which holds every pair of a run: nothing is flushed, and only the log is measured.
const MEMTABLE_GIB: u64 = 2;

/// Bytes written in the measurement of the log without RocksDB.
const LOG_ALONE_BYTES: u64 = 256 << 20;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        let figure = drive.pick("fig4b", "fig4a");
        for (buffer, zenfs, zwal) in BUFFERS {
            for (mode, paper, whose) in [(IoMode::Write, zenfs, "ZenFS"), (IoMode::Append, zwal, "ZWAL")] {
                (run.progress)(&format!("{}, {buffer} KiB, {}", drive.profile(), io_name(mode)));
                // Only in write mode on `confzns` does the drive set the pace, and not the host.
                let slow = drive == Drive::Confzns && mode == IoMode::Write;
                let pairs = if slow { (zenfs as u64 * RUN_SECONDS).min(MOST_PAIRS) } else { MOST_PAIRS };
                let pairs = pairs / run.pick(1, 10);
                let ours = fill_random_rate(drive, mode, buffer, pairs)? / 1e3;
                let row = Row::new(figure, io_name(mode), buffer, Unit::Kiops, ours).note(format!(
                    "stock db_bench, real clock, {pairs} pairs, --write_buffer_size={MEMTABLE_GIB}GiB (nothing is \
                     flushed), window {APPENDS_IN_FLIGHT}, never synced"
                ));
                rows.push(drive.pick(row.clone(), {
                    row.paper(paper / 1e3).note(format!("published: {whose}, 5 GiB, 20 cores"))
                }));
            }
            for mode in [IoMode::Write, IoMode::Append] {
                let (buffer_bytes, total) =
                    (Bytes(u64::from(buffer) << 10), Bytes(LOG_ALONE_BYTES / run.pick(1, 8)));
                let load = WalLoad { io: mode, buffer: buffer_bytes, total, ..WalLoad::default() };
                let (rate, note) = log_alone_rate(drive, load)?;
                let series = format!("{} (log alone)", io_name(mode));
                rows.push(Row::new(figure, series, buffer, Unit::Kiops, rate).note(note));
            }
        }
    }
    Ok(rows)
}

/// Runs fillrandom through the plug-in; gives pairs a second.
fn fill_random_rate(drive: Drive, mode: IoMode, buffer: u32, pairs: u64) -> Result<f64> {
    let settings = [
        ("num", pairs),
        ("key_size", KEY),
        ("value_size", PAIR_BYTES - KEY),
        ("seed", 1),
        ("write_buffer_size", MEMTABLE_GIB << 30),
    ];
    let mut args: Vec<String> = settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    args.push(String::from("--compression_type=none"));
    let environment = vec![
        ("FURROW_WAL_IO", io_name(mode).to_owned()),
        ("FURROW_WAL_BUFFER", format!("{buffer}KiB")),
        ("FURROW_WAL_WINDOW", APPENDS_IN_FLIGHT.to_string()),
    ];
    Ok(DbBench { url: drive.url(), benchmark: "fillrandom", args, environment }.run()?.rate)
}
