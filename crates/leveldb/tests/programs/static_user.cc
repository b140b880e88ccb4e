// A test program that has LevelDB within itself and uses the Env of zoned_env.h.
#include <cstdio>
#include <memory>
#include <string>

#include "leveldb/db.h"
#include "leveldb/env.h"
#include "zoned_env.h"

// Usage: static_user URL. Opens a database on the drive twice, and prints what the second opening finds.
int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  leveldb::Status status;
  for (int opening = 0; opening < 2; ++opening) {
    std::unique_ptr<leveldb::Env> env(furrow::NewZonedEnv(argv[1], &status));
    leveldb::Options options;
    options.env = env.get();
    options.create_if_missing = opening == 0;
    leveldb::DB* opened = nullptr;
    if (status.ok()) {
      status = leveldb::DB::Open(options, "/some/db", &opened);
    }
    std::unique_ptr<leveldb::DB> db(opened);
    leveldb::WriteOptions synced;
    synced.sync = true;
    if (status.ok() && opening == 0) {
      status = db->Put(synced, "key", "value");
    }
    std::string value;
    if (status.ok()) {
      status = db->Get(leveldb::ReadOptions(), "key", &value);
    }
    printf("%s %s\n", status.ToString().c_str(), value.c_str());
  }
  return status.ok() ? 0 : 1;
}
