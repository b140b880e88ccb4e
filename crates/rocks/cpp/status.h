// From the Rust side's outcome to RocksDB's.
#pragma once

#include <string>

#include "furrow_abi.h"
#include "rocksdb/io_status.h"

namespace furrow {

// What a missing file is called. RocksDB asks for kNotFound where it probes (FileExists, GetChildren), and
// elsewhere for the kPathNotFound that its own POSIX file system gives.
enum class Missing { kPath, kProbe };

rocksdb::IOStatus ToIOStatusSlow(const FurrowStatus& status, Missing missing);

// Success costs no allocation.
inline rocksdb::IOStatus ToIOStatus(const FurrowStatus& status, Missing missing = Missing::kPath) {
  if (__builtin_expect(status.code == FURROW_OK, 1)) {
    return rocksdb::IOStatus::OK();
  }
  return ToIOStatusSlow(status, missing);
}

}  // namespace furrow
