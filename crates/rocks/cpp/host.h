// The host's own file system, which measures the time and the bytes of reading RocksDB's logs: a baseline for
// recovery times.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "rocksdb/file_system.h"

namespace furrow {

class HostFileSystem : public rocksdb::FileSystemWrapper {
 public:
  HostFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()), read_(std::make_shared<Read>()) {}

  const char* Name() const override { return "FurrowHostFileSystem"; }

  rocksdb::IOStatus NewSequentialFile(const std::string& fname, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* result,
                                      rocksdb::IODebugContext* dbg) override;

  void Replayed(uint64_t* nanos, uint64_t* bytes) const {
    *nanos = read_->nanos;
    *bytes = read_->bytes;
  }

  struct Read {
    std::atomic<uint64_t> nanos{0};
    std::atomic<uint64_t> bytes{0};
  };

 private:
  std::shared_ptr<Read> read_;
};

}  // namespace furrow
