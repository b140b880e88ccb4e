// A test program, unmodified RocksDB code, that repeatedly opens and releases Envs and databases in one process.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"

using namespace rocksdb;  // NOLINT: a test program

namespace {

void Ok(const Status& status, const std::string& what) {
  if (!status.ok()) {
    fprintf(stderr, "FAILED: %s: %s\n", what.c_str(), status.ToString().c_str());
    _exit(1);
  }
}

std::shared_ptr<Env> Mount(const std::string& uri) {
  std::shared_ptr<Env> guard;
  Env* env = nullptr;
  Ok(Env::CreateFromUri(ConfigOptions(), "", uri, &env, &guard), "mounting");
  return guard;
}

Options Settings(const std::shared_ptr<Env>& env) {
  Options options;
  options.create_if_missing = true;
  options.env = env.get();
  return options;
}

// Mounts the drive in each round, writes a database on every second mount, and releases both.
void Remount(const std::string& uri, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::shared_ptr<Env> env = Mount(uri);
    if (round % 2 == 0) {
      DB* db = nullptr;
      Ok(DB::Open(Settings(env), "/db", &db), "opening");
      Ok(db->Put(WriteOptions(), "key", "value"), "put");
      delete db;
    }
  }
}

// Tries to open a database a second time while it is open.
void OpenTwice(const std::string& uri) {
  const std::shared_ptr<Env> env = Mount(uri);
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), "/db", &db), "opening");
  DB* again = nullptr;
  printf("%s\n", DB::Open(Settings(env), "/db", &again).ToString().c_str());
  delete db;
}

// Flushes memtables while file deletions are disabled, as during a backup or a checkpoint.
void FlushWithoutDeletions(const std::string& uri, bool sync) {
  const std::shared_ptr<Env> env = Mount(uri);
  DB* db = nullptr;
  Ok(DB::Open(Settings(env), "/db", &db), "opening");
  Ok(db->DisableFileDeletions(), "disabling file deletions");
  WriteOptions options;
  options.sync = sync;
  for (int n = 0; n < 16; ++n) {
    Ok(db->Put(options, "key" + std::to_string(n), std::string(1000, 'v')), "put " + std::to_string(n));
    Ok(db->Flush(FlushOptions()), "flush " + std::to_string(n));
  }
  Ok(db->EnableFileDeletions(true), "enabling file deletions");
  Ok(db->Put(options, "last", "value"), "put");
  delete db;
  Ok(DB::Open(Settings(env), "/db", &db), "opening");
  for (int n = 0; n < 16; ++n) {
    std::string value;
    Ok(db->Get(ReadOptions(), "key" + std::to_string(n), &value), "get");
  }
  delete db;
}

// Flushes memtables of four families in turn while file deletions are disabled.
void FlushFamiliesInTurn(const std::string& uri, bool sync) {
  const std::shared_ptr<Env> env = Mount(uri);
  Options options = Settings(env);
  options.create_missing_column_families = true;
  std::vector<ColumnFamilyDescriptor> families;
  for (const std::string& name : {kDefaultColumnFamilyName, std::string("1"), std::string("2"), std::string("3")}) {
    families.emplace_back(name, options);
  }
  WriteOptions writing;
  writing.sync = sync;
  for (const bool written : {false, true}) {
    DB* db = nullptr;
    std::vector<ColumnFamilyHandle*> handles;
    Ok(DB::Open(options, "/db", families, &handles, &db), "opening");
    if (!written) {
      Ok(db->DisableFileDeletions(), "disabling file deletions");
    }
    for (size_t n = 0; n < 24; ++n) {
      const std::string key = "key" + std::to_string(n);
      ColumnFamilyHandle* family = handles[n % handles.size()];
      if (written) {
        std::string value;
        Ok(db->Get(ReadOptions(), family, key, &value), "get " + key);
      } else {
        Ok(db->Put(writing, family, key, std::string(1000, 'v')), "put " + key);
        Ok(db->Flush(FlushOptions(), family), "flush " + std::to_string(n));
      }
    }
    for (ColumnFamilyHandle* handle : handles) {
      Ok(db->DestroyColumnFamilyHandle(handle), "handle");
    }
    delete db;
  }
}

}  // namespace

// Usage: PROGRAM URL COMMAND [ARGUMENT]
int main(int argc, char** argv) {
  const std::string uri = std::string("furrow://") + argv[1];
  const std::string argument = argc > 3 ? argv[3] : "";
  if (strcmp(argv[2], "remount") == 0) {
    Remount(uri, atoi(argument.c_str()));
  } else if (strcmp(argv[2], "open twice") == 0) {
    OpenTwice(uri);
  } else if (strcmp(argv[2], "no deletions") == 0) {
    FlushWithoutDeletions(uri, argument == "synced");
  } else if (strcmp(argv[2], "families in turn") == 0) {
    FlushFamiliesInTurn(uri, argument == "synced");
  } else {
    return 2;
  }
  return 0;
}
