#include "parallel_db.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "file_system.h"
#include "parallel_abi.h"
#include "rocksdb/comparator.h"
#include "register.h"
#include "rocksdb/env.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/stackable_db.h"
#include "rocksdb/version.h"
#include "status.h"
#include "visible_listener.h"

namespace furrow {

using rocksdb::ColumnFamilyDescriptor;
using rocksdb::ColumnFamilyHandle;
using rocksdb::ColumnFamilyOptions;
using rocksdb::DB;
using rocksdb::DBOptions;
using rocksdb::Slice;
using rocksdb::Status;
using rocksdb::WriteBatch;
using rocksdb::WriteOptions;

namespace {

FurrowFamily Facts(uint32_t id, const ColumnFamilyOptions& options) {
  FurrowFamily family = {};
  family.id = id;
  family.merges = options.merge_operator != nullptr ? 1 : 0;
  family.one_stripe = options.comparator->CanKeysWithDifferentByteContentsBeEqual() ? 1 : 0;
  return family;
}

// Refuses a column family whose options the parallel WAL engine does not support.
Status CheckFamily(const std::string& name, const ColumnFamilyOptions& options) {
  if (name == kMarksFamily) {
    return Status::InvalidArgument("the name is the parallel log's own", name);
  }
  if (options.comparator->timestamp_size() != 0) {
    return Status::NotSupported("user-defined timestamps do not go with a parallel log; use FURROW_WAL=group", name);
  }
  if (options.experimental_mempurge_threshold > 0) {
    return Status::NotSupported("mempurge does not go with a parallel log; use FURROW_WAL=group", name);
  }
  if (options.inplace_update_support) {
    // With inplace_update_support RocksDB overwrites a value in place under the older record's sequence number, so no
    // flush event would tell when the newer batch is in tables.
    return Status::NotSupported("inplace_update_support does not go with a parallel log; use FURROW_WAL=group", name);
  }
  return Status::OK();
}

// Checks range deletes and the families of records before a batch is applied. RocksDB finds an invalid range delete
// only while applying the batch: the records before it are in the memtable then, and RocksDB takes no writes until
// the database is opened again.
class Ranges {
 public:
  void Add(const ColumnFamilyHandle& family, const ColumnFamilyOptions& options) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const rocksdb::TableFactory* tables = options.table_factory.get();
    const bool able = tables == nullptr || tables->IsDeleteRangeSupported();
    families_[family.GetID()] = {options.comparator, able ? "" : tables->Name(), family.GetName()};
  }

  // `hidden`: the number of a family that no record may name, if there is one.
  Status Check(const WriteBatch& batch, std::optional<uint32_t> hidden) const {
    if (!batch.HasDeleteRange() && !hidden) {
      return Status::OK();
    }
    std::shared_lock<std::shared_mutex> lock(mutex_);
    Visitor visitor(families_, hidden);
    // The iteration ends at a record type that the visitor does not know. The parallel WAL engine refuses such a
    // batch.
    batch.Iterate(&visitor).PermitUncheckedError();
    return visitor.wrong;
  }

 private:
  struct Family {
    const rocksdb::Comparator* comparator;
    // The name of a table factory that does not support range deletes; empty for other factories.
    std::string unable;
    std::string name;
  };
  using Families = std::unordered_map<uint32_t, Family>;

  struct Visitor : WriteBatch::Handler {
    Visitor(const Families& existing, std::optional<uint32_t> hidden_family)
        : families(existing), hidden(hidden_family) {}
    Status PutCF(uint32_t id, const Slice&, const Slice&) override { return Named(id); }
    Status DeleteCF(uint32_t id, const Slice&) override { return Named(id); }
    Status SingleDeleteCF(uint32_t id, const Slice&) override { return Named(id); }
    Status MergeCF(uint32_t id, const Slice&, const Slice&) override { return Named(id); }
    Status DeleteRangeCF(uint32_t id, const Slice& begin, const Slice& end) override {
      const auto family = families.find(id);
      if (family == families.end()) {
        return Named(id);
      }
      if (!family->second.unable.empty()) {
        wrong = Status::NotSupported("DeleteRange not supported for table type " + family->second.unable + " in CF " +
                                     family->second.name);
      } else if (family->second.comparator->Compare(begin, end) > 0) {
        wrong = Status::InvalidArgument("end key comes before start key");
      }
      return wrong;
    }
    Status Named(uint32_t id) {
      if (hidden == id) {
        wrong = Status::InvalidArgument("a batch names the parallel log's own column family", kMarksFamily);
      }
      return wrong;
    }
    const Families& families;
    const std::optional<uint32_t> hidden;
    Status wrong;
  };

