//! The command `furrow bench kv`.

use std::process::ExitCode;
use std::time::Duration;

use ::bench::Clock;
use ::bench::kv::{self, Compaction, KvLoad, KvOutcome, LogMode, Mix, SlowWrite};
use ::bench::ycsb::Distribution;
use ::fs::wal::IoMode;
use anyhow::Result;
use clap::Args;
use units::Bytes;

use super::result::{Io, failed, latency_cells, with_host};
use crate::args::DeviceArg;
use crate::context::Context;
use crate::{output, progress, size};

/// `furrow bench kv`
#[derive(Debug, Args)]
pub struct KvArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// group: RocksDB's own log; base: the same at the zone's pointer, with no zone opened ahead; waltz: the parallel log, each put an
    /// append of its own; auto: the parallel log, which joins puts when the drive has no parallelism to spare.
    #[arg(long, default_value_t = LogMode::Waltz, value_name = "base|group|waltz|auto")]
    wal: LogMode,
    /// How entries of RocksDB's own log are written to the drive [default: append; write for base]
    #[arg(long, value_enum)]
    io: Option<Io>,
    /// Threads.
    #[arg(long, default_value_t = 4, value_name = "N")]
    threads: u32,
    /// Bytes of a value [default: 4KiB; MixGraph's sizes with a mix of MixGraph]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    value: Option<Bytes>,
    /// Shares in percent (write=70,read=30; also scan=), or mixgraph-all-random, -all-dist, -prefix-random, -prefix-dist.
    #[arg(long, default_value_t = Mix::WRITES, value_name = "MIX")]
    mix: Mix,
    /// uniform or zipfian; MixGraph has its own distribution.
    #[arg(long, default_value = "uniform")]
    distribution: Distribution,
    /// Records that the database is filled with before.
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    records: u64,
    /// Operations.
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    ops: u64,
    /// The writes that are made durable before the next one.
    #[arg(long, default_value = "each", value_parser = ["none", "each"])]
    sync: String,
    /// RocksDB's memtable; a small one keeps flushes and compactions going.
    #[arg(long, default_value = "16MiB", value_name = "SIZE", value_parser = size::parse)]
    write_buffer: Bytes,
    /// Memtables, the active one included, before writers wait.
    #[arg(long, default_value_t = 4, value_name = "N")]
    write_buffers: i32,
    /// Threads for flushes and compactions.
    #[arg(long, default_value_t = 4, value_name = "N")]
    background_jobs: i32,
    /// RocksDB's block cache.
    #[arg(long, default_value = "8MiB", value_name = "SIZE", value_parser = size::parse)]
    block_cache: Bytes,
    /// List the N longest writes, with the parts of their times.
    #[arg(long, default_value_t = 0, value_name = "N")]
    slowest: usize,
    /// Sum up the writes of each interval of the drive's time separately: 100ms
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    /// Compact all tables once alone and once beside the load, which goes on until that has ended.
    #[arg(long)]
    compact: bool,
    /// The seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// real or dilated=N [default: real, or the URL's]
    #[arg(long)]
    clock: Option<Clock>,
    /// Overwrite a drive that holds data: the data is lost.
    #[arg(long, visible_alias = "yes")]
    force: bool,
}

impl KvArgs {
    fn load(&self) -> KvLoad {
        let io = self
            .io
            .map_or_else(|| if self.wal == LogMode::Base { IoMode::Write } else { IoMode::Append }, Io::mode);
        KvLoad {
            device: self.device.device.clone(),
            clock: self.clock,
            force: self.force,
            wal: self.wal,
            io,
            threads: self.threads,
            value: self.value.or_else(|| self.mix.variant().is_none().then_some(Bytes(4096))),
            mix: self.mix,
            distribution: self.distribution,
            records: self.records,
            operations: self.ops,
            sync: self.sync == "each",
            write_buffer: self.write_buffer,
            write_buffers: self.write_buffers,
            background_jobs: self.background_jobs,
            block_cache: self.block_cache,
            seed: self.seed,
            slowest: self.slowest,
            interval: self.interval,
            compacts: self.compact,
        }
    }
}

/// Runs a key-value load on RocksDB and prints its outcome.
pub fn run(context: &Context, args: &KvArgs) -> Result<ExitCode> {
    let spinner = progress::spinner();
    let outcome = kv::run(&args.load(), &|what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    let outcome = outcome.map_err(failed)?;
    if context.json {
        output::json(&with_host(&outcome)?)?;
    } else {
        print_outcome(&outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_outcome(outcome: &KvOutcome) -> Result<()> {
    let load = &outcome.load;
    let clock = load.clock.map_or_else(String::new, |clock| format!("{clock} clock"));
    let value = load.value.map_or_else(|| "MixGraph's".to_owned(), size::show);
    output::line(format!(
        "{}: {}, {}, {} threads, values of {value}, {} records, sync {}, {clock}",
        load.device,
        load.wal,
        load.mix,
        load.threads,
        load.records,
        if load.sync { "each" } else { "none" },
    ))?;
    output::line(format!(
        "{:.0} operations/s; {:.2} s of the drive's time",
        outcome.ops_per_s, outcome.seconds
    ))?;
    let mut rows = Vec::new();
    let mut names = Vec::new();
    let all = ("all", outcome.kinds.iter().map(|kind| kind.count).sum(), &outcome.latency_us);
    let kinds = outcome.kinds.iter().map(|kind| (kind.operation, kind.count, &kind.latency_us));
    for (name, count, latencies) in std::iter::once(all).chain(kinds) {
        let (columns, cells) = latency_cells(latencies);
        names = columns;
        rows.push([vec![name.to_owned(), count.to_string()], cells].concat());
    }
    let header = [vec!["operation", "count"], names].concat();
    let right: Vec<&str> = header.iter().copied().filter(|name| *name != "operation").collect();
    output::table(&header, &right, rows)?;
    let background = &outcome.background;
    output::line(format!(
        "meanwhile {} flushes ({}), {} compactions ({}), {} stalls; {:.2} bytes written for each byte put",
        background.flushes,
        size::show(Bytes(background.flushed_bytes)),
        background.compactions,
        size::show(Bytes(background.compacted_bytes)),
        background.stalls,
        outcome.write_amplification
    ))?;
    if let Some(Compaction { alone, beside }) = outcome.compaction {
        output::line(format!(
            "compaction of all tables: {alone:.2} s alone, {beside:.2} s beside the load ({:.2} times)",
            beside / alone
        ))?;
    }
    if let Some(mean) = &outcome.mean_write {
        print_slowest_writes(mean, &outcome.slowest)?;
    }
    Ok(())
}

fn print_slowest_writes(mean: &SlowWrite, slowest: &[SlowWrite]) -> Result<()> {
    let cells = |name: String, write: &SlowWrite| {
        let parts =
            [write.us, write.engine, write.wait, write.log, write.memtable, write.delay, write.switch];
        std::iter::once(name).chain(parts.map(|us| format!("{us:.0}"))).collect::<Vec<String>>()
    };
    let rows = slowest.iter().map(|write| cells(format!("at {:.1} ms", write.at_ms), write));
    let rows = std::iter::once(cells("mean".to_owned(), mean)).chain(rows).collect();
    let header = ["write", "us", "engine", "wait", "log", "memtable", "delay", "switch"];
    output::table(&header, &header, rows)
}
