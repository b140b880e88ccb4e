//! The database under the load.

use ::kv::parallel_wal::{Database, DatabaseOptions, WalMode};
use fs::Fs;
use rocks::DbOptions;

use super::load::WalMode;
use crate::{Error, Result};

/// Where the database lies.
const PATH: &str = "/kv";

impl WalMode {
    fn mode(self) -> WalMode {
        match self {
            WalMode::Base | WalMode::Group => WalMode::Group,
            WalMode::Waltz => WalMode::Waltz,
            WalMode::Auto => WalMode::Auto,
        }
    }
}

pub(super) fn open(fs: &Fs, wal: WalMode, db: DbOptions) -> Result<Database> {
    let options = DatabaseOptions { wal: wal.mode(), db, parallel_wal: None };
    Database::open(fs, PATH, &options).map_err(Error::Engine)
}