  mutable std::shared_mutex mutex_;
  // The families by number. Dropped families stay in the map: RocksDB does not reuse their numbers.
  Families families_;
};

class ParallelDb;

// The databases that are open under a parallel log, keyed by RocksDB's own DB object.
std::mutex open_databases_mutex;
std::unordered_map<const DB*, ParallelDb*> open_databases;

class ParallelDb : public rocksdb::StackableDB {
 public:
  ParallelDb(DB* db, FurrowHub* hub, std::unique_ptr<EmptyLogGuard> empty)
      : StackableDB(db), hub_(hub), empty_(std::move(empty)) {}

  ~ParallelDb() override {
    {
      std::lock_guard<std::mutex> lock(open_databases_mutex);
      open_databases.erase(db_->GetRootDB());
    }
    if (engine_ != nullptr) {
      Status status = CloseEngine();
      if (!status.ok()) {
        fprintf(stderr, "furrow: closing a database under its parallel log: %s\n", status.ToString().c_str());
      }
      furrow_engine_free(engine_);
    }
    // The database's threads send flush events to the hub until the database is deleted.
    delete db_;
    db_ = nullptr;
    furrow_hub_free(hub_);
  }

  Status Start(const FurrowFs* mount, const std::string& name, ColumnFamilyHandle* marks,
               const std::vector<ColumnFamilyHandle*>& handles, const std::vector<ColumnFamilyDescriptor>& descriptors) {
    std::vector<FurrowFamily> families;
    std::vector<FamilyHandle> own;
    Status status;
    for (size_t i = 0; i < handles.size() && status.ok(); ++i) {
      if (descriptors[i].name == kMarksFamily) {
        // The program gets a handle of the hidden family for reading only: a write to that family is refused like a
        // write to a dropped family.
        continue;
      }
      families.push_back(Facts(handles[i]->GetID(), descriptors[i].options));
      ranges_.Add(*handles[i], descriptors[i].options);
      own.emplace_back();
      status = SecondHandle(db_, *handles[i], &own.back());
    }
    FamilyHandle hidden = marks != nullptr ? OwnHandle(db_, marks) : nullptr;
    if (!status.ok()) {
      return status;
    }
    RocksDb* side = rocks_adopt(db_, std::move(own), std::move(hidden));
    unlogged_ = rocks_unlogged(side);
    status = ToIOStatus(furrow_engine_open(hub_, mount, name.data(), name.size(), side, families.data(),
                                           families.size(), &engine_));
    if (status.ok()) {
      std::lock_guard<std::mutex> lock(open_databases_mutex);
      open_databases[db_->GetRootDB()] = this;
    }
    return status;
  }

  Status Close() override {
    if (closed_) {
      return closing_;
    }
    // RocksDB refuses to close while a snapshot lives. Check that before the parallel WAL engine is closed.
    uint64_t snapshots = 0;
    if (db_->GetIntProperty(rocksdb::DB::Properties::kNumSnapshots, &snapshots) && snapshots != 0) {
      return Status::Aborted("Cannot close DB with unreleased snapshot.");
    }
    Status status = CloseEngine();
    unlogged_->FreeHandles();
    Status closed = db_->Close();
    closed_ = true;
    closing_ = status.ok() ? closed : status;
    return closing_;
  }

