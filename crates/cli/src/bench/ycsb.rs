//! The command `furrow bench ycsb`.

use std::process::ExitCode;

use ::bench::Clock;
use ::bench::ycsb::{self, Caching, Distribution, Engine, Memory, Phase, Workload, YcsbLoad};
use ::fs::wal::LogOptions;
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use units::Bytes;

use super::result::{Io, failed, latency_cells, with_host};
use crate::args::DeviceArg;
use crate::context::Context;
use crate::{output, progress, size};

/// `furrow bench ycsb`
#[derive(Debug, Args)]
pub struct YcsbArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// rocksdb or leveldb
    #[arg(long, default_value_t = Engine::RocksDb)]
    engine: Engine,
    /// The workloads to run: load, a, b, c, d, e, f or a range. A list that begins with load formats the drive.
    #[arg(long, default_value = "load,a", value_name = "load,a..f")]
    workload: Workloads,
    /// Records that load inserts, or that an earlier load inserted.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    records: u64,
    /// Operations of each other workload.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    ops: u64,
    /// Bytes of a value.
    #[arg(long, default_value = "1000", value_name = "SIZE", value_parser = size::parse)]
    value: Bytes,
    /// Threads.
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: u32,
    /// zipfian, latest or uniform [default: latest for d, zipfian for the others]
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Operations a second to offer; latencies then count from when an operation was due [default: no limit]
    #[arg(long, value_name = "OPS")]
    rate: Option<u64>,
    /// The writes that are made durable before the next one.
    #[arg(long, default_value = "none", value_parser = ["none", "each"])]
    sync: String,
    /// How entries of the engine's log are written to the drive.
    #[arg(long, value_enum, default_value_t = Io::Append)]
    log_io: Io,
    /// The log's buffer.
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = size::parse)]
    log_buffer: Bytes,
    /// The most appends in flight.
    #[arg(long, default_value_t = 64, value_name = "N")]
    log_window: u32,
    /// A memtable [default: 64MiB of RocksDB, 4MiB of LevelDB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    write_buffer: Option<Bytes>,
    /// The engine's block cache [default: 64MiB of RocksDB, 8MiB of LevelDB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    block_cache: Option<Bytes>,
    /// The file system's page cache; 0: none.
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = size::parse)]
    cache: Bytes,
    /// Memtables, block cache and page cache together: one of the caches takes what the others leave [default: no bound]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<Bytes>,
    /// buffered: written pages stay in the page cache. direct: writes go past it. off: no page cache. engine: the block cache takes the memory.
    /// engine-prepopulated: the same, and RocksDB puts the blocks of each flushed memtable into the block cache.
    #[arg(long, default_value = "buffered", value_parser = caching_names())]
    cache_mode: String,
    /// Each workload opens the database and closes it.
    #[arg(long)]
    reopen: bool,
    /// The seed of keys and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// real or dilated=N [default: real, or the URL's]
    #[arg(long)]
    clock: Option<Clock>,
    /// Overwrite a drive that holds data: the data is lost.
    #[arg(long, visible_alias = "yes")]
    force: bool,
}

fn caching_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(Caching::NAMES.map(|(name, _)| name))
}

fn caching(name: &str) -> Caching {
    let found = Caching::NAMES.into_iter().find(|(known, _)| *known == name);
    found.map_or_else(Caching::default, |(_, caching)| caching)
}

/// A list of workloads.
#[derive(Clone, Debug)]
struct Workloads(Vec<Workload>);

impl std::str::FromStr for Workloads {
    type Err = String;

    fn from_str(text: &str) -> Result<Workloads, String> {
        Workload::list(text).map(Workloads)
    }
}

