#include "db.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "expiry.h"
#include "file_system.h"
#include "host.h"
#include "parallel_abi.h"
#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/write_batch.h"

using rocksdb::Slice;
using rocksdb::Status;

// Members are destroyed from the last to the first: the database before its Env, and the Env before the mount.
struct RocksDb {
  std::shared_ptr<rocksdb::FileSystem> fs;
  std::unique_ptr<rocksdb::Env> env;
  std::shared_ptr<rocksdb::Cache> cache;
  std::unique_ptr<furrow::EmptyLogGuard> empty;
  std::unique_ptr<rocksdb::DB> db;
  // Handles of the column families besides the default one.
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  std::unique_ptr<furrow::Unlogged> unlogged;
  // State of the bound on max_compaction_bytes. `usual`: max_compaction_bytes before the bound was set. `narrow`:
  // max_compaction_bytes differs from `usual` now. `bounded`: the number of running compactions that need the bound.
  // The mutex `bound` guards the other three.
  std::mutex bound;
  uint64_t usual = 0;
  std::atomic<bool> narrow{false};
  int bounded = 0;

  rocksdb::Status Bind(uint64_t bytes) {
    if (!narrow) {
      usual = db->GetOptions().max_compaction_bytes;
      narrow = true;
    }
    return db->SetOptions({{"max_compaction_bytes", std::to_string(bytes)}});
  }
  rocksdb::Status Unbind() {
    if (!narrow) {
      return rocksdb::Status::OK();
    }
    rocksdb::Status status = db->SetOptions({{"max_compaction_bytes", std::to_string(usual)}});
    narrow = !status.ok();
    return status;
  }
};

// A value of the database in the block cache. Holds the cache, so the value may outlive the database.
struct RocksPin {
  std::shared_ptr<rocksdb::Cache> cache;
  rocksdb::PinnableSlice slice;
};

struct RocksCursor {
  std::unique_ptr<rocksdb::Iterator> it;
};

struct RocksBatch {
  rocksdb::WriteBatch batch;
};

