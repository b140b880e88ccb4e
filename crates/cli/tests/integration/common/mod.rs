//! Helpers of the tests, which run the program and check its output.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Runs the program to its end; `device` is the value of the environment variable for the drive.
pub fn run(device: Option<&str>, args: &[&str]) -> Output {
    // A command that hangs fails its test instead of hanging it.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_furrow")]);
    command.env_remove("FURROW_DEVICE").env_remove("FURROW_LOG").args(args).stdin(Stdio::null());
    if let Some(device) = device {
        command.env("FURROW_DEVICE", device);
    }
    command.output().expect("timeout comes with coreutils")
}

/// The folder of the preloaded libraries, which this builds, because `cargo test` does not build a library that no test links.
pub fn library_folder() -> &'static Path {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Without --bins: the program that other tests run stays as it is.
        let args = ["programs", "--offline", "--profile"];
        let profile = if cfg!(debug_assertions) { "test" } else { "release" };
        done(&Command::new(env!("CARGO")).args(args).arg(profile).output().expect("cargo"));
    });
    Path::new(env!("CARGO_BIN_EXE_furrow")).parent().expect("a program lies in a folder")
}

/// The text that the program printed on stderr.
pub fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The text that the program printed on stdout.
pub fn stdout_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that the program succeeded; returns its stdout.
#[track_caller]
pub fn done(output: &Output) -> String {
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, stdout_of(output), stderr_of(output));
    stdout_of(output)
}

/// Checks that the program failed with `code` and printed one line that begins with its name and has `words`.
#[track_caller]
pub fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = stderr_of(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with("furrow: ") && said.trim_end().lines().count() == 1, "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
}

/// Parses a text as JSON.
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}
