// A second handle of a column family: the program may free its own handle at any time.
#pragma once

#include <memory>

#include "rocksdb/db.h"

namespace furrow {

using FamilyHandle = std::shared_ptr<rocksdb::ColumnFamilyHandle>;

// Takes over a column family's handle. The last copy destroys the handle, which must happen before the database
// closes.
FamilyHandle OwnHandle(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* handle);
// Refers to a column family's handle that other code destroys, after all copies are gone.
FamilyHandle BorrowedHandle(rocksdb::ColumnFamilyHandle* handle);
// A further handle of an existing family of an open database. RocksDB's public interface gives one handle a family;
// the function that gives more is exported, but declared in no public header. NotSupported if the loaded RocksDB
// lacks the function.
rocksdb::Status SecondHandle(rocksdb::DB* db, const rocksdb::ColumnFamilyHandle& family, FamilyHandle* second);
// True while this thread destroys a handle of OwnHandle: the program's listeners do not know that handle.
bool DestroysOwnHandle();

}  // namespace furrow
