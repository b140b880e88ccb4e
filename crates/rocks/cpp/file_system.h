// RocksDB's file system over a mounted Furrow file system.
//
// Compiles against RocksDB 7.8 (Debian 12) and 10: what differs is behind ROCKSDB_MAJOR.
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

// The parallel log of a database, beside its other files: docs/adr/0013.
constexpr char kParallelLogFile[] = "FURROW-LOG";

// While one lives, its thread may open databases that have a parallel log. All others are refused: the tables alone are
// not the newest state.
class KnowsParallelLog {
 public:
  KnowsParallelLog();
  ~KnowsParallelLog();
};

// The directories in which RocksDB's own logs must stay empty, for the database there has a parallel log. What is written to
// one came past the engine: a crash would put the two logs in another order than the writes were in.
class EmptyLogs {
 public:
  // Whether `file`, a log of RocksDB's, may be written.
  rocksdb::IOStatus Check(const std::string& file) const;
  // Whether such a database is open in the directory of `file`.
  bool IsOpen(const std::string& file) const;

 private:
  friend class LogsStayEmpty;
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::multiset<std::string> directories_;
  // Where the databases are. Their logs may be elsewhere.
  std::multiset<std::string> databases_;
};

class FurrowFileSystem : public rocksdb::FileSystem {
 public:
  // Takes over `fs`.
  explicit FurrowFileSystem(FurrowFs* fs) : fs_(fs) {}
  ~FurrowFileSystem() override { furrow_release(fs_); }

  static const char* kClassName() { return "FurrowFileSystem"; }
  const char* Name() const override { return kClassName(); }

  // The mounted file system; lives as long as this.
  const FurrowFs* mount() const { return fs_; }

  // Where RocksDB's own logs must stay empty.
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
  // Reads are synchronous: without this RocksDB would queue them behind a ReadAsync that is not.
  void SupportedOps(int64_t& supported_ops) override { supported_ops = 0; }
#endif

 private:
  // Refuses to make or put away a database's manifest beside a parallel log that is not open.
  rocksdb::IOStatus MayChangeManifest(const std::string& fname) const;

  FurrowFs* fs_;
  // What RocksDB preallocated for its latest write-ahead log: the size that the next one will have.
  std::atomic<uint64_t> log_preallocation_{0};
  EmptyLogs empty_logs_;
};

// While it lives, the logs of the database `name` stay empty. Made when the database is open, which may write to its log, and
// gone after it; the file system outlives it.
class LogsStayEmpty {
 public:
  LogsStayEmpty(FurrowFileSystem* fs, const rocksdb::DBOptions& options, const std::string& name);
  ~LogsStayEmpty();
  LogsStayEmpty(const LogsStayEmpty&) = delete;
  LogsStayEmpty& operator=(const LogsStayEmpty&) = delete;

 private:
  EmptyLogs* logs_;
  std::string directory_;
  std::string database_;
};

}  // namespace furrow
