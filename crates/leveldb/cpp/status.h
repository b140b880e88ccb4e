// Converts the Rust side's outcomes to LevelDB's Status.
#pragma once

#include <string>

#include "furrow_abi.h"
#include "leveldb/status.h"

namespace furrow {

// Takes over the message of an outcome that is not FURROW_OK.
std::string TakeMessage(const FurrowStatus& status);

leveldb::Status ToStatusSlow(const FurrowStatus& status);

// Converts an outcome to a Status. Inlined so that success allocates nothing.
inline leveldb::Status ToStatus(const FurrowStatus& status) {
  return __builtin_expect(status.code == FURROW_OK, 1) ? leveldb::Status::OK() : ToStatusSlow(status);
}

}  // namespace furrow
