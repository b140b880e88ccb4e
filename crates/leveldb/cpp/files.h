// LevelDB's file interfaces over files of a mounted Furrow file system.
#pragma once

#include <cstdarg>
#include <string>

#include "furrow_abi.h"
#include "leveldb/env.h"
#include "leveldb/slice.h"

namespace furrow {

// A file that one thread at a time reads from its beginning to its end.
class SequentialReader final : public leveldb::SequentialFile {
 public:
  explicit SequentialReader(FurrowReader* reader) : reader_(reader) {}
  ~SequentialReader() override { furrow_reader_free(reader_); }

  leveldb::Status Read(size_t n, leveldb::Slice* result, char* scratch) override;
  leveldb::Status Skip(uint64_t n) override;

 private:
  FurrowReader* reader_;
  uint64_t offset_ = 0;
};

// A file that any number of threads read at any offset. A read copies into the caller's memory.
class RandomReader final : public leveldb::RandomAccessFile {
 public:
  explicit RandomReader(FurrowReader* reader) : reader_(reader) {}
  ~RandomReader() override { furrow_reader_free(reader_); }

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result, char* scratch) const override;

 private:
  FurrowReader* reader_;
};

// A file that one thread at a time writes.
//
// After a failed append the file takes no more bytes until it is opened anew. LevelDB goes on with a log whose append failed, and then writes the
// next record where the log's reader does not look for one: writes acknowledged later would be lost with the log's rest. The file system
// itself lets an append be repeated that failed before its first byte, for want of space.
//
// LevelDB frees a full log's writer without a sync, and goes on in the next log. The first append to that one makes the older logs of the
// directory durable first, so a power cut leaves a prefix of all logs.
class Writer final : public leveldb::WritableFile {
 public:
  // `flushes`: a Flush hands the buffered bytes to the drive.
  Writer(FurrowWriter* writer, bool flushes) : writer_(writer), flushes_(flushes) {}
  ~Writer() override { furrow_writer_free(writer_); }

  leveldb::Status Append(const leveldb::Slice& data) override;
  leveldb::Status Close() override;
  leveldb::Status Flush() override;
  leveldb::Status Sync() override;

 private:
  FurrowWriter* writer_;
  const bool flushes_;
  bool flushed_ = false;
  // The first failure of an append.
  leveldb::Status failure_;
};

// LevelDB's text log. A line that cannot be written is dropped.
class TextLog final : public leveldb::Logger {
 public:
  explicit TextLog(FurrowWriter* writer) : writer_(writer) {}
  ~TextLog() override { furrow_writer_free(writer_); }

  void Logv(const char* format, std::va_list ap) override;

 private:
  FurrowWriter* writer_;
};

// A held lock of a database.
class DriveLock final : public leveldb::FileLock {
 public:
  explicit DriveLock(FurrowLock* lock) : lock_(lock) {}
  ~DriveLock() override { furrow_unlock(lock_); }

 private:
  FurrowLock* lock_;
};

}  // namespace furrow
