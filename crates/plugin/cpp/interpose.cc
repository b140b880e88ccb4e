// RocksDB's opening functions and CancelAllBackgroundWork, for a program that preloads the plug-in's library.
// crates/rocks/src/engine.rs exports the symbols, which jump to the functions here. FURROW_WAL selects the behaviour:
// `group` calls RocksDB's own functions, `waltz` and `auto` open the database under a parallel log
// (kv::parallel_wal::Interposed reads which of the two).

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "parallel_abi.h"
#include "parallel_db.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/utilities/optimistic_transaction_db.h"
#include "rocksdb/utilities/transaction_db.h"

using rocksdb::ColumnFamilyDescriptor;
using rocksdb::ColumnFamilyHandle;
using rocksdb::ColumnFamilyOptions;
using rocksdb::DB;
using rocksdb::DBOptions;
using rocksdb::Options;
using rocksdb::Status;

namespace {

using Descriptors = std::vector<ColumnFamilyDescriptor>;
using Handles = std::vector<ColumnFamilyHandle*>;

enum class Wal { kGroup, kParallel, kWrong };

// The log that FURROW_WAL asks for; the variable is read once per process.
Wal Asked() {
  static const Wal wal = [] {
    const char* value = std::getenv("FURROW_WAL");
    if (value == nullptr || strcmp(value, "") == 0 || strcmp(value, "group") == 0) {
      return Wal::kGroup;
    }
    return strcmp(value, "waltz") == 0 || strcmp(value, "auto") == 0 ? Wal::kParallel : Wal::kWrong;
  }();
  return wal;
}

Status Wrong() {
  return Status::InvalidArgument(std::string("FURROW_WAL=") + std::getenv("FURROW_WAL"), "it wants group, waltz or auto");
}

// RocksDB's own function for a symbol that the plug-in's library exports.
template <typename F>
F* Real(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    fprintf(stderr, "furrow: the program's RocksDB has no %s\n", symbol);
    abort();
  }
  return reinterpret_cast<F*>(found);
}

// True if the plug-in handles the call. An opening within another opening is a step of RocksDB itself, and is left to
// RocksDB.
bool Ours() { return Asked() != Wal::kGroup && !furrow::InParallelOpen(); }

Status Open(const DBOptions& options, const std::string& name, const Descriptors& families, Handles* handles,
            DB** db) {
  if (Asked() == Wal::kWrong) {
    return Wrong();
  }
  return furrow::OpenParallel(options, name, families, handles, db);
}

Status OpenOne(const Options& options, const std::string& name, DB** db) {
  Handles handles;
  Descriptors families;
  families.emplace_back(rocksdb::kDefaultColumnFamilyName, ColumnFamilyOptions(options));
  Status status = Open(DBOptions(options), name, families, &handles, db);
  for (ColumnFamilyHandle* handle : handles) {
    // The database holds its own handle of the default family.
    (*db)->DestroyColumnFamilyHandle(handle);
  }
  return status;
}

// Refuses OpenAndTrimHistory: RocksDB opens a database of its own for the trim, and must not get a wrapped one.
Status RefuseTrim() {
  return Asked() == Wal::kWrong ? Wrong()
                                : Status::NotSupported("FURROW_WAL=waltz and auto do not take DB::OpenAndTrimHistory",
                                                       "it works below the parallel log; use FURROW_WAL=group");
}

Status RefuseTransactions() {
  return Asked() == Wal::kWrong
             ? Wrong()
             : Status::NotSupported("FURROW_WAL=waltz and auto do not take transaction databases",
                                    "their commits go past the parallel log; use FURROW_WAL=group");
}

}  // namespace

#pragma GCC diagnostic ignored "-Wreturn-type"

#define FURROW_EXPORT extern "C" __attribute__((visibility("hidden")))

FURROW_EXPORT Status furrow_db_open_families(const DBOptions& options, const std::string& name,
                                             const Descriptors& families, Handles* handles, DB** db) {
  using F = Status(const DBOptions&, const std::string&, const Descriptors&, Handles*, DB**);
  static F* real = Real<F>(
      "_ZN7rocksdb2DB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_"
      "22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_");
  return Ours() ? Open(options, name, families, handles, db) : real(options, name, families, handles, db);
}

FURROW_EXPORT Status furrow_db_open(const Options& options, const std::string& name, DB** db) {
  using F = Status(const Options&, const std::string&, DB**);
  static F* real =
      Real<F>("_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_");
  return Ours() ? OpenOne(options, name, db) : real(options, name, db);
}

// Later versions of RocksDB have the next two functions besides, or instead of, the ones above. With an earlier
// version no program calls them.
FURROW_EXPORT Status furrow_db_open_unique(const Options& options, const std::string& name, std::unique_ptr<DB>* db) {
  using F = Status(const Options&, const std::string&, std::unique_ptr<DB>*);
  if (!Ours()) {
    static F* real = Real<F>(
      "_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPSt10unique_"
      "ptrIS0_St14default_deleteIS0_EE");
    return real(options, name, db);
  }
  DB* opened = nullptr;
  Status status = OpenOne(options, name, &opened);
  db->reset(opened);
  return status;
}

FURROW_EXPORT Status furrow_db_open_families_unique(const DBOptions& options, const std::string& name,
                                                    const Descriptors& families, Handles* handles,
                                                    std::unique_ptr<DB>* db) {
  using F = Status(const DBOptions&, const std::string&, const Descriptors&, Handles*, std::unique_ptr<DB>*);
  if (!Ours()) {
    static F* real = Real<F>(
      "_ZN7rocksdb2DB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22C"
      "olumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPSt10unique_ptrIS0_St14default_deleteIS0_EE");
    return real(options, name, families, handles, db);
  }
  DB* opened = nullptr;
  Status status = Open(options, name, families, handles, &opened);
  db->reset(opened);
  return status;
}

