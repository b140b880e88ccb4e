// The functions that Rust (crates/rocks/src/abi/engine.rs) implements for parallel_db.cc: the parallel WAL engine
// above a database that a program opened by itself. docs/adr/0013.
#pragma once

#include "db.h"
#include "furrow_abi.h"
#include "unlogged.h"

extern "C" {

typedef struct FurrowEngine FurrowEngine;
typedef struct FurrowHub FurrowHub;

typedef struct {
  uint32_t id;
  uint8_t merges;
  uint8_t one_stripe;
  uint8_t reserved[2];
} FurrowFamily;

enum {
  FURROW_WRITE_SYNCED = 1,
  FURROW_WRITE_LOGGED = 2,
  FURROW_WRITE_IGNORE_MISSING = 4,
};

FurrowHub* furrow_hub_new(FurrowFlushEvents* calls);
void furrow_hub_free(FurrowHub* hub);

// Opens the parallel WAL engine of the database in `dir`. Takes over `db`, on failure too.
FurrowStatus furrow_engine_open(const FurrowHub* hub, const FurrowFs* fs, const char* dir, size_t len, RocksDb* db,
                                const FurrowFamily* families, size_t n, FurrowEngine** out);
void furrow_engine_free(FurrowEngine* engine);
// Writes a batch through the parallel log. `apply` returns 0 if RocksDB refused the batch; the outcome then is
// FURROW_APPLYING.
FurrowStatus furrow_engine_write(const FurrowEngine* engine, const char* batch, size_t len, uint8_t flags,
                                 void* context,
                                 uint8_t (*apply)(void* context, const FurrowMark* mark, uint64_t* last));
FurrowStatus furrow_engine_sync(const FurrowEngine* engine);
FurrowStatus furrow_engine_exactly_once(const FurrowEngine* engine);
void furrow_engine_exclusive(const FurrowEngine* engine, void* context, void (*run)(void* context));
void furrow_engine_add_family(const FurrowEngine* engine, const FurrowFamily* family);
void furrow_engine_remove_family(const FurrowEngine* engine, uint32_t id);
FurrowStatus furrow_engine_close(const FurrowEngine* engine);

furrow::Unlogged* rocks_unlogged(RocksDb* db) noexcept;

}  // extern "C"

// Makes the RocksDb object that furrow_engine_open takes over. The caller keeps `db`, which must outlive that object.
RocksDb* rocks_adopt(rocksdb::DB* db, std::vector<furrow::FamilyHandle> families,
                     furrow::FamilyHandle marks) noexcept;

namespace furrow {

// True if this thread is inside furrow_open_parallel or furrow_list_parallel.
bool InParallelOpen();

// Calls `cancel`, RocksDB's CancelAllBackgroundWork. If `db` is a database under a parallel log, its memtables are
// flushed first.
void CancelBackgroundWork(rocksdb::DB* db, bool wait, void (*cancel)(rocksdb::DB* db, bool wait));

}  // namespace furrow
