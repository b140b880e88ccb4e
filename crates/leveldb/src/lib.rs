//! `libfurrow_leveldb.so`: unmodified LevelDB programs that load this library with `LD_PRELOAD` keep the databases below
//! `FURROW_LEVELDB_ROOT` on the drive `FURROW_LEVELDB`.
//!
//! The library exports `leveldb::Env::Default()` (ADR 0031) and refers to no symbol of LevelDB. The C++ half (`cpp/`) is an `Env`
//! over the C functions of `furrow-abi`. The Rust half reads the settings and decides where a name lies.
//!
//! ```text
//!   program -> libleveldb -> Env::Default -> cpp/preload.cc -> cpp/rooted_env.cc -> calls -> settings, names
//!                         -> Env's files ->  cpp/zoned_env.cc, cpp/files.cc -> abi -> fs
//! ```

pub use abi;

#[cfg(feature = "shim")]
mod calls;
#[cfg(feature = "shim")]
mod names;
#[cfg(feature = "shim")]
mod own_copy;
#[cfg(feature = "shim")]
mod settings;

#[cfg(feature = "shim")]
abi::jump!(default_env, "_ZN7leveldb3Env7DefaultEv", furrow_leveldb_default);
