//! `libfurrow_rocksdb.so`: unmodified RocksDB programs that load this library with `LD_PRELOAD` accept
//! `--fs_uri=furrow://DEVICE-URL`. The code is in `furrow-rocks` and `furrow-abi`, except for the constructor (`cpp/preload.cc`) and the
//! opening functions (`cpp/interpose.cc`).
//!
//! The library uses the program's own librocksdb, whose version must be the one that the library was compiled
//! against.
//!
//! With `FURROW_WAL=waltz` or `auto` the library opens the program's databases under a parallel log
//! (`cpp/interpose.cc`, `kv::parallel_wal`).
#![forbid(unsafe_code)]

pub use abi;

#[cfg(feature = "shim")]
static ENGINES: kv::parallel_wal::Interposed = kv::parallel_wal::Interposed;
#[cfg(feature = "shim")]
rocks::interpose!(ENGINES);