FURROW_EXPORT Status furrow_db_open_trim(const DBOptions& options, const std::string& name, const Descriptors& families,
                                         Handles* handles, DB** db, std::string newest) {
  using F = Status(const DBOptions&, const std::string&, const Descriptors&, Handles*, DB**, std::string);
  if (Ours()) {
    return RefuseTrim();
  }
  static F* real = Real<F>(
      "_ZN7rocksdb2DB18OpenAndTrimHistoryERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKS"
      "t6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_S9_");
  return real(options, name, families, handles, db, newest);
}

FURROW_EXPORT Status furrow_db_open_trim_unique(const DBOptions& options, const std::string& name,
                                                const Descriptors& families, Handles* handles,
                                                std::unique_ptr<DB>* db, std::string newest) {
  using F = Status(const DBOptions&, const std::string&, const Descriptors&, Handles*, std::unique_ptr<DB>*,
                   std::string);
  if (Ours()) {
    return RefuseTrim();
  }
  static F* real = Real<F>(
      "_ZN7rocksdb2DB18OpenAndTrimHistoryERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKS"
      "t6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPSt10unique_ptrIS0_St14default_deleteIS0_EES9_");
  return real(options, name, families, handles, db, newest);
}

FURROW_EXPORT Status furrow_db_list_families(const DBOptions& options, const std::string& name,
                                             std::vector<std::string>* families) {
  using F = Status(const DBOptions&, const std::string&, std::vector<std::string>*);
  static F* real = Real<F>(
      "_ZN7rocksdb2DB18ListColumnFamiliesERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEEPSt6vectorIS9_SaIS9_EE");
  if (!Ours()) {
    return real(options, name, families);
  }
  return Asked() == Wal::kWrong ? Wrong() : furrow::ListParallel(options, name, families);
}

FURROW_EXPORT Status furrow_transaction_open(const Options& options, const rocksdb::TransactionDBOptions& txn,
                                             const std::string& name, rocksdb::TransactionDB** db) {
  using F = Status(const Options&, const rocksdb::TransactionDBOptions&, const std::string&,
                   rocksdb::TransactionDB**);
  static F* real = Real<F>(
      "_ZN7rocksdb13TransactionDB4OpenERKNS_7OptionsERKNS_20TransactionDBOptionsERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEEPPS0_");
  return Ours() ? RefuseTransactions() : real(options, txn, name, db);
}

FURROW_EXPORT Status furrow_transaction_open_families(const DBOptions& options,
                                                      const rocksdb::TransactionDBOptions& txn,
                                                      const std::string& name, const Descriptors& families,
                                                      Handles* handles, rocksdb::TransactionDB** db) {
  using F = Status(const DBOptions&, const rocksdb::TransactionDBOptions&, const std::string&, const Descriptors&,
                   Handles*, rocksdb::TransactionDB**);
  static F* real = Real<F>(
      "_ZN7rocksdb13TransactionDB4OpenERKNS_9DBOptionsERKNS_20TransactionDBOptionsERKNSt7__cxx1112basic_"
      "stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISG_EEPSF_IPNS_"
      "18ColumnFamilyHandleESaISM_EEPPS0_");
  return Ours() ? RefuseTransactions() : real(options, txn, name, families, handles, db);
}

FURROW_EXPORT Status furrow_optimistic_open(const Options& options, const std::string& name,
                                            rocksdb::OptimisticTransactionDB** db) {
  using F = Status(const Options&, const std::string&, rocksdb::OptimisticTransactionDB**);
  static F* real = Real<F>(
      "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEEPPS0_");
  return Ours() ? RefuseTransactions() : real(options, name, db);
}

FURROW_EXPORT Status furrow_optimistic_open_families(const DBOptions& options, const std::string& name,
                                                     const Descriptors& families, Handles* handles,
                                                     rocksdb::OptimisticTransactionDB** db) {
  using F = Status(const DBOptions&, const std::string&, const Descriptors&, Handles*,
                   rocksdb::OptimisticTransactionDB**);
  static F* real = Real<F>(
      "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_9DBOptionsERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISD_EEPSC_IPNS_18ColumnFamilyHandleESaISJ_EEPPS0_");
  return Ours() ? RefuseTransactions() : real(options, name, families, handles, db);
}

FURROW_EXPORT Status furrow_optimistic_open_options(const DBOptions& options,
                                                    const rocksdb::OptimisticTransactionDBOptions& txn,
                                                    const std::string& name, const Descriptors& families,
                                                    Handles* handles, rocksdb::OptimisticTransactionDB** db) {
  using F = Status(const DBOptions&, const rocksdb::OptimisticTransactionDBOptions&, const std::string&,
                   const Descriptors&, Handles*, rocksdb::OptimisticTransactionDB**);
  static F* real = Real<F>(
      "_ZN7rocksdb23OptimisticTransactionDB4OpenERKNS_9DBOptionsERKNS_30OptimisticTransactionDBOptionsERKNSt7__"
      "cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorINS_22ColumnFamilyDescriptorESaISG_EEPSF_IPNS_"
      "18ColumnFamilyHandleESaISM_EEPPS0_");
  return Ours() ? RefuseTransactions() : real(options, txn, name, families, handles, db);
}

FURROW_EXPORT void furrow_cancel_background_work(DB* db, bool wait) {
  static auto* real = Real<void(DB*, bool)>("_ZN7rocksdb23CancelAllBackgroundWorkEPNS_2DBEb");
  furrow::CancelBackgroundWork(db, wait, real);
}
