#include "file_system.h"

#include <cstdlib>
#include <utility>

#include "files.h"
#include "logger.h"
#include "status.h"

namespace furrow {

using rocksdb::Env;
using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

class FurrowFileLock : public rocksdb::FileLock {
 public:
  explicit FurrowFileLock(FurrowLock* lock) : lock_(lock) {}
  ~FurrowFileLock() override { furrow_unlock(lock_); }

 private:
  FurrowLock* lock_;
};

thread_local int opens_parallel_log = 0;

bool EndsWith(const std::string& name, const char* suffix, size_t len) {
  return name.size() >= len && name.compare(name.size() - len, len, suffix) == 0;
}

// True for a write-ahead log. RocksDB 7.8 tells a file's purpose neither in the options nor at the call, so the name
// decides.
bool IsWal(const std::string& fname) { return EndsWith(fname, ".log", 4); }

Env::WriteLifeTimeHint FirstHint(const std::string& fname, const FileOptions& options) {
#if ROCKSDB_MAJOR >= 10
  if (options.write_hint != Env::WLTH_NOT_SET) {
    return options.write_hint;
  }
#else
  (void)options;
#endif
  return IsWal(fname) ? Env::WLTH_SHORT : Env::WLTH_NOT_SET;
}

std::string WithoutSlashes(std::string directory) {
  while (!directory.empty() && directory.back() == '/') {
    directory.pop_back();
  }
  return directory;
}

// The directory part of a path, trailing slash included.
std::string DirectoryOf(const std::string& fname) { return fname.substr(0, fname.rfind('/') + 1); }

// The path of the parallel log if `fname` is a database's CURRENT file; empty otherwise. Every opening of a database
// begins with CURRENT, except one with best_efforts_recovery (see IsManifest).
std::string LogBeside(const std::string& fname) {
  constexpr char kCurrent[] = "/CURRENT";
  return EndsWith(fname, kCurrent, sizeof(kCurrent) - 1) ? DirectoryOf(fname) + kParallelLogFile : "";
}

// True for a manifest. Every opening for writing makes a new manifest, also an opening with best_efforts_recovery,
// which does not read CURRENT first.
bool IsManifest(const std::string& fname) {
  constexpr char kManifest[] = "MANIFEST-";
  return fname.compare(fname.rfind('/') + 1, sizeof(kManifest) - 1, kManifest) == 0;
}

// The database's directory if `fname` holds new options of the database; empty otherwise.
std::string DatabaseOfOptions(const std::string& fname) {
  constexpr char kOptions[] = "OPTIONS-";
  constexpr char kTemporary[] = ".dbtmp";
  const std::string directory = DirectoryOf(fname);
  const bool options = fname.compare(directory.size(), sizeof(kOptions) - 1, kOptions) == 0 &&
                       EndsWith(fname, kTemporary, sizeof(kTemporary) - 1);
  return options ? directory : "";
}

// Fails if the parallel log `log` exists.
IOStatus RefuseIfLogExists(const FurrowFs* fs, const std::string& log) {
  FurrowStat stat;
  IOStatus there = ToIOStatus(furrow_stat(fs, log.data(), log.size(), &stat), Missing::kProbe);
  if (there.IsNotFound()) {
    return IOStatus::OK();
  }
  return there.ok() ? IOStatus::InvalidArgument(
                          log + " has writes that are not in the database's tables yet: open it for writing once, with "
                                "FURROW_WAL=auto or waltz")
                    : there;
}

}  // namespace

OpensParallelLog::OpensParallelLog() { ++opens_parallel_log; }
OpensParallelLog::~OpensParallelLog() { --opens_parallel_log; }

IOStatus EmptyLogs::Check(const std::string& file) const {
  if (count_.load(std::memory_order_acquire) == 0) {
    return IOStatus::OK();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (directories_.count(WithoutSlashes(DirectoryOf(file))) == 0) {
    return IOStatus::OK();
  }
  return IOStatus::NotSupported(
      "a write past the parallel log (by GetRootDB(), GetBaseDB() or an EventListener's database) to " + file,
      "write by the database that was opened, or use FURROW_WAL=group");
}

bool EmptyLogs::IsOpen(const std::string& file) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return databases_.count(WithoutSlashes(DirectoryOf(file))) != 0;
}

