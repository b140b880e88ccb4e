// A library with a LevelDB of another version in it, as wheels and plug-ins bring them: just enough to be asked for its Env.

namespace leveldb {

class Env {
 public:
  static Env* Default();
};

static char own;

__attribute__((visibility("default"))) Env* Env::Default() { return reinterpret_cast<Env*>(&own); }

}  // namespace leveldb

extern "C" {

int leveldb_major_version() { return 1; }
int leveldb_minor_version() { return 20; }

// 1 if a call of Env::Default from this library gets this library's own.
int gets_its_own() { return leveldb::Env::Default() == reinterpret_cast<leveldb::Env*>(&leveldb::own) ? 1 : 0; }

}  // extern "C"
