// A test program, unmodified RocksDB code, that creates and drops column families while its memtables are flushed.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rocksdb/compaction_filter.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/utilities/checkpoint.h"

using namespace rocksdb;  // NOLINT: a test program

namespace {

constexpr int kKeys = 400;
// With values of this size, all keys of a test together exceed the parallel log's size at which the engine requests a
// flush.
constexpr size_t kValueBytes = 16 << 10;
const char kDatabase[] = "/db";
const char kCopy[] = "/copy";

void Expect(bool fine, const std::string& what) {
  if (!fine) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
    _exit(1);
  }
}

void Ok(const Status& status, const std::string& what) { Expect(status.ok(), what + ": " + status.ToString()); }

// A compaction filter that lets no compaction end before `release` is set.
class Blocking : public CompactionFilter {
 public:
  bool Filter(int, const Slice&, const Slice&, std::string*, bool*) const override {
    blocks = true;
    while (!release) {
      usleep(1000);
    }
    return false;
  }
  const char* Name() const override { return "blocking"; }
  mutable std::atomic<bool> blocks{false};
  std::atomic<bool> release{false};
};

// A merge operator that adds decimal numbers.
class Adder : public AssociativeMergeOperator {
 public:
  bool Merge(const Slice&, const Slice* before, const Slice& value, std::string* sum, Logger*) const override {
    *sum = std::to_string((before == nullptr ? 0 : std::stoi(before->ToString())) + std::stoi(value.ToString()));
    return true;
  }
  const char* Name() const override { return "adder"; }
};

std::string Key(int n) { return "key" + std::to_string(n); }

Options Settings(Env* env) {
  Options options;
  options.env = env;
  options.create_if_missing = true;
  options.max_background_jobs = 4;
  options.merge_operator = std::make_shared<Adder>();
  return options;
}

// Creates a column family that may get no further table in level 0: a flush that avoids write stalls waits for the
// family's compaction, which is blocked. `last`: the options of the put that leaves the family's memtable not empty.
ColumnFamilyHandle* CreateStalled(DB* db, Blocking* filter, const WriteOptions& last) {
  ColumnFamilyOptions options;
  options.compaction_filter = filter;
  options.level0_file_num_compaction_trigger = 2;
  options.level0_slowdown_writes_trigger = 3;
  ColumnFamilyHandle* stalled = nullptr;
  Ok(db->CreateColumnFamily(options, "stalled", &stalled), "creating a family");
  // The loop writes tables until the filter blocks: RocksDB moves some tables to the next level without calling the
  // filter.
  for (int table = 0; table < 20 && !filter->blocks; ++table) {
    Ok(db->Put(WriteOptions(), stalled, "key", "value"), "put");
    Ok(db->Flush(FlushOptions(), stalled), "flush");
    for (int tries = 0; table % 2 == 1 && !filter->blocks && tries < 50; ++tries) {
      usleep(10000);
    }
  }
  Expect(filter->blocks, "no compaction is blocked");
  Ok(db->Put(last, stalled, "key", "value"), "put");
  return stalled;
}

// Makes the call named `way`, which flushes all families.
void FlushBy(DB* db, const std::string& way) {
  if (way == "flush") {
    Ok(db->Flush(FlushOptions()), "flush");
  } else if (way == "compaction") {
    Ok(db->CompactRange(CompactRangeOptions(), nullptr, nullptr), "compaction");
  } else if (way == "bounded compaction") {
    const Slice from("a");
    const Slice to("z");
    Ok(db->CompactRange(CompactRangeOptions(), &from, &to), "compaction");
  } else if (way == "live files") {
    std::vector<std::string> files;
    uint64_t manifest = 0;
    Ok(db->GetLiveFiles(files, &manifest), "live files");
  } else if (way == "checkpoint") {
    Checkpoint* checkpoint = nullptr;
    Ok(Checkpoint::Create(db, &checkpoint), "checkpoint");
    Ok(checkpoint->CreateCheckpoint(kCopy), "checkpoint");
    delete checkpoint;
  } else if (way == "cancelled work") {
    CancelAllBackgroundWork(db, false);
  } else {
    Expect(false, "no way " + way);
  }
}

