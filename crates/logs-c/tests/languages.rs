//! The library in C and in Java: both write the same bytes, in ordinary files and on zoned drives.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder of the library, which is built with the test's profile, because `cargo test` does not build a library that no test links.
fn library_folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = if cfg!(debug_assertions) { "test" } else { "release" };
        // With the features of the whole workspace's tests, so that nothing is compiled again.
        let args = ["programs", "--offline", "--profile", profile];
        let built = Command::new(env!("CARGO")).args(args).output().unwrap();
        assert!(built.status.success(), "building the library: {}", text(&built));
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        deps.parent().unwrap().to_owned()
    })
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A folder on a file system with direct I/O.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a command. Returns what it printed.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    output.stdout
}

/// Runs a program that writes a log: an ordinary file, then a log on an emulated drive, which it copies to standard output, and then an ordinary file that gets no room ahead.
fn check_logs(folder: &Path, mut program: impl FnMut() -> Command) {
    let log = folder.join("app.log");
    run(program().arg(&log));
    assert!(std::fs::read(&log).unwrap() == wanted());
    let drive = format!("emu:{}?zones=64&zone-size=1MiB", folder.join("drive.img").display());
    // A log in a folder that is not there yet.
    assert!(run(program().arg("/wal/app.log").arg(drive)) == wanted());
    run(with_limit(&program()).arg(folder.join("limited.log")).arg("limited"));
}

/// The command with files of 1 MiB at most.
fn with_limit(command: &Command) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=1048576").arg(command.get_program()).args(command.get_args());
    // Java takes the words of errors in the locale's language.
    limited.env("LC_ALL", "C").envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

/// The bytes that both programs write.
fn wanted() -> Vec<u8> {
    let record = |n: usize| (0..1 + (n * 37) % 1000).map(move |i| ((n * 7 + i) % 255 + 1) as u8);
    (0..300).flat_map(record).chain(*b"end").collect()
}

fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn a_c_program_finds_the_library_by_pkg_config_and_writes_a_log() {
    let folder = folder();
    let (prefix, library) = (folder.path().join("usr"), library_folder().join("libfurrow_log.so"));
    std::fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
    std::fs::create_dir_all(prefix.join("include")).unwrap();
    std::fs::copy(library, prefix.join("lib/libfurrow_log.so")).unwrap();
    std::fs::copy(manifest("include/furrow_log.h"), prefix.join("include/furrow_log.h")).unwrap();
    let template = std::fs::read_to_string(manifest("furrow-log.pc.in")).unwrap();
    let filled = template
        .replace("@PREFIX@", prefix.to_str().unwrap())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    std::fs::write(prefix.join("lib/pkgconfig/furrow-log.pc"), filled).unwrap();
    let found = Command::new("pkg-config")
        .args(["--cflags", "--libs", "furrow-log"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .expect("pkg-config runs; apt-get install pkg-config");
    assert!(found.status.success(), "{}", text(&found));
    let flags = String::from_utf8(found.stdout).unwrap();
    let program = folder.path().join("log");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(manifest("tests/programs/log.c"));
    run(cc.args(flags.split_whitespace()));
    check_logs(folder.path(), || {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", prefix.join("lib"));
        command
    });
}

#[test]
fn a_java_program_writes_the_same_bytes() {
    // A machine without a JDK says so; CI has one and sets the variable.
    if Command::new("javac").arg("-version").output().is_err() {
        assert!(
            std::env::var_os("FURROW_REQUIRE_JAVA").is_none(),
            "no javac; apt-get install openjdk-17-jdk-headless"
        );
        eprintln!("SKIPPED: no javac; apt-get install openjdk-17-jdk-headless");
        return;
    }
    let folder = folder();
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(folder.path());
    for class in ["Handle", "LogFile", "LogReader"] {
        javac.arg(manifest(&format!("java/furrow/{class}.java")));
    }
    run(javac.arg(manifest("tests/programs/Log.java")));
    check_logs(folder.path(), || {
        let mut java = Command::new("java");
        java.arg("-Xcheck:jni").arg(format!("-Djava.library.path={}", library_folder().display()));
        java.arg("-cp").arg(folder.path()).arg("Log");
        java
    });
}
