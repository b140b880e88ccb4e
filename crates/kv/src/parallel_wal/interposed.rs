//! The parallel WAL under an unmodified program's database; the plug-in installs it.

use std::sync::Arc;

use fs::{Fs, ParallelOptions};
use rocks::engine::{Apply, Asked, Engine, EngineError, EngineErrorKind, Engines, FamilyFacts};
use rocks::{AppliedMark, Db};

use super::batch::Family;
use super::error::{LogError, LogErrorKind, WriteError};
use super::fs_log::log_limits;
use super::mode::{WAL_VARIABLE, WalMode};
use super::open::OpenParallelWal;
use super::options::{Applied, WriteOptions};
use super::plan::FamilyInfo;
use super::tables::Sequence;

/// Opens parallel WALs for the databases of unmodified programs.
///
/// `FURROW_WAL` says whether each batch is an append of its own (`waltz`) or joins others where the drive has no
/// parallelism to spare (`auto`). A program that links the engine and does not set the variable gets `auto`.
#[derive(Clone, Copy, Debug)]
pub struct Interposed;

/// The settings of the parallel log for the value of `FURROW_WAL`.
fn log_options(value: Option<&str>) -> Result<ParallelOptions, EngineError> {
    let refused = |text| EngineError { kind: EngineErrorKind::Invalid, text };
    let mode = match value {
        None | Some("") => WalMode::Auto,
        Some(name) => name.parse::<WalMode>().map_err(|error| refused(format!("{WAL_VARIABLE}: {error}")))?,
    };
    mode.parallel().ok_or_else(|| {
        refused(format!(
            "{WAL_VARIABLE}={mode} keeps the log that RocksDB has: open the database with rocksdb::DB"
        ))
    })
}

impl Engines for Interposed {
    fn open(
        &self,
        fs: &Fs,
        dir: &str,
        db: Arc<Db>,
        families: &[FamilyFacts],
    ) -> Result<Box<dyn Engine>, EngineError> {
        let options = log_options(std::env::var(WAL_VARIABLE).ok().as_deref())?;
        let families = families.iter().map(family_info);
        let opened = OpenParallelWal::open(fs, dir, &db, families, &options, log_limits(fs), None);
        Ok(Box::new(opened.map_err(from_log)?))
    }
}

impl Engine for OpenParallelWal {
    fn write(&self, batch: &[u8], asked: Asked, apply: &mut Apply<'_>) -> Result<(), EngineError> {
        let Asked { synced, logged, ignore_missing } = asked;
        let options = WriteOptions { synced, logged, ignore_missing, writers: 1 };
        let outcome = self.parallel_wal.write(batch, options, |mark| {
            let mark = mark.map(|mark| AppliedMark { ticket: mark.ticket.0, floor: mark.floor.map(|f| f.0) });
            apply(mark).map(|last| Applied { last: Sequence(last) }).ok_or("RocksDB refused the batch")
        });
        outcome.map_err(|error| {
            let kind = match &error {
                WriteError::Batch(_) | WriteError::Invalid(_) => EngineErrorKind::Invalid,
                WriteError::Log(log) => engine_error_kind(log),
                WriteError::Apply(_) => EngineErrorKind::Apply,
                WriteError::Unknown(..) => EngineErrorKind::Io,
            };
            EngineError { kind, text: error.to_string() }
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.parallel_wal.sync().map_err(from_log)
    }

    fn exactly_once(&self) -> Result<(), EngineError> {
        self.parallel_wal.exactly_once().map_err(from_log)
    }

    fn exclusive(&self, run: &mut dyn FnMut()) {
        self.parallel_wal.exclusive(run);
    }

    fn add_family(&self, facts: FamilyFacts) {
        let (family, info) = family_info(&facts);
        self.parallel_wal.set_family(family, Some(info));
    }

    fn remove_family(&self, id: u32) {
        self.parallel_wal.set_family(Family(id), None);
    }

    fn close(&self) -> Result<(), EngineError> {
        OpenParallelWal::close(self).map_err(from_log)
    }
}

fn family_info(facts: &FamilyFacts) -> (Family, FamilyInfo) {
    (Family(facts.id), FamilyInfo { merges: facts.merges, one_stripe: facts.one_stripe })
}

fn engine_error_kind(error: &LogError) -> EngineErrorKind {
    match error.kind {
        LogErrorKind::NoSpace => EngineErrorKind::NoSpace,
        LogErrorKind::Busy => EngineErrorKind::Busy,
        LogErrorKind::Corrupt => EngineErrorKind::Corrupt,
        LogErrorKind::Failed | LogErrorKind::Poisoned => EngineErrorKind::Io,
    }
}

fn from_log(error: LogError) -> EngineError {
    EngineError { kind: engine_error_kind(&error), text: error.text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_parallel_log_or_is_refused() {
        use fs::Batching::{Auto, Each};
        for (value, batching) in [(None, Auto), (Some(""), Auto), (Some("auto"), Auto), (Some("waltz"), Each)]
        {
            assert_eq!(log_options(value).unwrap().batching, batching, "{value:?}");
        }
        for wrong in ["group", "walz"] {
            let error = log_options(Some(wrong)).unwrap_err();
            assert_eq!(error.kind, EngineErrorKind::Invalid);
            assert!(error.text.contains(WAL_VARIABLE) && error.text.contains(wrong), "{error}");
        }
    }
}
