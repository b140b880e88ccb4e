//! Checks that the protobuf compiler is there. The build of `etcd-client` needs it, and says less clearly what to install.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, exit};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PROTOC");
    println!("cargo:rerun-if-env-changed=PROTOC_INCLUDE");
    if let Err(why) = check() {
        eprintln!("furrow-placement: {why}");
        eprintln!("Install Debian's packages protobuf-compiler and libprotobuf-dev: scripts/setup.sh does.");
        exit(1);
    }
}

/// Compiles a file that imports one of protobuf's own, as those of `etcd-client` do.
fn check() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?);
    let source = out.join("check.proto");
    let text = "syntax = \"proto3\";\nimport \"google/protobuf/descriptor.proto\";\n";
    fs::write(&source, text).map_err(|error| format!("cannot write {}: {error}", source.display()))?;
    let protoc = env::var_os("PROTOC").unwrap_or_else(|| "protoc".into());
    let mut command = Command::new(&protoc);
    command.arg("-I").arg(&out);
    if let Some(include) = env::var_os("PROTOC_INCLUDE") {
        command.arg("-I").arg(include);
    }
    command.arg(format!("--descriptor_set_out={}", out.join("check.bin").display())).arg(&source);
    let output = command.output().map_err(|error| format!("cannot run {}: {error}", protoc.display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{} does not find protobuf's own files: {}",
        protoc.display(),
        String::from_utf8_lossy(&output.stderr)
    ))
}
