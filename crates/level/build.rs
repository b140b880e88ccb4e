//! Compiles the Env of `crates/leveldb/cpp` against the system's LevelDB, and links both.

use std::path::{Path, PathBuf};
use std::process::exit;

/// The directory of the Env that LevelDB's unmodified programs get too.
const ENV_DIRECTORY: &str = "../leveldb/cpp";
const ENV_SOURCES: &[&str] = &["status.cc", "files.cc", "env.cc"];
const APT_COMMAND: &str = "apt-get install g++ libleveldb-dev";

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed={ENV_DIRECTORY}");
    println!("cargo:rerun-if-changed=../abi/cpp");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LEVELDB_INCLUDE");
    // LEVELDB_INCLUDE names the header directory of another LevelDB 1.23. RUSTFLAGS or LIBRARY_PATH must tell the linker where its
    // library is.
    let include = std::env::var_os("LEVELDB_INCLUDE").map(PathBuf::from);
    let headers = include.clone().unwrap_or_else(|| PathBuf::from("/usr/include"));
    if !headers.join("leveldb/c.h").is_file() {
        eprintln!(
            "error: LevelDB's headers are not in {} (looked for leveldb/c.h).\n\
             Install them with:  {APT_COMMAND}\n\
             or set LEVELDB_INCLUDE to the directory that holds leveldb/.",
            headers.display()
        );
        exit(1);
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").include(ENV_DIRECTORY).warnings(true).extra_warnings(true).opt_level(2);
    // A LevelDB that was built without type information and exceptions has no symbols for them.
    build.flag("-fno-rtti").flag("-fno-exceptions");
    build.files(ENV_SOURCES.iter().map(|name| Path::new(ENV_DIRECTORY).join(name)));
    build.file("cpp/mounted_env.cc");
    if let Some(include) = include {
        build.include(include);
    }
    if let Err(error) = build.try_compile("furrow_level_env") {
        eprintln!("error: compiling LevelDB's Env: {error}\nIf g++ is missing:  {APT_COMMAND}");
        exit(1);
    }
    println!("cargo:rustc-link-lib=dylib=leveldb");
}
