//! The engine above a database that a program opened by itself: what C++ asks of it, and who makes one.
//!
//! The engine lies above this crate; the plug-in installs it with [`install`].

use std::fmt;
use std::sync::{Arc, OnceLock};

use fs::Fs;

use crate::{AppliedMark, Db};

/// How a program wants a batch written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Durable on return.
    pub synced: bool,
    /// Through the log.
    pub logged: bool,
    /// Records of families that do not exist are left out.
    pub ignore_missing: bool,
}

/// What the engine must know of a column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FamilyFacts {
    /// Its number.
    pub id: u32,
    /// It has a merge operator.
    pub merges: bool,
    /// Its comparator may call different bytes equal.
    pub one_stripe: bool,
}

/// What a program is to make of an engine's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineErrorKind {
    /// RocksDB refused the batch, with a status of its own; the batch never happened.
    Apply,
    /// The caller asked for something that makes no sense or is not supported.
    Invalid,
    /// There is no room left.
    NoSpace,
    /// Try again later.
    Busy,
    /// Damaged data.
    Corrupt,
    /// The device or the log failed.
    Io,
}

/// Why an engine did not do something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineError {
    /// What to make of it.
    pub kind: EngineErrorKind,
    /// The whole sentence.
    pub text: String,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for EngineError {}

/// Applies a batch to RocksDB with its log off, with a mark; gives the sequence of its last record, or nothing where
/// RocksDB refused.
pub type Apply<'a> = dyn FnMut(Option<AppliedMark>) -> Option<u64> + 'a;

/// The engine above one open database.
pub trait Engine: Send + Sync {
    /// Writes a batch in RocksDB's serialisation.
    fn write(&self, batch: &[u8], asked: Asked, apply: &mut Apply<'_>) -> Result<(), EngineError>;

    /// Makes every acknowledged write durable.
    fn sync(&self) -> Result<(), EngineError>;

    /// From now on nothing that is in tables is applied again after a crash.
    fn exactly_once(&self) -> Result<(), EngineError>;

    /// Runs something while no batch is on its way.
    fn exclusive(&self, run: &mut dyn FnMut());

    /// A family that is there from now on. Within [`exclusive`](Engine::exclusive).
    fn add_family(&self, facts: FamilyFacts);

    /// A family that is gone. Within [`exclusive`](Engine::exclusive).
    fn remove_family(&self, id: u32);

    /// Brings everything into tables, and ends the log.
    fn close(&self) -> Result<(), EngineError>;
}

/// Makes engines.
pub trait Engines: Send + Sync {
    /// Opens the log of the database in `dir`, and applies what it holds. `db` was opened
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

/// Says who makes the engines of this process. Only the first call counts.
pub fn install(engines: &'static dyn Engines) {
    let _only_the_first = ENGINES.set(engines);
}

pub(crate) fn installed() -> Option<&'static dyn Engines> {
    ENGINES.get().copied()
}

/// For the plug-in's library alone: defines RocksDB's opening functions in it, so that a program which preloads it calls
/// them instead of RocksDB's own, exports what `cpp/parallel_db.h` declares, and installs `$engines`, a static of a type that is [`Engines`].
///
/// Each is a jump to the C++ function of that name in `cpp/interpose.cc`, whatever the calling convention is.
#[macro_export]
macro_rules! interpose {
    ($engines:path) => {
        /// Called by the library's constructor.
        #[unsafe(no_mangle)]
        pub extern "C" fn furrow_install_engines() {
            $crate::engine::install(&$engines);
        }
        $crate::jump!(open_parallel, "furrow_open_parallel", furrow_open_parallel_here);
        $crate::jump!(list_parallel, "furrow_list_parallel", furrow_list_parallel_here);
        $crate::jump!(open, "_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_", furrow_db_open);
        $crate::jump!(open_families, "_ZN7rocksdb2DB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_", furrow_db_open_families);
        $crate::jump!(open_unique, "_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPSt10unique_ptrIS0_St14default_deleteIS0_EE", furrow_db_open_unique);
        $crate::jump!(open_families_unique, "_ZN7rocksdb2DB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPSt10unique_ptrIS0_St14default_deleteIS0_EE", furrow_db_open_families_unique);
        $crate::jump!(open_trim, "_ZN7rocksdb2DB18OpenAndTrimHistoryERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_S9_", furrow_db_open_trim);
        $crate::jump!(open_trim_unique, "_ZN7rocksdb2DB18OpenAndTrimHistoryERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPSt10unique_ptrIS0_St14default_deleteIS0_EES9_", furrow_db_open_trim_unique);
        $crate::jump!(list_families, "_ZN7rocksdb2DB18ListColumnFamiliesERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPSt6vectorIS9_SaIS9_EE", furrow_db_list_families);
        $crate::jump!(open_transactions, "_ZN7rocksdb13TransactionDB4OpenERKNS_7OptionsERKNS_20TransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_", furrow_transaction_open);
        $crate::jump!(open_transactions_families, "_ZN7rocksdb13TransactionDB4OpenERKNS_9DBOptionsERKNS_20TransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISG_EEPSF_IPNS_18ColumnFamilyHandleESaISM_EEPPS0_", furrow_transaction_open_families);
        $crate::jump!(open_optimistic, "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_", furrow_optimistic_open);
        $crate::jump!(open_optimistic_families, "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_", furrow_optimistic_open_families);
        $crate::jump!(open_optimistic_options, "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_9DBOptionsERKNS_30OptimisticTransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISG_EEPSF_IPNS_18ColumnFamilyHandleESaISM_EEPPS0_", furrow_optimistic_open_options);
    };
}

/// One of [`interpose!`]'s functions.
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    ($name:ident, $symbol:literal, $to:ident) => {
        const _: () = {
            unsafe extern "C" {
                fn $to();
            }
            // SAFETY: nothing but a jump: registers and stack are as the caller of the C++ function set them.
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
        ::core::arch::naked_asm!("jmp {}", sym $to);
                #[cfg(target_arch = "aarch64")]
        ::core::arch::naked_asm!("b {}", sym $to);
            }
        };
    };
}