  Status Write(const WriteOptions& options, WriteBatch* batch) override {
    if (batch == nullptr) {
      return Status::Corruption("Batch is nullptr!");
    }
    // Without ignore_missing_column_families the engine refuses every family that it does not know, the hidden one
    // too.
    const bool missing = options.ignore_missing_column_families;
    Status valid = ranges_.Check(*batch, missing ? unlogged_->MarksId() : std::nullopt);
    if (!valid.ok()) {
      return valid;
    }
    if (options.no_slowdown && Stalls()) {
      return Status::Incomplete("Write stall");
    }
    struct Call {
      Unlogged* unlogged;
      const WriteOptions* options;
      Slice batch;
      Status status;
    } call = {unlogged_, &options, batch->Data(), Status::OK()};
    auto apply = [](void* context, const FurrowMark* mark, uint64_t* last) -> uint8_t {
      Call* c = static_cast<Call*>(context);
      c->status = c->unlogged->Apply(*c->options, c->batch, mark, last);
      return c->status.ok() ? 1 : 0;
    };
    const int flags = (options.sync ? FURROW_WRITE_SYNCED : 0) | (options.disableWAL ? 0 : FURROW_WRITE_LOGGED) |
                      (options.ignore_missing_column_families ? FURROW_WRITE_IGNORE_MISSING : 0);
    FurrowStatus outcome = furrow_engine_write(engine_, call.batch.data(), call.batch.size(),
                                               static_cast<uint8_t>(flags), &call, apply);
    if (outcome.code == FURROW_APPLYING) {
      furrow_message_free(outcome.message, outcome.message_len);
      return call.status;
    }
    return ToIOStatus(outcome);
  }

  // Put, Delete, Merge and the like use DB's default implementations, which make a batch and call Write.
  using DB::Put;
  Status Put(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k, const Slice& v) override {
    return DB::Put(o, f, k, v);
  }
  Status Put(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k, const Slice& ts, const Slice& v) override {
    return DB::Put(o, f, k, ts, v);
  }
  using DB::PutEntity;
  Status PutEntity(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k,
                   const rocksdb::WideColumns& columns) override {
    return DB::PutEntity(o, f, k, columns);
  }
  using DB::Delete;
  Status Delete(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k) override { return DB::Delete(o, f, k); }
  Status Delete(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k, const Slice& ts) override {
    return DB::Delete(o, f, k, ts);
  }
  using DB::SingleDelete;
  Status SingleDelete(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k) override {
    return DB::SingleDelete(o, f, k);
  }
  Status SingleDelete(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k, const Slice& ts) override {
    return DB::SingleDelete(o, f, k, ts);
  }
  using DB::DeleteRange;
  Status DeleteRange(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& from, const Slice& to) override {
    return DB::DeleteRange(o, f, from, to);
  }
  using DB::Merge;
  Status Merge(const WriteOptions& o, ColumnFamilyHandle* f, const Slice& k, const Slice& v) override {
    return DB::Merge(o, f, k, v);
  }