namespace {

// The number and the size in bytes of a database's LOG files.
constexpr size_t kLogFiles = 4;
constexpr size_t kLogFileBytes = 8 << 20;
constexpr int kBloomBitsPerKey = 10;

// Bound of a compaction's input, in tables. A compaction keeps its input until it is done, and needs as much room for
// its output. This many tables are a little more than one table and the tables that it overlaps in the next level,
// which is ten times as large. RocksDB's own bound is 25.
constexpr uint64_t kCompactionTables = 12;

// A merge operator that adds numbers, for tests and counters.
class Adder : public rocksdb::AssociativeMergeOperator {
 public:
  bool Merge(const Slice&, const Slice* existing, const Slice& value, std::string* out,
             rocksdb::Logger*) const override {
    uint64_t sum = 0;
    if (value.size() != sizeof(sum) || (existing != nullptr && existing->size() != sizeof(sum))) {
      return false;
    }
    memcpy(&sum, value.data(), sizeof(sum));
    if (existing != nullptr) {
      uint64_t before = 0;
      memcpy(&before, existing->data(), sizeof(before));
      sum += before;
    }
    out->assign(reinterpret_cast<const char*>(&sum), sizeof(sum));
    return true;
  }
  const char* Name() const override { return "furrow.adder"; }
};

Slice S(RocksSlice slice) { return Slice(slice.data, slice.len); }
RocksSlice R(const Slice& slice) { return RocksSlice{slice.data(), slice.size()}; }

char* Copy(const std::string& text) {
  char* copy = static_cast<char*>(malloc(text.size() + 1));
  if (copy != nullptr) {
    memcpy(copy, text.c_str(), text.size() + 1);
  }
  return copy;
}

RocksStatus ToRocksStatus(const Status& status) {
  RocksStatus result = {};
  if (status.ok()) {
    return result;
  }
  if (status.IsNotFound()) {
    result.code = ROCKS_NOT_FOUND;
  } else if (status.IsNoSpace()) {
    result.code = ROCKS_NO_SPACE;
  } else if (status.IsCorruption()) {
    result.code = ROCKS_CORRUPTION;
  } else if (status.IsInvalidArgument() || status.IsNotSupported()) {
    result.code = ROCKS_INVALID;
  } else if (status.IsIOError()) {
    result.code = ROCKS_IO_ERROR;
  } else if (status.IsBusy() || status.IsTryAgain() || status.IsTimedOut() || status.IsIncomplete()) {
    result.code = ROCKS_BUSY;
    result.retryable = 1;
  } else {
    result.code = ROCKS_OTHER;
  }
  const std::string text = status.ToString();
  result.message = Copy(text);
  result.message_len = result.message == nullptr ? 0 : text.size();
  return result;
}

rocksdb::Options MakeOptions(const RocksOptions& given, const RocksDb& db, const FurrowFs* mount) {
  rocksdb::Options options;
  options.env = db.env.get();
  options.create_if_missing = given.create != 0;
  options.paranoid_checks = true;
  // After a crash a log file returns an intact prefix of the written bytes, so both kPointInTimeRecovery and
  // kTolerateCorruptedTailRecords recover a cut log. Only kPointInTimeRecovery also stops at a gap between two log
  // files, and opens the database at a consistent point in time when a log's tail was lost.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.write_buffer_size = given.write_buffer;
  options.max_write_buffer_number = given.write_buffers;
  options.max_background_jobs = given.background_jobs;
  options.target_file_size_base = given.table_size;
  options.compaction_readahead_size = given.compaction_read;
  options.max_bytes_for_level_base = std::max<uint64_t>(given.write_buffer * 4, given.table_size * 4);
  options.max_compaction_bytes = given.table_size * kCompactionTables;
  options.level_compaction_dynamic_level_bytes = true;
  // Background threads delete files, and with them reset zones.
  options.avoid_unnecessary_blocking_io = true;
  options.avoid_flush_during_recovery = given.keep_recovered != 0;
  options.skip_stats_update_on_db_open = true;
  options.keep_log_file_num = kLogFiles;
  options.max_log_file_size = kLogFileBytes;
  // A zone cannot be overwritten: recycling a log file would save nothing.
  options.recycle_log_file_num = 0;
  options.compression = given.compression ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;
  if (given.adds) {
    options.merge_operator = std::make_shared<Adder>();
  }
  if (given.expiry) {
    options.compaction_filter_factory = std::make_shared<furrow::ExpiryFilterFactory>(mount);
  }
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = db.cache;
  if (given.prepopulate) {
    table.prepopulate_block_cache = rocksdb::BlockBasedTableOptions::PrepopulateBlockCache::kFlushOnly;
  }
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBitsPerKey));
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

RocksPin* Pin(RocksDb* db) {
  auto pin = std::make_unique<RocksPin>();
  pin->cache = db->cache;
  return pin.release();
}

}  // namespace

void rocks_free(char* message) noexcept { free(message); }

