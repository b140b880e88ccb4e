//! The database under a key-value load.

use ::kv::parallel_wal::{Database, DatabaseOptions, WalMode};
use fs::Fs;
use rocks::DbOptions;

use super::load::LogMode;
use crate::{Error, Result};

/// The directory of the database in the file system.
const DATABASE_PATH: &str = "/kv";

impl LogMode {
    fn mode(self) -> WalMode {
        match self {
            LogMode::Base | LogMode::Group => WalMode::Group,
            LogMode::Waltz => WalMode::Waltz,
            LogMode::Auto => WalMode::Auto,
        }
    }
}

pub(super) fn open(fs: &Fs, wal: LogMode, db: DbOptions) -> Result<Database> {
    let options = DatabaseOptions { wal: wal.mode(), db, parallel_wal: None };
    Database::open(fs, DATABASE_PATH, &options).map_err(Error::Engine)
}
