//! The interface to the parallel WAL engine above a database that a program opened by itself: the calls that C++
//! makes, and the factory of engines.
//!
//! The engine's crate depends on this crate, so the plug-in passes the factory of engines to [`install`].

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use abi::jump;
use fs::Fs;

use crate::{AppliedMark, Db};

/// The write options with which a program wrote a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The batch must be durable when the write returns.
    pub synced: bool,
    /// The batch must be written to the log.
    pub logged: bool,
    /// Records of column families that do not exist are skipped.
    pub ignore_missing: bool,
}

/// A column family's properties that the parallel WAL engine needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FamilyFacts {
    /// RocksDB's number of the family.
    pub id: u32,
    /// Whether the family has a merge operator.
    pub merges: bool,
    /// Whether the family's comparator may call different bytes equal: all its keys then use one lock stripe.
    pub one_stripe: bool,
}

/// The class of a parallel WAL engine's error, which decides the program's RocksDB status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineErrorKind {
    /// RocksDB refused the batch with a status of its own. The batch is not applied, now or after a crash.
    Apply,
    /// The request is invalid or not supported.
    Invalid,
    /// No space is left.
    NoSpace,
    /// The call failed now and may succeed later.
    Busy,
    /// Data is damaged.
    Corrupt,
    /// The device or the log failed.
    Io,
}

/// An error of the parallel WAL engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineError {
    /// The class of the error.
    pub kind: EngineErrorKind,
    /// The error's message, whole.
    pub text: String,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for EngineError {}

/// Applies a batch to RocksDB with RocksDB's log off, along with a mark. Returns the sequence number of the batch's
/// last record, or `None` if RocksDB refused the batch.
pub type Apply<'a> = dyn FnMut(Option<AppliedMark>) -> Option<u64> + 'a;

/// The parallel WAL engine of one open database.
pub trait Engine: Send + Sync {
    /// Writes a batch, given in RocksDB's serialisation.
    fn write(&self, batch: &[u8], asked: Asked, apply: &mut Apply<'_>) -> Result<(), EngineError>;

    /// Makes every acknowledged write durable.
    fn sync(&self) -> Result<(), EngineError>;

    /// From this call on, no recovery applies again a batch that is in tables.
    fn exactly_once(&self) -> Result<(), EngineError>;

    /// Calls `run` while no batch is being written.
    fn exclusive(&self, run: &mut dyn FnMut());

    /// Adds a column family that was just created. Call within [`exclusive`](Engine::exclusive).
    fn add_family(&self, facts: FamilyFacts);

    /// Removes a column family that was dropped. Call within [`exclusive`](Engine::exclusive).
    fn remove_family(&self, id: u32);

    /// Writes all memtables to tables, removes the parallel log and closes the engine.
    fn close(&self) -> Result<(), EngineError>;
}

/// A factory of parallel WAL engines.
pub trait Engines: Send + Sync {
    /// Opens the engine of the database in `dir`, and applies the records of its parallel log. `db` was opened
    /// [`unlogged`](crate::DbOptions::unlogged).
    fn open(
        &self,
        fs: &Fs,
        dir: &str,
        db: Arc<Db>,
        families: &[FamilyFacts],
    ) -> Result<Box<dyn Engine>, EngineError>;
}

static ENGINES: OnceLock<&'static dyn Engines> = OnceLock::new();

/// Sets the factory of this process's parallel WAL engines. Calls after the first have no effect.
pub fn install(engines: &'static dyn Engines) {
    let _only_the_first = ENGINES.set(engines);
}

pub(crate) fn installed() -> Option<&'static dyn Engines> {
    ENGINES.get().copied()
}

/// Defines, for the plug-in's library alone, RocksDB's opening functions and `CancelAllBackgroundWork`, so that a
/// program which preloads the library calls them instead of RocksDB's own. Exports the functions of
/// `cpp/parallel_db.h`. Installs `$engines`, a static of a type that is [`Engines`].
///
/// Each exported function is a jump to the C++ function of the same name in `cpp/interpose.cc`, so no calling
/// convention matters.
#[macro_export]
macro_rules! interpose {
    ($engines:path) => {
        /// Installs the factory of engines. The library's constructor calls this function.
        #[unsafe(no_mangle)]
        pub extern "C" fn furrow_install_engines() {
            $crate::engine::install(&$engines);
        }
        $crate::engine::jump!(open_parallel, "furrow_open_parallel", furrow_open_parallel_here);
        $crate::engine::jump!(list_parallel, "furrow_list_parallel", furrow_list_parallel_here);
        $crate::engine::jump!(open, "_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_", furrow_db_open);
        $crate::engine::jump!(open_families, "_ZN7rocksdb2DB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_", furrow_db_open_families);
        $crate::engine::jump!(open_unique, "_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPSt10unique_ptrIS0_St14default_deleteIS0_EE", furrow_db_open_unique);
        $crate::engine::jump!(open_families_unique, "_ZN7rocksdb2DB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPSt10unique_ptrIS0_St14default_deleteIS0_EE", furrow_db_open_families_unique);
        $crate::engine::jump!(open_trim, "_ZN7rocksdb2DB18OpenAndTrimHistoryERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_S9_", furrow_db_open_trim);
        $crate::engine::jump!(open_trim_unique, "_ZN7rocksdb2DB18OpenAndTrimHistoryERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPSt10unique_ptrIS0_St14default_deleteIS0_EES9_", furrow_db_open_trim_unique);
        $crate::engine::jump!(list_families, "_ZN7rocksdb2DB18ListColumnFamiliesERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPSt6vectorIS9_SaIS9_EE", furrow_db_list_families);
        $crate::engine::jump!(cancel_background_work, "_ZN7rocksdb23CancelAllBackgroundWorkEPNS_2DBEb", furrow_cancel_background_work);
        $crate::engine::jump!(open_transactions, "_ZN7rocksdb13TransactionDB4OpenERKNS_7OptionsERKNS_20TransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_", furrow_transaction_open);
        $crate::engine::jump!(open_transactions_families, "_ZN7rocksdb13TransactionDB4OpenERKNS_9DBOptionsERKNS_20TransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISG_EEPSF_IPNS_18ColumnFamilyHandleESaISM_EEPPS0_", furrow_transaction_open_families);
        $crate::engine::jump!(open_optimistic, "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_", furrow_optimistic_open);
        $crate::engine::jump!(open_optimistic_families, "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_", furrow_optimistic_open_families);
        $crate::engine::jump!(open_optimistic_options, "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_9DBOptionsERKNS_30OptimisticTransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISG_EEPSF_IPNS_18ColumnFamilyHandleESaISM_EEPPS0_", furrow_optimistic_open_options);
    };
}
