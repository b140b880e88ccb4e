// A RocksDB database written with its own log off, beneath a parallel log that the caller keeps: docs/adr/0013.
#pragma once

#include <stdint.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "flush_choice.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/write_batch.h"
#include "second_handle.h"

extern "C" {

// The mark that the hidden family gets along with a batch. `raise`: write `floor` as well, and remove the marks below
// it.
typedef struct {
  uint64_t ticket;
  uint64_t floor;
  uint8_t raise;
  uint8_t reserved[7];
} FurrowMark;

enum {
  // The number of the hidden family in flush events, whatever RocksDB's number for it is.
  FURROW_MARKS_FAMILY = UINT32_MAX,
};

// The callbacks for a database's flush events. RocksDB's threads may call them, several at once.
typedef struct {
  void* context;
  // A flush begins: its memtables are immutable from now on. The flush's tables are not durable before
  // `family_flushed`.
  void (*begins)(void* context);
  // All records of `family` up to the sequence number `largest` are durable in tables.
  void (*family_flushed)(void* context, uint32_t family, uint64_t largest);
  // The number of column families whose writes are delayed or stopped changes by `more`, which may be negative.
  void (*stalls)(void* context, int32_t more);
  // A flush or a compaction failed: RocksDB may refuse writes until it recovers.
  void (*fails)(void* context);
} FurrowFlushEvents;

}  // extern "C"

namespace furrow {

// The name of the hidden family, which holds the marks of applied batches. The family exists while the parallel log
// is in use and a recovery must not apply batches twice.
extern const char kMarksFamily[];

// Turns off the options that concern RocksDB's log, and makes flushes cover all families at once. Fails for options
// that do not work without RocksDB's log.
rocksdb::Status PrepareUnlogged(const FurrowFlushEvents& events, rocksdb::DBOptions* options);

// The hidden family's options. Its memtables are flushed together with those of the other families, whose limits
// stall writes; its own limits do not.
rocksdb::ColumnFamilyOptions MarksOptions();

// Sets `has` if the database has the hidden family; a database that does not exist has none.
rocksdb::Status HasMarks(const rocksdb::DBOptions& options, const std::string& path, bool* has);

class Listener;

class Unlogged {
 public:
  // `families` are handles of all families but the hidden one, whose handle is `marks`; null if the database has none.
  // `db` must outlive this object.
  Unlogged(rocksdb::DB* db, std::vector<FamilyHandle> families, FamilyHandle marks);

  // Applies a copy of a batch to RocksDB. `last` receives the sequence number of the batch's last record, not
  // counting the mark.
  rocksdb::Status Apply(rocksdb::WriteOptions options, const rocksdb::Slice& batch, const FurrowMark* mark,
                        uint64_t* last);
  // Adds a column family that was created.
  void Add(FamilyHandle family);
  // Drops a column family by calling `drop`, RocksDB's own drop of it.
  rocksdb::Status Drop(const rocksdb::ColumnFamilyHandle& family, const std::function<rocksdb::Status()>& drop);
  // Writes all memtables to tables. The returned status does not prove that a batch is in tables; the events of
  // `FurrowFlushEvents` do. Without `wait`, the flush may still be running on return.
  rocksdb::Status Flush(bool wait = true);
  // Like Flush, while no batch is being applied. Fails unless all memtables are empty at the end.
  rocksdb::Status EmptyMemtables();
  // Calls RocksDB's CompactRange. If batches carry marks, writes wait until RocksDB has switched memtables; a
  // compaction of a bounded range may need no switch, and writes then wait until the compaction begins.
  rocksdb::Status CompactRange(const rocksdb::CompactRangeOptions& options, rocksdb::ColumnFamilyHandle* family,
                               const rocksdb::Slice* begin, const rocksdb::Slice* end);
  // Calls `compact`, RocksDB's CompactFiles of the family.
  rocksdb::Status CompactFiles(uint32_t family, const std::function<rocksdb::Status()>& compact);
  // Runs `call`, a call of RocksDB that may choose the families of a flush. Writes wait until a memtable is switched,
  // or the call returns.
  rocksdb::Status Choose(const std::function<rocksdb::Status()>& call);
  rocksdb::Status Floor(bool* has, uint64_t* floor);
  rocksdb::Status IsMarked(uint64_t ticket, bool* marked);
  rocksdb::Status SetFloor(uint64_t floor);
  rocksdb::Status DropMarks();
  // The hidden family's share of an aggregated property; 0 if the family does not exist.
  uint64_t MarksProperty(const rocksdb::Slice& property);
  // RocksDB's number of the hidden family, if the family exists.
  std::optional<uint32_t> MarksId();
  // Frees the column families' handles, which must not be open when the database closes. No other call may be
  // running.
  void FreeHandles();

 private:
  // The hidden family's handle, safe to call while the family is created or dropped.
  FamilyHandle Marks();
  // The handles of all families, the hidden one included.
  std::vector<FamilyHandle> Families();
  // True if the memtables of `family` are empty: everything written to it before the call is in tables.
  bool InTables(const FamilyHandle& family);
  bool AllInTables();
  // True if the column family is not dropped.
  bool IsOpen(const rocksdb::ColumnFamilyHandle& family);
  // Flushes all families together, once.
  rocksdb::Status SwitchAll(bool wait);
  // Writes an entry to the hidden family, so that its active memtable is not empty.
  void FillMarks();
  // Reports each family whose memtables are empty as flushed. `written`: the last sequence number before the flush.
  void ReportEmpty(uint64_t written);
  // Runs `flush` again as long as families are dropped during it: RocksDB may then abandon the flush of all families,
  // and returns ColumnFamilyDropped or even OK.
  rocksdb::Status FlushUndropped(const std::function<rocksdb::Status()>& flush);

  rocksdb::DB* db_;
  // The listener of PrepareUnlogged, if the database has it.
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<FlushChoices> choices_;
  // Guards `families_`, and changes of `marks_`. A running flush has copies of the handles.
  std::mutex families_mutex_;
  std::vector<FamilyHandle> families_;
  // The hidden family. Changes only while no batch is being applied.
  FamilyHandle marks_;
  // A drop of a family holds this lock shared; a flush that drops abandoned too often holds it exclusively.
  std::shared_mutex drops_;
  // The number of drops of families that began. A flush during which this number changed may have been abandoned.
  std::atomic<uint64_t> drops_begun_{0};
};

}  // namespace furrow
