#include "host.h"

#include <utility>

namespace furrow {

using rocksdb::FSSequentialFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

class TimedLog : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  TimedLog(std::unique_ptr<FSSequentialFile>&& file, std::shared_ptr<HostFileSystem::Read> read)
      : FSSequentialFileOwnerWrapper(std::move(file)), read_(std::move(read)), opened_(Clock::now()) {}

  ~TimedLog() override {
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - opened_);
    read_->nanos += static_cast<uint64_t>(took.count());
  }

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch, IODebugContext* dbg) override {
    IOStatus status = FSSequentialFileOwnerWrapper::Read(n, options, result, scratch, dbg);
    read_->bytes += result->size();
    return status;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<HostFileSystem::Read> read_;
  Clock::time_point opened_;
};

}  // namespace

IOStatus HostFileSystem::NewSequentialFile(const std::string& fname, const rocksdb::FileOptions& options,
                                           std::unique_ptr<FSSequentialFile>* result, IODebugContext* dbg) {
  const std::string suffix = ".log";
  const bool log = fname.size() > suffix.size() && fname.compare(fname.size() - suffix.size(), suffix.size(), suffix) == 0;
  IOStatus status = FileSystemWrapper::NewSequentialFile(fname, options, result, dbg);
  if (status.ok() && log) {
    *result = std::make_unique<TimedLog>(std::move(*result), read_);
  }
  return status;
}

}  // namespace furrow
