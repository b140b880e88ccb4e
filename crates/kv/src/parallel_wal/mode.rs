//! The log that a database's batches go to.

use std::fmt;
use std::str::FromStr;

use fs::{Batching, ParallelOptions};
use serde::{Deserialize, Serialize};

/// Environment variable that names the log of an unmodified program's database; the plug-in reads it.
pub const WAL_VARIABLE: &str = "FURROW_WAL";

/// The log that a database's batches go to. A database may be opened in another mode than the one in which it was
/// closed or crashed: see [`Database`](super::Database).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WalMode {
    /// RocksDB's own log, with group commit.
    Group,
    /// A parallel log: each batch is an append of its own.
    Waltz,
    /// A parallel log: each batch is an append of its own while the drive has parallelism to spare, and shares an
    /// append otherwise.
    #[default]
    Auto,
}

impl WalMode {
    /// Every mode of the log.
    pub const ALL: [WalMode; 3] = [WalMode::Group, WalMode::Waltz, WalMode::Auto];

    /// The parallel log's settings; `None` for RocksDB's own log.
    pub fn parallel(self) -> Option<ParallelOptions> {
        let batching = match self {
            WalMode::Group => return None,
            WalMode::Waltz => Batching::Each,
            WalMode::Auto => Batching::Auto,
        };
        Some(ParallelOptions { batching, spare: true, ..ParallelOptions::default() })
    }
}

/// The error for a word that names no log mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no kind of log: it is group, waltz or auto")]
pub struct UnknownMode(String);

impl FromStr for WalMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<WalMode, UnknownMode> {
        let found = WalMode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

impl WalMode {
    /// The mode's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            WalMode::Group => "group",
            WalMode::Waltz => "waltz",
            WalMode::Auto => "auto",
        }
    }
}

impl WalMode {
    /// Whether batches are written side by side; otherwise one after another.
    pub fn is_parallel(self) -> bool {
        self != WalMode::Group
    }
}

impl fmt::Display for WalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_parses_its_own_name_and_refuses_unknown_names() {
        for mode in WalMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "Auto".parse::<WalMode>().unwrap_err().to_string();
        assert!(error.contains("'Auto'") && error.contains("group, waltz or auto"), "{error}");
        assert_eq!(WalMode::Group.parallel(), None);
        assert_eq!(WalMode::Waltz.parallel().unwrap().batching, Batching::Each);
        assert_eq!(WalMode::Auto.parallel().unwrap().batching, Batching::Auto);
    }
}
