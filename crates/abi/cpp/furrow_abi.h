// The functions of the file system that Rust (crates/abi) implements for the shims of engines in C++.
//
// Every function may be called from any thread unless its comment says otherwise. No function throws, and a Rust
// panic becomes FURROW_IO_ERROR. Strings are UTF-8 with a length, without a terminating zero.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  FURROW_OK = 0,
  FURROW_NOT_FOUND = 1,
  FURROW_NO_SPACE = 2,
  FURROW_IO_ERROR = 3,
  FURROW_INVALID = 4,
  FURROW_BUSY = 5,
  FURROW_APPLYING = 6,
};

// The outcome of a call into Rust. On success only `code` is set, and nothing was allocated. Otherwise the caller
// owns `message` and frees it with furrow_message_free.
typedef struct {
  int32_t code;
  uint8_t data_loss;
  uint8_t reserved[3];
  char* message;
  size_t message_len;
} FurrowStatus;

typedef struct {
  uint64_t ino;
  uint64_t size;
  uint64_t modified_ms;
  uint64_t links;
  uint8_t is_dir;
} FurrowStat;

typedef struct FurrowFs FurrowFs;          // a mounted file system; holds it mounted
typedef struct FurrowWriter FurrowWriter;  // one file being written
typedef struct FurrowReader FurrowReader;  // one open file
typedef struct FurrowLock FurrowLock;      // one held file lock

void furrow_message_free(char* message, size_t len);

// Mounts the file system on the device `url`, or shares this process's mount of the same URL. `parallel_logs` is not 0: the program keeps its
// write-ahead logs in parallel logs, which keep room for their own flush, so that the mount keeps none for recoveries.
FurrowStatus furrow_mount(const char* url, size_t url_len, uint8_t parallel_logs, FurrowFs** out);
// Frees a file system handle. The last handle of a mount unmounts.
void furrow_release(FurrowFs* fs);
// Unmounts every file system that is still mounted by URL. Called when the process ends.
void furrow_unmount_all(void);

uint64_t furrow_unix_ms(const FurrowFs* fs);
FurrowStatus furrow_free_space(const FurrowFs* fs, uint64_t* bytes);
FurrowStatus furrow_stat(const FurrowFs* fs, const char* path, size_t len, FurrowStat* out);
FurrowStatus furrow_mkdir(const FurrowFs* fs, const char* path, size_t len);
FurrowStatus furrow_rmdir(const FurrowFs* fs, const char* path, size_t len);
FurrowStatus furrow_unlink(const FurrowFs* fs, const char* path, size_t len);
FurrowStatus furrow_rename(const FurrowFs* fs, const char* from, size_t from_len, const char* to, size_t to_len);
FurrowStatus furrow_link(const FurrowFs* fs, const char* from, size_t from_len, const char* to, size_t to_len);
FurrowStatus furrow_truncate(const FurrowFs* fs, const char* path, size_t len, uint64_t size);
FurrowStatus furrow_sync(const FurrowFs* fs);
// Calls `each` with every name in a directory, on the calling thread, before furrow_read_dir returns.
FurrowStatus furrow_read_dir(const FurrowFs* fs, const char* path, size_t len, void* context,
                             void (*each)(void* context, const char* name, size_t name_len));
// Locks a file. The lock of a file DIR/LOCK begins the recovery of the database in DIR: the file system's reserve is there for the
// writes of its opening, until furrow_end_recovery or furrow_unlock.
FurrowStatus furrow_lock(const FurrowFs* fs, const char* path, size_t len, FurrowLock** out);
void furrow_end_recovery(const FurrowFs* fs, const char* dir, size_t len);
void furrow_unlock(FurrowLock* lock);

// Kinds of file.
enum {
  FURROW_KIND_DATA = 0,
  FURROW_KIND_LOG = 1,
  // Synced often, and too short for a zone: a log where logs go to conventional zones, data elsewhere.
  FURROW_KIND_SHORT_LOG = 2,
};
// Creates a file for writing. `lifetime` is RocksDB's WriteLifeTimeHint. `preallocate` is the expected size in bytes, 0 if it is not known.
FurrowStatus furrow_create(const FurrowFs* fs, const char* path, size_t len, uint8_t kind, uint8_t lifetime,
                           uint64_t preallocate, FurrowWriter** out);
FurrowStatus furrow_open_append(const FurrowFs* fs, const char* path, size_t len, FurrowWriter** out);
FurrowStatus furrow_append(const FurrowWriter* writer, const char* data, size_t len);
FurrowStatus furrow_flush(const FurrowWriter* writer);
FurrowStatus furrow_sync_file(const FurrowWriter* writer);
FurrowStatus furrow_close(const FurrowWriter* writer);
FurrowStatus furrow_truncate_file(const FurrowWriter* writer, uint64_t size);
uint64_t furrow_written(const FurrowWriter* writer);
void furrow_set_lifetime(const FurrowWriter* writer, uint8_t lifetime);
// Sets the class of the file's writes for the drive's scheduler, as RocksDB's Env::IOPriority: 0 a compaction's, 2 a flush's, 3 writes that clients wait for.
void furrow_set_priority(const FurrowWriter* writer, uint8_t priority);
void furrow_writer_free(FurrowWriter* writer);

// Opens a file for reading. `sequential` is 1 for a file that one thread at a time reads from its beginning to its
// end.
// Ways to read a file.
enum {
  FURROW_READ_RANDOM = 0,      // at any offset
  FURROW_READ_SEQUENTIAL = 1,  // from the beginning to the end, by one thread at a time
  FURROW_READ_DIRECT = 2,      // at any offset; pages read from the device are not kept in the page cache
};
FurrowStatus furrow_open(const FurrowFs* fs, const char* path, size_t len, uint8_t how, FurrowReader** out);
// Drops the pages of the page cache that have no bytes but of the `len` bytes at `offset`; `len` is 0 for the rest of the file.
void furrow_drop_cached(const FurrowReader* reader, uint64_t offset, uint64_t len);
// Begins to read the `len` bytes at `offset` into the page cache. Returns 1; 0 where nothing is read ahead: without a page cache, or of a
// file that keeps nothing there.
uint8_t furrow_read_ahead(const FurrowReader* reader, uint64_t offset, uint64_t len);
// Orders in which a file may be read.
enum {
  FURROW_ACCESS_UNKNOWN = 0,
  FURROW_ACCESS_RANDOM = 1,
  FURROW_ACCESS_SEQUENTIAL = 2,
  // One pass from the beginning to the end, after which the bytes are not needed.
  FURROW_ACCESS_ONCE = 3,
};
// Announces the order in which a file will be read.
void furrow_expect_access(const FurrowReader* reader, uint8_t pattern);
// Reads a file until `n` bytes are read or the file ends. `got` is the number of bytes read.
FurrowStatus furrow_read(const FurrowReader* reader, uint64_t offset, size_t n, char* into, size_t* got);
uint64_t furrow_reader_ino(const FurrowReader* reader);
void furrow_reader_free(FurrowReader* reader);

#ifdef __cplusplus
}
#endif
