// The database operations of two test programs, which differ in how they open the database.
#pragma once

#include <pthread.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rocksdb/compaction_filter.h"
#include "rocksdb/comparator.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/utilities/backup_engine.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/utilities/options_util.h"
#include "rocksdb/utilities/stackable_db.h"

using namespace rocksdb;  // NOLINT: a test program

using Families = std::vector<ColumnFamilyDescriptor>;
using Handles = std::vector<ColumnFamilyHandle*>;

// Opens a database; each test program defines this function in its own way.
Status OpenDb(const DBOptions& options, const std::string& name, const Families& families, Handles* handles, DB** db);

inline void Expect(bool fine, const std::string& what) {
  if (!fine) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
    _exit(1);
  }
}

inline void Ok(const Status& status, const std::string& what) { Expect(status.ok(), what + ": " + status.ToString()); }

class Adder : public AssociativeMergeOperator {
 public:
  bool Merge(const Slice&, const Slice* existing, const Slice& value, std::string* out, Logger*) const override {
    long sum = atol(value.ToString().c_str()) + (existing != nullptr ? atol(existing->ToString().c_str()) : 0);
    *out = std::to_string(sum);
    return true;
  }
  const char* Name() const override { return "adder"; }
};

struct World {
  std::shared_ptr<FileSystem> fs;
  std::unique_ptr<Env> env;
  Options options;
  DB* db = nullptr;
  Handles handles;

  explicit World(const std::string& url) {
    Ok(FileSystem::CreateFromString(ConfigOptions(), "furrow://" + url, &fs), "the file system");
    env = NewCompositeEnv(fs);
    options.env = env.get();
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    options.write_buffer_size = 64 << 10;
    options.compression = kNoCompression;
    options.merge_operator = std::make_shared<Adder>();
  }

  void Open(const std::string& name) {
    Families families;
    families.emplace_back(kDefaultColumnFamilyName, options);
    families.emplace_back("other", options);
    Ok(OpenDb(options, name, families, &handles, &db), "opening " + name);
    auto* stacked = dynamic_cast<StackableDB*>(db);
    if (stacked != nullptr) {
      Expect(dynamic_cast<StackableDB*>(stacked->GetBaseDB()) == nullptr, "it is wrapped twice");
    }
    printf("%s\n", stacked != nullptr ? "parallel" : "plain");
  }

  std::string Get(const std::string& key, size_t family = 0) {
    std::string value;
    Status status = db->Get(ReadOptions(), handles[family], key, &value);
    Expect(status.ok() || status.IsNotFound(), "get " + key + ": " + status.ToString());
    return status.ok() ? value : "none";
  }

  void Close() {
    for (ColumnFamilyHandle* handle : handles) {
      db->DestroyColumnFamilyHandle(handle);
    }
    handles.clear();
    Ok(db->Close(), "close");
    delete db;
    db = nullptr;
  }
};

constexpr int kThreads = 4;

inline std::string Key(int thread, int n) { return "t" + std::to_string(thread) + "-" + std::to_string(n); }

inline WriteOptions Synced() {
  WriteOptions options;
  options.sync = true;
  return options;
}