EmptyLogGuard::EmptyLogGuard(FurrowFileSystem* fs, const rocksdb::DBOptions& options, const std::string& name)
    : logs_(fs->empty_logs()), directory_(WithoutSlashes(options.wal_dir.empty() ? name : options.wal_dir)),
      database_(WithoutSlashes(name)) {
  std::lock_guard<std::mutex> lock(logs_->mutex_);
  logs_->directories_.insert(directory_);
  logs_->databases_.insert(database_);
  logs_->count_.fetch_add(1, std::memory_order_release);
}

EmptyLogGuard::~EmptyLogGuard() {
  std::lock_guard<std::mutex> lock(logs_->mutex_);
  logs_->directories_.erase(logs_->directories_.find(directory_));
  logs_->databases_.erase(logs_->databases_.find(database_));
  logs_->count_.fetch_sub(1, std::memory_order_release);
}

IOStatus FurrowFileSystem::MayChangeManifest(const std::string& fname) const {
  // While a database with a parallel log is opened, and while it is open, its own manifests may be made, from any
  // thread.
  if (!IsManifest(fname) || opens_parallel_log > 0 || empty_logs_.IsOpen(fname)) {
    return IOStatus::OK();
  }
  return RefuseIfLogExists(fs_, DirectoryOf(fname) + kParallelLogFile);
}

IOStatus FurrowFileSystem::NewSequentialFile(const std::string& fname, const FileOptions&,
                                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                                             IODebugContext*) {
  result->reset();
  const std::string log = opens_parallel_log > 0 ? "" : LogBeside(fname);
  IOStatus status = log.empty() ? IOStatus::OK() : RefuseIfLogExists(fs_, log);
  if (!status.ok()) {
    return status;
  }
  FurrowReader* reader = nullptr;
  status = ToIOStatus(furrow_open(fs_, fname.data(), fname.size(), FURROW_READ_SEQUENTIAL, &reader));
  if (status.ok()) {
    *result = std::make_unique<SequentialFile>(reader);
  }
  return status;
}

IOStatus FurrowFileSystem::NewRandomAccessFile(const std::string& fname, const FileOptions& options,
                                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                               IODebugContext*) {
  result->reset();
  if (options.use_mmap_reads) {
    return IOStatus::NotSupported("mmap reads (allow_mmap_reads, --mmap_read): " + fname +
                                  " is on a zoned device, which no process can map");
  }
  FurrowReader* reader = nullptr;
  const uint8_t how = options.use_direct_reads ? FURROW_READ_DIRECT : FURROW_READ_RANDOM;
  IOStatus status = ToIOStatus(furrow_open(fs_, fname.data(), fname.size(), how, &reader));
  if (status.ok()) {
    *result = std::make_unique<RandomAccessFile>(reader);
  }
  return status;
}

IOStatus FurrowFileSystem::NewWritableFile(const std::string& fname, const FileOptions& options,
                                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                                           IODebugContext*) {
  result->reset();
  IOStatus status = MayChangeManifest(fname);
  if (!status.ok()) {
    return status;
  }
  const bool wal = IsWal(fname);
  std::string database = DatabaseOfOptions(fname);
  FurrowWriter* writer = nullptr;
  status = ToIOStatus(furrow_create(
      fs_, fname.data(), fname.size(), wal ? FURROW_KIND_LOG : FURROW_KIND_DATA, static_cast<uint8_t>(FirstHint(fname, options)),
      wal ? log_preallocation_.load(std::memory_order_relaxed) : 0, &writer));
  if (!status.ok()) {
    // RocksDB opens the database without the file of its options, too.
    if (!database.empty()) {
      furrow_end_recovery(fs_, database.data(), database.size());
    }
    return status;
  }
  if (wal) {
    *result = std::make_unique<RocksLogFile>(options, writer, &log_preallocation_, &empty_logs_, fname);
  } else if (!database.empty()) {
    *result = std::make_unique<OptionsFile>(options, writer, fs_, std::move(database));
  } else {
    *result = std::make_unique<WritableFile>(options, writer, nullptr);
  }
  return status;
}

IOStatus FurrowFileSystem::ReopenWritableFile(const std::string& fname, const FileOptions& options,
                                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                                              IODebugContext* dbg) {
  result->reset();
  FurrowWriter* writer = nullptr;
  FurrowStatus opened = furrow_open_append(fs_, fname.data(), fname.size(), &writer);
  if (opened.code == FURROW_NOT_FOUND) {
    furrow_message_free(opened.message, opened.message_len);
    return NewWritableFile(fname, options, result, dbg);
  }
  IOStatus status = ToIOStatus(opened);
  if (status.ok()) {
    *result = std::make_unique<WritableFile>(options, writer, nullptr);
  }
  return status;
}

