//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::{array, bench, crash, demo, device, figures, fs, serve, stock, zones};

const AFTER: &str = "\
Devices: nvme:/dev/ng0n1, nvme:SERIAL       a ZNS drive, by NVMe commands
         blk:/dev/nvme0n1                   any zoned block device
         emu:FILE?zones=64&zone-size=64MiB  a drive kept in a file
         emu:mem?zones=64                   a drive in memory, gone with the process
         array:URL,URL,URL                  an array by its drives (`furrow array create`);
         array:FILE, array:NAME             by a file that lists them, or its label
`furrow device list` shows the zoned drives of this machine.
Exit codes: 0 done, 1 failed or problems found, 2 wrong arguments, 3 device in use, 4 no space, 5 damaged data,
6 an array's health cannot be told.";

/// A storage stack for zoned drives: file system, RocksDB, key-value server.
#[derive(Debug, Parser)]
#[command(name = "furrow", version, after_help = AFTER, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve redis clients from a drive.
    Serve(serve::ServeArgs),
    /// Make, read, write and check a file system.
    Fs(fs::FsArgs),
    /// Look at a drive, or test it.
    Device(device::DeviceArgs),
    /// Make an array of drives, or look at one.
    Array(array::ArrayArgs),
    /// Measure logs and the engine.
    Bench(bench::BenchArgs),
    /// Draw what each zone of a drive is used for.
    Zones(zones::ZonesArgs),
    /// Run the machine's own db_bench on a drive.
    DbBench(stock::StockArgs),
    /// Run the machine's own ldb on a drive.
    Ldb(stock::StockArgs),
    /// Run the machine's own sst_dump on a drive.
    SstDump(stock::StockArgs),
    /// Cut the power after every operation of a workload and look for what was lost.
    Crash(crash::CrashArgs),
    /// Measure what was published, and write numbers and pictures of both.
    Figures(figures::FiguresArgs),
    /// Load this machine's package lists, kill the server halfway, look for what was lost.
    Demo(demo::DemoArgs),
    /// The same on an array: a drive fails, is replaced and rebuilt while clients go on, and another one fails.
    DemoArray(demo::array::DemoArrayArgs),
}

/// The drive a command works on.
#[derive(Clone, Debug, Args)]
pub struct DeviceArg {
    /// The drive: nvme:/dev/ng0n1, blk:/dev/nvme0n1, emu:FILE?zones=..., emu:mem?zones=...
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL")]
    pub device: String,
}

/// Consent to lose what a drive holds.
#[derive(Clone, Copy, Debug, Args)]
pub struct ForceArg {
    /// Go on although the drive holds data: it is lost.
    #[arg(long, visible_alias = "yes")]
    pub force: bool,
    /// Say what would be done and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}
