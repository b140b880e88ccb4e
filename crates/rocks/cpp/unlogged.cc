#include "unlogged.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "rocksdb/options.h"
#include "rocksdb/version.h"

namespace furrow {

using rocksdb::Slice;
using rocksdb::Status;
using rocksdb::WriteBatch;
using rocksdb::WriteOptions;

const char kMarksFamily[] = "furrow.applied-batches";

namespace {

// Keys of the hidden family: "f" holds the floor, and 't' with a ticket in big-endian is that ticket's mark.
const char kFloorKey[] = "f";
constexpr char kTicket = 't';

std::string Number(uint64_t n) {
  std::string bytes(8, '\0');
  for (int i = 7; i >= 0; --i, n >>= 8) {
    bytes[static_cast<size_t>(i)] = static_cast<char>(n & 0xff);
  }
  return bytes;
}

std::string TicketKey(uint64_t ticket) { return kTicket + Number(ticket); }

void RaiseFloor(rocksdb::ColumnFamilyHandle* marks, uint64_t floor, WriteBatch* batch) {
  batch->DeleteRange(marks, TicketKey(0), TicketKey(floor));
  batch->Put(marks, kFloorKey, Number(floor));
}

const char kListener[] = "furrow.flushes";

// The most attempts of a flush that is repeated because column families were dropped during it.
constexpr int kFlushAttempts = 16;
// How long a drop of a column family waits for the flush of that family.
constexpr int kDropFlushMilliseconds = 2000;

}  // namespace

class Listener : public rocksdb::EventListener {
 public:
  explicit Listener(const FurrowFlushEvents& events) : events_(events) {}
  const char* Name() const override { return kListener; }
  // Reports that the memtables were found empty after `largest` had been written.
  void AllFlushed(uint64_t largest) { events_.all_flushed(events_.context, largest); }
  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { events_.begins(events_.context); }
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo& info) override {
    // The event covers one family only, because a program may flush a single family (GetRootDB()->Flush()).
    const uint32_t family = info.cf_name == kMarksFamily ? FURROW_MARKS_FAMILY : info.cf_id;
    events_.family_flushed(events_.context, family, info.largest_seqno);
  }
  void OnBackgroundError(rocksdb::BackgroundErrorReason, Status*) override { events_.fails(events_.context); }
  void OnStallConditionsChanged(const rocksdb::WriteStallInfo& info) override {
    const int now = info.condition.cur != rocksdb::WriteStallCondition::kNormal;
    const int before = info.condition.prev != rocksdb::WriteStallCondition::kNormal;
    if (now != before) {
      events_.stalls(events_.context, now - before);
    }
  }

 private:
  FurrowFlushEvents events_;
};

Status PrepareUnlogged(const FurrowFlushEvents& events, rocksdb::DBOptions* options) {
  if (options->allow_2pc) {
    return Status::NotSupported("allow_2pc", "the parallel log takes no prepared transactions; use FURROW_WAL=group");
  }
  if (options->persist_stats_to_disk) {
    return Status::NotSupported("persist_stats_to_disk",
                                "RocksDB writes its statistics past the parallel log; use FURROW_WAL=group");
  }
  options->atomic_flush = true;
  options->enable_pipelined_write = false;
  options->unordered_write = false;
  options->two_write_queues = false;
  // RocksDB's log must stay empty, and a write to it must fail at once: see LogsStayEmpty.
  options->manual_wal_flush = false;
  options->recycle_log_file_num = 0;
  options->wal_compression = rocksdb::kNoCompression;
#if ROCKSDB_MAJOR >= 10
  options->track_and_verify_wals = false;
#endif
  // Options copied from an open database with a parallel log contain that database's Listener. It is removed, because
  // its hub is not this database's.
  auto& listeners = options->listeners;
  auto ours = [](const std::shared_ptr<rocksdb::EventListener>& one) { return one && one->Name() == kListener; };
  listeners.erase(std::remove_if(listeners.begin(), listeners.end(), ours), listeners.end());
  listeners.push_back(std::make_shared<Listener>(events));
  return Status::OK();
}

rocksdb::ColumnFamilyOptions MarksOptions() {
  rocksdb::ColumnFamilyOptions options;
  options.max_write_buffer_number = std::numeric_limits<int>::max() / 2;
  options.level0_slowdown_writes_trigger = std::numeric_limits<int>::max() / 2;
  options.level0_stop_writes_trigger = std::numeric_limits<int>::max() / 2;
  options.soft_pending_compaction_bytes_limit = 0;
  options.hard_pending_compaction_bytes_limit = 0;
  return options;
}

