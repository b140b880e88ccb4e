//! The database under the load.

use ::kv::parallel_wal::{Database, DatabaseOptions, WalMode};
use fs::Fs;
use rocks::DbOptions;

use super::Wal;
use crate::{Error, Result};

/// Where the database lies.
const PATH: &str = "/kv";

impl Wal {
    fn mode(self) -> WalMode {
        match self {
            Wal::Base | Wal::Group => WalMode::Group,
            Wal::Waltz => WalMode::Waltz,
            Wal::Auto => WalMode::Auto,
        }
    }
}

pub(super) fn open(fs: &Fs, wal: Wal, db: DbOptions) -> Result<Database> {
    let options = DatabaseOptions { wal: wal.mode(), db, parallel_wal: None };
    Database::open(fs, PATH, &options).map_err(Error::Engine)
}
