// A test program, unmodified RocksDB code, that repeatedly opens and releases Envs and databases in one process.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

using namespace rocksdb;  // NOLINT: a test program

namespace {

void Ok(const Status& status, const std::string& what) {
  if (!status.ok()) {
    fprintf(stderr, "FAILED: %s: %s\n", what.c_str(), status.ToString().c_str());
    _exit(1);
  }
}

std::shared_ptr<Env> Mount(const std::string& uri) {
  std::shared_ptr<Env> guard;
  Env* env = nullptr;
  Ok(Env::CreateFromUri(ConfigOptions(), "", uri, &env, &guard), "mounting");
  return guard;
}

Options Settings(const std::shared_ptr<Env>& env) {
  Options options;
  options.create_if_missing = true;
  options.env = env.get();
  return options;
}

// Mounts the drive in each round, writes a database on every second mount, and releases both.
void Remount(const std::string& uri, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::shared_ptr<Env> env = Mount(uri);
    if (round % 2 == 0) {
      DB* db = nullptr;
      Ok(DB::Open(Settings(env), "/db", &db), "opening");
      Ok(db->Put(WriteOptions(), "key", "value"), "put");
      delete db;
    }
  }
}

// Tries to open a database a second time while it is open.
void OpenTwice(const std::string& uri) {
  const std::shared_ptr<Env> env = Mount(uri);
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), "/db", &db), "opening");
  DB* again = nullptr;
  printf("%s\n", DB::Open(Settings(env), "/db", &again).ToString().c_str());
  delete db;
}

// Flushes memtables while file deletions are disabled, as during a backup or a checkpoint.
void FlushWithoutDeletions(const std::string& uri, bool sync) {
  const std::shared_ptr<Env> env = Mount(uri);
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), "/db", &db), "opening");
  Ok(db->DisableFileDeletions(), "disabling file deletions");
  WriteOptions options;
  options.sync = sync;
  for (int n = 0; n < 16; ++n) {
    Ok(db->Put(options, "key" + std::to_string(n), std::string(1000, 'v')), "put " + std::to_string(n));
    Ok(db->Flush(FlushOptions()), "flush " + std::to_string(n));
  }
  Ok(db->EnableFileDeletions(true), "enabling file deletions");
  Ok(db->Put(options, "last", "value"), "put");
  delete db;
  Ok(DB::Open(Settings(env), "/db", &db), "opening");
  for (int n = 0; n < 16; ++n) {
    std::string value;
    Ok(db->Get(ReadOptions(), "key" + std::to_string(n), &value), "get");
  }
  delete db;
}

// Flushes memtables of four families in turn while file deletions are disabled.
void FlushFamiliesInTurn(const std::string& uri, bool sync) {
  const std::shared_ptr<Env> env = Mount(uri);
  Options options = Settings(env);
  options.create_missing_column_families = true;
  std::vector<ColumnFamilyDescriptor> families;
  for (const std::string& name : {kDefaultColumnFamilyName, std::string("1"), std::string("2"), std::string("3")}) {
    families.emplace_back(name, options);
  }
  WriteOptions writing;
  writing.sync = sync;
  for (const bool written : {false, true}) {
    DB* db = nullptr;
    std::vector<ColumnFamilyHandle*> handles;
    Ok(DB::Open(options, "/db", families, &handles, &db), "opening");
    if (!written) {
      Ok(db->DisableFileDeletions(), "disabling file deletions");
    }
    for (size_t n = 0; n < 24; ++n) {
      const std::string key = "key" + std::to_string(n);
      ColumnFamilyHandle* family = handles[n % handles.size()];
      if (written) {
        std::string value;
        Ok(db->Get(ReadOptions(), family, key, &value), "get " + key);
      } else {
        Ok(db->Put(writing, family, key, std::string(1000, 'v')), "put " + key);
        Ok(db->Flush(FlushOptions(), family), "flush " + std::to_string(n));
      }
    }
    for (ColumnFamilyHandle* handle : handles) {
      Ok(db->DestroyColumnFamilyHandle(handle), "handle");
    }
    delete db;
  }
}

void Expect(bool fact, const std::string& what) {
  if (!fact) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
    _exit(1);
  }
}

// Bytes that this process has read from files, the emulated drive's file among them.
uint64_t BytesRead() {
  uint64_t bytes = 0;
  FILE* counters = fopen("/proc/self/io", "r");
  Expect(counters != nullptr && fscanf(counters, "rchar: %lu", &bytes) == 1, "reading /proc/self/io");
  fclose(counters);
  return bytes;
}

constexpr size_t kBlock = 4096;
constexpr size_t kMiB = 1 << 20;

