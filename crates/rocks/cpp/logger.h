// RocksDB's LOG, as a file of the zoned file system or of the host.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "furrow_abi.h"
#include "rocksdb/env.h"

namespace furrow {

// Where a logger's lines go. Called by one thread at a time.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual bool Write(const char* data, size_t len) = 0;
  virtual void Flush() = 0;
  // What was written survives a crash.
  virtual void Sync() = 0;
};

// A LOG must never stop the database: a failed write drops lines and says so on stderr once. Nor does one hold up a write
// to it: the line of a new memtable is the writer's, and so is the warning that it slows writers down. So lines go to memory,
// and to the file with RocksDB's own Flush, which comes behind every flush and compaction and, from RocksDB 7.8 on, every ten
// seconds; not with the one behind a warning. A crash takes what came since the
// last Flush, and some seconds before it; neither an error's line, which is durable when Logv returns, nor what was logged
// while the database was opened.
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
  // Gives the sink what there is for it; io_ is held.
  void Drain();

  // Of the sink, and held while it writes. Taken before the other one.
  std::mutex io_;
  std::unique_ptr<LogSink> sink_;
  // Of the lines, and held for a moment only.
  mutable std::mutex mutex_;
  std::string lines_;
  size_t size_ = 0;
  uint64_t synced_us_ = 0;
  uint64_t opened_us_ = 0;
  bool failed_ = false;
};

std::unique_ptr<LogSink> NewZonedSink(FurrowWriter* writer);

// A sink in the host directory `dir`, named for the LOG's own path; one older file is kept. Null and a message if
// it cannot be made.
std::unique_ptr<LogSink> NewHostSink(const std::string& dir, const std::string& fname, std::string* message);

}  // namespace furrow
