// Stands before RocksDB, and says that it is another one.
#include <string>

namespace rocksdb {
std::string GetRocksVersionAsString(bool) { return "9.1.0"; }
}  // namespace rocksdb
