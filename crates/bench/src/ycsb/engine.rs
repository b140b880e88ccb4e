//! The database engines of YCSB loads.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The database engine of a YCSB load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// RocksDB, with its own log and group commit.
    #[default]
    RocksDb,
    /// LevelDB, the system's library.
    LevelDb,
}

impl Engine {
    const ALL: [Engine; 2] = [Engine::RocksDb, Engine::LevelDb];

    /// The engine's name in arguments and results.
    pub fn name(self) -> &'static str {
        match self {
            Engine::RocksDb => "rocksdb",
            Engine::LevelDb => "leveldb",
        }
    }

    /// The directory of the engine's database in the file system: RocksDB would open LevelDB's.
    pub(super) fn path(self) -> &'static str {
        match self {
            Engine::RocksDb => "/ycsb",
            Engine::LevelDb => "/ycsb-leveldb",
        }
    }

    /// Number of memtables that may be in memory at a time.
    pub(super) fn memtables(self) -> u64 {
        match self {
            Engine::RocksDb => rocks::DbOptions::default().write_buffers.unsigned_abs().into(),
            // The one that is written to, and the one that is written to a table.
            Engine::LevelDb => 2,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Engine, String> {
        let names = || Engine::ALL.map(Engine::name).join(", ");
        let found = Engine::ALL.into_iter().find(|engine| engine.name() == text);
        found.ok_or_else(|| format!("'{text}' is no engine: there are {}", names()))
    }
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