// A zone cannot be overwritten in place, so recycling a log saves nothing: the old file is deleted, and a new file of
// the new name is created. No old content can be mistaken for new.
IOStatus FurrowFileSystem::ReuseWritableFile(const std::string& fname, const std::string& old_fname,
                                             const FileOptions& options,
                                             std::unique_ptr<rocksdb::FSWritableFile>* result,
                                             IODebugContext* dbg) {
  result->reset();
  IOStatus status = ToIOStatus(furrow_unlink(fs_, old_fname.data(), old_fname.size()));
  return status.ok() ? NewWritableFile(fname, options, result, dbg) : status;
}

IOStatus FurrowFileSystem::NewDirectory(const std::string& name, const IOOptions&,
                                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) {
  result->reset();
  FurrowStat stat;
  IOStatus status = ToIOStatus(furrow_stat(fs_, name.data(), name.size(), &stat));
  if (!status.ok()) {
    return status;
  }
  if (!stat.is_dir) {
    return IOStatus::IOError("opening directory " + name + ": it is a file");
  }
  *result = std::make_unique<Directory>(fs_, stat.ino);
  return status;
}

IOStatus FurrowFileSystem::FileExists(const std::string& fname, const IOOptions&, IODebugContext*) {
  FurrowStat stat;
  return ToIOStatus(furrow_stat(fs_, fname.data(), fname.size(), &stat), Missing::kProbe);
}

IOStatus FurrowFileSystem::GetChildren(const std::string& dir, const IOOptions&,
                                       std::vector<std::string>* result, IODebugContext*) {
  result->clear();
  auto each = [](void* context, const char* name, size_t len) noexcept {
    static_cast<std::vector<std::string>*>(context)->emplace_back(name, len);
  };
  return ToIOStatus(furrow_read_dir(fs_, dir.data(), dir.size(), result, each), Missing::kProbe);
}

IOStatus FurrowFileSystem::DeleteFile(const std::string& fname, const IOOptions&, IODebugContext*) {
  // Deleting CURRENT means that the database is being destroyed. The parallel log is deleted too, or its records
  // would come back in the next database in this directory.
  const std::string log = LogBeside(fname);
  if (!log.empty()) {
    IOStatus status = ToIOStatus(furrow_unlink(fs_, log.data(), log.size()), Missing::kProbe);
    if (!status.ok() && !status.IsNotFound()) {
      return status;
    }
  }
  return ToIOStatus(furrow_unlink(fs_, fname.data(), fname.size()));
}

IOStatus FurrowFileSystem::Truncate(const std::string& fname, size_t size, const IOOptions&, IODebugContext*) {
  return ToIOStatus(furrow_truncate(fs_, fname.data(), fname.size(), size));
}

IOStatus FurrowFileSystem::CreateDir(const std::string& dirname, const IOOptions&, IODebugContext*) {
  return ToIOStatus(furrow_mkdir(fs_, dirname.data(), dirname.size()));
}

IOStatus FurrowFileSystem::CreateDirIfMissing(const std::string& dirname, const IOOptions&, IODebugContext*) {
  FurrowStat stat;
  IOStatus status = ToIOStatus(furrow_stat(fs_, dirname.data(), dirname.size(), &stat), Missing::kProbe);
  if (status.ok()) {
    return stat.is_dir ? status : IOStatus::IOError("creating directory " + dirname + ": it is a file");
  }
  return status.IsNotFound() ? ToIOStatus(furrow_mkdir(fs_, dirname.data(), dirname.size())) : status;
}

IOStatus FurrowFileSystem::DeleteDir(const std::string& dirname, const IOOptions&, IODebugContext*) {
  return ToIOStatus(furrow_rmdir(fs_, dirname.data(), dirname.size()));
}

IOStatus FurrowFileSystem::GetFileSize(const std::string& fname, const IOOptions&, uint64_t* file_size,
                                       IODebugContext*) {
  FurrowStat stat;
  IOStatus status = ToIOStatus(furrow_stat(fs_, fname.data(), fname.size(), &stat));
  *file_size = status.ok() ? stat.size : 0;
  return status;
}

IOStatus FurrowFileSystem::GetFileModificationTime(const std::string& fname, const IOOptions&,
                                                   uint64_t* file_mtime, IODebugContext*) {
  FurrowStat stat;
  IOStatus status = ToIOStatus(furrow_stat(fs_, fname.data(), fname.size(), &stat));
  *file_mtime = status.ok() ? stat.modified_ms / 1000 : 0;
  return status;
}

