// A test library that is preloaded before RocksDB, and reports another version of RocksDB.
#include <string>

namespace rocksdb {
std::string GetRocksVersionAsString(bool) { return "9.1.0"; }
}  // namespace rocksdb