  // The following methods are those that StackableDB does not pass on to the database.
  Status Resume() override {
    return unlogged_->Choose([this] { return db_->Resume(); });
  }
  Status GetStatsHistory(uint64_t from, uint64_t to, std::unique_ptr<rocksdb::StatsHistoryIterator>* it) override {
    return db_->GetStatsHistory(from, to, it);
  }
  void GetAllColumnFamilyMetaData(std::vector<rocksdb::ColumnFamilyMetaData>* families) override {
    db_->GetAllColumnFamilyMetaData(families);
    const auto hidden = [](const rocksdb::ColumnFamilyMetaData& family) { return family.name == kMarksFamily; };
    families->erase(std::remove_if(families->begin(), families->end(), hidden), families->end());
  }
  using DB::GetAggregatedIntProperty;
  bool GetAggregatedIntProperty(const Slice& property, uint64_t* value) override {
    const bool known = db_->GetAggregatedIntProperty(property, value);
    if (known) {
      *value -= std::min(*value, unlogged_->MarksProperty(property));
    }
    return known;
  }
  void GetLiveFilesMetaData(std::vector<rocksdb::LiveFileMetaData>* files) override {
    db_->GetLiveFilesMetaData(files);
    const auto hidden = [](const rocksdb::LiveFileMetaData& file) { return file.column_family_name == kMarksFamily; };
    files->erase(std::remove_if(files->begin(), files->end(), hidden), files->end());
  }
#if ROCKSDB_MAJOR < 8
  using DB::Get;
  using StackableDB::Get;
  Status Get(const rocksdb::ReadOptions& o, ColumnFamilyHandle* f, const Slice& k, rocksdb::PinnableSlice* v,
             std::string* ts) override {
    return db_->Get(o, f, k, v, ts);
  }
  using DB::MultiGet;
  using StackableDB::MultiGet;
  std::vector<Status> MultiGet(const rocksdb::ReadOptions& o, const std::vector<ColumnFamilyHandle*>& f,
                               const std::vector<Slice>& k, std::vector<std::string>* v,
                               std::vector<std::string>* ts) override {
    return db_->MultiGet(o, f, k, v, ts);
  }
  void MultiGet(const rocksdb::ReadOptions& o, ColumnFamilyHandle* f, const size_t n, const Slice* k,
                rocksdb::PinnableSlice* v, std::string* ts, Status* s, const bool sorted = false) override {
    db_->MultiGet(o, f, n, k, v, ts, s, sorted);
  }
  void MultiGet(const rocksdb::ReadOptions& o, const size_t n, ColumnFamilyHandle** f, const Slice* k,
                rocksdb::PinnableSlice* v, Status* s, const bool sorted = false) override {
    db_->MultiGet(o, n, f, k, v, s, sorted);
  }
  void MultiGet(const rocksdb::ReadOptions& o, const size_t n, ColumnFamilyHandle** f, const Slice* k,
                rocksdb::PinnableSlice* v, std::string* ts, Status* s, const bool sorted = false) override {
    db_->MultiGet(o, n, f, k, v, ts, s, sorted);
  }
#endif

  // RocksDB first flushes all families for a compaction of one family.
  using DB::CompactRange;
  Status CompactRange(const rocksdb::CompactRangeOptions& options, ColumnFamilyHandle* family, const Slice* begin,
                      const Slice* end) override {
    return unlogged_->CompactRange(options, family, begin, end);
  }

  using DB::CompactFiles;
  Status CompactFiles(const rocksdb::CompactionOptions& options, ColumnFamilyHandle* family,
                      const std::vector<std::string>& inputs, const int level, const int path,
                      std::vector<std::string>* const outputs, rocksdb::CompactionJobInfo* info) override {
    return unlogged_->CompactFiles(
        family->GetID(), [&] { return db_->CompactFiles(options, family, inputs, level, path, outputs, info); });
  }

  // Calls RocksDB's CancelAllBackgroundWork after a flush of all memtables, because no flush runs after that call.
  void CancelBackgroundWork(const std::function<void()>& cancel) {
    unlogged_->Flush().PermitUncheckedError();
    unlogged_->Choose([&] {
      cancel();
      return Status::OK();
    }).PermitUncheckedError();
  }

  // Flush writes all families together, because a parallel log's batches retire in order.
  using DB::Flush;
  Status Flush(const rocksdb::FlushOptions& options, ColumnFamilyHandle*) override {
    return unlogged_->Flush(options.wait);
  }
  Status Flush(const rocksdb::FlushOptions& options, const std::vector<ColumnFamilyHandle*>&) override {
    return unlogged_->Flush(options.wait);
  }

  Status SyncWAL() override { return ToIOStatus(furrow_engine_sync(engine_)); }
  Status FlushWAL(bool sync) override { return sync ? SyncWAL() : Status::OK(); }
  Status LockWAL() override { return NoLog("LockWAL"); }
  Status UnlockWAL() override { return NoLog("UnlockWAL"); }
  Status GetUpdatesSince(rocksdb::SequenceNumber, std::unique_ptr<rocksdb::TransactionLogIterator>*,
                         const rocksdb::TransactionLogIterator::ReadOptions&) override {
    return NoLog("GetUpdatesSince");
  }
  Status GetSortedWalFiles(rocksdb::VectorLogPtr&) override { return NoLog("GetSortedWalFiles"); }
  Status GetCurrentWalFile(std::unique_ptr<rocksdb::LogFile>*) override { return NoLog("GetCurrentWalFile"); }

