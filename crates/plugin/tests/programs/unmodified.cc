// A test program that uses RocksDB alone. Only the URI of its file system names Furrow.
#include <dlfcn.h>

#include "rocksdb/utilities/db_ttl.h"
#include "rocksdb/utilities/optimistic_transaction_db.h"
#include "rocksdb/utilities/transaction_db.h"
#include "work.h"

Status OpenDb(const DBOptions& options, const std::string& name, const Families& families, Handles* handles, DB** db) {
  return DB::Open(options, name, families, handles, db);
}

namespace {

constexpr char kOpenUnique[] =
      "_ZN7rocksdb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPSt10unique_"
      "ptrIS0_St14default_deleteIS0_EE";

// Prints the errors of openings that are refused, and runs openings that open a database within another opening.
void Opens(const std::string& url) {
  World world(url);
  world.options.create_missing_column_families = false;
  TransactionDB* transactions = nullptr;
  Status status = TransactionDB::Open(world.options, TransactionDBOptions(), "/txn", &transactions);
  printf("transactions: %s\n", status.ToString().c_str());
  OptimisticTransactionDB* optimistic = nullptr;
  status = OptimisticTransactionDB::Open(world.options, "/optimistic", &optimistic);
  printf("optimistic: %s\n", status.ToString().c_str());
  DBWithTTL* ttl = nullptr;
  Options options;
  options.env = world.env.get();
  options.create_if_missing = true;
  Ok(DBWithTTL::Open(options, "/ttl", &ttl, 1000000), "a database with a time to live");
  Ok(ttl->Put(Synced(), "key", "value"), "put");
  std::string value;
  Ok(ttl->Get(ReadOptions(), "key", &value), "get");
  auto* below = dynamic_cast<StackableDB*>(ttl->GetBaseDB());
  printf("ttl: %s %s\n", value.c_str(), below != nullptr ? "parallel" : "plain");
  delete ttl;
  DB* one = nullptr;
  Ok(DB::Open(options, "/one", &one), "the open without families");
  Ok(one->Put(Synced(), "key", "value"), "put");
  delete one;
  Families families;
  families.emplace_back(kDefaultColumnFamilyName, options);
  status = DB::OpenAndTrimHistory(options, "/one", families, &world.handles, &one, "");
  printf("trim: %s\n", status.ToString().c_str());
  if (strcmp(getenv("FURROW_WAL"), "group") != 0) {
    // Calls DB::Open as a program would that was compiled against a later RocksDB.
    using OpenUnique = Status(const Options&, const std::string&, std::unique_ptr<DB>*);
    void* found = dlsym(RTLD_DEFAULT, kOpenUnique);
    Expect(found != nullptr, "the open that gives a unique_ptr");
    std::unique_ptr<DB> unique;
    Ok(reinterpret_cast<OpenUnique*>(found)(options, "/one", &unique), "the open that gives a unique_ptr");
    Expect(dynamic_cast<StackableDB*>(unique.get()) != nullptr, "it is not wrapped");
    Ok(unique->Get(ReadOptions(), "key", &value), "get");
  } else {
    for (ColumnFamilyHandle* handle : world.handles) {
      one->DestroyColumnFamilyHandle(handle);
    }
    world.handles.clear();
    delete one;
  }
  DB* read_only = nullptr;
  Ok(DB::OpenForReadOnly(options, "/one", &read_only), "read-only");
  Ok(read_only->Get(ReadOptions(), "key", &value), "get");
  delete read_only;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[2], "opens") == 0) {
    Opens(argv[1]);
    return 0;
  }
  return Run(argc, argv);
}