namespace {

RocksStatus Open(std::shared_ptr<rocksdb::FileSystem> fs, const FurrowFs* mount, RocksSlice path,
                 const RocksOptions& given, RocksDb** out) {
  *out = nullptr;
  auto db = std::make_unique<RocksDb>();
  db->fs = std::move(fs);
  db->env = rocksdb::NewCompositeEnv(db->fs);
  db->cache = rocksdb::NewLRUCache(given.block_cache);
  rocksdb::Options options = MakeOptions(given, *db, mount);
  const std::string name(path.data, path.len);
  options.create_missing_column_families = given.families > 0;
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  std::optional<furrow::OpensParallelLog> opens;
  bool has_marks = false;
  Status status;
  if (given.unlogged) {
    opens.emplace();
    status = furrow::PrepareUnlogged(given.events, &options);
    if (status.ok()) {
      status = furrow::HasMarks(options, name, &has_marks);
    }
  } else if (!furrow::HasMarks(options, name, &has_marks).ok()) {
    // The error is ignored: opening the database below reports it.
    has_marks = false;
  }
  families.emplace_back(rocksdb::kDefaultColumnFamilyName, options);
  for (int n = 1; n <= given.families; ++n) {
    families.emplace_back("family" + std::to_string(n), options);
  }
  if (has_marks) {
    families.emplace_back(furrow::kMarksFamily, furrow::MarksOptions());
  }
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  if (status.ok()) {
    status = rocksdb::DB::Open(options, name, families, &handles, &opened);
  }
  if (status.ok()) {
    db->db.reset(opened);
    // The database holds its own handle of the default family.
    opened->DestroyColumnFamilyHandle(handles[0]);
    db->families.assign(handles.begin() + 1, handles.begin() + 1 + given.families);
    furrow::FamilyHandle marks = has_marks ? furrow::OwnHandle(opened, handles.back()) : nullptr;
    if (given.unlogged) {
      std::vector<furrow::FamilyHandle> all = {furrow::BorrowedHandle(opened->DefaultColumnFamily())};
      for (rocksdb::ColumnFamilyHandle* family : db->families) {
        all.push_back(furrow::BorrowedHandle(family));
      }
      db->unlogged = std::make_unique<furrow::Unlogged>(opened, std::move(all), std::move(marks));
      if (auto* zoned = db->fs->CheckedCast<furrow::FurrowFileSystem>()) {
        db->empty = std::make_unique<furrow::EmptyLogGuard>(zoned, options, name);
      }
    } else if (has_marks) {
      // Either a close was interrupted after it removed the parallel log, or this database is a checkpoint. In both
      // cases every batch is in tables, so the marks are useless.
      status = furrow::Unlogged(opened, {}, std::move(marks)).DropMarks();
    }
  }
  if (status.ok()) {
    *out = db.release();
  } else if (db->db != nullptr) {
    for (rocksdb::ColumnFamilyHandle* family : db->families) {
      opened->DestroyColumnFamilyHandle(family);
    }
  }
  return ToRocksStatus(status);
}

const Status kLogged = Status::InvalidArgument("the database was not opened for a parallel log");

}  // namespace

RocksStatus rocks_open(FurrowFs* fs, RocksSlice path, const RocksOptions* given, RocksDb** out) noexcept {
  return Open(std::make_shared<furrow::FurrowFileSystem>(fs), fs, path, *given, out);
}

RocksStatus rocks_open_host(RocksSlice path, const RocksOptions* given, RocksDb** out) noexcept {
  return Open(std::make_shared<furrow::HostFileSystem>(), nullptr, path, *given, out);
}

void rocks_host_replay(const RocksDb* db, uint64_t* nanos, uint64_t* bytes) noexcept {
  static_cast<const furrow::HostFileSystem*>(db->fs.get())->Replayed(nanos, bytes);
}

RocksDb* rocks_adopt(rocksdb::DB* db, std::vector<furrow::FamilyHandle> families,
                     furrow::FamilyHandle marks) noexcept {
  auto side = std::make_unique<RocksDb>();
  side->unlogged = std::make_unique<furrow::Unlogged>(db, std::move(families), std::move(marks));
  return side.release();
}

furrow::Unlogged* rocks_unlogged(RocksDb* db) noexcept { return db->unlogged.get(); }

RocksStatus rocks_close(RocksDb* db) noexcept {
  std::unique_ptr<RocksDb> owned(db);
  owned->unlogged.reset();
  for (rocksdb::ColumnFamilyHandle* family : owned->families) {
    owned->db->DestroyColumnFamilyHandle(family);
  }
  if (owned->db == nullptr) {
    // The `RocksDb` must not close the adopted database: the caller of rocks_adopt owns it.
    return RocksStatus{};
  }
  rocksdb::CancelAllBackgroundWork(owned->db.get(), true);
  Status status = owned->db->Close();
  return ToRocksStatus(status);
}

RocksStatus rocks_write(RocksDb* db, RocksBatch* batch, uint8_t sync) noexcept {
  rocksdb::WriteOptions options;
  options.sync = sync != 0;
  return ToRocksStatus(db->db->Write(options, &batch->batch));
}

RocksStatus rocks_apply(RocksDb* db, RocksSlice batch, uint8_t flags, const FurrowMark* mark,
                        uint64_t* last) noexcept {
  rocksdb::WriteOptions options;
  options.ignore_missing_column_families = (flags & ROCKS_IGNORE_MISSING) != 0;
  options.no_slowdown = (flags & ROCKS_NO_WAIT) != 0;
  return ToRocksStatus(db->unlogged ? db->unlogged->Apply(options, S(batch), mark, last) : kLogged);
}

