// LevelDB's Env over a mounted Furrow file system.
#pragma once

#include <cstdint>
#include <string>

#include "furrow_abi.h"
#include "leveldb/env.h"

namespace furrow {

// True for the file that names a database's manifest. A rename to it is the last step of an opening or a repair.
bool IsCurrent(const std::string& name);

// An Env over the mounted file system `fs`, which it takes over. All names are paths on the drive; threads, clock and sleep are those
// of `base`. `flush_to_drive`: each flush of a log hands the log's buffer to the drive. `table_size`: the size of most tables in bytes, 0 if it is not
// known; tables that fill most of a zone get zones to themselves.
leveldb::Env* NewEnv(FurrowFs* fs, leveldb::Env* base, bool flush_to_drive, uint64_t table_size);

}  // namespace furrow
