//! The command `furrow prio run`, which becomes a program with the library preloaded.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use abi::preload::{Library, check_takes_preload, preload_value, probe};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use pathprio::glob::Glob;
use pathprio::profile::{self, PROFILES};
use pathprio::rules::Rules;
use pathprio::settings;
use sys::Priority;
use sys::priority::set_thread_priority;

use super::pages;
use crate::exit::Failure;

const LIBRARY: Library =
    Library { file: "libfurrow_prio.so", variable: "FURROW_PRIO_LIBRARY", package: "furrow-hook" };

/// Bytes of a program's file in which Go's linker puts a note.
const NOTES_WITHIN: u64 = 4096;

/// The arguments of `furrow prio run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  furrow prio run --log 'wal/*' --bulk '*.snapshot' -- server --data ./data\n\
    \n\
    A glob is compared with the end of a path: 'wal/*' matches /data/wal/0001. '**' stands for one directory or more.\n\
    Calls of the C library alone are seen. Static programs, programs in Go, and writes by io_uring or mmap are not: give \
    those one priority as a whole, with --whole. docs/prio.md says more."
)]
pub struct RunArgs {
    /// Files whose synced writes come first. May be given several times.
    #[arg(long, value_name = "GLOB")]
    log: Vec<String>,
    /// Files that make way. May be given several times.
    #[arg(long, value_name = "GLOB")]
    bulk: Vec<String>,
    /// The globs of a well-known program: zookeeper, postgres, redis, rocksdb. Others may be added.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The priority of the whole program from its start, for programs whose calls are not seen: static ones, Go's, users of io_uring.
    #[arg(long, value_enum, value_name = "CLASS")]
    whole: Option<Whole>,
    /// Make way for the logs of other programs of this user on the same drive that were started with --join, and they for this one's
    #[arg(long)]
    join: bool,
    /// Append the counters of each process to this file at its end, one line of JSON a process [default: the first process's to stderr]
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,
    /// The library that the program preloads [default: beside this program, or in its ../lib]
    #[arg(long, env = LIBRARY.variable, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The priority of a whole program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Whole {
    /// Real-time, or the highest best effort without CAP_SYS_NICE.
    Log,
    /// The lowest best effort, or idle without CAP_SYS_NICE.
    Bulk,
    /// After everything else.
    Idle,
}

/// Replaces this process by the program.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let Some((name, arguments)) = args.command.split_first() else {
        return Err(Failure::usage("no command: give the program and its arguments after --"));
    };
    let program = find_program(name)?;
    let rules = rules(args)?;
    let mut command = Command::new(&program);
    command.args(arguments);
    match (&rules, args.whole) {
        (None, None) => return Err(Failure::usage(pathprio::rules::RulesError::Empty.to_string())),
        (None, Some(_)) => {}
        (Some(rules), whole) => {
            if let Err(error) = check_takes_preload(&program) {
                let advice = "--whole gives it one priority as a whole, without --log, --bulk and --profile";
                return Err(Failure::refused(format!("{error}: {advice}")));
            }
            if whole.is_none() && is_go(&program) {
                let shown = program.display();
                eprintln!(
                    "furrow: {shown} is written in Go, whose writes do not go by the C library: --whole gives it one priority as a whole"
                );
            }
            preload(&mut command, args, rules)?;
        }
    }
    if let Some(whole) = args.whole {
        set_whole(whole)?;
    }
    sys::pass_signals_on(&mut command);
    let error = command.exec();
    Err(Failure::refused(format!("running {}: {error}", program.display())))
}

/// The rules of the arguments; `None` if no argument gives a class to a file.
fn rules(args: &RunArgs) -> Result<Option<Rules>> {
    let (mut log, mut bulk) = (args.log.clone(), args.bulk.clone());
    if let Some(name) = &args.profile {
        let Some(profile) = profile::find(name) else {
            let known: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
            return Err(Failure::usage(format!("no profile {name:?}: there are {}", known.join(", "))));
        };
        log.extend(profile.log.iter().map(|glob| (*glob).to_owned()));
        bulk.extend(profile.bulk.iter().map(|glob| (*glob).to_owned()));
    }
    if log.is_empty() && bulk.is_empty() {
        return Ok(None);
    }
    let parse = |globs: &[String]| {
        let globs = globs.iter().map(|glob| Glob::parse(glob)).collect::<Result<Vec<_>, _>>();
        globs.map_err(|error| Failure::usage(error.to_string()))
    };
    let rules = Rules { log: parse(&log)?, bulk: parse(&bulk)? };
    rules.check().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Some(rules))
}