RocksStatus rocks_flush_all(RocksDb* db) noexcept {
  return ToRocksStatus(db->unlogged ? db->unlogged->Flush() : kLogged);
}

RocksStatus rocks_empty_memtables(RocksDb* db) noexcept {
  return ToRocksStatus(db->unlogged ? db->unlogged->EmptyMemtables() : kLogged);
}

RocksStatus rocks_marks_floor(RocksDb* db, uint8_t* has, uint64_t* floor) noexcept {
  bool found = false;
  Status status = db->unlogged ? db->unlogged->Floor(&found, floor) : kLogged;
  *has = found ? 1 : 0;
  return ToRocksStatus(status);
}

RocksStatus rocks_is_marked(RocksDb* db, uint64_t ticket, uint8_t* marked) noexcept {
  bool found = false;
  Status status = db->unlogged ? db->unlogged->IsMarked(ticket, &found) : kLogged;
  *marked = found ? 1 : 0;
  return ToRocksStatus(status);
}

RocksStatus rocks_set_marks_floor(RocksDb* db, uint64_t floor) noexcept {
  return ToRocksStatus(db->unlogged ? db->unlogged->SetFloor(floor) : kLogged);
}

RocksStatus rocks_drop_marks(RocksDb* db) noexcept {
  return ToRocksStatus(db->unlogged ? db->unlogged->DropMarks() : kLogged);
}

RocksStatus rocks_get(RocksDb* db, RocksSlice key, RocksPin** pin, RocksSlice* value) noexcept {
  *pin = nullptr;
  std::unique_ptr<RocksPin> found(Pin(db));
  Status status = db->db->Get(rocksdb::ReadOptions(), db->db->DefaultColumnFamily(), S(key), &found->slice);
  if (status.IsNotFound()) {
    return RocksStatus{};
  }
  if (status.ok()) {
    *value = R(found->slice);
    *pin = found.release();
  }
  return ToRocksStatus(status);
}

RocksStatus rocks_multi_get(RocksDb* db, const RocksSlice* keys, size_t n, RocksPin** pins,
                            RocksSlice* values) noexcept {
  std::vector<Slice> names;
  names.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    names.push_back(S(keys[i]));
    pins[i] = nullptr;
  }
  std::vector<rocksdb::PinnableSlice> found(n);
  std::vector<Status> statuses(n);
  db->db->MultiGet(rocksdb::ReadOptions(), db->db->DefaultColumnFamily(), n, names.data(), found.data(),
                   statuses.data());
  for (size_t i = 0; i < n; ++i) {
    if (!statuses[i].ok() && !statuses[i].IsNotFound()) {
      return ToRocksStatus(statuses[i]);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    if (statuses[i].ok()) {
      pins[i] = Pin(db);
      pins[i]->slice = std::move(found[i]);
      values[i] = R(pins[i]->slice);
    }
  }
  return RocksStatus{};
}

void rocks_pin_free(RocksPin* pin) noexcept {
  // The pinned value must release its block while the cache exists.
  pin->slice.Reset();
  delete pin;
}

RocksCursor* rocks_cursor(RocksDb* db, uint32_t family, RocksSlice from) noexcept {
  if (family > db->families.size()) {
    return nullptr;
  }
  rocksdb::ColumnFamilyHandle* in = family == 0 ? db->db->DefaultColumnFamily() : db->families[family - 1];
  auto cursor = std::make_unique<RocksCursor>();
  cursor->it.reset(db->db->NewIterator(rocksdb::ReadOptions(), in));
  cursor->it->Seek(S(from));
  return cursor.release();
}

void rocks_cursor_free(RocksCursor* cursor) noexcept { delete cursor; }

void rocks_cursor_seek(RocksCursor* cursor, RocksSlice key) noexcept { cursor->it->Seek(S(key)); }

void rocks_cursor_next(RocksCursor* cursor) noexcept {
  if (cursor->it->Valid()) {
    cursor->it->Next();
  }
}

uint8_t rocks_cursor_entry(const RocksCursor* cursor, RocksSlice* key, RocksSlice* value) noexcept {
  if (!cursor->it->Valid()) {
    return 0;
  }
  *key = R(cursor->it->key());
  *value = R(cursor->it->value());
  return 1;
}

