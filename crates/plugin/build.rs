//! Compiles the plug-in library's constructor, which registers the file system when the library is loaded.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::exit;

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_SHIM").is_none() {
        return;
    }
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .files(["cpp/preload.cc", "cpp/interpose.cc"])
        .include("../rocks/cpp")
        .warnings(true)
        .extra_warnings(true);
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    build.define("FURROW_VERSION", format!("\"{version}\"").as_str());
    build.cargo_metadata(false);
    if let Err(error) = build.try_compile("furrow_preload") {
        eprintln!("error: compiling the plug-in's constructor: {error}");
        exit(1);
    }
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static:+whole-archive=furrow_preload");
}
