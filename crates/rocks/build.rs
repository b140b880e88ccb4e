//! Compiles the C++ shim against the system's RocksDB, and links both. With `FURROW_CHECK_ONLY` in the environment it compiles nothing, for `cargo clippy`, which links nothing.

use std::path::{Path, PathBuf};
use std::process::exit;

const SHIM_SOURCES: &[&str] = &[
    "status.cc",
    "files.cc",
    "logger.cc",
    "file_system.cc",
    "register.cc",
    "expiry.cc",
    "host.cc",
    "second_handle.cc",
    "flush_choice.cc",
    "unlogged.cc",
    "db.cc",
    "parallel_db.cc",
    "visible_listener.cc",
    "perf.cc",
];
const APT_COMMAND: &str = "apt-get install g++ librocksdb-dev rocksdb-tools";

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=../abi/cpp");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ROCKSDB_INCLUDE");
    println!("cargo:rerun-if-env-changed=FURROW_CHECK_ONLY");
    if std::env::var_os("CARGO_FEATURE_SHIM").is_none() || std::env::var_os("FURROW_CHECK_ONLY").is_some() {
        return;
    }
    // ROCKSDB_INCLUDE names the header directory of another RocksDB build. RUSTFLAGS or LIBRARY_PATH must tell the
    // linker where its library is.
    let include = std::env::var_os("ROCKSDB_INCLUDE").map(PathBuf::from);
    let headers = include.clone().unwrap_or_else(|| PathBuf::from("/usr/include"));
    if !headers.join("rocksdb/file_system.h").is_file() {
        eprintln!(
            "error: RocksDB's headers are not in {} (looked for rocksdb/file_system.h).\n\
             Install them with:  {APT_COMMAND}\n\
             or set ROCKSDB_INCLUDE to the directory that holds rocksdb/.",
            headers.display()
        );
        exit(1);
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").include("cpp").warnings(true).extra_warnings(true).opt_level(2);
    build.files(SHIM_SOURCES.iter().map(|name| Path::new("cpp").join(name)));
    if let Some(include) = include {
        build.include(include);
    }
    // The linker sees no reference to the registrar, so the archive is linked whole. The link line that Cargo would
    // print for the archive lacks the whole-archive modifier, hence cc's metadata is off.
    build.cargo_metadata(false);
    if let Err(error) = build.try_compile("furrow_rocks_shim") {
        eprintln!("error: compiling the RocksDB shim: {error}\nIf g++ is missing:  {APT_COMMAND}");
        exit(1);
    }
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static:+whole-archive=furrow_rocks_shim");
    println!("cargo:rustc-link-lib=dylib=rocksdb");
    println!("cargo:rustc-link-lib=dylib=stdc++");
}