  // The live files hold all data only after a flush. RocksDB's own flush would choose its families too early: see
  // FlushChoices.
  Status GetLiveFiles(std::vector<std::string>& files, uint64_t* manifest, bool) override {
    Status status = unlogged_->Flush();
    return status.ok() ? db_->GetLiveFiles(files, manifest, false) : status;
  }
  Status GetLiveFilesStorageInfo(const rocksdb::LiveFilesStorageInfoOptions& options,
                                 std::vector<rocksdb::LiveFileStorageInfo>* files) override {
    rocksdb::LiveFilesStorageInfoOptions flushed = options;
    flushed.wal_size_for_flush = std::numeric_limits<uint64_t>::max();
    Status status = unlogged_->Flush();
    return status.ok() ? db_->GetLiveFilesStorageInfo(flushed, files) : status;
  }

  Status CreateColumnFamily(const ColumnFamilyOptions& options, const std::string& name,
                            ColumnFamilyHandle** handle) override {
    *handle = nullptr;
    Status status = CheckFamily(name, options);
    return status.ok() ? Exclusive([&] { return Added(db_->CreateColumnFamily(options, name, handle), options, handle); })
                       : status;
  }
  Status CreateColumnFamilies(const ColumnFamilyOptions& options, const std::vector<std::string>& names,
                              std::vector<ColumnFamilyHandle*>* handles) override {
    std::vector<ColumnFamilyDescriptor> families;
    for (const std::string& name : names) {
      families.emplace_back(name, options);
    }
    return CreateColumnFamilies(families, handles);
  }
  Status CreateColumnFamilies(const std::vector<ColumnFamilyDescriptor>& families,
                              std::vector<ColumnFamilyHandle*>* handles) override {
    handles->clear();
    for (const ColumnFamilyDescriptor& family : families) {
      ColumnFamilyHandle* handle = nullptr;
      Status status = CreateColumnFamily(family.options, family.name, &handle);
      if (!status.ok()) {
        return status;
      }
      handles->push_back(handle);
    }
    return Status::OK();
  }
  Status DropColumnFamily(ColumnFamilyHandle* family) override {
    if (family->GetName() == kMarksFamily) {
      return Status::InvalidArgument("the family is the parallel log's own, and goes when the database is closed",
                                     kMarksFamily);
    }
    return Exclusive([&] {
      Status status = unlogged_->Drop(*family, [&] { return db_->DropColumnFamily(family); });
      if (status.ok()) {
        furrow_engine_remove_family(engine_, family->GetID());
      }
      return status;
    });
  }
  Status DropColumnFamilies(const std::vector<ColumnFamilyHandle*>& families) override {
    for (ColumnFamilyHandle* family : families) {
      Status status = DropColumnFamily(family);
      if (!status.ok()) {
        return status;
      }
    }
    return Status::OK();
  }

  using DB::IngestExternalFile;
  Status IngestExternalFile(ColumnFamilyHandle* family, const std::vector<std::string>& files,
                            const rocksdb::IngestExternalFileOptions& options) override {
    return PastTheLog([&] { return db_->IngestExternalFile(family, files, options); });
  }
  using DB::IngestExternalFiles;
  Status IngestExternalFiles(const std::vector<rocksdb::IngestExternalFileArg>& args) override {
    return PastTheLog([&] { return db_->IngestExternalFiles(args); });
  }
  using DB::CreateColumnFamilyWithImport;
  Status CreateColumnFamilyWithImport(const ColumnFamilyOptions& options, const std::string& name,
                                      const rocksdb::ImportColumnFamilyOptions& import_options,
                                      const rocksdb::ExportImportFilesMetaData& metadata,
                                      ColumnFamilyHandle** handle) override {
    *handle = nullptr;
    Status status = CheckFamily(name, options);
    return status.ok() ? PastTheLog([&] {
      return Added(db_->CreateColumnFamilyWithImport(options, name, import_options, metadata, handle), options, handle);
    })
                       : status;
  }