Status HasMarks(const rocksdb::DBOptions& options, const std::string& path, bool* has) {
  *has = false;
  Status status = options.env->FileExists(path + "/CURRENT");
  if (!status.ok()) {
    return status.IsNotFound() ? Status::OK() : status;
  }
  std::vector<std::string> names;
  status = rocksdb::DB::ListColumnFamilies(options, path, &names);
  *has = std::find(names.begin(), names.end(), kMarksFamily) != names.end();
  return status;
}

Unlogged::Unlogged(rocksdb::DB* db, std::vector<rocksdb::ColumnFamilyHandle*> families,
                   rocksdb::ColumnFamilyHandle* marks)
    : db_(db), families_(std::move(families)), marks_(marks) {
  for (const auto& listener : db->GetDBOptions().listeners) {
    if (listener->Name() == kListener) {
      listener_ = std::static_pointer_cast<Listener>(listener);
    }
  }
}

Unlogged::~Unlogged() {
  if (marks_ != nullptr) {
    db_->DestroyColumnFamilyHandle(marks_);
  }
}

Status Unlogged::Apply(WriteOptions options, const Slice& batch, const FurrowMark* mark, uint64_t* last) {
  options.disableWAL = true;
  options.sync = false;
  // The priority concerns RocksDB's log, and RocksDB refuses the option when the log is off.
  options.rate_limiter_priority = rocksdb::Env::IO_TOTAL;
  WriteBatch copy(batch.ToString());
  const uint64_t records = copy.Count();
  if (mark != nullptr) {
    if (marks_ == nullptr) {
      return Status::Corruption("a batch has a mark, and the database no family for it");
    }
    Status status = copy.Put(marks_, TicketKey(mark->ticket), Slice());
    if (!status.ok()) {
      return status;
    }
    if (mark->raise != 0) {
      RaiseFloor(marks_, mark->floor, &copy);
    }
  }
  Status status = db_->Write(options, &copy);
  if (status.ok()) {
    // RocksDB has written the batch's first sequence number into the batch's header.
    uint64_t first = 0;
    const std::string& bytes = copy.Data();
    for (int i = 7; i >= 0; --i) {
      first = first << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
    }
    *last = first + records - 1;
  }
  return status;
}

bool Unlogged::AllInTables() {
  using Properties = rocksdb::DB::Properties;
  // Entries move from the active memtable to the immutable ones, so the properties are read in that order.
  for (const std::string& where : {Properties::kNumEntriesActiveMemTable, Properties::kNumEntriesImmMemTables}) {
    uint64_t entries = 0;
    if (!db_->GetAggregatedIntProperty(where, &entries) || entries != 0) {
      return false;
    }
  }
  return true;
}

Status Unlogged::Repeat(const std::function<Status()>& flush) {
  for (int attempt = 0;; ++attempt) {
    const uint64_t ended = drops_ended_;
    Status status = flush();
    if (!status.ok() && !status.IsColumnFamilyDropped()) {
      return status;
    }
    if (drops_begun_ == ended || attempt == kFlushAttempts) {
      return status;
    }
  }
}

Status Unlogged::Drop(rocksdb::ColumnFamilyHandle* family, const std::function<Status()>& drop) {
  // With marks, a flush of one family alone would put batches into tables without their marks.
  if (marks_ == nullptr) {
    FlushAlone(family);
  }
  ++drops_begun_;
  Status status = drop();
  ++drops_ended_;
  return status;
}

