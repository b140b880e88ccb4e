// The constructor of the plug-in's library.

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

extern "C" {
int furrow_register_default(void);
void furrow_install_engines(void);
void furrow_obeys_wal(void);
void furrow_compiled_version(int* major, int* minor, int* patch);
void furrow_runtime_version(int* major, int* minor, int* patch);
}

namespace {

// Runs before main, and after the constructors of librocksdb. If `FURROW_HANDSHAKE_FD` is set, this process is a
// probe: the function announces the plug-in on that descriptor and ends the process.
__attribute__((constructor)) void Load() {
  int compiled[3];
  int runtime[3];
  furrow_compiled_version(&compiled[0], &compiled[1], &compiled[2]);
  furrow_runtime_version(&runtime[0], &runtime[1], &runtime[2]);
  // RocksDB changes its virtual interfaces between minor versions, so calls across versions are undefined.
  const bool fits = compiled[0] == runtime[0] && compiled[1] == runtime[1];
  const bool registered = fits && furrow_register_default() != 0;
  if (registered) {
    furrow_install_engines();
    furrow_obeys_wal();
  }
  const char* announce = std::getenv("FURROW_HANDSHAKE_FD");
  if (announce != nullptr) {
    dprintf(std::atoi(announce), "furrow-rocksdb %s compiled=%d.%d.%d runtime=%d.%d.%d registered=%s\n",
            FURROW_VERSION, compiled[0], compiled[1], compiled[2], runtime[0], runtime[1], runtime[2],
            registered ? "yes" : "no");
    _exit(0);
  }
  if (!registered) {
    fprintf(stderr,
            "furrow: this plug-in was compiled against RocksDB %d.%d.%d and runs with %d.%d.%d: furrow:// is not "
            "registered\n",
            compiled[0], compiled[1], compiled[2], runtime[0], runtime[1], runtime[2]);
  }
}

}  // namespace