RocksStatus rocks_cursor_status(const RocksCursor* cursor) noexcept { return ToRocksStatus(cursor->it->status()); }

char* rocks_property(RocksDb* db, RocksSlice name, size_t* len) noexcept {
  std::string value;
  if (!db->db->GetProperty(S(name), &value)) {
    return nullptr;
  }
  *len = value.size();
  return Copy(value);
}

RocksStatus rocks_flush(RocksDb* db) noexcept { return ToRocksStatus(db->db->Flush(rocksdb::FlushOptions())); }

RocksStatus rocks_sync_wal(RocksDb* db) noexcept { return ToRocksStatus(db->db->FlushWAL(true)); }

uint8_t rocks_is_bound(RocksDb* db) noexcept { return db->narrow ? 1 : 0; }

RocksStatus rocks_unbound(RocksDb* db) noexcept {
  std::lock_guard<std::mutex> lock(db->bound);
  return ToRocksStatus(db->bounded == 0 ? db->Unbind() : Status::OK());
}

RocksStatus rocks_compact(RocksDb* db, uint64_t most) noexcept {
  if (most != 0) {
    std::lock_guard<std::mutex> lock(db->bound);
    Status status = db->Bind(most);
    if (!status.ok()) {
      return ToRocksStatus(status);
    }
    ++db->bounded;
  }
  rocksdb::CompactRangeOptions options;
  options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
  // By default CompactRange first waits until level 0 has few tables. On a full drive no compaction succeeds, and the
  // wait would never end.
  options.allow_write_stall = true;
  rocksdb::ColumnFamilyHandle* family = db->db->DefaultColumnFamily();
  Status status = db->unlogged ? db->unlogged->CompactRange(options, family, nullptr, nullptr)
                               : db->db->CompactRange(options, family, nullptr, nullptr);
  if (most != 0) {
    std::lock_guard<std::mutex> lock(db->bound);
    if (--db->bounded == 0) {
      Status restored = db->Unbind();
      status = status.ok() ? restored : status;
    }
  }
  return ToRocksStatus(status);
}

RocksBatch* rocks_batch_new(void) noexcept { return new RocksBatch; }

RocksBatch* rocks_batch_of(RocksSlice data) noexcept {
  return new RocksBatch{rocksdb::WriteBatch(std::string(data.data, data.len))};
}

void rocks_batch_free(RocksBatch* batch) noexcept { delete batch; }

RocksStatus rocks_batch_put(RocksBatch* batch, RocksSlice key, RocksSlice value) noexcept {
  return ToRocksStatus(batch->batch.Put(S(key), S(value)));
}

RocksStatus rocks_batch_delete(RocksBatch* batch, RocksSlice key) noexcept {
  return ToRocksStatus(batch->batch.Delete(S(key)));
}

RocksStatus rocks_batch_delete_range(RocksBatch* batch, RocksSlice from, RocksSlice to) noexcept {
  return ToRocksStatus(batch->batch.DeleteRange(S(from), S(to)));
}

RocksStatus rocks_batch_single_delete(RocksBatch* batch, RocksSlice key) noexcept {
  return ToRocksStatus(batch->batch.SingleDelete(S(key)));
}

RocksStatus rocks_batch_merge(RocksBatch* batch, RocksSlice key, RocksSlice value) noexcept {
  return ToRocksStatus(batch->batch.Merge(S(key), S(value)));
}

RocksStatus rocks_batch_log_data(RocksBatch* batch, RocksSlice data) noexcept {
  return ToRocksStatus(batch->batch.PutLogData(S(data)));
}

void rocks_batch_set_save_point(RocksBatch* batch) noexcept { batch->batch.SetSavePoint(); }

RocksStatus rocks_batch_rollback(RocksBatch* batch) noexcept {
  return ToRocksStatus(batch->batch.RollbackToSavePoint());
}

RocksSlice rocks_batch_data(const RocksBatch* batch) noexcept { return R(batch->batch.Data()); }

void rocks_batch_clear(RocksBatch* batch) noexcept { batch->batch.Clear(); }

size_t rocks_batch_count(const RocksBatch* batch) noexcept { return static_cast<size_t>(batch->batch.Count()); }

size_t rocks_batch_bytes(const RocksBatch* batch) noexcept { return batch->batch.GetDataSize(); }