// Reads the blocks of a range, checks them, and returns whether the drive was read.
bool ReadsDrive(FSRandomAccessFile* file, const std::string& content, size_t offset, size_t n) {
  const uint64_t before = BytesRead();
  std::vector<char> scratch(kBlock);
  for (size_t at = offset; at < offset + n; at += kBlock) {
    Slice got;
    Ok(file->Read(at, kBlock, IOOptions(), &got, scratch.data(), nullptr), "reading");
    Expect(got == Slice(content.data() + at, kBlock), "content at " + std::to_string(at));
  }
  // Reading /proc/self/io counts too: less than a block.
  return BytesRead() - before >= kBlock;
}

// Calls the file system's Prefetch, Hint, InvalidateCache and PositionedAppend as RocksDB does, and checks by the bytes
// read from the drive that the page cache follows them.
// Without a page cache (`cached` is false) every read goes to the drive.
void CheckReadHints(const std::string& uri, bool cached) {
  const std::shared_ptr<Env> env = Mount(uri);
  FileSystem* fs = env->GetFileSystem().get();
  std::string content(4 * kMiB, 0);
  for (size_t at = 0; at < content.size(); ++at) {
    content[at] = static_cast<char>(at * 2654435761u >> 13);
  }
  std::unique_ptr<FSWritableFile> out;
  Ok(fs->NewWritableFile("/file", FileOptions(), &out, nullptr), "creating");
  const size_t half = content.size() / 2;
  Ok(out->Append(Slice(content.data(), half), IOOptions(), nullptr), "appending");
  // Zones take writes at the end of a file alone.
  for (const size_t at : {size_t{0}, kBlock, half - 1, half + kBlock}) {
    const IOStatus status = out->PositionedAppend(Slice("x"), at, IOOptions(), nullptr);
    Expect(status.IsNotSupported(), "a write at " + std::to_string(at) + ": " + status.ToString());
  }
  Ok(out->PositionedAppend(Slice(content.data() + half, half), half, IOOptions(), nullptr), "a write at the end");
  Ok(out->Sync(IOOptions(), nullptr), "syncing");
  Ok(out->Close(IOOptions(), nullptr), "closing");
  std::unique_ptr<FSRandomAccessFile> file;
  Ok(fs->NewRandomAccessFile("/file", FileOptions(), &file, nullptr), "opening");

  const auto reads = [&](size_t offset, size_t n) { return ReadsDrive(file.get(), content, offset, n); };
  Expect(reads(0, content.size()) == !cached, "written pages are in memory");
  Ok(file->InvalidateCache(kMiB, 2 * kMiB), "InvalidateCache");
  Expect(reads(0, kMiB) == !cached, "pages in front of those that were dropped");
  file->Hint(FSRandomAccessFile::kRandom);
  Expect(reads(kMiB + 64 * kBlock, kBlock), "a dropped page is read from the drive");
  Expect(reads(kMiB + 64 * kBlock, kBlock) == !cached, "a page that was read is in memory");
  Expect(reads(kMiB + 65 * kBlock, kBlock), "no page is read ahead of random reads");

  const uint64_t before = BytesRead();
  const IOStatus status = file->Prefetch(2 * kMiB, kMiB, IOOptions(), nullptr);
  Expect(cached ? status.ok() : status.IsNotSupported(), "Prefetch: " + status.ToString());
  if (cached) {
    // Prefetch returns before the bytes are read.
    for (int tries = 0; BytesRead() - before < kMiB && tries < 10000; ++tries) {
      usleep(1000);
    }
    Expect(BytesRead() - before >= kMiB, "prefetched bytes are read without a reader");
    usleep(100000);
  }
  Expect(reads(2 * kMiB, kMiB) == !cached, "prefetched pages are in memory");

  // Pages behind a compaction's pass leave the cache.
  file->Hint(FSRandomAccessFile::kNormal);
  Expect(reads(0, kMiB) == !cached, "the pass finds pages in memory");
  Expect(reads(0, kMiB / 2), "pages behind the pass");
}

}  // namespace

// Usage: PROGRAM URL COMMAND [ARGUMENT]
int main(int argc, char** argv) {
  const std::string uri = std::string("furrow://") + argv[1];
  const std::string argument = argc > 3 ? argv[3] : "";
  if (strcmp(argv[2], "remount") == 0) {
    Remount(uri, atoi(argument.c_str()));
  } else if (strcmp(argv[2], "open twice") == 0) {
    OpenTwice(uri);
  } else if (strcmp(argv[2], "no deletions") == 0) {
    FlushWithoutDeletions(uri, argument == "synced");
  } else if (strcmp(argv[2], "families in turn") == 0) {
    FlushFamiliesInTurn(uri, argument == "synced");
  } else if (strcmp(argv[2], "read hints") == 0) {
    CheckReadHints(uri, argument == "cached");
  } else {
    return 2;
  }
  return 0;
}
