//! `cargo xtask CHORE`
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::guest::run::{self, RunArgs};
use xtask::guest::suite::{self, TestArgs};
use xtask::layering;
use xtask::metadata::Workspace;

/// Repository chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check the dependencies among crates and among the modules of each crate, unsafe code, and uses of tokio.
    Layering,
    /// A stock Debian kernel in QEMU, with zoned drives.
    #[command(subcommand)]
    Guest(Guest),
}

const RUN_HELP: &str = "\
The kernel comes from Debian's package, which is taken apart and not installed; the machine is emulated in software
and ends with the command, whose output and exit code are this program's. Programs are looked for among those that
cargo built, then on the search path, and are copied in with their libraries; a command line that names furrow
brings its plug-in and db_bench, ldb, sst_dump. Nothing of the host's disks is touched, and there is no network.

Drives have 64 zones of 16 MiB with 12 MiB of capacity, 8 of them open and 12 active at once, blocks of 4 KiB:
    /dev/furrow/zns0, ng-zns0     QEMU's NVMe drive, as block device and for passthrough
    /dev/furrow/nullb0            null_blk
    /dev/furrow/loop0, ng-loop0   null_blk behind nvmet-loop

Examples:
    cargo xtask guest run --znsdrives 1 -- furrow device check --force -d blk:/dev/furrow/zns0
    cargo xtask guest run --nvmet-loop 1 --with nvme -- nvme zns report-zones -d 3 /dev/furrow/loop0
    cargo xtask guest run --null-blk 1 -- sh -c 'ls -l /dev/furrow; cat /sys/block/nullb0/queue/zoned'";

#[derive(Debug, Subcommand)]
enum Guest {
    /// Run one command in a guest.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Run the tests of the kernel backends.
    Test(TestArgs),
}

fn main() -> ExitCode {
    let done = match Chores::parse().chore {
        Chore::Layering => run_layering(),
        Chore::Guest(Guest::Run(args)) => run::run(&args).map(ExitCode::from),
        Chore::Guest(Guest::Test(args)) => suite::run(&args).map(|passed| ExitCode::from(u8::from(!passed))),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_layering() -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    let problems = layering::check(&workspace)?;
    if problems.is_empty() {
        println!("layering: {} crates, every dependency points down", workspace.crates.len());
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &problems {
        eprintln!("layering: {problem}");
    }
    Ok(ExitCode::FAILURE)
}
