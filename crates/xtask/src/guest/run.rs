//! `cargo xtask guest run`: one command in a guest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::job::{Job, NullBlk};
use super::kernel::{Flavour, Kernel};
use super::machine::{Machine, ZnsDrive, serial};
use super::programs::Programs;
use super::{INIT, build, built, cache};

/// `cargo xtask guest run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// QEMU's zoned NVMe drives: /dev/furrow/zns0, /dev/furrow/ng-zns0 and so on
    #[arg(long, default_value_t = 0, value_name = "N")]
    znsdrives: u32,
    /// Zones of each of them
    #[arg(long, default_value_t = 64, value_name = "N")]
    zones: u32,
    /// Zoned null_blk devices: /dev/furrow/nullb0 and so on
    #[arg(long, default_value_t = 0, value_name = "N")]
    null_blk: u32,
    /// Conventional zones of each null_blk device
    #[arg(long, default_value_t = 0, value_name = "N")]
    conventional: u32,
    /// NVMe drives by nvmet-loop over null_blk, where the kernel reorders appends: /dev/furrow/loop0,
    /// /dev/furrow/ng-loop0 and so on
    #[arg(long, default_value_t = 0, value_name = "N")]
    nvmet_loop: u32,
    /// Load the modules of btrfs
    #[arg(long)]
    btrfs: bool,
    /// Boot the full build of the kernel, with the module of f2fs; it has no drivers of NVMe drives here
    #[arg(long, conflicts_with_all = ["btrfs", "znsdrives", "nvmet_loop"])]
    f2fs: bool,
    /// Set kernel.io_uring_disabled to 2: nobody gets a ring
    #[arg(long)]
    no_io_uring: bool,
    /// A program of the host to take along besides the command itself; may be given more than once
    #[arg(long = "with", value_name = "PROGRAM")]
    with: Vec<String>,
    /// A file of the host to take along, as /NAME in the guest; may be given more than once
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// An environment variable for the command
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Seconds after which the machine is ended
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    /// Memory in MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    memory: u32,
    /// Take the programs as they were built last
    #[arg(long)]
    no_build: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Programs that every guest gets besides the requested ones, if the host has them: a shell command needs
/// them.
const PROGRAMS_IN_EVERY_GUEST: &[&str] = &["sh", "ls", "cat", "dd", "sleep", "timeout", "grep", "head"];

/// Runs the command in a guest; returns its exit code.
pub fn run(args: &RunArgs) -> Result<u8> {
    let words: Vec<&str> = args.command.iter().chain(&args.with).map(String::as_str).collect();
    let wants_furrow = words.iter().any(|word| word.split_whitespace().any(|word| word == "furrow"));
    if !args.no_build {
        build()?;
    }
    let kernel = Kernel::get(if args.f2fs { Flavour::Full } else { Flavour::Cloud }, &cache())?;
    let mut programs = Programs::default();
    programs.add_as("/init", &built().join(INIT))?;
    for name in PROGRAMS_IN_EVERY_GUEST {
        programs.add(name, &built())?;
    }
    for name in args.command.first().into_iter().chain(&args.with) {
        programs.add(name, &built())?;
    }
    if wants_furrow {
        programs.add_furrow(&built())?;
    }
    for file in &args.files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        programs.add_as(&format!("/{name}"), file)?;
    }
    let drives = usize::try_from(args.znsdrives).unwrap_or_default();
    let null_blk = NullBlk { conventional: args.conventional, ..NullBlk::default() };
    let mut job = Job {
        drives: (0..drives).map(serial).collect(),
        ordinary_drives: Vec::new(),
        null_blk: (0..args.null_blk).map(|_| null_blk.clone()).collect(),
        loops: (0..args.nvmet_loop).map(|_| NullBlk::for_loop()).collect(),
        sysctl: BTreeMap::new(),
        command: args.command.clone(),
        env: args.env.iter().filter_map(|pair| pair.split_once('=')).map(owned).collect(),
    };
    if let Some((_, name)) = args.command.first().and_then(|path| path.rsplit_once('/')) {
        job.command.splice(..1, [name.to_owned()]);
    }
    if args.no_io_uring {
        job.sysctl.insert("kernel/io_uring_disabled".into(), "2".into());
    }
    let machine = Machine {
        drives: (0..drives).map(|_| ZnsDrive { zones: args.zones, ..ZnsDrive::default() }).collect(),
        memory_mb: args.memory,
        file_systems: args.btrfs || args.f2fs,
        ..Machine::default()
    };
    let mut running = machine.boot(&kernel, &programs, &cache(), &job, || {
        (Box::new(std::io::stdout()), Box::new(std::io::stderr()))
    })?;
    running.exit(Duration::from_secs(args.timeout))
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