// Drops a family while a flush of all families waits for the blocked compaction; then the process kills itself.
void DropUnderFlush(Env* env, const std::string& way) {
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), kDatabase, &db), "opening");
  Blocking filter;
  ColumnFamilyHandle* stalled = CreateStalled(db, &filter, WriteOptions());
  WriteOptions synced;
  synced.sync = true;
  for (int n = 0; n < kKeys; ++n) {
    Ok(db->Put(synced, Key(n), std::string(kValueBytes, 'v')), "put");
  }
  std::thread flush([db, &way] {
    if (way == "the log's own") {
      return;
    }
    FlushBy(db, way);
    if (way == "flush") {
      uint64_t left = 0;
      db->GetIntProperty(DB::Properties::kNumEntriesActiveMemTable, &left);
      Expect(left == 0, std::to_string(left) + " entries are in memory after a flush");
    }
  });
  // After this time the flush is waiting, also the one that the parallel log's size limit requests.
  usleep(500000);
  Ok(db->DropColumnFamily(stalled), "dropping a family");
  flush.join();
  // Each write of this loop may retire records in the parallel log.
  for (int n = 0; n < 20; ++n) {
    Ok(db->Put(synced, "later" + std::to_string(n), "value"), "put");
    usleep(10000);
  }
  Ok(db->SyncWAL(), "SyncWAL");
  kill(getpid(), SIGKILL);
}

// Writes to a family with an empty memtable while a flush of all families may be waiting for the end of a stall. The
// process kills itself when the flush is over. The database's batches carry marks. With `merge`, the write is a
// merge, and the memtables' other entries were written without the log. With `created`, the family is created while
// the flush waits.
void WriteUnderFlush(Env* env, const std::string& way, bool merge, bool created) {
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), kDatabase, &db), "opening");
  ColumnFamilyHandle* rare = nullptr;
  if (!created) {
    Ok(db->CreateColumnFamily(Settings(env), "rare", &rare), "creating a family");
  }
  Ok(db->Merge(WriteOptions(), "count", "0"), "the first merge: batches carry marks from here on");
  WriteOptions options;
  options.disableWAL = merge;
  Blocking filter;
  CreateStalled(db, &filter, options);
  Ok(db->Put(options, "key", "value"), "put");
  std::atomic<bool> flushed{false};
  std::thread flush([&] {
    FlushBy(db, way);
    flushed = true;
  });
  // A flush that waits for the stall's end is waiting by now. Another flush is over soon.
  for (int tries = 0; tries < 100 && !flushed; ++tries) {
    usleep(5000);
  }
  std::thread write([&] {
    WriteOptions synced;
    synced.sync = true;
    if (created) {
      Ok(db->CreateColumnFamily(Settings(env), "rare", &rare), "creating a family");
    }
    Ok(merge ? db->Merge(synced, "count", "1") : db->Put(synced, rare, "late", "value"), "the late write");
  });
  usleep(100000);
  filter.release = true;
  flush.join();
  write.join();
  kill(getpid(), SIGKILL);
}

// Checks that the write of WriteUnderFlush is in the database once.
void CheckLate(Env* env, bool merge) {
  std::vector<ColumnFamilyDescriptor> families = {{kDefaultColumnFamilyName, Settings(env)},
                                                  {"stalled", ColumnFamilyOptions()},
                                                  {"rare", Settings(env)}};
  std::vector<ColumnFamilyHandle*> handles;
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), kDatabase, families, &handles, &db), "opening");
  std::string value;
  Ok(merge ? db->Get(ReadOptions(), "count", &value) : db->Get(ReadOptions(), handles[2], "late", &value),
     "the late write, synced and acknowledged");
  Expect(value == (merge ? "1" : "value"), "the late write is " + value);
  for (ColumnFamilyHandle* handle : handles) {
    db->DestroyColumnFamilyHandle(handle);
  }
  delete db;
}