IOStatus FurrowFileSystem::RenameFile(const std::string& src, const std::string& target, const IOOptions&,
                                      IODebugContext*) {
  // RepairDB renames the old manifests before it makes a new one.
  IOStatus status = MayChangeManifest(src);
  if (!status.ok()) {
    return status;
  }
  return ToIOStatus(furrow_rename(fs_, src.data(), src.size(), target.data(), target.size()));
}

IOStatus FurrowFileSystem::LinkFile(const std::string& src, const std::string& target, const IOOptions&,
                                    IODebugContext*) {
  return ToIOStatus(furrow_link(fs_, src.data(), src.size(), target.data(), target.size()));
}

IOStatus FurrowFileSystem::NumFileLinks(const std::string& fname, const IOOptions&, uint64_t* count,
                                        IODebugContext*) {
  FurrowStat stat;
  IOStatus status = ToIOStatus(furrow_stat(fs_, fname.data(), fname.size(), &stat));
  *count = status.ok() ? stat.links : 0;
  return status;
}

IOStatus FurrowFileSystem::AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                                        bool* res, IODebugContext*) {
  FurrowStat one;
  FurrowStat two;
  IOStatus status = ToIOStatus(furrow_stat(fs_, first.data(), first.size(), &one));
  if (status.ok()) {
    status = ToIOStatus(furrow_stat(fs_, second.data(), second.size(), &two));
  }
  *res = status.ok() && one.ino == two.ino;
  return status;
}

IOStatus FurrowFileSystem::LockFile(const std::string& fname, const IOOptions&, rocksdb::FileLock** lock,
                                    IODebugContext*) {
  *lock = nullptr;
  FurrowLock* held = nullptr;
  IOStatus status = ToIOStatus(furrow_lock(fs_, fname.data(), fname.size(), &held));
  if (status.ok()) {
    *lock = new FurrowFileLock(held);
  }
  return status;
}

IOStatus FurrowFileSystem::UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) {
  delete lock;
  return IOStatus::OK();
}

IOStatus FurrowFileSystem::GetTestDirectory(const IOOptions& options, std::string* path, IODebugContext* dbg) {
  *path = "/rocksdbtest";
  return CreateDirIfMissing(*path, options, dbg);
}

IOStatus FurrowFileSystem::NewLogger(const std::string& fname, const IOOptions&,
                                     std::shared_ptr<rocksdb::Logger>* result, IODebugContext*) {
  result->reset();
  std::unique_ptr<LogSink> sink;
  const char* host_dir = std::getenv("FURROW_LOG_DIR");
  if (host_dir != nullptr && host_dir[0] != '\0') {
    std::string message;
    sink = NewHostSink(host_dir, fname, &message);
    if (sink == nullptr) {
      // RocksDB opens without a LOG when the LOG cannot be made, and reports nothing, so the error is printed here.
      fprintf(stderr, "furrow: %s\n", message.c_str());
      return IOStatus::IOError(message);
    }
  } else {
    FurrowWriter* writer = nullptr;
    IOStatus status = ToIOStatus(
        furrow_create(fs_, fname.data(), fname.size(), FURROW_KIND_DATA, static_cast<uint8_t>(Env::WLTH_NOT_SET), 0, &writer));
    if (!status.ok()) {
      return status;
    }
    sink = NewZonedSink(writer);
  }
  *result = std::make_shared<FurrowLogger>(std::move(sink));
  return IOStatus::OK();
}

IOStatus FurrowFileSystem::GetAbsolutePath(const std::string& db_path, const IOOptions&,
                                           std::string* output_path, IODebugContext*) {
  *output_path = !db_path.empty() && db_path[0] == '/' ? db_path : "/" + db_path;
  return IOStatus::OK();
}

IOStatus FurrowFileSystem::GetFreeSpace(const std::string&, const IOOptions&, uint64_t* diskfree,
                                        IODebugContext*) {
  return ToIOStatus(furrow_free_space(fs_, diskfree));
}

IOStatus FurrowFileSystem::IsDirectory(const std::string& path, const IOOptions&, bool* is_dir,
                                       IODebugContext*) {
  FurrowStat stat;
  IOStatus status = ToIOStatus(furrow_stat(fs_, path.data(), path.size(), &stat));
  *is_dir = status.ok() && stat.is_dir;
  return status;
}

}  // namespace furrow
