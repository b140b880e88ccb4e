#include "second_handle.h"

#include <dlfcn.h>

namespace furrow {

using rocksdb::ColumnFamilyHandle;
using rocksdb::DB;
using rocksdb::Status;

namespace {

thread_local bool destroys = false;

}  // namespace

bool DestroysOwnHandle() { return destroys; }

FamilyHandle OwnHandle(DB* db, ColumnFamilyHandle* handle) {
  return FamilyHandle(handle, [db](ColumnFamilyHandle* last) {
    destroys = true;
    db->DestroyColumnFamilyHandle(last).PermitUncheckedError();
    destroys = false;
  });
}

FamilyHandle BorrowedHandle(ColumnFamilyHandle* handle) {
  return FamilyHandle(handle, [](ColumnFamilyHandle*) {});
}

Status SecondHandle(DB* db, const ColumnFamilyHandle& family, FamilyHandle* second) {
  // RocksDB's DBImpl::GetColumnFamilyHandleUnlocked(unsigned int), declared as the plain function that it is in the
  // C++ ABI.
  using Function = std::unique_ptr<ColumnFamilyHandle>(DB*, uint32_t);
  static Function* const function =
      reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, "_ZN7rocksdb6DBImpl29GetColumnFamilyHandleUnlockedEj"));
  if (function == nullptr) {
    return Status::NotSupported("the RocksDB library does not export DBImpl::GetColumnFamilyHandleUnlocked",
                                "the parallel log flushes all families by handles of its own; use FURROW_WAL=group");
  }
  std::unique_ptr<ColumnFamilyHandle> handle = function(db->GetRootDB(), family.GetID());
  if (handle == nullptr) {
    return Status::ColumnFamilyDropped(family.GetName());
  }
  *second = OwnHandle(db, handle.release());
  return Status::OK();
}

}  // namespace furrow
