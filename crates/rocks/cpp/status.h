// Converts the Rust side's outcomes to RocksDB's IOStatus.
#pragma once

#include <string>

#include "furrow_abi.h"
#include "rocksdb/io_status.h"

namespace furrow {

// The status for a missing file. RocksDB expects kNotFound where it probes (FileExists, GetChildren), and elsewhere
// the kPathNotFound of its own POSIX file system.
enum class Missing { kPath, kProbe };

rocksdb::IOStatus ToIOStatusSlow(const FurrowStatus& status, Missing missing);

// Converts an outcome to an IOStatus. Inlined so that success allocates nothing.
inline rocksdb::IOStatus ToIOStatus(const FurrowStatus& status, Missing missing = Missing::kPath) {
  if (__builtin_expect(status.code == FURROW_OK, 1)) {
    return rocksdb::IOStatus::OK();
  }
  return ToIOStatusSlow(status, missing);
}

}  // namespace furrow
