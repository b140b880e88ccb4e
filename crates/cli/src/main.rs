//! The `furrow` program: `furrow NOUN VERB`.
//!
//! docs/cli.md lists the commands and the exit codes. Modules import downwards:
//!
//! ```text
//!   main                                                       the command line; one module for each noun
//!   array  bench  crash  demo  device  export  figures  fs  leveldb  prio  serve  stock  zk  zones
//!   join  cluster                                              serve's part in a cluster, and the cluster's noun
//!   consent  describe  context                                 asks before data is lost; words for drives; opens and mounts
//!   args  exit  output  progress  size                         shared arguments, exit codes, printing
//! ```
#![forbid(unsafe_code)]

mod args;
mod array;
mod bench;
mod cluster;
mod consent;
mod context;
mod crash;
mod demo;
mod describe;
mod device;
mod exit;
mod export;
mod figures;
mod fs;
mod join;
mod leveldb;
mod output;
mod prio;
mod progress;
mod serve;
mod size;
mod stock;
mod zk;
mod zones;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::context::Context;

const HELP_FOOTER: &str = "\
Devices: nvme:/dev/ng0n1, nvme:SERIAL       a ZNS drive, by NVMe commands
         blk:/dev/nvme0n1                   any zoned block device
         emu:FILE?zones=64&zone-size=64MiB  a drive kept in a file
         emu:mem?zones=64                   a drive in memory, gone with the process
         array:URL,URL,URL                  an array by its drives (`furrow array create`);
         array:FILE, array:NAME             by a file that lists them, or its label
`furrow device list` shows the zoned drives of this machine.
Exit codes: 0 done, 1 failed or problems found, 2 wrong arguments, 3 device in use, 4 no space, 5 damaged data,
6 an array's health is unknown.";

/// A storage stack for zoned drives: file system, RocksDB, key-value server.
#[derive(Debug, Parser)]
#[command(name = "furrow", version, after_help = HELP_FOOTER, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// The nouns.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve redis clients from a drive.
    Serve(Box<serve::ServeArgs>),
    /// Make, read, write and check a file system.
    Fs(fs::FsArgs),
    /// Show a drive's properties, or test it.
    Device(device::DeviceArgs),
    /// Make an array of drives, or manage one.
    Array(array::ArrayArgs),
    /// Create a cluster of servers, or show how it is.
    Cluster(cluster::ClusterArgs),
    /// Make any device a zoned block device of this machine's kernel.
    Export(export::ExportArgs),
    /// Measure logs, arrays and the engine.
    Bench(bench::BenchArgs),
    /// Command the snapshots of a ZooKeeper ensemble one at a time.
    Zk(zk::ZkArgs),
    /// Draw what each zone of a drive is used for.
    Zones(zones::ZonesArgs),
    /// Run the machine's own db_bench on a drive.
    DbBench(stock::StockArgs),
    /// Run the machine's own ldb on a drive.
    Ldb(stock::StockArgs),
    /// Run the machine's own sst_dump on a drive.
    SstDump(stock::StockArgs),
    /// Run a program of this machine with its LevelDB databases on a drive.
    #[command(name = "leveldb")]
    LevelDb(leveldb::LevelDbArgs),
    /// Run a program whose logs come before its bulk files on the drive, or show what priorities do there.
    Prio(prio::PrioArgs),
    /// Cut the power after every operation of a workload and check that no acknowledged data is lost.
    Crash(crash::CrashArgs),
    /// Measure the figures of the papers, and write the numbers and charts.
    Figures(figures::FiguresArgs),
    /// Load this machine's package lists, kill the server halfway, check that no acknowledged record is lost.
    Demo(demo::DemoArgs),
    /// The demonstration on an array: a drive fails and is rebuilt during the load, then another drive fails.
    DemoArray(demo::DemoArrayArgs),
}

impl Command {
    /// The least severe log level that the command prints unless `FURROW_LOG` is set.
    fn log_level(&self) -> &'static str {
        match self {
            Command::Serve(_) => "info",
            // The crash explorer fails drives and cuts power thousands of times; each cut would log errors.
            Command::Crash(_) => "off",
            _ => "warn",
        }
    }

    /// Whether stdout belongs to this program: `serve` and the stock programs print their own text also with `--json`.
    fn prints_json(&self) -> bool {
        if let Command::Prio(args) = self {
            return args.prints_json();
        }
        !matches!(
            self,
            Command::Serve(_)
                | Command::DbBench(_)
                | Command::Ldb(_)
                | Command::SstDump(_)
                | Command::LevelDb(_)
        )
    }

    fn run(self, context: &Context) -> Result<ExitCode> {
        match self {
            Command::Serve(args) => serve::run(context, *args),
            Command::Fs(args) => fs::run(context, args),
            Command::Device(args) => device::run(context, args),
            Command::Array(args) => array::run(context, args),
            Command::Cluster(args) => cluster::run(context, args),
            Command::Export(args) => export::run(context, &args),
            Command::Bench(args) => bench::run(context, args),
            Command::Zk(args) => zk::run(context, &args),
            Command::Zones(args) => zones::run(context, &args),
            Command::DbBench(args) => stock::run(context, stock::Program::DbBench, &args),
            Command::Ldb(args) => stock::run(context, stock::Program::Ldb, &args),
            Command::SstDump(args) => stock::run(context, stock::Program::SstDump, &args),
            Command::LevelDb(args) => leveldb::run(context, &args),
            Command::Prio(args) => prio::run(context, args),
            Command::Crash(args) => crash::run(context, args),
            Command::Figures(args) => figures::run(context, &args),
            Command::Demo(args) => demo::run(context, &args),
            Command::DemoArray(args) => demo::run_array(context, &args),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && asks_for_json() {
            let text = error.to_string();
            output::failure(text.lines().next().unwrap_or_default().trim_start_matches("error: "));
        }
        error.exit()
    });
    start_logging(cli.command.log_level());
    zoned::register_array_opener(::array::url::open);
    let prints_json = cli.json && cli.command.prints_json();
    match cli.command.run(&Context::new(cli.json)) {
        Ok(code) => code,
        Err(error) if exit::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let message = exit::message(&error);
            if prints_json {
                output::failure(&message);
            }
            eprintln!("furrow: {message}");
            exit::code(&error).into()
        }
    }
}

/// Whether a command line that clap refused asks for JSON.
fn asks_for_json() -> bool {
    std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Sends the log to stderr, from `level` on; `FURROW_LOG` overrides `level`.
fn start_logging(level: &str) {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;

    let filter = EnvFilter::try_from_env("FURROW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
