// How RocksDB finds the file system: `--fs_uri=furrow://DEVICE-URL`.
#pragma once

#include <string>

#include "rocksdb/utilities/object_registry.h"

// Adds the factory to `library`; returns the number of factories added. RocksDB's own build names this function
// as the plug-in's entry (furrow_FUNC).
extern "C++" int register_furrow(rocksdb::ObjectLibrary& library, const std::string& arg);

extern "C" {
// Registers with the default library, once. Returns 1 if the factory is there afterwards.
int furrow_register_default(void);

// The version this shim was compiled against, and the version of the library that runs.
void furrow_compiled_version(int* major, int* minor, int* patch);
void furrow_runtime_version(int* major, int* minor, int* patch);

// Says that FURROW_WAL is obeyed in this process; until then a device is not mounted where it asks for a parallel log.
void furrow_obeys_wal(void);
}
