// The functions that Rust (crates/leveldb/src/calls.rs) implements for the preloaded library.
#pragma once

#include "furrow_abi.h"

extern "C" {

// Settings of this process's LevelDB.
typedef struct FurrowLevelDb FurrowLevelDb;

// Reads FURROW_LEVELDB and the variables that begin so. `out` is null if none is set.
FurrowStatus furrow_leveldb_settings(FurrowLevelDb** out);
// The URL of the drive. Valid as long as the settings, which are never freed.
const char* furrow_leveldb_device(const FurrowLevelDb* settings, size_t* len);
// 1 if each flush of a log hands the log's buffer to the drive.
uint8_t furrow_leveldb_flushes(const FurrowLevelDb* settings);
// The size of most tables in bytes; 0 if it is not known.
uint64_t furrow_leveldb_table_size(const FurrowLevelDb* settings);
// Calls `on_drive`, before the function returns, with the path on the drive of a name below the root. Does not call it for a
// name of the host.
FurrowStatus furrow_leveldb_place(const FurrowLevelDb* settings, const char* name, size_t len, void* context,
                                  void (*on_drive)(void* context, const char* path, size_t path_len));
// 1 if this process's program has LevelDB linked into itself.
uint8_t furrow_leveldb_is_linked_in(void);

}  // extern "C"