void Unlogged::FlushAlone(rocksdb::ColumnFamilyHandle* family) {
  using Properties = rocksdb::DB::Properties;
  const auto empty = [&] {
    uint64_t active = 0;
    uint64_t immutable = 0;
    return db_->GetIntProperty(family, Properties::kNumEntriesActiveMemTable, &active) &&
           db_->GetIntProperty(family, Properties::kNumEntriesImmMemTables, &immutable) && active + immutable == 0;
  };
  rocksdb::FlushOptions options;
  // The program may have paused the background work, so the flush is waited for below, and not for ever.
  options.wait = false;
  options.allow_write_stall = true;
  if (empty() || !db_->Flush(options, family).ok()) {
    return;
  }
  for (int waited = 0; waited < kDropFlushMilliseconds && !empty(); ++waited) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status Unlogged::Flush() {
  std::shared_lock<std::shared_mutex> lock(handles_);
  const uint64_t written = db_->GetLatestSequenceNumber();
  // RocksDB skips empty memtables itself. But a program may have stopped the background work, and a flush could then
  // fail or wait although all memtables are empty.
  Status status = AllInTables() ? Status::OK() : Repeat([this] { return FlushAll(); });
  if (status.ok() && listener_ != nullptr && AllInTables()) {
    // The tables' sequence numbers need not reach `written`: a single delete and its put leave no entry.
    listener_->AllFlushed(written);
  }
  return status;
}

Status Unlogged::EmptyMemtables() {
  for (int attempt = 0; attempt < kFlushAttempts; ++attempt) {
    Status status = Flush();
    if (!status.ok() || AllInTables()) {
      return status;
    }
  }
  return Status::Busy("memtables are not empty after a flush", "a write past the parallel log, or a dropped column family");
}

Status Unlogged::FlushAll() {
  if (!others_) {
    std::vector<rocksdb::ColumnFamilyHandle*> families = families_;
    if (marks_ != nullptr) {
      families.push_back(marks_);
    }
    rocksdb::FlushOptions options;
    // By default Flush first waits until level 0 has few tables; on a full drive that wait would never end.
    options.allow_write_stall = true;
    return db_->Flush(options, families);
  }
  // GetLiveFiles flushes all families without needing their handles.
  std::vector<std::string> files;
  uint64_t manifest = 0;
  return db_->GetLiveFiles(files, &manifest, true);
}

Status Unlogged::Floor(bool* has, uint64_t* floor) {
  *has = false;
  if (marks_ == nullptr) {
    return Status::OK();
  }
  std::string value;
  Status status = db_->Get(rocksdb::ReadOptions(), marks_, kFloorKey, &value);
  if (status.IsNotFound()) {
    return Status::OK();
  }
  if (status.ok() && value.size() != 8) {
    return Status::Corruption(std::string("the floor in ") + kMarksFamily, std::to_string(value.size()) + " bytes");
  }
  if (status.ok()) {
    *has = true;
    *floor = 0;
    for (char byte : value) {
      *floor = *floor << 8 | static_cast<uint8_t>(byte);
    }
  }
  return status;
}

Status Unlogged::IsMarked(uint64_t ticket, bool* marked) {
  *marked = false;
  if (marks_ == nullptr) {
    return Status::OK();
  }
  std::string value;
  Status status = db_->Get(rocksdb::ReadOptions(), marks_, TicketKey(ticket), &value);
  *marked = status.ok();
  return status.IsNotFound() ? Status::OK() : status;
}

Status Unlogged::SetFloor(uint64_t floor) {
  if (marks_ == nullptr) {
    std::unique_lock<std::shared_mutex> lock(handles_);
    Status status = db_->CreateColumnFamily(MarksOptions(), kMarksFamily, &marks_);
    if (!status.ok()) {
      return status;
    }
  }
  // No batch is being applied, and all of the log's records are in tables. Existing marks belong to another log: to a
  // former one of this database, or to that of the database that this checkpoint was taken from. Those tickets mean
  // nothing in this log.
  WriteBatch batch;
  batch.DeleteRange(marks_, TicketKey(0), std::string(1, kTicket + 1));
  batch.Put(marks_, kFloorKey, Number(floor));
  WriteOptions options;
  options.disableWAL = true;
  return db_->Write(options, &batch);
}

void Unlogged::LetGo() {
  std::unique_lock<std::shared_mutex> lock(handles_);
  if (marks_ != nullptr) {
    db_->DestroyColumnFamilyHandle(marks_);
    marks_ = nullptr;
  }
  // The hidden family may still exist, so a flush that names the families would miss it.
  others_ = true;
}

uint64_t Unlogged::MarksProperty(const Slice& property) {
  std::shared_lock<std::shared_mutex> lock(handles_);
  uint64_t value = 0;
  return marks_ != nullptr && db_->GetIntProperty(marks_, property, &value) ? value : 0;
}

Status Unlogged::DropMarks() {
  std::unique_lock<std::shared_mutex> lock(handles_);
  if (marks_ == nullptr) {
    return Status::OK();
  }
  Status status = Drop(marks_, [this] { return db_->DropColumnFamily(marks_); });
  if (status.ok()) {
    status = db_->DestroyColumnFamilyHandle(marks_);
    marks_ = nullptr;
  }
  return status;
}

}  // namespace furrow
