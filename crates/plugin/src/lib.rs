//! `libfurrow_rocksdb.so`: unmodified RocksDB programs load it with `LD_PRELOAD` and then know
//! `--fs_uri=furrow://DEVICE-URL`. All of it is in `furrow-rocks`, but for the constructor (`cpp/preload.cc`).
//!
//! It takes RocksDB from the program's own librocksdb, whose version must be the one it was compiled against.
//!
//! With `FURROW_WAL=waltz` or `auto` it opens their databases under a parallel log (`cpp/interpose.cc`, `kv::parallel_wal`).
#![forbid(unsafe_code)]

pub use rocks::abi;

#[cfg(feature = "shim")]
static ENGINES: kv::parallel_wal::Interposed = kv::parallel_wal::Interposed;
#[cfg(feature = "shim")]
rocks::interpose!(ENGINES);