/// Adds the library and its settings to the program's environment.
fn preload(command: &mut Command, args: &RunArgs, rules: &Rules) -> Result<()> {
    let library = LIBRARY.find(args.library.as_deref())?;
    let value = preload_value(&library)?;
    check_library(&library, &value)?;
    let directories = pages::prepare(args.join)?;
    command
        .env("LD_PRELOAD", value)
        .env(settings::VERSION_VARIABLE, settings::VERSION)
        .env(settings::LOG_VARIABLE, settings::encode_globs(&rules.log))
        .env(settings::BULK_VARIABLE, settings::encode_globs(&rules.bulk))
        .env(settings::PAGES_VARIABLE, &directories.pages)
        // The program has the number of this process.
        .env(settings::ROOT_VARIABLE, std::process::id().to_string());
    match &args.profile {
        None => drop(command.env_remove(settings::PROFILE_VARIABLE)),
        Some(profile) => drop(command.env(settings::PROFILE_VARIABLE, profile)),
    }
    let matched = directories.run.join("matched");
    match fs::write(&matched, vec![0; rules.globs()]) {
        Ok(()) => drop(command.env(settings::MATCHED_VARIABLE, &matched)),
        Err(error) => {
            let shown = matched.display();
            eprintln!("furrow: {shown}: {error}: globs that match no file will not be named");
            command.env_remove(settings::MATCHED_VARIABLE);
        }
    }
    match &args.counters {
        None => drop(command.env_remove(settings::COUNTERS_VARIABLE)),
        Some(path) => {
            let path = std::path::absolute(path).context("the current directory")?;
            let opened = OpenOptions::new().append(true).create(true).open(&path);
            opened.map_err(|error| {
                Failure::refused(format!("the counters' file {}: {error}", path.display()))
            })?;
            command.env(settings::COUNTERS_VARIABLE, path);
        }
    }
    Ok(())
}

fn set_whole(whole: Whole) -> Result<()> {
    let priority = match whole {
        Whole::Log => Priority::of_log(),
        Whole::Bulk => Priority::of_bulk(),
        Whole::Idle => Priority::Idle,
    };
    if whole == Whole::Log && priority != Priority::RealTime(4) {
        eprintln!("furrow: no CAP_SYS_NICE: the program is best effort 0 instead of real-time");
    }
    // The main thread keeps its priority when it becomes the program, and the program's threads inherit it.
    set_thread_priority(priority).context("setting the I/O priority")
}

/// The path of a program: as given if it has a slash, else from `PATH`.
fn find_program(name: &OsStr) -> Result<PathBuf> {
    let path = Path::new(name);
    if name.is_empty() {
        return Err(Failure::usage("the command is empty"));
    }
    let found = if path.components().count() > 1 {
        path.is_file().then(|| path.to_owned())
    } else {
        let dirs = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&dirs).map(|dir| dir.join(path)).find(|file| is_executable(file))
    };
    found.ok_or_else(|| Failure::usage(format!("the command {} is not found", path.display())))
}

/// True if a search in `PATH` ends at this file.
fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// True if a program was made by Go's linker, which puts a note with the name Go among the first.
fn is_go(program: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(NOTES_WITHIN).read_to_end(&mut head));
    read.is_ok() && head.starts_with(b"\x7fELF") && head.windows(8).any(|bytes| bytes == b"\x04\0\0\0Go\0\0")
}

/// Fails if the library does not load, or comes from another build than this program.
fn check_library(library: &Path, preload: &OsString) -> Result<()> {
    let version = probe(&env::current_exe()?, library, preload, |line| {
        Some(line.trim_end().strip_prefix("furrow-prio ")?.to_owned())
    })?;
    Ok(LIBRARY.check_version(library, &version, env!("CARGO_PKG_VERSION"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_one_of_go_by_the_note_of_go_s_linker() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = |name: &str, parts: [&[u8]; 3]| {
            let path = folder.path().join(name);
            std::fs::write(&path, parts.concat()).expect("written");
            path
        };
        // A note: the lengths of its name and of its content, its type, its name.
        let (go, gnu) = (b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0", b"\x04\0\0\0\x10\0\0\0\x01\0\0\0GNU\0");
        let padding = [0; 3976];
        assert!(is_go(&program("go", [b"\x7fELF", &padding, go])));
        assert!(!is_go(&program("c", [b"\x7fELF", &padding, gnu])));
        assert!(!is_go(&program("script", [b"#!/bin/sh", &padding, go])));
        assert!(!is_go(&folder.path().join("missing")));
        assert!(!is_go(&std::env::current_exe().expect("this program")), "this test is no Go program");
    }
}
