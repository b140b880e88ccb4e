//! Compiles the C++ shim against LevelDB's headers. Nothing of LevelDB is linked: the library works with the LevelDB of the program
//! that loads it.

use std::path::{Path, PathBuf};
use std::process::exit;

const SHIM_SOURCES: &[&str] =
    &["status.cc", "files.cc", "env.cc", "interfaces.cc", "rooted_env.cc", "copies.cc", "preload.cc"];
const APT_COMMAND: &str = "apt-get install g++ libleveldb-dev";

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=../abi/cpp");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LEVELDB_INCLUDE");
    if std::env::var_os("CARGO_FEATURE_SHIM").is_none() {
        return;
    }
    // LEVELDB_INCLUDE names the header directory of another LevelDB 1.23.
    let include = std::env::var_os("LEVELDB_INCLUDE").map(PathBuf::from);
    let headers = include.clone().unwrap_or_else(|| PathBuf::from("/usr/include"));
    if !headers.join("leveldb/env.h").is_file() {
        eprintln!(
            "error: LevelDB's headers are not in {} (looked for leveldb/env.h).\n\
             Install them with:  {APT_COMMAND}\n\
             or set LEVELDB_INCLUDE to the directory that holds leveldb/.",
            headers.display()
        );
        exit(1);
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").include("cpp").warnings(true).extra_warnings(true).opt_level(2);
    // A LevelDB that was built without type information and exceptions has no symbols for them.
    build.flag("-fno-rtti").flag("-fno-exceptions");
    build.files(SHIM_SOURCES.iter().map(|name| Path::new("cpp").join(name)));
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    build.define("FURROW_VERSION", format!("\"{version}\"").as_str());
    if let Some(include) = include {
        build.include(include);
    }
    // The constructor has no caller, so the archive is linked whole. The link line that Cargo would print for the
    // archive lacks the whole-archive modifier, hence cc's metadata is off.
    build.cargo_metadata(false);
    if let Err(error) = build.try_compile("furrow_leveldb_shim") {
        eprintln!("error: compiling the LevelDB shim: {error}\nIf g++ is missing:  {APT_COMMAND}");
        exit(1);
    }
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static:+whole-archive=furrow_leveldb_shim");
    println!("cargo:rustc-link-lib=dylib=stdc++");
}
