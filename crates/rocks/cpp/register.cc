#include "register.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "file_system.h"
#include "rocksdb/version.h"
#include "status.h"

namespace {

constexpr char kScheme[] = "furrow";
constexpr char kSeparator[] = "://";

std::atomic<bool> obeys_wal{false};

// The value of FURROW_WAL if it asks for a parallel log; else null.
const char* ParallelWal() {
  const char* wal = std::getenv("FURROW_WAL");
  const bool group = wal == nullptr || wal[0] == '\0' || strcmp(wal, "group") == 0;
  return group ? nullptr : wal;
}

// As ParallelWal, where no plug-in library provides a parallel log. A program with a statically linked RocksDB never calls the library's opening functions.
const char* UnsupportedWal() { return obeys_wal.load() ? nullptr : ParallelWal(); }

// Makes the file system of a URI; RocksDB calls this once per use of the URI. `--fs_uri` and `--backup_fs_uri` may
// name the same device, and then share its mount.
rocksdb::FileSystem* NewFurrowFileSystem(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard,
                                         std::string* message) {
  const std::string url = uri.substr(sizeof(kScheme) - 1 + sizeof(kSeparator) - 1);
  if (const char* wal = UnsupportedWal()) {
    *message = std::string("FURROW_WAL=") + wal +
               ": this program has RocksDB within itself, where only FURROW_WAL=group is there; the others want a shared "
               "librocksdb and libfurrow_rocksdb.so";
    fprintf(stderr, "furrow: %s\n", message->c_str());
    return nullptr;
  }
  FurrowFs* fs = nullptr;
  FurrowStatus status = furrow_mount(url.data(), url.size(), ParallelWal() != nullptr, &fs);
  if (status.code != FURROW_OK) {
    message->assign(status.message == nullptr ? "" : status.message, status.message_len);
    furrow_message_free(status.message, status.message_len);
    // Some programs do not print RocksDB's message, so the reason is printed here, once.
    fprintf(stderr, "furrow: %s\n", message->c_str());
    *message = "the device could not be mounted, see the line that begins with 'furrow:'";
    return nullptr;
  }
  guard->reset(new furrow::FurrowFileSystem(fs));
  return guard->get();
}

// Runs after the program's exit handlers and static destructors, and unmounts the file systems that the program left
// mounted.
__attribute__((destructor)) void Unload() { furrow_unmount_all(); }

}  // namespace

int register_furrow(rocksdb::ObjectLibrary& library, const std::string&) {
  library.AddFactory<rocksdb::FileSystem>(
      rocksdb::ObjectLibrary::PatternEntry(kScheme, false).AddSeparator(kSeparator),
      [](const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard, std::string* message) {
        return NewFurrowFileSystem(uri, guard, message);
      });
  return 1;
}

extern "C" int furrow_register_default(void) {
  static std::once_flag once;
  std::call_once(once, [] { register_furrow(*rocksdb::ObjectLibrary::Default(), ""); });
  return rocksdb::ObjectLibrary::Default()->FindFactory<rocksdb::FileSystem>("furrow://emu:mem") != nullptr ? 1 : 0;
}

extern "C" void furrow_obeys_wal(void) { obeys_wal = true; }

extern "C" void furrow_compiled_version(int* major, int* minor, int* patch) {
  *major = ROCKSDB_MAJOR;
  *minor = ROCKSDB_MINOR;
  *patch = ROCKSDB_PATCH;
}

extern "C" void furrow_runtime_version(int* major, int* minor, int* patch) {
  *major = *minor = *patch = 0;
  const std::string version = rocksdb::GetRocksVersionAsString(true);
  sscanf(version.c_str(), "%d.%d.%d", major, minor, patch);
}
