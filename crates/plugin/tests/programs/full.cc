// A test program, unmodified RocksDB code, that fills a drive, and works with the database afterwards.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/listener.h"

using namespace rocksdb;  // NOLINT: a test program

namespace {

void Expect(bool fine, const std::string& what) {
  if (!fine) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
    _exit(1);
  }
}

void Ok(const Status& status, const std::string& what) { Expect(status.ok(), what + ": " + status.ToString()); }

std::string Key(long n) {
  char key[16];
  snprintf(key, sizeof(key), "k%08ld", n);
  return key;
}

std::string Value(long n) { return std::to_string(n) + std::string(4000, static_cast<char>('a' + n % 26)); }

// Kills the process when RocksDB has written `left` tables.
class Killing : public EventListener {
 public:
  explicit Killing(int left) : left_(left) {}
  void OnTableFileCreated(const TableFileCreationInfo&) override {
    if (--left_ == 0) {
      kill(getpid(), SIGKILL);
    }
  }

 private:
  int left_;
};

}  // namespace

// The bytes in the write-ahead logs of the database.
uint64_t LogBytes(Env* env) {
  std::vector<std::string> names;
  Ok(env->GetChildren("/db", &names), "listing the database");
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".log") == 0) {
      uint64_t size = 0;
      Ok(env->GetFileSize("/db/" + name, &size), name);
      bytes += size;
    }
  }
  return bytes;
}

// Usage: full URL fill FROM | open FROM TO | killed TABLES | delete TO
int main(int argc, char** argv) {
  Expect(argc >= 4, "usage: full URL COMMAND NUMBER [NUMBER]");
  const std::string command = argv[2];
  const long first = atol(argv[3]);
  std::shared_ptr<FileSystem> fs;
  Ok(FileSystem::CreateFromString(ConfigOptions(), std::string("furrow://") + argv[1], &fs), "the file system");
  const std::unique_ptr<Env> env = NewCompositeEnv(fs);
  Options options;
  options.env = env.get();
  options.create_if_missing = true;
  options.compression = kNoCompression;
  options.write_buffer_size = 3 << 20;
  options.max_write_buffer_number = 4;
  options.target_file_size_base = 1 << 20;
  options.max_bytes_for_level_base = 4 << 20;
  if (command == "killed") {
    // An opening writes a table if a log has records: without one, nothing ends the process early.
    printf("%llu bytes in logs\n", static_cast<unsigned long long>(LogBytes(env.get())));
    fflush(stdout);
    options.listeners.push_back(std::make_shared<Killing>(static_cast<int>(first)));
  }
  DB* db = nullptr;
  Ok(DB::Open(options, "/db", &db), "opening for writing");
  WriteOptions synced;
  synced.sync = true;
  if (command == "fill") {
    // Prints the first key that was not acknowledged, and ends as if killed.
    long n = first;
    Status status;
    for (; status.ok(); ++n) {
      status = db->Put(synced, Key(n), Value(n));
    }
    printf("%ld %s\n", n - 1, status.ToString().c_str());
    fflush(stdout);
    _exit(0);
  }
  if (command == "open") {
    for (long n = first; n < atol(argv[4]); ++n) {
      std::string value;
      Ok(db->Get(ReadOptions(), Key(n), &value), Key(n));
      Expect(value == Value(n), Key(n) + " has another value");
    }
  }
  if (command == "delete") {
    // Tables are dropped whole, the rest by a range delete, a flush and a compaction.
    const std::string begin = Key(0);
    const std::string end = Key(first);
    const Slice from = begin;
    const Slice to = end;
    Ok(DeleteFilesInRange(db, db->DefaultColumnFamily(), &from, &to), "deleting tables");
    Ok(db->DeleteRange(synced, db->DefaultColumnFamily(), from, to), "deleting a range");
    Ok(db->Flush(FlushOptions()), "flush");
    Ok(db->CompactRange(CompactRangeOptions(), nullptr, nullptr), "compaction");
    for (long n = 0; n < first / 2; ++n) {
      Ok(db->Put(synced, Key(n), Value(n)), "a put after the delete");
    }
  }
  Ok(db->Close(), "close");
  delete db;
  return 0;
}
