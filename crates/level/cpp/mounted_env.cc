// LevelDB's Env over a file system that Rust code has mounted, for crates/level/src/ffi.rs.
#include "env.h"

// LevelDB's own structure of this name (db/c.cc), which leveldb_env_destroy frees.
struct leveldb_env_t {
  leveldb::Env* rep;
  bool is_default;
};

// An Env over `fs`, which it takes over, for databases whose tables have `table_size` bytes. The caller frees it with leveldb_env_destroy, after the
// databases that use it.
extern "C" leveldb_env_t* furrow_level_env(FurrowFs* fs, uint64_t table_size) noexcept {
  leveldb_env_t* env = new leveldb_env_t;
  env->rep = furrow::NewEnv(fs, leveldb::Env::Default(), false, table_size);
  env->is_default = false;
  return env;
}

// An Env over the host's own file system. The caller frees it like that of furrow_level_env.
extern "C" leveldb_env_t* furrow_level_host_env() noexcept {
  leveldb_env_t* env = new leveldb_env_t;
  env->rep = leveldb::Env::Default();
  env->is_default = true;
  return env;
}