/// Runs YCSB's workloads and prints their outcomes.
pub fn run(context: &Context, args: &YcsbArgs) -> Result<ExitCode> {
    let bytes = |size: Bytes| usize::try_from(size.0).context("a size is beyond this machine's memory");
    let log = LogOptions {
        buffer: bytes(args.log_buffer)?,
        mode: args.log_io.mode(),
        window: args.log_window as usize,
        ..LogOptions::default()
    };
    let load = YcsbLoad {
        device: args.device.device.clone(),
        engine: args.engine,
        clock: args.clock,
        force: args.force,
        workloads: args.workload.0.clone(),
        records: args.records,
        operations: args.ops,
        value: args.value,
        threads: args.threads,
        distribution: args.distribution,
        rate: args.rate,
        sync: args.sync == "each",
        log,
        write_buffer: args.write_buffer,
        block_cache: args.block_cache,
        cache: args.cache,
        memory: args.memory,
        cache_mode: caching(&args.cache_mode),
        reopen: args.reopen,
        seed: args.seed,
        ..YcsbLoad::default()
    };
    let mut rows = Vec::new();
    let spinner = progress::spinner();
    let outcome = ycsb::run(&load, &|phase| {
        spinner.set_message(format!("{}: {:.0} ops/s", phase.workload, phase.ops_per_s));
    });
    spinner.finish_and_clear();
    let outcome = outcome.map_err(failed)?;
    if context.json {
        let mut value = with_host(&outcome)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("settings".to_owned(), settings_json(args, &outcome.memory));
        }
        output::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    for phase in &outcome.phases {
        rows.extend(phase_table(phase));
    }
    output::line(format!(
        "{}, {}: {} records of {}, {} {}, sync {}, {} clock",
        args.device.device,
        args.engine,
        args.records,
        size::show(args.value),
        args.threads,
        if args.threads == 1 { "thread" } else { "threads" },
        args.sync,
        outcome.clock
    ))?;
    let (names, _) = latency_cells(&::bench::Latencies::default());
    let mut header = vec!["workload", "open s", "ops/s", "read", "written", "operation", "count"];
    header.extend(names);
    let right: Vec<&str> =
        header.iter().copied().filter(|name| !["workload", "operation"].contains(name)).collect();
    output::table(&header, &right, rows)?;
    let missing: u64 = outcome.phases.iter().map(|phase| phase.missing).sum();
    if missing > 0 {
        output::line(format!("{missing} records were not found"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The table of a workload: a row for each kind of operation; the first row has the workload's own columns too.
fn phase_table(phase: &Phase) -> Vec<Vec<String>> {
    let rows = phase.kinds.iter().enumerate().map(|(number, kind)| {
        let whole = |text: String| if number == 0 { text } else { String::new() };
        let mut row = vec![
            whole(phase.workload.to_string()),
            whole(phase.open_seconds.map_or_else(String::new, |seconds| format!("{seconds:.3}"))),
            whole(format!("{:.0}", phase.ops_per_s)),
            whole(size::show(Bytes(phase.device_operations.read_bytes))),
            whole(size::show(Bytes(phase.device_operations.bytes))),
            kind.operation.to_owned(),
            kind.count.to_string(),
        ];
        row.extend(latency_cells(&kind.latency_us).1);
        row
    });
    rows.collect()
}

fn settings_json(args: &YcsbArgs, memory: &Memory) -> serde_json::Value {
    json!({
        "device": args.device.device,
        "engine": args.engine,
        "records": args.records,
        "operations": args.ops,
        "value": args.value.0,
        "threads": args.threads,
        "rate": args.rate,
        "sync": args.sync,
        "log_io": ::bench::wal::io_name(args.log_io.mode()),
        "log_buffer": args.log_buffer.0,
        "log_window": args.log_window,
        "write_buffer": memory.write_buffer.0,
        "block_cache": memory.block_cache.0,
        "cache": memory.page_cache.0,
        "memory": args.memory.map(|memory| memory.0),
        "cache_mode": args.cache_mode,
        "reopen": args.reopen,
        "seed": args.seed,
    })
}
