// RocksDB's LOG, as a file of the zoned file system or of the host.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "furrow_abi.h"
#include "rocksdb/env.h"

namespace furrow {

// Where a logger's lines go. Called under the logger's lock.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual bool Write(const char* data, size_t len) = 0;
  virtual void Flush() = 0;
  // What was written survives a crash.
  virtual void Sync() = 0;
};

// A LOG must never stop the database: a failed write drops lines and says so on stderr once. A crash takes the last
// seconds of it at most, and neither an error's line, which is durable when Logv returns, nor what was logged while
// the database was opened.
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

  mutable std::mutex mutex_;
  std::unique_ptr<LogSink> sink_;
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
