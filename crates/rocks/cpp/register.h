// Registers Furrow's file system with RocksDB: `--fs_uri=furrow://DEVICE-URL`.
#pragma once

#include <string>

#include "rocksdb/utilities/object_registry.h"

// Adds the file system's factory to RocksDB's object library `library`. Returns the number of factories added.
// RocksDB's own build names this function as the plug-in's entry (furrow_FUNC).
extern "C++" int register_furrow(rocksdb::ObjectLibrary& library, const std::string& arg);

extern "C" {
// Registers the file system's factory with RocksDB's default object library, once. Returns 1 if the factory is
// registered afterwards.
int furrow_register_default(void);

// The RocksDB version that the C++ shim was compiled against, and below the version of the loaded RocksDB library.
void furrow_compiled_version(int* major, int* minor, int* patch);
void furrow_runtime_version(int* major, int* minor, int* patch);

// Declares that this process obeys FURROW_WAL. Before that call, no device is mounted if FURROW_WAL asks for a
// parallel log.
void furrow_obeys_wal(void);
}
