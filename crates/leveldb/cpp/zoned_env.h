// LevelDB's Env on a zoned drive. docs/leveldb.md says how a program that links LevelDB statically builds and uses it.
//
// Compiles with LevelDB 1.20 to 1.23, with and without type information and exceptions.
#pragma once

#ifdef __cplusplus

#include <cstdint>
#include <string>

#include "leveldb/env.h"

namespace furrow {

struct ZonedEnvOptions {
  // Each flush of a log hands the log's buffer to the drive: writes without sync then survive the death of the process.
  bool flush_to_drive = false;
  // leveldb::Options::max_file_size of the databases, where it is about the capacity of the drive's zones: their tables get zones to themselves.
  uint64_t table_size = 0;
  // The Env of threads, clock and sleep; null for LevelDB's default one.
  leveldb::Env* base = nullptr;
};

// Mounts the file system of the drive `url`, as `furrow device list` names it; all names are paths on the drive. Returns null
// and sets `*status` if the drive cannot be mounted. The caller deletes the Env after the databases that use it, which
// unmounts the drive.
leveldb::Env* NewZonedEnv(const std::string& url, const ZonedEnvOptions& options, leveldb::Status* status);

// The same, with the default options.
leveldb::Env* NewZonedEnv(const std::string& url, leveldb::Status* status);

}  // namespace furrow

extern "C" {
#endif

// `NewZonedEnv` for programs that use leveldb/c.h. On failure returns null and sets `*errptr` as LevelDB's own functions do.
// leveldb_env_destroy unmounts the drive.
struct leveldb_env_t* furrow_leveldb_create_env(const char* url, char** errptr);

#ifdef __cplusplus
}  // extern "C"
#endif
