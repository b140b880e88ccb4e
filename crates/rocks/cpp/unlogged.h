// RocksDB written with its own log off, under a parallel log that is not its own: docs/adr/0013.
#pragma once

#include <stdint.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/write_batch.h"

extern "C" {

// What goes into the hidden family with a batch. `raise`: write `floor` as well, and remove the marks below it.
typedef struct {
  uint64_t ticket;
  uint64_t floor;
  uint8_t raise;
  uint8_t reserved[7];
} FurrowMark;

enum {
  // What the hidden family is called there, whatever its number is.
  FURROW_MARKS_FAMILY = UINT32_MAX,
};

// Whom flushes are told to. May be called from RocksDB's threads, several at once.
typedef struct {
  void* context;
  // Memtables are closed; none of their tables counts yet.
  void (*begins)(void* context);
  // Everything up to `largest` that is of this family is in tables, durably.
  void (*family_flushed)(void* context, uint32_t family, uint64_t largest);
  // The same of all families.
  void (*all_flushed)(void* context, uint64_t largest);
  // So many column families more (or fewer, below zero) have their writes delayed or stopped.
  void (*stalls)(void* context, int32_t more);
  // A flush or a compaction failed: writes may be refused until that is over.
  void (*fails)(void* context);
} FurrowFlushEvents;

}  // extern "C"

namespace furrow {

// The hidden family. It is there while batches must not be applied twice and the parallel log is in use.
extern const char kMarksFamily[];

// Turns off what is about sharing RocksDB's log, and has all families flushed at once. Says what cannot be.
rocksdb::Status PrepareUnlogged(const FurrowFlushEvents& events, rocksdb::DBOptions* options);

// The hidden family's options. Its memtables are closed with all others': their limits hold up writes, not its own.
rocksdb::ColumnFamilyOptions MarksOptions();

// Whether the database has the hidden family. A database that is not there has none.
rocksdb::Status HasMarks(const rocksdb::DBOptions& options, const std::string& path, bool* has);

class Listener;

class Unlogged {
 public:
  // `marks` is the handle of the hidden family, or null; it becomes this object's. `families` are all others, unless there are
  // some whose handles may go before the database: see NotAll. Database and handles outlive it.
  Unlogged(rocksdb::DB* db, std::vector<rocksdb::ColumnFamilyHandle*> families, rocksdb::ColumnFamilyHandle* marks);
  ~Unlogged();

  // Applies a copy of a batch. `last` is the sequence of its last record, the mark not counted.
  rocksdb::Status Apply(rocksdb::WriteOptions options, const rocksdb::Slice& batch, const FurrowMark* mark,
                        uint64_t* last);
  // There are families beside those that it was made with, from now on.
  void NotAll() {
    std::unique_lock<std::shared_mutex> lock(handles_);
    others_ = true;
  }
  // Writes all memtables to tables, and waits. What the listeners of `FurrowFlushEvents` were told is in tables; the status of
  // RocksDB's calls proves nothing.
  rocksdb::Status Flush();
  // The same while no batch is being applied: fails unless all memtables are empty in the end.
  rocksdb::Status EmptyMemtables();
  // Runs `flush`, a call that flushes all families, again while families are dropped under it: RocksDB abandons the flush of
  // all families then, and returns ColumnFamilyDropped or even OK.
  rocksdb::Status Repeat(const std::function<rocksdb::Status()>& flush);
  // Runs RocksDB's own drop of families.
  rocksdb::Status Drop(const std::function<rocksdb::Status()>& drop);
  rocksdb::Status Floor(bool* has, uint64_t* floor);
  rocksdb::Status IsMarked(uint64_t ticket, bool* marked);
  rocksdb::Status SetFloor(uint64_t floor);
  rocksdb::Status DropMarks();
  // The hidden family's share of an aggregated property; 0 where there is none.
  uint64_t MarksProperty(const rocksdb::Slice& property);
  // Before the database closes: it is to have no handle of the hidden family open then.
  void LetGo();

 private:
  // Whether all memtables are empty: everything written before the call is in tables then.
  bool AllInTables();
  // Flushes all families once, and waits.
  rocksdb::Status FlushAll();

  rocksdb::DB* db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
  // That of PrepareUnlogged, if the database has it.
  std::shared_ptr<Listener> listener_;
  // Held by a flush, which names the families, from before it begins until it is over; and alone by what changes them.
  std::shared_mutex handles_;
  bool others_ = false;
  // How many drops of families began and ended: a flush during which one did may have been abandoned.
  std::atomic<uint64_t> drops_begun_{0};
  std::atomic<uint64_t> drops_ended_{0};
  // Changed only while no batch is on its way.
  rocksdb::ColumnFamilyHandle* marks_;
};

}  // namespace furrow
