//! Runs RocksDB's own programs, unmodified, on a zoned device.
//!
//! The program loads the plug-in by `LD_PRELOAD` and finds the file system by `--fs_uri`. With mismatched RocksDB
//! versions, the plug-in fails silently or crashes, so a [probe](abi::preload) announces them first (see
//! [`handshake`](crate::stock::Handshake)). Only then the program replaces this process by exec, so that signals and
//! exit code are the program's own.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use abi::preload::{Library, PreloadError, preload_value, probe};

use crate::error::{Error, ErrorKind, Result};

/// Environment variable with the path of the plug-in's shared library. The variable takes precedence over the default
/// paths.
pub const PLUGIN_VARIABLE: &str = "FURROW_PLUGIN";
/// Environment variable with a host directory for RocksDB's LOG. If unset, the LOG is a file of the zoned file
/// system.
pub const LOG_DIR_VARIABLE: &str = "FURROW_LOG_DIR";
/// Environment variable: with the value `1`, the device is formatted whatever it holds.
pub const FORMAT_VARIABLE: &str = "FURROW_FORMAT";

const PLUGIN: Library =
    Library { file: "libfurrow_rocksdb.so", variable: PLUGIN_VARIABLE, package: "furrow-plugin" };
const APT_COMMAND: &str = "apt-get install rocksdb-tools";
/// The database's directory if the program's arguments name none: the zoned file system has no /tmp.
const DEFAULT_DB: &str = "/db";

/// A program of Debian's rocksdb-tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// `db_bench`.
    DbBench,
    /// `ldb`.
    Ldb,
    /// `sst_dump`.
    SstDump,
}

impl Program {
    /// The program of a `furrow` command (`db-bench`, `ldb`, `sst-dump`).
    pub fn named(command: &str) -> Option<Program> {
        match command.replace('_', "-").as_str() {
            "db-bench" => Some(Program::DbBench),
            "ldb" => Some(Program::Ldb),
            "sst-dump" => Some(Program::SstDump),
            _ => None,
        }
    }

    /// The name of the program's executable file.
    pub fn file_name(self) -> &'static str {
        match self {
            Program::DbBench => "db_bench",
            Program::Ldb => "ldb",
            Program::SstDump => "sst_dump",
        }
    }
}

/// Settings with which a stock RocksDB program is run.
#[derive(Clone, Debug, Default)]
pub struct StockOptions {
    /// Path of the plug-in. Default: `FURROW_PLUGIN`, else next to the running executable, else in `../lib`.
    pub plugin: Option<PathBuf>,
    /// Path of the program's executable. Default: searched in `PATH`.
    pub program: Option<PathBuf>,
    /// A host directory for RocksDB's LOG. Default: `FURROW_LOG_DIR`, else the LOG is in the zoned file system.
    pub log_dir: Option<PathBuf>,
    /// Format the device first, whatever it holds. Default: format only an empty device.
    pub format: bool,
}

/// The plug-in's announcement: `furrow-rocksdb VERSION compiled=M.N.P runtime=M.N.P registered=yes|no`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handshake {
    /// The plug-in's version.
    pub plugin: String,
    /// The RocksDB version that the plug-in was compiled against.
    pub compiled: String,
    /// The RocksDB version that the program runs with.
    pub runtime: String,
    /// Whether the plug-in registered `furrow://` with that RocksDB.
    pub registered: bool,
}

impl Handshake {
    /// Parses a plug-in's announcement; `None` if `line` is not one.
    pub fn parse(line: &str) -> Option<Handshake> {
        let mut words = line.trim_end().strip_prefix("furrow-rocksdb ")?.split(' ');
        let plugin = words.next()?.to_owned();
        let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
        let (compiled, runtime) = (value("compiled")?, value("runtime")?);
        let registered = value("registered")? == "yes";
        Some(Handshake { plugin, compiled, runtime, registered })
    }

    fn check(&self, plugin: &Path) -> Result<()> {
        let minor = |version: &str| version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        if minor(&self.compiled) != minor(&self.runtime) {
            return setup_error(format!(
                "{} was compiled against RocksDB {}, and the program runs RocksDB {}: their interfaces differ; \
                 build the plug-in against the headers of {}",
                plugin.display(),
                self.compiled,
                self.runtime,
                self.runtime
            ));
        }
        PLUGIN.check_version(plugin, &self.plugin, env!("CARGO_PKG_VERSION"))?;
        if !self.registered {
            return setup_error(format!(
                "{} loaded, but could not register furrow:// with RocksDB {}",
                plugin.display(),
                self.runtime
            ));
        }
        Ok(())
    }
}

/// Replaces this process by the program, on the device `url`. Returns only if the replacement failed.
pub fn run(program: Program, url: &str, args: &[OsString], options: &StockOptions) -> Result<ExitCode> {
    let mut command = prepare(program, url, args, options)?;
    let error = command.exec();
    setup_error(format!("running {}: {error}", program.file_name()))
}

