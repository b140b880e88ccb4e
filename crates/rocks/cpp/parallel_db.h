// A RocksDB database whose writers each append their own record to a parallel log: docs/adr/0013. For programs that link
// Furrow; an unmodified one loads the plug-in with FURROW_WAL=waltz or auto instead.
#pragma once

#include <string>
#include <vector>

#include "rocksdb/db.h"

namespace furrow {

// Opens what rocksdb::DB::Open would. The options' Env must be on a furrow:// file system.
rocksdb::Status OpenParallel(const rocksdb::DBOptions& options, const std::string& name,
                             const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
                             std::vector<rocksdb::ColumnFamilyHandle*>* handles, rocksdb::DB** db);

// The column families but for the hidden one.
rocksdb::Status ListParallel(const rocksdb::DBOptions& options, const std::string& name,
                             std::vector<std::string>* families);

// Whether this thread is inside of OpenParallel or ListParallel.
bool InParallelOpen();

}  // namespace furrow
