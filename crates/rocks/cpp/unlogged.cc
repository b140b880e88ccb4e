#include "unlogged.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "rocksdb/options.h"
#include "rocksdb/version.h"

namespace furrow {

using rocksdb::Slice;
using rocksdb::Status;
using rocksdb::WriteBatch;
using rocksdb::WriteOptions;

const char kMarksFamily[] = "furrow.applied-batches";

namespace {

// Keys of the hidden family of marks: "f" holds the floor, 't' with a ticket in big-endian is that ticket's mark, and
// "e" with an empty value makes the memtable not empty.
const char kFloorKey[] = "f";
const char kEntryKey[] = "e";
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

}  // namespace

class Listener : public rocksdb::EventListener {
 public:
  explicit Listener(const FurrowFlushEvents& events) : events_(events) {}
  const char* Name() const override { return kListener; }
  const std::shared_ptr<FlushChoices>& choices() const { return choices_; }
  // Reports that the memtables of `family` were found empty after the sequence number `largest` had been written.
  void InTables(const rocksdb::ColumnFamilyHandle& family, uint64_t largest) {
    Flushed(family.GetName(), family.GetID(), largest);
  }
  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { events_.begins(events_.context); }
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo& info) override {
    // RocksDB's flush event covers one family only, because a program may flush a single family
    // (GetRootDB()->Flush()).
    Flushed(info.cf_name, info.cf_id, info.largest_seqno);
  }
  void OnMemTableSealed(const rocksdb::MemTableInfo&) override { choices_->MemtableSwitched(); }
  void OnCompactionBegin(rocksdb::DB*, const rocksdb::CompactionJobInfo& info) override {
    if (info.compaction_reason == rocksdb::CompactionReason::kManualCompaction) {
      choices_->CompactionBegun(info.cf_id);
    }
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
  void Flushed(const std::string& name, uint32_t family, uint64_t largest) {
    events_.family_flushed(events_.context, name == kMarksFamily ? FURROW_MARKS_FAMILY : family, largest);
  }

  FurrowFlushEvents events_;
  std::shared_ptr<FlushChoices> choices_ = std::make_shared<FlushChoices>();
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
  // RocksDB's log must stay empty, and a write to it must fail at once: see EmptyLogGuard.
  options->manual_wal_flush = false;
  options->recycle_log_file_num = 0;
  options->wal_compression = rocksdb::kNoCompression;
#if ROCKSDB_MAJOR >= 10
  options->track_and_verify_wals = false;
#endif
  // Options copied from an open database with a parallel log contain that database's Listener. That Listener is
  // removed, because its hub is not this database's.
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

Unlogged::Unlogged(rocksdb::DB* db, std::vector<FamilyHandle> families, FamilyHandle marks)
    : db_(db), families_(std::move(families)), marks_(std::move(marks)) {
  for (const auto& listener : db->GetDBOptions().listeners) {
    if (listener->Name() == kListener) {
      listener_ = std::static_pointer_cast<Listener>(listener);
    }
  }
  choices_ = listener_ != nullptr ? listener_->choices() : std::make_shared<FlushChoices>();
  if (marks_ != nullptr) {
    choices_->BatchesHaveMarks();
  }
}

Status Unlogged::Apply(WriteOptions options, const Slice& batch, const FurrowMark* mark, uint64_t* last) {
  options.disableWAL = true;
  options.sync = false;
  // rate_limiter_priority concerns RocksDB's log, and RocksDB refuses the option when that log is off.
  options.rate_limiter_priority = rocksdb::Env::IO_TOTAL;
  WriteBatch copy(batch.ToString());
  const uint64_t records = copy.Count();
  if (mark != nullptr) {
    if (marks_ == nullptr) {
      return Status::Corruption("a batch has a mark, and the database no family for it");
    }
    Status status = copy.Put(marks_.get(), TicketKey(mark->ticket), Slice());
    if (!status.ok()) {
      return status;
    }
    if (mark->raise != 0) {
      RaiseFloor(marks_.get(), mark->floor, &copy);
    }
  }
  // Without a hidden family a flush of a part of the families harms nothing: each family's records retire by its own
  // flush events.
  std::optional<FlushChoices::Write> applying;
  if (marks_ != nullptr) {
    applying.emplace(*choices_, !options.no_slowdown);
    if (!applying->entered()) {
      return Status::Incomplete("Write stall", "a flush of all families begins");
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

FamilyHandle Unlogged::Marks() {
  std::lock_guard<std::mutex> lock(families_mutex_);
  return marks_;
}

std::vector<FamilyHandle> Unlogged::Families() {
  std::lock_guard<std::mutex> lock(families_mutex_);
  std::vector<FamilyHandle> all = families_;
  if (marks_ != nullptr) {
    all.push_back(marks_);
  }
  return all;
}

void Unlogged::Add(FamilyHandle family) {
  std::lock_guard<std::mutex> lock(families_mutex_);
  families_.push_back(std::move(family));
}

Status Unlogged::Drop(const rocksdb::ColumnFamilyHandle& family, const std::function<Status()>& drop) {
  std::shared_lock<std::shared_mutex> dropping(drops_);
  ++drops_begun_;
  Status status = drop();
  if (status.ok()) {
    // The handles of dropped families, destroyed after the lock is released: RocksDB calls a program's listener when
    // a handle ends.
    std::vector<FamilyHandle> dropped;
    std::lock_guard<std::mutex> lock(families_mutex_);
    const auto other = [&](const FamilyHandle& one) { return one->GetID() != family.GetID(); };
    const auto first = std::stable_partition(families_.begin(), families_.end(), other);
    dropped.assign(std::make_move_iterator(first), std::make_move_iterator(families_.end()));
    families_.erase(first, families_.end());
  }
  return status;
}

bool Unlogged::InTables(const FamilyHandle& family) {
  using Properties = rocksdb::DB::Properties;
  // Entries move from the active memtable to the immutable ones, so the properties are read in that order.
  for (const std::string& where : {Properties::kNumEntriesActiveMemTable, Properties::kNumEntriesImmMemTables}) {
    uint64_t entries = 0;
    if (!db_->GetIntProperty(family.get(), where, &entries) || entries != 0) {
      return false;
    }
  }
  return true;
}

bool Unlogged::AllInTables() {
  const std::vector<FamilyHandle> families = Families();
  return std::all_of(families.begin(), families.end(), [this](const FamilyHandle& one) { return InTables(one); });
}

Status Unlogged::SwitchAll(bool wait) {
  const std::vector<FamilyHandle> families = Families();
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  for (const FamilyHandle& family : families) {
    handles.push_back(family.get());
  }
  rocksdb::FlushOptions options;
  // By default Flush first waits until level 0 has few tables; on a full drive that wait would never end.
  options.allow_write_stall = true;
  options.wait = wait;
  return db_->Flush(options, handles);
}

void Unlogged::FillMarks() {
  const FamilyHandle marks = Marks();
  uint64_t entries = 0;
  if (marks == nullptr || !db_->GetIntProperty(marks.get(), rocksdb::DB::Properties::kNumEntriesActiveMemTable, &entries) ||
      entries != 0) {
    return;
  }
  WriteOptions options;
  options.disableWAL = true;
  // If RocksDB waits for the end of a write stall, the choice lasts until the call returns: writes wait for the stall
  // anyway.
  options.no_slowdown = true;
  db_->Put(options, marks.get(), kEntryKey, Slice()).PermitUncheckedError();
}

Status Unlogged::FlushUndropped(const std::function<Status()>& flush) {
  for (int attempt = 0; attempt < kFlushAttempts; ++attempt) {
    const uint64_t begun = drops_begun_;
    Status status = flush();
    if (!status.IsColumnFamilyDropped() && (!status.ok() || drops_begun_ == begun)) {
      return status;
    }
    // Locking shared waits while a flush excludes drops.
    std::unique_lock<std::shared_mutex> no_drops(drops_);
  }
  // The exclusive lock keeps families from being dropped during the last attempt of the flush.
  std::unique_lock<std::shared_mutex> no_drops(drops_);
  return flush();
}

void Unlogged::ReportEmpty(uint64_t written) {
  if (listener_ == nullptr) {
    return;
  }
  // The tables' sequence numbers need not reach `written`: a single delete and its put leave no entry.
  for (const FamilyHandle& family : Families()) {
    if (InTables(family)) {
      listener_->InTables(*family, written);
    }
  }
}

Status Unlogged::Flush(bool wait) {
  const uint64_t written = db_->GetLatestSequenceNumber();
  const auto flush = [&] {
    FlushChoice choice(*choices_);
    // RocksDB skips empty memtables itself. But a program may have stopped the background work, and a flush could then
    // fail or wait although all memtables are empty.
    if (AllInTables()) {
      return Status::OK();
    }
    if (choice.marks()) {
      // With an entry in the marks' memtable the flush switches a memtable, which ends the FlushChoice.
      FillMarks();
    }
    return SwitchAll(wait);
  };
  Status status = wait ? FlushUndropped(flush) : flush();
  if (status.ok()) {
    ReportEmpty(written);
  }
  return status;
}

Status Unlogged::EmptyMemtables() {
  for (int attempt = 0; attempt < kFlushAttempts; ++attempt) {
    const uint64_t written = db_->GetLatestSequenceNumber();
    // No batch is being applied and no family is created, so the flush needs no FlushChoice.
    Status status = FlushUndropped([this] { return AllInTables() ? Status::OK() : SwitchAll(true); });
    if (!status.ok()) {
      return status;
    }
    ReportEmpty(written);
    if (AllInTables()) {
      return status;
    }
  }
  return Status::Busy("memtables are not empty after a flush", "a write past the parallel log");
}

Status Unlogged::CompactRange(const rocksdb::CompactRangeOptions& options, rocksdb::ColumnFamilyHandle* family,
                              const Slice* begin, const Slice* end) {
  const FlushChoices::Compaction compaction(*choices_, family->GetID());
  Status status;
  for (int attempt = 0; attempt < kFlushAttempts; ++attempt) {
    FlushChoice choice(*choices_, family->GetID());
    rocksdb::CompactRangeOptions now = options;
    if (choice.marks()) {
      // The FlushChoice keeps writes out: a wait for the end of a write stall would itself stall writes.
      now.allow_write_stall = true;
      if (begin == nullptr || end == nullptr) {
        // With an entry in the marks' memtable RocksDB's flush switches a memtable, which ends the FlushChoice. A
        // compaction of a bounded range may need no flush.
        FillMarks();
      }
    }
    status = db_->CompactRange(now, family, begin, end);
    // RocksDB flushes all families first, and abandons that flush if another family is dropped meanwhile.
    if (!status.IsColumnFamilyDropped() || !IsOpen(*family)) {
      break;
    }
  }
  return status;
}

Status Unlogged::CompactFiles(uint32_t family, const std::function<Status()>& compact) {
  const FlushChoices::Compaction compaction(*choices_, family);
  return compact();
}

Status Unlogged::Choose(const std::function<Status()>& call) {
  FlushChoice choice(*choices_);
  return call();
}

bool Unlogged::IsOpen(const rocksdb::ColumnFamilyHandle& family) {
  std::lock_guard<std::mutex> lock(families_mutex_);
  const auto same = [&](const FamilyHandle& one) { return one->GetID() == family.GetID(); };
  return std::any_of(families_.begin(), families_.end(), same);
}

Status Unlogged::Floor(bool* has, uint64_t* floor) {
  *has = false;
  if (marks_ == nullptr) {
    return Status::OK();
  }
  std::string value;
  Status status = db_->Get(rocksdb::ReadOptions(), marks_.get(), kFloorKey, &value);
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
  Status status = db_->Get(rocksdb::ReadOptions(), marks_.get(), TicketKey(ticket), &value);
  *marked = status.ok();
  return status.IsNotFound() ? Status::OK() : status;
}

Status Unlogged::SetFloor(uint64_t floor) {
  if (marks_ == nullptr) {
    choices_->BatchesHaveMarks();
    rocksdb::ColumnFamilyHandle* created = nullptr;
    Status status = db_->CreateColumnFamily(MarksOptions(), kMarksFamily, &created);
    if (!status.ok()) {
      return status;
    }
    std::lock_guard<std::mutex> lock(families_mutex_);
    marks_ = OwnHandle(db_, created);
  }
  // No batch is being applied, and all of the log's records are in tables. Existing marks belong to another log: to a
  // former log of this database, or to that of the database of which this database is a checkpoint. The tickets of
  // those marks mean nothing in the present log.
  WriteBatch batch;
  batch.DeleteRange(marks_.get(), TicketKey(0), std::string(1, kTicket + 1));
  batch.Put(marks_.get(), kFloorKey, Number(floor));
  WriteOptions options;
  options.disableWAL = true;
  return db_->Write(options, &batch);
}

void Unlogged::FreeHandles() {
  std::vector<FamilyHandle> freed;
  FamilyHandle marks;
  std::lock_guard<std::mutex> lock(families_mutex_);
  freed.swap(families_);
  marks.swap(marks_);
}

uint64_t Unlogged::MarksProperty(const Slice& property) {
  const FamilyHandle marks = Marks();
  uint64_t value = 0;
  return marks != nullptr && db_->GetIntProperty(marks.get(), property, &value) ? value : 0;
}

std::optional<uint32_t> Unlogged::MarksId() {
  const FamilyHandle marks = Marks();
  return marks != nullptr ? std::optional<uint32_t>(marks->GetID()) : std::nullopt;
}

Status Unlogged::DropMarks() {
  if (marks_ == nullptr) {
    return Status::OK();
  }
  Status status = Drop(*marks_, [this] { return db_->DropColumnFamily(marks_.get()); });
  if (status.ok()) {
    FamilyHandle dropped;
    std::lock_guard<std::mutex> lock(families_mutex_);
    dropped.swap(marks_);
  }
  return status;
}

}  // namespace furrow
