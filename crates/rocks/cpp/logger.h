// RocksDB's LOG (its text log), as a file of the zoned file system or of the host.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "furrow_abi.h"
#include "rocksdb/env.h"

namespace furrow {

// The destination of a LOG's lines. Called by one thread at a time.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual bool Write(const char* data, size_t len) = 0;
  virtual void Flush() = 0;
  // Makes the written LOG lines survive a crash.
  virtual void Sync() = 0;
};

// RocksDB's LOG. A LOG must never stop the database: a failed write drops lines, and stderr says so once. A LOG must
// not delay a write to the database either, and writers log lines themselves: for a new memtable, and for the warning
// that writers are slowed down. So lines go to memory, and RocksDB's Flush writes them to the file. RocksDB calls
// Flush after every flush and compaction, from 7.8 on every ten seconds, and after a warning; the Flush after a
// warning is ignored. A crash loses the lines since the last Flush and of some seconds before it. A crash does not
// lose an error's line, which is durable when Logv returns, nor the lines that were logged while the database was
// opened.
class FurrowLogger : public rocksdb::Logger {
 public:
  explicit FurrowLogger(std::unique_ptr<LogSink> sink) : sink_(std::move(sink)) {}
  ~FurrowLogger() override;

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list ap) override;
  void Flush() override;
  size_t GetLogFileSize() const override;

 protected:
  rocksdb::Status CloseImpl() override;

 private:
  void Write(const char* line, size_t len);
  void SyncNow();
  // Writes the buffered LOG lines to the sink. The caller holds io_.
  void Drain();

  // Guards the LOG's sink, and is held during writes to it. Locked before mutex_.
  std::mutex io_;
  std::unique_ptr<LogSink> sink_;
  // Guards the buffered LOG lines, and is held only briefly.
  mutable std::mutex mutex_;
  std::string lines_;
  size_t size_ = 0;
  uint64_t synced_us_ = 0;
  uint64_t opened_us_ = 0;
  bool failed_ = false;
};

std::unique_ptr<LogSink> NewZonedSink(FurrowWriter* writer);

// A LOG's sink in the host directory `dir`, named for the LOG's own path. One older file is kept. If the file cannot
// be made, returns null and sets `message`.
std::unique_ptr<LogSink> NewHostSink(const std::string& dir, const std::string& fname, std::string* message);

}  // namespace furrow
