// RocksDB's four kinds of open file over the Rust file system.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "file_system.h"
#include "furrow_abi.h"
#include "rocksdb/file_system.h"
#include "status.h"

namespace furrow {

// Owns the Rust side of a file that is open for reading.
class Reader {
 public:
  explicit Reader(FurrowReader* reader) : reader_(reader) {}
  ~Reader() { furrow_reader_free(reader_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  rocksdb::IOStatus ReadAt(uint64_t offset, size_t n, rocksdb::Slice* result, char* scratch) const;
  uint64_t ino() const { return furrow_reader_ino(reader_); }
  // Drops pages of the page cache; `n` is 0 for the rest of the file.
  rocksdb::IOStatus DropCached(uint64_t offset, size_t n) const {
    furrow_drop_cached(reader_, offset, n);
    return rocksdb::IOStatus::OK();
  }
  // Begins to read into the page cache; false without one.
  bool ReadAhead(uint64_t offset, size_t n) const { return furrow_read_ahead(reader_, offset, n) != 0; }
  // `access` is one of FURROW_ACCESS_*.
  void ExpectAccess(uint8_t access) const { furrow_expect_access(reader_, access); }

 private:
  FurrowReader* reader_;
};

// A file that one thread at a time reads from its beginning to its end.
class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(FurrowReader* reader) : reader_(reader) {}

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Skip(uint64_t n) override;
  rocksdb::IOStatus PositionedRead(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                                   rocksdb::Slice* result, char* scratch,
                                   rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t n) override { return reader_.DropCached(offset, n); }

 private:
  Reader reader_;
  uint64_t offset_ = 0;
};

// A file that any number of threads read at any offset.
class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  explicit RandomAccessFile(FurrowReader* reader) : reader_(reader) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* dbg) const override;
  size_t GetUniqueId(char* id, size_t max_size) const override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t n) override { return reader_.DropCached(offset, n); }
  // NotSupported without a page cache: RocksDB then reads ahead into a buffer of its own.
  rocksdb::IOStatus Prefetch(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  void Hint(AccessPattern pattern) override;

 private:
  Reader reader_;
};

// A file that one thread at a time writes. Sync may run in parallel with Append and Flush.
class WritableFile : public rocksdb::FSWritableFile {
 public:
  // `preallocation` receives the size that RocksDB preallocates for this file, as the expected size of the next file
  // of its kind. May be null.
  WritableFile(const rocksdb::FileOptions& options, FurrowWriter* writer, std::atomic<uint64_t>* preallocation)
      : rocksdb::FSWritableFile(options), writer_(writer), preallocation_(preallocation) {}
  ~WritableFile() override { furrow_writer_free(writer_); }

  using rocksdb::FSWritableFile::Append;
  using rocksdb::FSWritableFile::PositionedAppend;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  // Writes at `offset`, which must be the end of the file: a zone accepts no other write.
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus RangeSync(uint64_t offset, uint64_t nbytes, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  bool IsSyncThreadSafe() const override { return true; }
  void SetWriteLifeTimeHint(rocksdb::Env::WriteLifeTimeHint hint) override;
  void SetIOPriority(rocksdb::Env::IOPriority priority) override;
  uint64_t GetFileSize(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  void SetPreallocationBlockSize(size_t size) override;
  // Preallocation does nothing: space is allocated from zones when data is appended.
  void PrepareWrite(size_t, size_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {}
  rocksdb::IOStatus InvalidateCache(size_t, size_t) override { return rocksdb::IOStatus::OK(); }

 private:
  FurrowWriter* writer_;
  std::atomic<uint64_t>* preallocation_;
};

// A file of RocksDB's own log. Writes fail if the database has a parallel log.
class RocksLogFile final : public WritableFile {
 public:
  RocksLogFile(const rocksdb::FileOptions& options, FurrowWriter* writer, std::atomic<uint64_t>* preallocation,
          const EmptyLogs* empty, std::string name)
      : WritableFile(options, writer, preallocation), empty_(empty), name_(std::move(name)) {}

  using WritableFile::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  using WritableFile::PositionedAppend;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;

 private:
  const EmptyLogs* empty_;  // of the FileSystem that made this, which outlives it
  std::string name_;
};

// The file of a database's new options, the last one that an opening writes before the database takes writes and starts
// compactions. Its end is the end of the database's recovery.
class OptionsFile final : public WritableFile {
 public:
  OptionsFile(const rocksdb::FileOptions& options, FurrowWriter* writer, const FurrowFs* fs, std::string database)
      : WritableFile(options, writer, nullptr), fs_(fs), database_(std::move(database)) {}
  ~OptionsFile() override { furrow_end_recovery(fs_, database_.data(), database_.size()); }

 private:
  const FurrowFs* fs_;  // outlived by the FileSystem that made this
  std::string database_;
};

// A directory, opened for Fsync. All metadata operations share one log, so the sync of any directory makes all of
// them durable.
class Directory : public rocksdb::FSDirectory {
 public:
  Directory(const FurrowFs* fs, uint64_t ino) : fs_(fs), ino_(ino) {}

  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;

 private:
  const FurrowFs* fs_;  // outlived by the FileSystem that made this
  uint64_t ino_;
};

}  // namespace furrow
