//! The command `furrow bench wal`.

use std::process::ExitCode;

use ::bench::Clock;
use ::bench::wal::{self, LogMode, Sync, WalLoad, WalOutcome, io_name};
use ::fs::wal::IoMode;
use anyhow::Result;
use clap::Args;
use units::Bytes;

use super::result::{Io, Zones, failed, latency_cells, with_host};
use crate::args::DeviceArg;
use crate::context::Context;
use crate::{output, size};

/// The sizes of the log's buffer that `--grid` measures, in bytes.
const GRID_BUFFERS: &[u64] = &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The least number of buffers that each run of `--grid` writes: the start, while the log's window is small, counts little in
/// so many.
const MIN_BUFFERS_WRITTEN: u64 = 512;
/// The sizes of records that `--grid` measures, in bytes.
const GRID_RECORDS: &[u64] = &[100, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// The columns of `--grid` and their widths: each line is printed as soon as it is measured.
const GRID_COLUMNS: [(&str, usize); 8] = [
    ("buffer", 9),
    ("record", 9),
    ("io", 6),
    ("ops/s", 10),
    ("MiB/s", 9),
    ("limit MiB/s", 11),
    ("of limit", 8),
    ("of raw", 6),
];
/// The columns of `--batchings`; the last two are auto over the better one of group and waltz.
const BATCHING_COLUMNS: [(&str, usize); 9] = [
    ("writers", 7),
    ("group ops/s", 11),
    ("p99.9 us", 9),
    ("waltz ops/s", 11),
    ("p99.9 us", 9),
    ("auto ops/s", 10),
    ("p99.9 us", 9),
    ("of ops/s", 8),
    ("of p99.9", 8),
];

/// `furrow bench wal`
#[derive(Debug, Args)]
pub struct WalArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// How entries are written to the drive: append has many in flight, write one at a time.
    #[arg(long, value_enum, default_value_t = Io::Append)]
    io: Io,
    /// each: an ordered log, each writer appends its own records; group: an ordered log, a leader appends for all that wait, as in
    /// RocksDB; waltz: a parallel log, each record an append of its own; auto: a parallel log that joins records when the drive has no
    /// parallelism to spare.
    #[arg(long, alias = "batch", default_value_t = LogMode::Each, value_name = "each|group|waltz|auto")]
    wal: LogMode,
    /// Where ordered logs lie.
    #[arg(long, value_enum, default_value_t = Zones::Auto)]
    zones: Zones,
    /// Writers.
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: u32,
    /// Bytes of a record.
    #[arg(long, default_value = "4KiB", value_name = "SIZE", value_parser = size::parse)]
    record: Bytes,
    /// The log's buffer, its longest entry.
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = size::parse)]
    buffer: Bytes,
    /// The most appends in flight.
    #[arg(long, default_value_t = 64, value_name = "N")]
    window: u32,
    /// Bytes after which the log waits for all appends in flight; 0: at the end of a zone.
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = size::parse)]
    barrier: Bytes,
    /// The records that are made durable before the next one: none, each, every=N.
    #[arg(long, default_value_t = Sync::None, value_name = "SYNC")]
    sync: Sync,
    /// Bytes of all records together.
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = size::parse)]
    total: Bytes,
    /// Replace the log after this many bytes [default: a third of the drive]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    roll: Option<Bytes>,
    /// virtual, real or dilated=N [default: virtual for an emulated drive with times, else real]
    #[arg(long)]
    clock: Option<Clock>,
    /// Run both modes with buffers from 4 KiB to 1 MiB and records from 100 B to 64 KiB, 512 buffers at least; JSON has a line for each run.
    #[arg(long, conflicts_with_all = ["io", "record", "buffer"])]
    grid: bool,
    /// Run group, waltz and auto with 1 to 64 writers; JSON has a line for each number of writers.
    #[arg(long, conflicts_with_all = ["wal", "threads", "grid"])]
    batchings: bool,
    /// Overwrite a drive that holds data: the data is lost.
    #[arg(long, visible_alias = "yes")]
    force: bool,
}