 private:
  static Status NoLog(const char* call) {
    return Status::NotSupported(call, "the writes are in a parallel log, not in RocksDB's; use FURROW_WAL=group");
  }

  bool Stalls() {
    uint64_t stopped = 0;
    uint64_t rate = 0;
    db_->GetIntProperty(rocksdb::DB::Properties::kIsWriteStopped, &stopped);
    db_->GetIntProperty(rocksdb::DB::Properties::kActualDelayedWriteRate, &rate);
    return stopped != 0 || rate != 0;
  }

  Status Exclusive(const std::function<Status()>& run) {
    struct Call {
      const std::function<Status()>* run;
      Status status;
    } call = {&run, Status::Aborted("the engine of the parallel log broke off; this is a bug")};
    furrow_engine_exclusive(engine_, &call, [](void* context) {
      Call* c = static_cast<Call*>(context);
      c->status = (*c->run)();
    });
    return call.status;
  }

  // Runs an operation that puts data into tables without the parallel log. A recovery must not let an older log
  // record undo that data.
  Status PastTheLog(const std::function<Status()>& run) {
    Status status = ToIOStatus(furrow_engine_exactly_once(engine_));
    return status.ok() ? Exclusive(run) : status;
  }

  Status Added(Status status, const ColumnFamilyOptions& options, ColumnFamilyHandle** handle) {
    FamilyHandle own;
    if (status.ok()) {
      status = SecondHandle(db_, **handle, &own);
    }
    if (status.ok()) {
      unlogged_->Add(std::move(own));
      ranges_.Add(**handle, options);
      FurrowFamily facts = Facts((*handle)->GetID(), options);
      furrow_engine_add_family(engine_, &facts);
    }
    return status;
  }

  Status CloseEngine() {
    // Background work that the program paused is resumed first, because closing the database needs flushes.
    while (db_->ContinueBackgroundWork().ok()) {
    }
    return ToIOStatus(furrow_engine_close(engine_));
  }

  FurrowHub* hub_;
  // The guard of RocksDB's own log, destroyed after the database, so that a refused write cannot still reach that
  // log.
  std::unique_ptr<EmptyLogGuard> empty_;
  Ranges ranges_;
  FurrowEngine* engine_ = nullptr;
  // Whether Close was called: a second Close does nothing and returns the first one's status.
  bool closed_ = false;
  Status closing_;
  // The database's write side; the parallel WAL engine owns it.
  Unlogged* unlogged_ = nullptr;
};

// True for the file system wrapper of db_bench --report_file_operations, which passes every call on unchanged. The
// wrapper does not count the parallel log's operations, which bypass it.
bool OnlyCounts(const rocksdb::FileSystem& wrapper, const FurrowFileSystem& fs) {
  return strcmp(wrapper.Name(), "CountedFileSystem") == 0 && wrapper.Inner() == &fs;
}

thread_local int opening = 0;

struct Opening {
  Opening() { ++opening; }
  ~Opening() { --opening; }
};

void Discard(DB* db, std::vector<ColumnFamilyHandle*>* handles) {
  for (ColumnFamilyHandle* handle : *handles) {
    db->DestroyColumnFamilyHandle(handle);
  }
  handles->clear();
}

}  // namespace

Status CheckVersion() {
  int compiled[3];
  int runtime[3];
  furrow_compiled_version(&compiled[0], &compiled[1], &compiled[2]);
  furrow_runtime_version(&runtime[0], &runtime[1], &runtime[2]);
  if (compiled[0] == runtime[0] && compiled[1] == runtime[1]) {
    return Status::OK();
  }
  return Status::NotSupported("FURROW_WAL: the plug-in was compiled against another RocksDB than it runs with",
                              rocksdb::GetRocksVersionAsString(true));
}

bool InParallelOpen() { return opening > 0; }

