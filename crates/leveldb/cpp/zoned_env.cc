#include "zoned_env.h"

#include <cstdlib>
#include <cstring>

#include "env.h"
#include "status.h"

// LevelDB's own structure of this name (db/c.cc), which leveldb_env_destroy frees.
struct leveldb_env_t {
  leveldb::Env* rep;
  bool is_default;
};

namespace furrow {

leveldb::Env* NewZonedEnv(const std::string& url, const ZonedEnvOptions& options, leveldb::Status* status) {
  FurrowFs* fs = nullptr;
  *status = ToStatus(furrow_mount(url.data(), url.size(), 0, &fs));
  if (!status->ok()) {
    return nullptr;
  }
  leveldb::Env* base = options.base != nullptr ? options.base : leveldb::Env::Default();
  return NewEnv(fs, base, options.flush_to_drive, options.table_size);
}

leveldb::Env* NewZonedEnv(const std::string& url, leveldb::Status* status) {
  return NewZonedEnv(url, ZonedEnvOptions(), status);
}

}  // namespace furrow

extern "C" leveldb_env_t* furrow_leveldb_create_env(const char* url, char** errptr) {
  leveldb::Status status;
  leveldb::Env* env = furrow::NewZonedEnv(url, &status);
  if (env == nullptr) {
    free(*errptr);
    *errptr = strdup(status.ToString().c_str());
    return nullptr;
  }
  leveldb_env_t* result = new leveldb_env_t;
  result->rep = env;
  result->is_default = false;
  return result;
}
