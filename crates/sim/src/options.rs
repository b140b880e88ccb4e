//! Options of a crash exploration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{BrokenRules, Error, StateId};

/// The target, seed and extent of a crash exploration.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The layer that the workload runs on.
    pub target: Target,
    /// The targets `fs`, `log`, `engine` and `leveldb` on an array of drives, one of which may be lost, instead of on one drive.
    pub on_array: bool,
    /// The seed of all workloads and samples.
    pub seed: u64,
    /// Least number of distinct images to check.
    pub states: u64,
    /// Rules to break, to prove that the explorer finds the loss. Default: none.
    pub broken_rules: BrokenRules,
    /// Whether the drive has a volatile cache. `None`: three workloads of four have one.
    pub volatile_cache: Option<bool>,
    /// A trace file to explore instead of recording a workload. If the file does not exist, the recorded trace is saved in it.
    pub trace: Option<PathBuf>,
    /// The only crash state to check; `None`: all.
    pub only: Option<StateId>,
    /// Cuts the power of an array only while this background work or these writes are in flight. Goes with the target `array`. `None`:
    /// cuts the power after every operation.
    pub during: Option<During>,
    /// Whether the exploration ends at the first failure.
    pub first_failure: bool,
    /// Threads that check states. `None`: one for each processor.
    pub threads: Option<usize>,
}

impl CrashOptions {
    /// Explores `target` with `seed` until `states` images are checked, with every other option at its default.
    pub fn new(target: Target, seed: u64, states: u64) -> CrashOptions {
        CrashOptions {
            target,
            on_array: false,
            seed,
            states,
            broken_rules: BrokenRules::default(),
            volatile_cache: None,
            trace: None,
            only: None,
            during: None,
            first_failure: false,
            threads: None,
        }
    }
}

/// Work of an array during which the power is cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum During {
    /// The rebuild of a new drive.
    Rebuild,
    /// The parts of a lost drive move to the spare room of other drives.
    Restore,
    /// The part of a logical zone moves to another physical zone.
    Move,
    /// A reclaim frees physical zones.
    Reclaim,
    /// Clients' appends are in flight, and the array sends them to its drives as appends.
    Appends,
    /// A client's reset of a logical zone is in flight.
    Reset,
}

impl During {
    const ALL: [During; 6] =
        [During::Rebuild, During::Restore, During::Move, During::Reclaim, During::Appends, During::Reset];
}

impl fmt::Display for During {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            During::Rebuild => "rebuild",
            During::Restore => "restore",
            During::Move => "move",
            During::Reclaim => "reclaim",
            During::Appends => "appends",
            During::Reset => "reset",
        })
    }
}

impl FromStr for During {
    type Err = Error;

    fn from_str(text: &str) -> Result<During, Error> {
        During::ALL
            .into_iter()
            .find(|of| of.to_string() == text)
            .ok_or_else(|| Error::During(text.to_owned()))
    }
}

/// The layer that a crash exploration's workload runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// The file system: names and data, several tasks at a time.
    Fs,
    /// The file system's logs: synced and unsynced appends, rolling.
    Log,
    /// RocksDB on the file system, with RocksDB's own log and with a parallel one.
    Engine,
    /// An array of drives, one of which may be lost.
    Array,
    /// A parallel log: many writers, zone replacement, void entries.
    Waltz,
    /// LevelDB on the file system.
    LevelDb,
    /// A stage before a drive: several writers of each zone, at addresses of their own.
    Stage,
    /// A log in an ordinary file: appends and syncs of several tasks, room zeroed ahead.
    Prio,
    /// The log that the replicas of a process share: entries replaced and retired, votes, snapshots.
    Groups,
    /// The tables of the replicas of a process, in RocksDB: entries, snapshots of other replicas, values dropped.
    Tables,
}

impl Target {
    /// All targets, in the order in which `furrow crash` explores them.
    pub const ALL: [Target; 10] = [
        Target::Fs,
        Target::Log,
        Target::Engine,
        Target::Array,
        Target::Waltz,
        Target::LevelDb,
        Target::Stage,
        Target::Prio,
        Target::Groups,
        Target::Tables,
    ];

    /// Whether the workload runs a database engine, whose threads make every recording different: a replay needs the recording.
    pub(crate) fn is_engine(self) -> bool {
        matches!(self, Target::Engine | Target::LevelDb | Target::Tables)
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Target::Fs => 1,
            Target::Log => 2,
            Target::Engine => 3,
            Target::Array => 4,
            Target::Waltz => 5,
            Target::LevelDb => 6,
            Target::Stage => 7,
            Target::Prio => 8,
            Target::Groups => 9,
            Target::Tables => 10,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.number() == number)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Target::Fs => "fs",
            Target::Log => "log",
            Target::Engine => "engine",
            Target::Array => "array",
            Target::Waltz => "waltz",
            Target::LevelDb => "leveldb",
            Target::Stage => "stage",
            Target::Prio => "prio",
            Target::Groups => "groups",
            Target::Tables => "tables",
        })
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Target, Error> {
        Target::ALL.into_iter().find(|t| t.to_string() == text).ok_or_else(|| Error::Target(text.to_owned()))
    }
}
