//! A stock Debian kernel in QEMU, with zoned drives: `cargo xtask guest`.

pub mod clock;
pub mod initrd;
pub mod job;
pub mod kernel;
pub mod machine;
pub mod programs;
pub mod qmp;
pub mod run;
pub mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The guest's program: its init, which also contains the tests.
pub const INIT: &str = "furrow-guest";

/// Cargo's target directory.
pub fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root.join(path),
        None => root.join("target"),
    }
}

/// The directory that caches the kernel and copies of programs.
pub fn cache() -> PathBuf {
    target().join("guest")
}

/// The directory of the programs that [`build`] makes.
pub fn built() -> PathBuf {
    target().join("debug")
}

/// Builds the program, the preloaded libraries and the guest's program.
pub fn build() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["programs", "--bins", "--profile", "test"]);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build failed");
    Ok(())
}
