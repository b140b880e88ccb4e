#include "env.h"

#include <string>
#include <vector>

#include "files.h"
#include "status.h"

namespace furrow {

using leveldb::Status;

namespace {

// RocksDB's numbers for the time that a file lives, which furrow_create takes.
constexpr uint8_t kLifetimeUnknown = 0;
constexpr uint8_t kLifetimeShort = 2;
// RocksDB's number for the priority of flushes. LevelDB's one background thread flushes memtables in the middle of compactions.
constexpr uint8_t kPriorityFlush = 2;

bool EndsWith(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// True for a write-ahead log.
bool IsLog(const std::string& name) { return EndsWith(name, ".log"); }

// True for the list of the database's tables, which takes a record for each change of them.
bool IsManifest(const std::string& name) { return name.compare(name.rfind('/') + 1, 9, "MANIFEST-") == 0; }

bool IsTable(const std::string& name) { return EndsWith(name, ".ldb"); }

std::string DirectoryOf(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

class ZonedEnv final : public leveldb::Env {
 public:
  ZonedEnv(FurrowFs* fs, leveldb::Env* base, bool flush_to_drive, uint64_t table_size)
      : fs_(fs), base_(base), flush_to_drive_(flush_to_drive), table_size_(table_size) {}
  ~ZonedEnv() override { furrow_release(fs_); }

  Status NewSequentialFile(const std::string& name, leveldb::SequentialFile** result) override {
    FurrowReader* reader = nullptr;
    Status status = ToStatus(furrow_open(fs_, name.data(), name.size(), FURROW_READ_SEQUENTIAL, &reader));
    *result = status.ok() ? new SequentialReader(reader) : nullptr;
    return status;
  }

  Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** result) override {
    FurrowReader* reader = nullptr;
    Status status = ToStatus(furrow_open(fs_, name.data(), name.size(), FURROW_READ_RANDOM, &reader));
    *result = status.ok() ? new RandomReader(reader) : nullptr;
    return status;
  }

  Status NewWritableFile(const std::string& name, leveldb::WritableFile** result) override {
    FurrowWriter* writer = nullptr;
    const bool log = IsLog(name);
    const uint8_t kind = log ? FURROW_KIND_LOG : IsManifest(name) ? FURROW_KIND_SHORT_LOG : FURROW_KIND_DATA;
    Status status = ToStatus(furrow_create(fs_, name.data(), name.size(), kind,
                                           log ? kLifetimeShort : kLifetimeUnknown, IsTable(name) ? table_size_ : 0, &writer));
    if (status.ok() && IsTable(name)) {
      furrow_set_priority(writer, kPriorityFlush);
    }
    *result = status.ok() ? new Writer(writer, log && flush_to_drive_) : nullptr;
    return status;
  }

  Status NewAppendableFile(const std::string& name, leveldb::WritableFile** result) override {
    FurrowWriter* writer = nullptr;
    Status status = ToStatus(furrow_open_append(fs_, name.data(), name.size(), &writer));
    if (status.IsNotFound()) {
      return NewWritableFile(name, result);
    }
    *result = status.ok() ? new Writer(writer, IsLog(name) && flush_to_drive_) : nullptr;
    return status;
  }

  bool FileExists(const std::string& name) override {
    FurrowStat stat;
    return ToStatus(furrow_stat(fs_, name.data(), name.size(), &stat)).ok();
  }

  Status GetChildren(const std::string& dir, std::vector<std::string>* result) override {
    // With the two names that LevelDB's own Env lists, too.
    *result = {".", ".."};
    auto each = [](void* context, const char* name, size_t len) noexcept {
      static_cast<std::vector<std::string>*>(context)->emplace_back(name, len);
    };
    Status status = ToStatus(furrow_read_dir(fs_, dir.data(), dir.size(), result, each));
    if (!status.ok()) {
      result->clear();
    }
    return status;
  }

  // LevelDB before 1.23 has the Delete functions alone, and calls them.
  Status RemoveFile(const std::string& name) { return ToStatus(furrow_unlink(fs_, name.data(), name.size())); }
  Status DeleteFile(const std::string& name) override { return RemoveFile(name); }
  Status RemoveDir(const std::string& name) { return ToStatus(furrow_rmdir(fs_, name.data(), name.size())); }
  Status DeleteDir(const std::string& name) override { return RemoveDir(name); }

  // Makes the directories above too: a program may have made those with calls of its own, on the host.
  Status CreateDir(const std::string& name) override {
    for (size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      if (!FileExists(name.substr(0, slash))) {
        Status status = ToStatus(furrow_mkdir(fs_, name.data(), slash));
        if (!status.ok()) {
          return status;
        }
      }
    }
    return ToStatus(furrow_mkdir(fs_, name.data(), name.size()));
  }

  Status GetFileSize(const std::string& name, uint64_t* size) override {
    FurrowStat stat;
    Status status = ToStatus(furrow_stat(fs_, name.data(), name.size(), &stat));
    *size = status.ok() ? stat.size : 0;
    return status;
  }

  // Renames reach the drive in the order of the calls, and a rename before any later removal.
  Status RenameFile(const std::string& from, const std::string& to) override {
    Status status = ToStatus(furrow_rename(fs_, from.data(), from.size(), to.data(), to.size()));
    if (status.ok() && IsCurrent(to)) {
      // From here on the database takes writes and starts compactions.
      const std::string database = DirectoryOf(to);
      furrow_end_recovery(fs_, database.data(), database.size());
    }
    return status;
  }

  Status LockFile(const std::string& name, leveldb::FileLock** lock) override {
    FurrowLock* held = nullptr;
    Status status = ToStatus(furrow_lock(fs_, name.data(), name.size(), &held));
    *lock = status.ok() ? new DriveLock(held) : nullptr;
    return status;
  }

  Status UnlockFile(leveldb::FileLock* lock) override {
    delete lock;
    return Status::OK();
  }

  Status NewLogger(const std::string& name, leveldb::Logger** result) override {
    FurrowWriter* writer = nullptr;
    Status status =
        ToStatus(furrow_create(fs_, name.data(), name.size(), FURROW_KIND_DATA, kLifetimeUnknown, 0, &writer));
    *result = status.ok() ? new TextLog(writer) : nullptr;
    return status;
  }

  Status GetTestDirectory(std::string* path) override {
    *path = "/leveldbtest";
    CreateDir(*path);  // it may exist
    return Status::OK();
  }

  void Schedule(void (*function)(void*), void* arg) override { base_->Schedule(function, arg); }
  void StartThread(void (*function)(void*), void* arg) override { base_->StartThread(function, arg); }
  uint64_t NowMicros() override { return base_->NowMicros(); }
  void SleepForMicroseconds(int micros) override { base_->SleepForMicroseconds(micros); }

 private:
  FurrowFs* fs_;
  leveldb::Env* base_;
  bool flush_to_drive_;
  uint64_t table_size_;
};

// Runs after the program's exit handlers and static destructors, and unmounts the drives that the program left mounted.
__attribute__((destructor)) void Unload() { furrow_unmount_all(); }

}  // namespace

bool IsCurrent(const std::string& name) { return EndsWith(name, "/CURRENT"); }

leveldb::Env* NewEnv(FurrowFs* fs, leveldb::Env* base, bool flush_to_drive, uint64_t table_size) {
  return new ZonedEnv(fs, base, flush_to_drive, table_size);
}

}  // namespace furrow
