// RocksDB's file system over a mounted Furrow file system.
//
// Compiles against RocksDB 7.8 (Debian 12) and 10; ROCKSDB_MAJOR selects the differences.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "furrow_abi.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"
#include "rocksdb/version.h"

namespace furrow {

// File name of a database's parallel log, in the database's directory: docs/adr/0013.
constexpr char kParallelLogFile[] = "FURROW-LOG";

// While a thread has an OpensParallelLog object, the thread may open databases that have a parallel log. Any other
// opening is refused, because the tables alone are not the newest state.
class OpensParallelLog {
 public:
  OpensParallelLog();
  ~OpensParallelLog();
};

// The directories in which RocksDB's own logs must stay empty, because the database in the directory has a parallel
// log. A write to RocksDB's own log would bypass the parallel log: after a crash, the order of writes between the two
// logs would be unknown.
class EmptyLogs {
 public:
  // Fails if `file`, which is one of RocksDB's own logs, must stay empty.
  rocksdb::IOStatus Check(const std::string& file) const;
  // True if a database with a parallel log is open in the directory of `file`.
  bool IsOpen(const std::string& file) const;

 private:
  friend class EmptyLogGuard;
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::multiset<std::string> directories_;
  // The directories of the open databases that have a parallel log. RocksDB's own logs may be in other directories
  // (wal_dir).
  std::multiset<std::string> databases_;
};

class FurrowFileSystem : public rocksdb::FileSystem {
 public:
  // Makes RocksDB's file system over the mounted file system `fs`, and takes over `fs`.
  explicit FurrowFileSystem(FurrowFs* fs) : fs_(fs) {}
  ~FurrowFileSystem() override { furrow_release(fs_); }

  static const char* kClassName() { return "FurrowFileSystem"; }
  const char* Name() const override { return kClassName(); }

  // The mounted Furrow file system. Valid during the lifetime of this object.
  const FurrowFs* mount() const { return fs_; }

  // The directories where RocksDB's own logs must stay empty.
  EmptyLogs* empty_logs() { return &empty_logs_; }

  rocksdb::IOStatus NewSequentialFile(const std::string& fname, const rocksdb::FileOptions& file_opts,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* result,
                                      rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& fname, const rocksdb::FileOptions& file_opts,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                        rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewWritableFile(const std::string& fname, const rocksdb::FileOptions& file_opts,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& fname, const rocksdb::FileOptions& file_opts,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result,
                                       rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& fname, const std::string& old_fname,
                                      const rocksdb::FileOptions& file_opts,
                                      std::unique_ptr<rocksdb::FSWritableFile>* result,
                                      rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewDirectory(const std::string& name, const rocksdb::IOOptions& io_opts,
                                 std::unique_ptr<rocksdb::FSDirectory>* result,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus FileExists(const std::string& fname, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetChildren(const std::string& dir, const rocksdb::IOOptions& options,
                                std::vector<std::string>* result, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus DeleteFile(const std::string& fname, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(const std::string& fname, size_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus CreateDir(const std::string& dirname, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& dirname, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus DeleteDir(const std::string& dirname, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFileSize(const std::string& fname, const rocksdb::IOOptions& options,
                                uint64_t* file_size, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFileModificationTime(const std::string& fname, const rocksdb::IOOptions& options,
                                            uint64_t* file_mtime, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus RenameFile(const std::string& src, const std::string& target,
                               const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus LinkFile(const std::string& src, const std::string& target,
                             const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NumFileLinks(const std::string& fname, const rocksdb::IOOptions& options, uint64_t* count,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus AreFilesSame(const std::string& first, const std::string& second,
                                 const rocksdb::IOOptions& options, bool* res,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus LockFile(const std::string& fname, const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetTestDirectory(const rocksdb::IOOptions& options, std::string* path,
                                     rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewLogger(const std::string& fname, const rocksdb::IOOptions& io_opts,
                              std::shared_ptr<rocksdb::Logger>* result, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetAbsolutePath(const std::string& db_path, const rocksdb::IOOptions& options,
                                    std::string* output_path, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options, uint64_t* diskfree,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus IsDirectory(const std::string& path, const rocksdb::IOOptions& options, bool* is_dir,
                                rocksdb::IODebugContext* dbg) override;
#if ROCKSDB_MAJOR >= 8
  // No asynchronous reads: RocksDB would otherwise queue reads behind a ReadAsync that runs synchronously.
  void SupportedOps(int64_t& supported_ops) override { supported_ops = 0; }
#endif

 private:
  // Fails if `fname`, a manifest, would be made or renamed in a directory with a parallel log whose database is not
  // open.
  rocksdb::IOStatus MayChangeManifest(const std::string& fname) const;

  FurrowFs* fs_;
  // The size that RocksDB preallocated for its latest write-ahead log, used as the expected size of the next one.
  std::atomic<uint64_t> log_preallocation_{0};
  EmptyLogs empty_logs_;
};

// While an EmptyLogGuard lives, RocksDB's own logs of the database `name` must stay empty. Make it after the database
// is opened, which may write to the log, and destroy it after the database. The file system must outlive it.
class EmptyLogGuard {
 public:
  EmptyLogGuard(FurrowFileSystem* fs, const rocksdb::DBOptions& options, const std::string& name);
  ~EmptyLogGuard();
  EmptyLogGuard(const EmptyLogGuard&) = delete;
  EmptyLogGuard& operator=(const EmptyLogGuard&) = delete;

 private:
  EmptyLogs* logs_;
  std::string directory_;
  std::string database_;
};

}  // namespace furrow