/// Runs one load on a log, the loads of `--grid` or those of `--batchings`.
pub fn run(context: &Context, args: &WalArgs) -> Result<ExitCode> {
    let load = WalLoad {
        device: args.device.device.clone(),
        clock: args.clock,
        force: args.force,
        io: args.io.mode(),
        zones: args.zones.of_logs(),
        wal: args.wal,
        threads: args.threads,
        record: args.record,
        buffer: args.buffer,
        window: args.window,
        barrier: args.barrier,
        sync: args.sync,
        total: args.total,
        roll: args.roll,
    };
    if args.grid {
        return run_grid(context, &load);
    }
    if args.batchings {
        return compare_batchings(context, &load);
    }
    let outcome = wal::run(&load).map_err(failed)?;
    if context.json {
        output::json(&with_host(&outcome)?)?;
    } else {
        print_outcome(&outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_grid(context: &Context, load: &WalLoad) -> Result<ExitCode> {
    if !context.json {
        print_columns(&GRID_COLUMNS, GRID_COLUMNS.map(|(name, _)| name.to_uppercase()))?;
    }
    let mut force = load.force;
    for buffer in GRID_BUFFERS {
        for record in GRID_RECORDS {
            for io in [IoMode::Write, IoMode::Append] {
                let (buffer, record) = (Bytes(*buffer), Bytes(*record));
                let total = load.total.max(Bytes(buffer.0 * MIN_BUFFERS_WRITTEN));
                let load = WalLoad { io, buffer, record, total, force, ..load.clone() };
                let outcome = wal::run(&load).map_err(failed)?;
                // From the first run on the drive's data is this command's own.
                force = true;
                if context.json {
                    output::line(with_host(&outcome)?.to_string())?;
                } else {
                    print_columns(
                        &GRID_COLUMNS,
                        [
                            size::show(buffer),
                            size::show(record),
                            io_name(io).to_owned(),
                            format!("{:.0}", outcome.ops_per_s),
                            format!("{:.1}", outcome.payload_mib_per_s),
                            format!("{:.1}", outcome.device_limit.mib_per_s),
                            format!("{:.3}", outcome.of_limit),
                            format!("{:.3}", outcome.of_raw),
                        ],
                    )?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn compare_batchings(context: &Context, load: &WalLoad) -> Result<ExitCode> {
    if !context.json {
        print_columns(&BATCHING_COLUMNS, BATCHING_COLUMNS.map(|(name, _)| name.to_uppercase()))?;
    }
    let mut force = load.force;
    for threads in wal::WRITERS {
        let compared = wal::compare(&WalLoad { force, ..load.clone() }, threads).map_err(failed)?;
        force = true;
        if context.json {
            output::line(with_host(&compared)?.to_string())?;
            continue;
        }
        let cells = [&compared.group, &compared.waltz, &compared.auto]
            .map(|o| [format!("{:.0}", o.ops_per_s), format!("{:.1}", o.latency_us.p99_9)]);
        let [[group, group_tail], [waltz, waltz_tail], [auto, auto_tail]] = cells;
        let over = |share: f64| format!("{share:.3}");
        print_columns(
            &BATCHING_COLUMNS,
            [
                threads.to_string(),
                group,
                group_tail,
                waltz,
                waltz_tail,
                auto,
                auto_tail,
                over(compared.throughput()),
                over(compared.tail()),
            ],
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line of a table that is printed line by line.
fn print_columns<const N: usize>(widths: &[(&str, usize); N], cells: [String; N]) -> Result<()> {
    let padded = cells.iter().zip(widths).map(|(cell, (_, width))| format!("{cell:>width$}"));
    output::line(padded.collect::<Vec<_>>().join("  "))
}

fn print_outcome(outcome: &WalOutcome) -> Result<()> {
    let (load, limit) = (&outcome.load, &outcome.device_limit);
    let clock = load.clock.map_or_else(String::new, |clock| format!("{clock} clock"));
    output::line(format!(
        "{}: {} records of {}, {} {} of {}, sync {}, buffer {}, window {}, {clock}",
        load.device,
        outcome.records,
        size::show(load.record),
        load.threads,
        if load.threads == 1 { "writer" } else { "writers" },
        match load.wal {
            LogMode::Each => "each with its own records",
            LogMode::Group => "a group",
            LogMode::Waltz => "a parallel log",
            LogMode::Auto => "a parallel log that joins records",
        },
        load.sync,
        size::show(load.buffer),
        load.window,
    ))?;
    let number = |value: f64| format!("{value:.1}");
    let (names, cells) = latency_cells(&outcome.latency_us);
    let (mut header, mut row) = (
        vec!["io", "ops/s", "MiB/s"],
        vec![
            io_name(load.io).to_owned(),
            format!("{:.0}", outcome.ops_per_s),
            number(outcome.payload_mib_per_s),
        ],
    );
    header.extend(names);
    row.extend(cells);
    let raw = vec!["raw".to_owned(), format!("{:.0}", limit.ops_per_s), number(limit.mib_per_s)];
    let raw = raw.into_iter().chain((0..cells_of_raw(&header)).map(|_| "-".to_owned())).collect();
    let right: Vec<&str> = header.iter().copied().filter(|name| *name != "io").collect();
    output::table(&header, &right, vec![row, raw])?;
    output::line(format!(
        "raw: appends of {}, {} in flight; one alone takes {:.1} us",
        size::show(Bytes(limit.append_bytes)),
        limit.depth,
        limit.append_us
    ))?;
    let mut line = format!(
        "{:.1} % of the limit, {:.1} % of its plain bytes",
        outcome.of_limit * 100.0,
        outcome.of_raw * 100.0
    );
    if let Some(share) = outcome.of_writers {
        line.push_str(&format!(", {:.1} % of what this many writers can reach", share * 100.0));
    }
    if let Some(space) = outcome.space_amplification {
        line.push_str(&format!("; {space:.2} bytes of the drive for each byte"));
    }
    output::line(line)?;
    if let Some(worst) = outcome.worst_over_neighbours {
        output::line(format!("no record took more than {worst:.2} times the median of those around it"))?;
    }
    output::line(format!(
        "{} entries in {} {}; {:.3} bytes written for each byte of a record",
        outcome.appends,
        outcome.logs,
        if outcome.logs == 1 { "log" } else { "logs" },
        outcome.write_amplification
    ))
}

/// The number of columns for which the row of raw appends has no numbers.
fn cells_of_raw(header: &[&str]) -> usize {
    header.len().saturating_sub(3)
}