// Writes batches with four threads, beginning at the first missing key: each batch is a put in two families and an
// increment of a counter. Prints each acknowledgement, until the process is killed.
inline void WriteUntilKilled(World& world) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&world, thread] {
      int n = 0;
      while (world.Get(Key(thread, n)) != "none") {
        ++n;
      }
      for (; n < 1000000; ++n) {
        WriteBatch batch;
        const std::string value = std::to_string(n) + std::string(300, 'v');
        Ok(batch.Put(world.handles[0], Key(thread, n), value), "put");
        Ok(batch.Put(world.handles[1], Key(thread, n), value), "put");
        Ok(batch.Merge(world.handles[0], "count", "1"), "merge");
        Ok(world.db->Write(Synced(), &batch), "write");
        dprintf(1, "acked %d %d\n", thread, n);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Prints each thread's number of keys and the value of the counter. Checks that both families have the same keys.
inline void Count(World& world) {
  long all = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    int n = 0;
    while (world.Get(Key(thread, n)) != "none") {
      Expect(world.Get(Key(thread, n), 1) == world.Get(Key(thread, n)), "a batch is torn at " + Key(thread, n));
      ++n;
    }
    Expect(world.Get(Key(thread, n), 1) == "none", "a batch is torn at " + Key(thread, n));
    Expect(world.Get(Key(thread, n + 1)) == "none", "a gap at " + Key(thread, n));
    printf("there %d %d\n", thread, n);
    all += n;
  }
  printf("all %ld counted %s\n", all, all == 0 ? "0" : world.Get("count").c_str());
}

inline bool IsParallel(World& world) { return dynamic_cast<StackableDB*>(world.db) != nullptr; }

// A listener that notes the families of its events.
class Noting : public EventListener {
 public:
  void OnFlushBegin(DB*, const FlushJobInfo& info) override { Note(info.cf_name); }
  void OnFlushCompleted(DB*, const FlushJobInfo& info) override { Note(info.cf_name); }
  void OnTableFileCreated(const TableFileCreationInfo& info) override { Note(info.cf_name); }
  void OnMemTableSealed(const MemTableInfo& info) override { Note(info.cf_name); }
  std::set<std::string> Families() {
    std::lock_guard<std::mutex> lock(mutex_);
    return families_;
  }

 private:
  void Note(const std::string& family) {
    std::lock_guard<std::mutex> lock(mutex_);
    families_.insert(family);
  }
  std::mutex mutex_;
  std::set<std::string> families_;
};

// Checks that events and counts are those of the program's own families only, although every batch has a mark.
inline void SeeOwnFamilies(World& world) {
  auto noting = std::make_shared<Noting>();
  world.options.listeners.push_back(noting);
  world.Open("/db");
  for (int n = 0; n < 10; ++n) {
    Ok(world.db->Merge(Synced(), "merged", "1"), "merge");
  }
  uint64_t entries = 0;
  Expect(world.db->GetAggregatedIntProperty(DB::Properties::kNumEntriesActiveMemTable, &entries) && entries == 10,
         std::to_string(entries) + " entries are in memory");
  Ok(world.db->Flush(FlushOptions()), "flush");
  world.Close();
  Expect(noting->Families() == std::set<std::string>{kDefaultColumnFamilyName}, "other families are seen");
}

// Uses all features of a database besides plain writes. The process then ends as if killed.
inline void Features(World& world) {
  DB* db = world.db;
  // Ingests a newer value of a key that the log has: a recovery must not let an older log record undo an ingested
  // file.
  Ok(db->Put(Synced(), "ingested", "old"), "put");
  SstFileWriter writer{EnvOptions(), world.options};
  Ok(writer.Open("/table.sst"), "a table");
  Ok(writer.Put("ingested", "new"), "a table");
  Ok(writer.Finish(), "a table");
  Ok(db->IngestExternalFile({"/table.sst"}, IngestExternalFileOptions()), "ingesting");

  for (int n = 0; n < 10; ++n) {
    Ok(db->Merge(Synced(), "merged", "1"), "merge");
    if (n == 4) {
      Ok(db->Flush(FlushOptions()), "flush");
    }
  }
  Ok(db->Put(Synced(), "single", "1"), "put");
  Ok(db->Flush(FlushOptions()), "flush");
  Ok(db->SingleDelete(Synced(), "single"), "single delete");
  Ok(db->Put(Synced(), "range5", "1"), "put");
  WriteOptions rated = Synced();
  rated.rate_limiter_priority = Env::IO_USER;
  Ok(db->Put(rated, "rated", "yes"), "a put with a rate limit");
  std::vector<ColumnFamilyMetaData> facts;
  db->GetAllColumnFamilyMetaData(&facts);
  Expect(facts.size() == 2, std::to_string(facts.size()) + " families have metadata");
  if (IsParallel(world)) {
    // A batch with an invalid range delete: RocksDB would find the error with half of the batch applied, and take no
    // writes until the database is opened again.
    WriteBatch batch;
    Ok(batch.Put("torn", "yes"), "put");
    Ok(batch.DeleteRange("z", "a"), "delete range");
    Status status = db->Write(Synced(), &batch);
    Expect(status.IsInvalidArgument(), "a range that ends before it begins: " + status.ToString());
  }
  Ok(db->DeleteRange(Synced(), db->DefaultColumnFamily(), "range", "range9"), "delete range");

  ColumnFamilyHandle* made = nullptr;
  ColumnFamilyHandle* dropped = nullptr;
  Ok(db->CreateColumnFamily(world.options, "made", &made), "creating a family");
  Ok(db->CreateColumnFamily(world.options, "dropped", &dropped), "creating a family");
  Ok(db->Put(Synced(), made, "key", "in made"), "put");
  Ok(db->Put(Synced(), dropped, "key", "in dropped"), "put");
  Ok(db->DropColumnFamily(dropped), "dropping a family");
  if (IsParallel(world)) {
    // A put to a dropped family is refused before the log has the record. Without a parallel log, RocksDB takes no
    // writes after such a put until the database is opened again.
    Expect(db->Put(Synced(), dropped, "key", "later").IsInvalidArgument(), "a dropped family takes a write");
  }
  Ok(db->DestroyColumnFamilyHandle(dropped), "a handle");
  Ok(db->DestroyColumnFamilyHandle(made), "a handle");

  Ok(db->Put(WriteOptions(), "copied", "yes"), "put");
  Checkpoint* checkpoint = nullptr;
  Ok(Checkpoint::Create(db, &checkpoint), "checkpoint");
  Ok(checkpoint->CreateCheckpoint("/checkpoint"), "checkpoint");
  delete checkpoint;
  BackupEngine* backups = nullptr;
  Ok(BackupEngine::Open(world.env.get(), BackupEngineOptions("/backups"), &backups), "backups");
  Ok(db->Put(WriteOptions(), "backed up", "yes"), "put");
  Ok(backups->CreateNewBackup(db), "a backup");
  Ok(backups->RestoreDBFromLatestBackup("/restored", "/restored"), "restoring");
  delete backups;

  if (IsParallel(world)) {
    std::unique_ptr<TransactionLogIterator> updates;
    Status status = db->GetUpdatesSince(0, &updates);
    Expect(status.IsNotSupported() && status.ToString().find("FURROW_WAL=group") != std::string::npos,
           "GetUpdatesSince: " + status.ToString());
    Expect(db->LockWAL().IsNotSupported(), "LockWAL");
    VectorLogPtr files;
    Expect(db->GetSortedWalFiles(files).IsNotSupported(), "GetSortedWalFiles");
    std::unique_ptr<LogFile> file;
    Expect(db->GetCurrentWalFile(&file).IsNotSupported(), "GetCurrentWalFile");
  }
  std::vector<LiveFileMetaData> files;
  db->GetLiveFilesMetaData(&files);
  for (const LiveFileMetaData& file : files) {
    Expect(file.column_family_name.find("furrow") == std::string::npos, "a table of the hidden family is seen");
  }
  Ok(db->Put(WriteOptions(), "synced last", "yes"), "put");
  Ok(db->SyncWAL(), "SyncWAL");
  printf("done\n");
  fflush(stdout);
  _exit(0);
}

// Writes through RocksDB's own DB object, below the opened one. The process then ends as if killed.
inline void WritePast(World& world) {
  Ok(world.db->Put(Synced(), "before", "yes"), "put");
  for (const WriteOptions& options : {WriteOptions(), Synced()}) {
    Status status = world.db->GetRootDB()->Put(options, "past", "yes");
    printf("past: %s\n", status.ToString().c_str());
  }
  fflush(stdout);
  _exit(0);
}

// A file system wrapper that passes all calls on, like one that encrypts or maps paths.
class Wrapping : public FileSystemWrapper {
 public:
  explicit Wrapping(const std::shared_ptr<FileSystem>& below) : FileSystemWrapper(below) {}
  const char* Name() const override { return "wrapping"; }
};

// A comparator that ignores case, so that keys of different bytes are equal. Uses timestamps if `timestamp_size` is
// not 0.
class CaseBlind : public Comparator {
 public:
  explicit CaseBlind(size_t timestamp_size = 0) : Comparator(timestamp_size) {}
  const char* Name() const override { return "case-blind"; }
  int Compare(const Slice& a, const Slice& b) const override {
    const int order = strncasecmp(a.data(), b.data(), std::min(a.size(), b.size()));
    return order != 0 ? order : static_cast<int>(a.size()) - static_cast<int>(b.size());
  }
  bool CanKeysWithDifferentByteContentsBeEqual() const override { return true; }
  void FindShortestSeparator(std::string*, const Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

// Checks that unsupported options are refused when the database is opened.
inline void Refused(World& world) {
  const auto open = [&world](const char* what, DBOptions options, const ColumnFamilyOptions& family) {
    Families families;
    families.emplace_back(kDefaultColumnFamilyName, family);
    Status status = OpenDb(options, "/refused", families, &world.handles, &world.db);
    printf("%s: %s\n", what, status.ToString().c_str());
    Expect(!status.ok() && world.db == nullptr && world.handles.empty(), what);
  };
  DBOptions options = world.options;
  options.persist_stats_to_disk = true;
  open("statistics", options, world.options);
  options = world.options;
  options.env = nullptr;
  open("env", options, world.options);
  options = world.options;
  options.allow_concurrent_memtable_write = false;
  ColumnFamilyOptions family = world.options;
  family.inplace_update_support = true;
  open("in place", options, family);
  options = world.options;
  options.allow_2pc = true;
  open("prepared", options, world.options);
  family = world.options;
  const CaseBlind timed(sizeof(uint64_t));
  family.comparator = &timed;
  open("timestamps", world.options, family);
  family = world.options;
  family.experimental_mempurge_threshold = 1;
  open("mempurge", world.options, family);
  options = world.options;
  std::unique_ptr<Env> wrapped = NewCompositeEnv(std::make_shared<Wrapping>(world.fs));
  options.env = wrapped.get();
  open("wrapped", options, world.options);
}

// Writes some batches without the log and others with it, and flushes some to tables. The process then ends as if
// killed.
inline void WriteUnlogged(World& world) {
  DB* db = world.db;
  WriteOptions unlogged;
  unlogged.disableWAL = true;
  // A batch of two families, of which only one is flushed: the log keeps the record, and the newer value is in a
  // table only.
  WriteBatch both;
  Ok(both.Put(world.handles[0], "before", "old"), "put");
  Ok(both.Put(world.handles[1], "before", "old"), "put");
  Ok(db->Write(Synced(), &both), "write");
  Ok(db->Put(unlogged, "before", "new"), "a put past the log");
  Ok(db->GetRootDB()->Flush(FlushOptions(), world.handles[0]), "a flush of one family");

  Ok(db->Put(Synced(), "between", "old"), "put");
  Ok(db->Put(unlogged, "between", "new"), "a put past the log");
  Ok(db->Delete(unlogged, world.handles[1], "before"), "a delete past the log");
  Ok(db->Put(unlogged, "behind", "old"), "a put past the log");
  Ok(db->Put(Synced(), "behind", "new"), "put");
  Ok(db->Flush(FlushOptions(), world.handles), "flush");
  Ok(db->Put(Synced(), "last", "new"), "put");
  _exit(0);
}

inline void AfterUnlogged(World& world) {
  for (const char* key : {"before", "between", "behind", "last"}) {
    Expect(world.Get(key) == "new", std::string(key) + " is " + world.Get(key));
  }
  Expect(world.Get("before", 1) == "none", "what was deleted past the log is back");
}

constexpr int kSpelled = 100;

inline void SaySpelled(World& world) {
  for (int n = 0; n < kSpelled; ++n) {
    printf("spelled %d %s\n", n, world.Get("key" + std::to_string(n)).c_str());
  }
  fflush(stdout);
}

// Writes the same keys from four threads at the same time, in different spellings. Prints the last writer of each
// key; the process then ends as if killed. The log must have a key's writes in RocksDB's order.
inline void WriteSpelled(World& world) {
  pthread_barrier_t together;
  pthread_barrier_init(&together, nullptr, kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&world, &together, thread] {
      for (int n = 0; n < kSpelled; ++n) {
        pthread_barrier_wait(&together);
        const std::string key = (thread % 2 == 0 ? "key" : "KEY") + std::to_string(n);
        Ok(world.db->Put(Synced(), key, std::to_string(thread)), "put");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  SaySpelled(world);
  _exit(0);
}

// A listener that blocks flushes at their beginning while `hold` is set.
class Holding : public EventListener {
 public:
  void OnFlushBegin(DB*, const FlushJobInfo&) override {
    while (hold) {
      usleep(1000);
    }
  }
  std::atomic<bool> hold{false};
};

// Fills as many memtables as the program's options allow while no flush ends. Every batch has a mark.
inline void WriteWithoutFlushes(World& world) {
  auto holding = std::make_shared<Holding>();
  world.options.listeners.push_back(holding);
  world.options.max_write_buffer_number = 20;
  world.Open("/db");
  alarm(120);
  Ok(world.db->Merge(Synced(), "merged", "1"), "merge");
  holding->hold = true;
  WriteOptions options;
  options.no_slowdown = true;
  for (int n = 0; n < 400; ++n) {
    Ok(world.db->Put(options, world.handles[0], Key(0, n), std::string(1000, 'v')), "put " + std::to_string(n));
  }
  holding->hold = false;
  world.Close();
}

// Ends a database in other ways than by a plain close, and checks that each way leaves no parallel log.
inline void Closes(World& world) {
  alarm(120);
  const auto write = [&world](const char* name) {
    world.Open(name);
    Ok(world.db->Put(Synced(), "key", "value"), "put");
    Ok(world.db->Merge(Synced(), "merged", "1"), "merge");
  };
  const auto ended = [&world](const std::string& name) {
    delete world.db;
    Expect(world.env->FileExists(name + "/FURROW-LOG").IsNotFound(), name + " has a parallel log");
    world.Open(name);
    Expect(world.Get("key") == "value" && world.Get("merged") == "1", name + " lacks something");
    world.Close();
  };
  const auto let_go = [&world] {
    for (ColumnFamilyHandle* handle : world.handles) {
      world.db->DestroyColumnFamilyHandle(handle);
    }
    world.handles.clear();
  };
  write("/refused-once");
  const Snapshot* snapshot = world.db->GetSnapshot();
  Expect(world.db->Close().IsAborted(), "a close with a snapshot");
  Ok(world.db->Put(Synced(), "key", "value"), "put after a close that was refused");
  world.db->ReleaseSnapshot(snapshot);
  let_go();
  Ok(world.db->Close(), "close");
  Ok(world.db->Close(), "a second close");
  ended("/refused-once");

  // The options of an open database contain the listener that the plug-in added. A database opened with these options
  // must not keep that listener.
  write("/again");
  const Options before = world.options;
  static_cast<DBOptions&>(world.options) = world.db->GetDBOptions();
  let_go();
  Ok(world.db->Close(), "close");
  delete world.db;
  world.Open("/again");
  Expect(world.db->GetDBOptions().listeners.size() == 1, "a listener of a database that is gone");
  world.options = before;
  let_go();
  Ok(world.db->Close(), "close");
  ended("/again");

  write("/cancelled");
  CancelAllBackgroundWork(world.db, true);
  let_go();
  ended("/cancelled");

  write("/paused");
  Ok(world.db->PauseBackgroundWork(), "pause");
  let_go();
  Ok(world.db->Close(), "close");
  ended("/paused");
}

// Opens the database like a program that loads its options from RocksDB's OPTIONS file.
inline void OpenLoaded(World& world) {
  ConfigOptions config;
  config.env = world.env.get();
  DBOptions options;
  Families families;
  Ok(LoadLatestOptions(config, "/db", &options, &families), "the options");
  options.env = world.env.get();
  bool hidden = false;
  for (ColumnFamilyDescriptor& family : families) {
    family.options.merge_operator = world.options.merge_operator;
    hidden = hidden || family.name == "furrow.applied-batches";
  }
  Expect(hidden, "the hidden family is in no OPTIONS file");
  Ok(OpenDb(options, "/db", families, &world.handles, &world.db), "opening with the options");
  Expect(world.handles.size() == families.size(), "a handle for each family");
  Expect(world.Get("merged") == "10" && world.Get("copied") == "yes", "something is lost");
  for (ColumnFamilyHandle* handle : world.handles) {
    if (handle->GetName() == "furrow.applied-batches") {
      Expect(world.db->Put(Synced(), handle, "key", "value").IsInvalidArgument(), "the hidden family takes a write");
      Expect(world.db->DropColumnFamily(handle).IsInvalidArgument(), "the hidden family is dropped");
    }
  }
  Ok(world.db->Merge(Synced(), "merged", "1"), "merge");
  world.Close();
}

// Opens with best_efforts_recovery, which reads no CURRENT and uses the tables alone.
inline void OpenByBestEfforts(World& world) {
  world.options.best_efforts_recovery = true;
  Families families;
  for (const char* name : {"default", "other", "made", "furrow.applied-batches"}) {
    families.emplace_back(name, world.options);
  }
  printf("%s\n", OpenDb(world.options, "/db", families, &world.handles, &world.db).ToString().c_str());
  Expect(world.db == nullptr, "it was opened");
}

inline void Repair(World& world) { printf("%s\n", RepairDB("/db", world.options).ToString().c_str()); }

// Forks a child that ends normally while the drive is mounted and a file is being written.
inline void Fork(World& world) {
  std::unique_ptr<FSWritableFile> file;
  Ok(world.fs->NewWritableFile("/file", FileOptions(), &file, nullptr), "a file");
  Ok(file->Append("before ", IOOptions(), nullptr), "append");
  fflush(stdout);
  const pid_t child = fork();
  Expect(child != -1, "fork");
  if (child == 0) {
    // With this limit a signal ends the child if it writes to the drive.
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_FSIZE, &none);
    alarm(120);
    exit(0);
  }
  int status = -1;
  const pid_t ended = waitpid(child, &status, 0);
  Expect(ended == child && status == 0, "the forked process ended with " + std::to_string(status));
  Ok(file->Append("and after", IOOptions(), nullptr), "append");
  Ok(file->Close(IOOptions(), nullptr), "close");
  std::string content;
  Ok(ReadFileToString(world.env.get(), "/file", &content), "read");
  Expect(content == "before and after", content);
}

// Prints the database's former value. Then closes the database after it stopped taking writes, so that the log cannot
// be emptied.
inline void CloseBroken(World& world) {
  world.Open("/db");
  printf("merged %s\n", world.Get("merged").c_str());
  Ok(world.db->Merge(Synced(), "merged", "1"), "merge");
  Expect(!world.db->GetRootDB()->Put(Synced(), "past", "yes").ok(), "a write past the log");
  for (ColumnFamilyHandle* handle : world.handles) {
    world.db->DestroyColumnFamilyHandle(handle);
  }
  Status status = world.db->Close();
  printf("close: %s\n", status.ToString().c_str());
  Expect(!status.ok() && world.db->Close().code() == status.code(), "it closed");
  delete world.db;
}

// A compaction filter that blocks every compaction until `go` is set.
class Blocking : public CompactionFilter {
 public:
  bool Filter(int, const Slice&, const Slice&, std::string*, bool*) const override {
    while (!go) {
      usleep(1000);
    }
    return false;
  }
  const char* Name() const override { return "blocking"; }
  std::atomic<bool> go{false};
};

// Flushes while level 0 has too many tables and no compaction ends, as on a full drive.
inline void FlushFullLevel(World& world) {
  Blocking filter;
  ColumnFamilyOptions family = world.options;
  family.compaction_filter = &filter;
  family.level0_file_num_compaction_trigger = 2;
  family.level0_slowdown_writes_trigger = 2;
  Families families;
  families.emplace_back(kDefaultColumnFamilyName, family);
  Ok(OpenDb(world.options, "/level", families, &world.handles, &world.db), "opening");
  alarm(120);
  for (int n = 0; n < 5; ++n) {
    Ok(world.db->Put(Synced(), "key", "value"), "put");
    Ok(world.db->Flush(FlushOptions()), "flush");
  }
  filter.go = true;
  world.Close();
}

// Checks the content that command Features wrote, after a recovery.
inline void AfterFeatures(World& world) {
  const auto has = [&world](const std::string& key, const std::string& value) {
    Expect(world.Get(key) == value, key + " is " + world.Get(key) + ", not " + value);
  };
  has("ingested", "new");
  has("merged", "10");
  has("single", "none");
  has("range5", "none");
  has("rated", "yes");
  has("torn", "none");
  has("copied", "yes");
  has("backed up", "yes");
  has("synced last", "yes");
  size_t made = world.handles.size();
  for (size_t n = 0; n < world.handles.size(); ++n) {
    Expect(world.handles[n]->GetName() != "dropped", "a dropped family is back");
    made = world.handles[n]->GetName() == "made" ? n : made;
  }
  Expect(made < world.handles.size(), "a new family is lost");
  Expect(world.Get("key", made) == "in made", "what was put into a new family is lost");
}

// Checks a copy that a checkpoint or a backup made.
inline void CheckCopy(World& world) {
  Expect(world.Get("copied") == "yes" && world.Get("merged") == "10", "the copy lacks something");
}

// Usage: PROGRAM URL COMMAND
inline int Run(int argc, char** argv) {
  Expect(argc == 3, "usage: program DEVICE-URL COMMAND");
  const std::string command = argv[2];
  World world(argv[1]);
  const bool copy = command == "/checkpoint" || command == "/restored";
  Families families;
  std::vector<std::string> names;
  if (copy || command == "after") {
    // RocksDB requires that an opening names all families of the program. The hidden family need not be named.
    const std::string name = copy ? command : "/db";
    Ok(DB::ListColumnFamilies(world.options, name, &names), "families of " + name);
    for (const std::string& family : names) {
      Expect(family.find("furrow") == std::string::npos || copy, "the hidden family is seen");
      families.emplace_back(family, world.options);
    }
    Ok(OpenDb(world.options, name, families, &world.handles, &world.db), "opening " + name);
    printf("%s\n", IsParallel(world) ? "parallel" : "plain");
    copy ? CheckCopy(world) : AfterFeatures(world);
    world.Close();
    return 0;
  }
  const std::pair<const char*, void (*)(World&)> ways[] = {
      {"refused", Refused},         {"level", FlushFullLevel}, {"without flushes", WriteWithoutFlushes},
      {"closes", Closes},           {"loaded", OpenLoaded},    {"best efforts", OpenByBestEfforts},
      {"fork", Fork},               {"own families", SeeOwnFamilies},
                    {"repair", Repair},        {"close broken", CloseBroken},
  };
  for (const auto& way : ways) {
    if (command == way.first) {
      way.second(world);
      return 0;
    }
  }
  if (command == "read-only") {
    DB* db = nullptr;
    printf("%s\n", DB::OpenForReadOnly(world.options, "/db", &db).ToString().c_str());
    return 0;
  }
  static const CaseBlind blind;
  if (command == "spell" || command == "spelled") {
    world.options.comparator = &blind;
  }
  world.Open("/db");
  if (command == "write") {
    WriteUntilKilled(world);
  } else if (command == "count") {
    Count(world);
  } else if (command == "features") {
    Features(world);
  } else if (command == "past") {
    WritePast(world);
  } else if (command == "unlogged") {
    WriteUnlogged(world);
  } else if (command == "after unlogged") {
    AfterUnlogged(world);
  } else if (command == "spell") {
    WriteSpelled(world);
  } else if (command == "spelled") {
    SaySpelled(world);
  } else if (command == "read") {
    printf("before %s past %s\n", world.Get("before").c_str(), world.Get("past").c_str());
  } else {
    Expect(false, "no command " + command);
  }
  world.Close();
  return 0;
}
