// A C interface to rocksdb::DB for crates/rocks/src/ffi.rs. No exception leaves a function: all are noexcept, and
// RocksDB itself throws nothing but std::bad_alloc, which ends the process.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "furrow_abi.h"
#include "unlogged.h"

extern "C" {

enum {
  ROCKS_OK = 0,
  ROCKS_NOT_FOUND = 1,
  ROCKS_CORRUPTION = 2,
  ROCKS_INVALID = 3,
  ROCKS_IO_ERROR = 4,
  ROCKS_NO_SPACE = 5,
  ROCKS_BUSY = 6,
  ROCKS_OTHER = 7,
};

// Flags of rocks_apply: skip records of families that do not exist; return ROCKS_BUSY instead of waiting in a write
// stall.
enum {
  ROCKS_IGNORE_MISSING = 1,
  ROCKS_NO_WAIT = 2,
};

// The outcome of a call. On success `message` is null; otherwise the caller frees `message` with rocks_free.
typedef struct {
  int32_t code;
  uint8_t retryable;
  uint8_t reserved[3];
  char* message;
  size_t message_len;
} RocksStatus;

typedef struct {
  uint64_t write_buffer;
  uint64_t block_cache;
  uint64_t table_size;
  // Bytes that a compaction reads at a time; 0 for a block.
  uint64_t compaction_read;
  int32_t write_buffers;
  int32_t background_jobs;
  uint8_t compression;
  uint8_t expiry;
  uint8_t create;
  uint8_t keep_recovered;
  // RocksDB's log is off: writes go through rocks_apply, and `events` receives the flush events.
  uint8_t unlogged;
  // Merges add numbers: 8 bytes, little-endian.
  uint8_t adds;
  // Number of column families "family1", "family2", ... besides the default one, with the same options.
  uint8_t families;
  // The blocks of flushed memtables go into the block cache.
  uint8_t prepopulate;
  FurrowFlushEvents events;
} RocksOptions;

typedef struct {
  const char* data;
  size_t len;
} RocksSlice;

typedef struct RocksDb RocksDb;
typedef struct RocksPin RocksPin;
typedef struct RocksCursor RocksCursor;
typedef struct RocksBatch RocksBatch;

void rocks_free(char* message) noexcept;

// Opens the database in the directory `path` of the file system `fs`. Takes over `fs`, on failure too.
RocksStatus rocks_open(FurrowFs* fs, RocksSlice path, const RocksOptions* options, RocksDb** out) noexcept;
// Like rocks_open, on the host's own file system.
RocksStatus rocks_open_host(RocksSlice path, const RocksOptions* options, RocksDb** out) noexcept;
// Returns the sums over the RocksDB logs read since rocks_open_host opened the database: nanoseconds and bytes.
void rocks_host_replay(const RocksDb* db, uint64_t* nanos, uint64_t* bytes) noexcept;
// Stops the database's background work and closes it. Frees `db` whatever the outcome.
RocksStatus rocks_close(RocksDb* db) noexcept;

RocksStatus rocks_write(RocksDb* db, RocksBatch* batch, uint8_t sync) noexcept;
// Applies a batch to a database that is `unlogged`: see furrow::Unlogged. `mark` may be null. Returns ROCKS_BUSY if
// ROCKS_NO_WAIT is set and RocksDB would delay or stop the write.
RocksStatus rocks_apply(RocksDb* db, RocksSlice batch, uint8_t flags, const FurrowMark* mark,
                        uint64_t* last) noexcept;
RocksStatus rocks_flush_all(RocksDb* db) noexcept;
// Like rocks_flush_all, while no batch is being applied. Returns an error unless everything is in tables.
RocksStatus rocks_empty_memtables(RocksDb* db) noexcept;
RocksStatus rocks_marks_floor(RocksDb* db, uint8_t* has, uint64_t* floor) noexcept;
RocksStatus rocks_is_marked(RocksDb* db, uint64_t ticket, uint8_t* marked) noexcept;
RocksStatus rocks_set_marks_floor(RocksDb* db, uint64_t floor) noexcept;
RocksStatus rocks_drop_marks(RocksDb* db) noexcept;
// Gets a key's value. `pin` is null if the key does not exist; else the caller frees `pin` with rocks_pin_free. The
// pin may outlive the database.
RocksStatus rocks_get(RocksDb* db, RocksSlice key, RocksPin** pin, RocksSlice* value) noexcept;
RocksStatus rocks_multi_get(RocksDb* db, const RocksSlice* keys, size_t n, RocksPin** pins,
                            RocksSlice* values) noexcept;
void rocks_pin_free(RocksPin* pin) noexcept;

// A cursor in the default family (0) or in family number `family` of `families`. Null if that family was not opened.
RocksCursor* rocks_cursor(RocksDb* db, uint32_t family, RocksSlice from) noexcept;
void rocks_cursor_free(RocksCursor* cursor) noexcept;
void rocks_cursor_seek(RocksCursor* cursor, RocksSlice key) noexcept;
void rocks_cursor_next(RocksCursor* cursor) noexcept;
// Returns 1 if the cursor is at an entry. `key` and `value` then are valid until the cursor moves.
uint8_t rocks_cursor_entry(const RocksCursor* cursor, RocksSlice* key, RocksSlice* value) noexcept;
RocksStatus rocks_cursor_status(const RocksCursor* cursor) noexcept;

// The value of a property of RocksDB. Null if RocksDB has no such property; else the caller frees the result with
// rocks_free.
char* rocks_property(RocksDb* db, RocksSlice name, size_t* len) noexcept;
RocksStatus rocks_flush(RocksDb* db) noexcept;
RocksStatus rocks_sync_wal(RocksDb* db) noexcept;
// Compacts the whole database. If `most` is not 0, each compaction has an input of about `most` bytes.
RocksStatus rocks_compact(RocksDb* db, uint64_t most) noexcept;
// rocks_is_bound returns 1 if the limit on compactions that rocks_compact sets is in force, perhaps because
// rocks_compact could not restore the former limit. rocks_unbound restores the former limit.
uint8_t rocks_is_bound(RocksDb* db) noexcept;
RocksStatus rocks_unbound(RocksDb* db) noexcept;

RocksBatch* rocks_batch_new(void) noexcept;
// Makes a batch from RocksDB's serialisation of one.
RocksBatch* rocks_batch_of(RocksSlice data) noexcept;
void rocks_batch_free(RocksBatch* batch) noexcept;
RocksStatus rocks_batch_put(RocksBatch* batch, RocksSlice key, RocksSlice value) noexcept;
RocksStatus rocks_batch_delete(RocksBatch* batch, RocksSlice key) noexcept;
RocksStatus rocks_batch_delete_range(RocksBatch* batch, RocksSlice from, RocksSlice to) noexcept;
RocksStatus rocks_batch_single_delete(RocksBatch* batch, RocksSlice key) noexcept;
RocksStatus rocks_batch_merge(RocksBatch* batch, RocksSlice key, RocksSlice value) noexcept;
RocksStatus rocks_batch_log_data(RocksBatch* batch, RocksSlice data) noexcept;
void rocks_batch_set_save_point(RocksBatch* batch) noexcept;
RocksStatus rocks_batch_rollback(RocksBatch* batch) noexcept;
// The batch in the serialisation of RocksDB's log. The bytes are valid until the batch changes.
RocksSlice rocks_batch_data(const RocksBatch* batch) noexcept;
void rocks_batch_clear(RocksBatch* batch) noexcept;
size_t rocks_batch_count(const RocksBatch* batch) noexcept;
size_t rocks_batch_bytes(const RocksBatch* batch) noexcept;

}
