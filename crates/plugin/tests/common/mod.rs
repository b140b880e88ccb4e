//! Functions that the tests of the plug-in share.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Drive URL's parameters for a drive that is small enough for a test and has room for a few thousand records.
pub const SMALL_DRIVE: &str = "zones=64&zone-size=4MiB";

/// Builds the plug-in with the test's profile, because `cargo test` does not build a library that no test links.
pub fn plugin() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // Without --bins: the program that other tests run stays as it is.
        let args = ["programs", "--offline", "--profile"];
        let profile = if cfg!(debug_assertions) { "test" } else { "release" };
        let built = Command::new(env!("CARGO")).args(args).arg(profile).output().unwrap();
        assert!(built.status.success(), "building the plug-in: {}", output_text(&built));
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        deps.parent().unwrap().join("libfurrow_rocksdb.so")
    });
    built.clone()
}

/// A program's exit status, stdout and stderr as one text, for messages of failed tests.
pub fn output_text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The URL of an emulated drive in a file of `directory`.
pub fn drive_url(directory: &Path) -> String {
    format!("emu:{}?{SMALL_DRIVE}", directory.join("drive.img").display())
}

/// The directory of the C++ test programs' sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles a C++ test program against the system's RocksDB. `more` are compiler arguments after the source.
pub fn compile(source: &str, output: &str, more: &[&str]) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(output);
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rocks/cpp");
    let mut command = Command::new("g++");
    command
        .args(["-std=c++17", "-O1", "-Wall", "-I"])
        .arg(headers)
        .arg("-o")
        .arg(&to)
        .arg(sources().join(source));
    let compiled = command.args(more).args(["-lrocksdb", "-lpthread"]).output().unwrap();
    assert!(compiled.status.success(), "g++ {source}: {}", output_text(&compiled));
    to
}
