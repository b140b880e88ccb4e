//! The command `furrow leveldb`, which runs a program of this machine with its LevelDB databases on a drive.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

use abi::preload::{Library, check_takes_preload, preload_value, probe};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use units::Bytes;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::size;

const LIBRARY: Library =
    Library { file: "libfurrow_leveldb.so", variable: "FURROW_LEVELDB_LIBRARY", package: "furrow-leveldb" };

/// The arguments of `furrow leveldb`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  furrow leveldb -d emu:drive.img?zones=64 --root ./data -- python3 app.py\n\
    An emulated drive that holds nothing gets a file system first. docs/leveldb.md says what a program may lose."
)]
pub struct LevelDbArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// The directory whose names lie on the drive: its own name is the drive's root directory.
    #[arg(long, env = "FURROW_LEVELDB_ROOT", value_name = "DIR")]
    root: PathBuf,
    /// Where a flush of a log ends.
    #[arg(long, env = "FURROW_LEVELDB_FLUSH", value_enum, default_value_t = Flush::Buffer)]
    flush: Flush,
    /// The size of most tables (max_file_size in LevelDB's options), where it is about the capacity of a zone: the tables get zones to themselves
    #[arg(long, env = "FURROW_LEVELDB_TABLE_SIZE", value_name = "SIZE", value_parser = size::parse)]
    table_size: Option<Bytes>,
    /// The library that the program preloads [default: beside this program, or in its ../lib]
    #[arg(long, env = LIBRARY.variable, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Where a flush of a log ends. LevelDB flushes its log after every write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Flush {
    /// In the process: its death may lose the newest writes without sync.
    Buffer,
    /// On the drive: writes without sync survive the process, each costs a block.
    Drive,
}

/// The absolute path `path` with each `..` resolved as text: a `..` takes the part before it away. Symbolic links are not followed, as the
/// library does not follow those in a program's names.
fn without_dots(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            part => resolved.push(part),
        }
    }
    resolved
}

/// Replaces this process by a program whose LevelDB databases lie on a drive.
pub fn run(context: &Context, args: &LevelDbArgs) -> Result<ExitCode> {
    let (name, arguments) = args.program.split_first().context("no program")?;
    let program = find_program(Path::new(name))?;
    check_takes_preload(&program)?;
    let library = LIBRARY.find(args.library.as_deref())?;
    let preload = preload_value(&library)?;
    check_library(&library, &preload)?;
    // The drive is opened once before: a wrong URL, a held device and an array's member have exit codes of their own.
    context.try_open(&args.device)?;
    let root = without_dots(&std::path::absolute(&args.root).context("the current directory")?);
    let flush = match args.flush {
        Flush::Buffer => "buffer",
        Flush::Drive => "drive",
    };
    let error = Command::new(&program)
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env("FURROW_LEVELDB", &args.device.device)
        .env("FURROW_LEVELDB_ROOT", root)
        .env("FURROW_LEVELDB_FLUSH", flush)
        .env("FURROW_LEVELDB_TABLE_SIZE", args.table_size.unwrap_or_default().0.to_string())
        .exec();
    Err(Failure::refused(format!("running {}: {error}", program.display())))
}

/// The path of a program: as given if it has a slash, else from `PATH`.
fn find_program(name: &Path) -> Result<PathBuf> {
    if name.components().count() > 1 {
        return Ok(name.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| Failure::usage(format!("{} is not in PATH", name.display())))
}

/// Fails if the library does not load, or comes from another build than this program.
fn check_library(library: &Path, preload: &OsString) -> Result<()> {
    let version = probe(&env::current_exe()?, library, preload, |line| {
        let (version, _leveldb) = line.trim_end().strip_prefix("furrow-leveldb ")?.split_once(" leveldb=")?;
        Some(version.to_owned())
    })?;
    Ok(LIBRARY.check_version(library, &version, env!("CARGO_PKG_VERSION"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dots_take_the_part_before_them_away() {
        for (given, expected) in [("/a/b/../c", "/a/c"), ("/a/..", "/"), ("/../a", "/a"), ("/a/./b", "/a/b")]
        {
            assert_eq!(without_dots(Path::new(given)), Path::new(expected), "{given}");
        }
    }
}
