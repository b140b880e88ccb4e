// A RocksDB database whose writers each append their own record to a parallel log: docs/adr/0013. For programs that
// link Furrow. An unmodified program loads the plug-in with FURROW_WAL=waltz or auto instead.
#pragma once

#include <string>
#include <vector>

#include "rocksdb/db.h"

// The functions that libfurrow_rocksdb.so exports for this header.
extern "C" {
rocksdb::Status furrow_open_parallel(const rocksdb::DBOptions& options, const std::string& name,
                                     const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
                                     std::vector<rocksdb::ColumnFamilyHandle*>* handles, rocksdb::DB** db);
rocksdb::Status furrow_list_parallel(const rocksdb::DBOptions& options, const std::string& name,
                                     std::vector<std::string>* families);
}

namespace furrow {

// Opens a database like rocksdb::DB::Open. The options' Env must be on a furrow:// file system. FURROW_WAL=waltz
// appends each record alone. By default (auto), records join one append if the drive has no parallelism to spare.
inline rocksdb::Status OpenParallel(const rocksdb::DBOptions& options, const std::string& name,
                                    const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
                                    std::vector<rocksdb::ColumnFamilyHandle*>* handles, rocksdb::DB** db) {
  return furrow_open_parallel(options, name, families, handles, db);
}

// Lists the column families of a database, without the hidden one.
inline rocksdb::Status ListParallel(const rocksdb::DBOptions& options, const std::string& name,
                                    std::vector<std::string>* families) {
  return furrow_list_parallel(options, name, families);
}

}  // namespace furrow