void CancelBackgroundWork(DB* db, bool wait, void (*cancel)(DB* db, bool wait)) {
  ParallelDb* parallel = nullptr;
  {
    std::lock_guard<std::mutex> lock(open_databases_mutex);
    const auto found = open_databases.find(db->GetRootDB());
    parallel = found == open_databases.end() ? nullptr : found->second;
  }
  if (parallel == nullptr) {
    cancel(db, wait);
  } else {
    parallel->CancelBackgroundWork([&] { cancel(db, wait); });
  }
}

}  // namespace furrow

using namespace furrow;  // NOLINT: the two functions are furrow's, with C's names

// Implements furrow_open_parallel of parallel_db.h; the plug-in's library exports the function under that name.
extern "C" Status furrow_open_parallel_here(const DBOptions& given, const std::string& name,
                                            const std::vector<ColumnFamilyDescriptor>& families,
                                            std::vector<ColumnFamilyHandle*>* handles, DB** db) {
  *db = nullptr;
  handles->clear();
  Status status = CheckVersion();
  if (!status.ok()) {
    return status;
  }
  if (given.env == nullptr) {
    return Status::InvalidArgument("the options have no Env (DBOptions::env)", name);
  }
  const std::shared_ptr<rocksdb::FileSystem> below = given.env->GetFileSystem();
  auto* fs = below == nullptr ? nullptr : below->CheckedCast<FurrowFileSystem>();
  if (fs == nullptr) {
    return Status::InvalidArgument("FURROW_WAL=waltz and auto keep their log on a zoned drive, and the database is not on one",
                                   name);
  }
  if (fs != below.get() && !OnlyCounts(*below, *fs)) {
    // The parallel log would bypass the wrapping file system: the log would be unencrypted, or in another directory.
    return Status::NotSupported(std::string("the file system is wrapped in ") + below->Name() +
                                    ", which the parallel log would go past; use FURROW_WAL=group",
                                name);
  }
  std::vector<ColumnFamilyDescriptor> all = families;
  bool marks_named = false;
  for (ColumnFamilyDescriptor& family : all) {
    if (family.name == kMarksFamily) {
      // The program named the hidden family: LoadLatestOptions returns it as well, because RocksDB's OPTIONS file
      // lists all families.
      marks_named = true;
      family.options = MarksOptions();
      continue;
    }
    status = CheckFamily(family.name, family.options);
    if (!status.ok()) {
      return status;
    }
  }
  Opening inside;
  OpensParallelLog opens;
  DBOptions options = given;
  for (std::shared_ptr<rocksdb::EventListener>& listener : options.listeners) {
    listener = VisibleListener(std::move(listener));
  }
  FurrowFlushEvents events = {};
  FurrowHub* hub = furrow_hub_new(&events);
  bool has_marks = false;
  status = PrepareUnlogged(events, &options);
  if (status.ok()) {
    status = HasMarks(options, name, &has_marks);
  }
  // A family that is named twice has two handles: one is the program's, the other the engine's.
  has_marks = has_marks || marks_named;
  if (has_marks) {
    all.emplace_back(kMarksFamily, MarksOptions());
  }
  DB* opened = nullptr;
  if (status.ok()) {
    status = DB::Open(options, name, all, handles, &opened);
  }
  if (!status.ok()) {
    furrow_hub_free(hub);
    return status;
  }
  ColumnFamilyHandle* marks = nullptr;
  if (has_marks) {
    marks = handles->back();
    handles->pop_back();
  }
  auto parallel = std::make_unique<ParallelDb>(opened, hub, std::make_unique<EmptyLogGuard>(fs, options, name));
  status = parallel->Start(fs->mount(), name, marks, *handles, families);
  if (!status.ok()) {
    Discard(opened, handles);
    return status;
  }
  *db = parallel.release();
  return status;
}

extern "C" Status furrow_list_parallel_here(const DBOptions& options, const std::string& name,
                                            std::vector<std::string>* families) {
  Status status = CheckVersion();
  if (!status.ok()) {
    return status;
  }
  Opening inside;
  OpensParallelLog opens;
  status = DB::ListColumnFamilies(options, name, families);
  families->erase(std::remove(families->begin(), families->end(), kMarksFamily), families->end());
  return status;
}
