// leveldb::Env::Default() of a program that preloads this library, and the library's constructor.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "copies.h"
#include "leveldb/db.h"
#include "leveldb_abi.h"
#include "rooted_env.h"
#include "status.h"

namespace furrow {

namespace {

// The Env of programs with the LevelDB `copy`.
leveldb::Env* EnvOver(const Copy& copy) {
  leveldb::Env* own = copy.default_env();
  FurrowLevelDb* settings = nullptr;
  FurrowStatus status = furrow_leveldb_settings(&settings);
  if (status.code != FURROW_OK) {
    const std::string message = TakeMessage(status);
    fprintf(stderr, "furrow: %s\n", message.c_str());
    return new RootedEnv(own, message);
  }
  if (settings == nullptr) {
    fprintf(stderr, "furrow: FURROW_LEVELDB is not set: LevelDB's files stay on the host\n");
    return own;
  }
  return new RootedEnv(own, settings);
}

leveldb::Env* DefaultFor(const void* caller) {
  static std::mutex mutex;
  // The Envs by copy of LevelDB. They live as long as the process, as LevelDB's own default Env does.
  static auto* const envs = new std::map<const void*, leveldb::Env*>;
  const Copy copy = CopyOf(caller);
  if (copy.base == nullptr) {
    fprintf(stderr, "furrow: the caller of leveldb::Env::Default() has no LevelDB\n");
    abort();
  }
  std::lock_guard<std::mutex> lock(mutex);
  leveldb::Env*& env = (*envs)[copy.base];
  if (env == nullptr) {
    if (copy.misfit.empty()) {
      env = EnvOver(copy);
    } else {
      env = copy.default_env();
      fprintf(stderr, "furrow: %s %s: its files stay on the host\n", copy.file.c_str(), copy.misfit.c_str());
    }
  }
  return env;
}

// Runs before main. If `FURROW_HANDSHAKE_FD` is set, this process is a probe: the function announces the library on that
// descriptor and ends the process.
__attribute__((constructor)) void Load() {
  const char* announce = std::getenv("FURROW_HANDSHAKE_FD");
  if (announce != nullptr) {
    dprintf(std::atoi(announce), "furrow-leveldb %s leveldb=%d.%d\n", FURROW_VERSION, leveldb::kMajorVersion,
            leveldb::kMinorVersion);
    _exit(0);
  }
  if (std::getenv("FURROW_LEVELDB") != nullptr && furrow_leveldb_is_linked_in() != 0) {
    fprintf(stderr,
            "furrow: this program has LevelDB linked into itself, which a preloaded library does not reach: its files would stay "
            "on the host. Build it with crates/leveldb/cpp/zoned_env.h (docs/leveldb.md), or start it without FURROW_LEVELDB\n");
    _exit(1);
  }
}

}  // namespace

}  // namespace furrow

// crates/leveldb/src/lib.rs exports leveldb::Env::Default(), which jumps here.
extern "C" __attribute__((visibility("hidden"))) leveldb::Env* furrow_leveldb_default() {
  return furrow::DefaultFor(__builtin_return_address(0));
}