// Checks the database that a killed process left.
void Check(Env* env, const std::string& name) {
  std::vector<std::string> names;
  Ok(DB::ListColumnFamilies(Settings(env), name, &names), "families");
  std::vector<ColumnFamilyDescriptor> families;
  for (const std::string& family : names) {
    families.emplace_back(family, ColumnFamilyOptions());
  }
  std::vector<ColumnFamilyHandle*> handles;
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), name, families, &handles, &db), "opening " + name);
  int lost = 0;
  for (int n = 0; n < kKeys; ++n) {
    std::string value;
    lost += db->Get(ReadOptions(), Key(n), &value).ok() ? 0 : 1;
  }
  for (ColumnFamilyHandle* handle : handles) {
    db->DestroyColumnFamilyHandle(handle);
  }
  delete db;
  Expect(lost == 0, std::to_string(lost) + " of " + std::to_string(kKeys) + " synced keys are lost in " + name);
}

// Keeps the handle of a dropped family with unflushed entries, which is legal: no other call may fail because of it.
void KeepDroppedHandle(Env* env) {
  Options options;
  options.create_if_missing = true;
  options.env = env;
  DB* db = nullptr;
  Ok(DB::Open(options, kDatabase, &db), "open");
  ColumnFamilyHandle* family = nullptr;
  Ok(db->CreateColumnFamily(ColumnFamilyOptions(), "dropped", &family), "create a family");
  Ok(db->Put(WriteOptions(), family, "key", "value"), "put to the family");
  Ok(db->DropColumnFamily(family), "drop the family");
  Ok(db->Put(WriteOptions(), "key", "value"), "put");
  Ok(db->SingleDelete(WriteOptions(), "none"), "single delete");
  WriteOptions unlogged;
  unlogged.disableWAL = true;
  Ok(db->Put(unlogged, "unlogged", "value"), "put without the log");
  Ok(db->Flush(FlushOptions()), "flush");
  Ok(db->DestroyColumnFamilyHandle(family), "destroy the handle");
  Ok(db->Close(), "close");
  delete db;
}

// Checks that a record which names the hidden family by its number is refused, also in a write that skips the records
// of families that do not exist.
void NameHiddenFamily(Env* env) {
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), kDatabase, &db), "opening");
  Ok(db->Merge(WriteOptions(), "count", "1"), "the first merge: batches carry marks from here on");
  WriteOptions options;
  options.ignore_missing_column_families = true;
  int refused = 0;
  for (char family = 1; family < 4; ++family) {
    // A batch in RocksDB's serialisation: sequence, number of records, then a put with a family's number, a key and a
    // value.
    std::string bytes(12, '\0');
    bytes[8] = 1;
    bytes += {5, family, 1, 'f', 1, 'v'};
    WriteBatch batch(bytes);
    const Status status = db->Write(options, &batch);
    Expect(status.ok() || status.IsInvalidArgument(), "a family's number: " + status.ToString());
    refused += status.ok() ? 0 : 1;
  }
  Expect(refused == 1, std::to_string(refused) + " families were refused");
  Ok(db->Close(), "close");
  delete db;
}

}  // namespace

// Usage: PROGRAM URL COMMAND [ARGUMENT]
int main(int argc, char** argv) {
  Expect(argc >= 3, "usage: program DEVICE-URL COMMAND [ARGUMENT]");
  const std::string command = argv[2];
  const std::string argument = argc > 3 ? argv[3] : "";
  std::shared_ptr<FileSystem> fs;
  Ok(FileSystem::CreateFromString(ConfigOptions(), std::string("furrow://") + argv[1], &fs), "the file system");
  std::unique_ptr<Env> env = NewCompositeEnv(fs);
  if (command == "drop under") {
    DropUnderFlush(env.get(), argument);
  } else if (command == "keep dropped handle") {
    KeepDroppedHandle(env.get());
  } else if (command == "write under" || command == "merge under" || command == "create under") {
    WriteUnderFlush(env.get(), argument, command == "merge under", command == "create under");
  } else if (command == "check late write" || command == "check late merge") {
    CheckLate(env.get(), command == "check late merge");
  } else if (command == "name hidden family") {
    NameHiddenFamily(env.get());
  } else if (command == "check") {
    Check(env.get(), argument);
  } else {
    Expect(false, "no command " + command);
  }
  return 0;
}