/// The command that runs a program on the device `url`. Starts a probe first, and fails if the plug-in does not fit.
pub fn prepare(program: Program, url: &str, args: &[OsString], options: &StockOptions) -> Result<Command> {
    let file = match &options.program {
        Some(file) => file.clone(),
        None => find_program(program)?,
    };
    let plugin = PLUGIN.find(options.plugin.as_deref())?;
    check_url(url)?;
    let preload = preload_value(&plugin)?;
    probe(&file, &plugin, &preload, Handshake::parse)?.check(&plugin)?;

    let mut command = Command::new(&file);
    command.env("LD_PRELOAD", preload).args(program_arguments(program, url, args)?);
    let log_dir = options.log_dir.clone().or_else(|| std::env::var_os(LOG_DIR_VARIABLE).map(PathBuf::from));
    if let Some(dir) = log_dir {
        // The LOG's directory is checked before the start: RocksDB's programs empty the database first and fail
        // afterwards.
        if !dir.is_dir() {
            return setup_error(format!(
                "{LOG_DIR_VARIABLE} is {}, which is no directory: make it first",
                dir.display()
            ));
        }
        command.env(LOG_DIR_VARIABLE, dir);
    }
    if options.format {
        command.env(FORMAT_VARIABLE, "1");
    }
    Ok(command)
}

/// The program's arguments, with the device's URI and, if no database is named, the default database.
fn program_arguments(program: Program, url: &str, args: &[OsString]) -> Result<Vec<OsString>> {
    let starts = |prefix: &str| args.iter().any(|arg| arg.as_bytes().starts_with(prefix.as_bytes()));
    for taken in ["--fs_uri", "--env_uri", "-fs_uri", "-env_uri"] {
        if starts(taken) {
            return setup_error(format!("{taken} is set from the device's URL: leave it out"));
        }
    }
    let mut all = vec![OsString::from(format!("--fs_uri=furrow://{url}"))];
    let named = ["--db=", "-db=", "--path="].iter().any(|prefix| starts(prefix));
    if program != Program::SstDump && !named {
        all.push(OsString::from(format!("--db={DEFAULT_DB}")));
    }
    all.extend_from_slice(args);
    Ok(all)
}

fn check_url(url: &str) -> Result<()> {
    // RocksDB reads `;` and braces in a URI as its own option syntax.
    match url.chars().find(|c| matches!(c, ';' | '{' | '}') || c.is_control()) {
        Some(bad) => setup_error(format!(
            "the device URL '{url}' has a {bad:?}, which RocksDB would take apart: rename"
        )),
        None => Ok(()),
    }
}

fn find_program(program: Program) -> Result<PathBuf> {
    let name = program.file_name();
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .map_or_else(|| setup_error(format!("{name} is not in PATH; install it with:  {APT_COMMAND}")), Ok)
}

impl From<PreloadError> for Error {
    fn from(error: PreloadError) -> Error {
        Error::new(ErrorKind::Setup, error.to_string())
    }
}

fn setup_error<T>(text: String) -> Result<T> {
    Err(Error::new(ErrorKind::Setup, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[test]
    fn an_announcement_is_read_and_anything_else_is_not() {
        let line = "furrow-rocksdb 0.1.0 compiled=7.8.3 runtime=7.8.3 registered=yes\n";
        let handshake = Handshake::parse(line).unwrap();
        assert_eq!((handshake.runtime.as_str(), handshake.registered), ("7.8.3", true));
        for other in ["", "hello", "furrow-rocksdb 0.1.0", "furrow-rocksdb 0.1.0 compiled=7 registered=yes"] {
            assert_eq!(Handshake::parse(other), None, "{other}");
        }
    }

    #[test]
    fn another_version_of_rocksdb_is_refused_by_name() {
        let handshake = |runtime: &str, registered| Handshake {
            plugin: env!("CARGO_PKG_VERSION").into(),
            compiled: "7.8.3".into(),
            runtime: runtime.into(),
            registered,
        };
        let plugin = Path::new("/p.so");
        assert!(handshake("7.8.9", true).check(plugin).is_ok());
        let text = handshake("8.1.0", true).check(plugin).unwrap_err().to_string();
        assert!(text.contains("7.8.3") && text.contains("8.1.0"), "{text}");
        assert!(handshake("7.8.3", false).check(plugin).is_err());
    }

    #[test]
    fn the_database_has_a_default_and_the_device_is_not_named_twice() {
        let args = program_arguments(Program::DbBench, "emu:mem?zones=9", &os(&["--num=1"])).unwrap();
        assert_eq!(args, os(&["--fs_uri=furrow://emu:mem?zones=9", "--db=/db", "--num=1"]));
        let args = program_arguments(Program::Ldb, "emu:mem", &os(&["--db=/x", "scan"])).unwrap();
        assert_eq!(args, os(&["--fs_uri=furrow://emu:mem", "--db=/x", "scan"]));
        assert!(program_arguments(Program::Ldb, "emu:mem", &os(&["--fs_uri=posix://"])).is_err());
        assert!(check_url("emu:/a;b").is_err());
        assert!(check_url("emu:/a?x=1&y=2").is_ok());
    }
}
