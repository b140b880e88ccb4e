//! Tests of a database in whose drive no space is left: it opens for writing again, and takes deletes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

mod common;
use common::{compile, output_text, plugin};

fn program() -> &'static Path {
    static FILE: OnceLock<std::path::PathBuf> = OnceLock::new();
    FILE.get_or_init(|| compile("full.cc", "full", &[]))
}

/// A database on a drive of 64 zones of 1 MiB, with RocksDB's own log.
struct Database(TempDir);

impl Database {
    fn run(&self, args: &[&str]) -> Output {
        let drive = self.0.path().join("drive.img");
        let mut command = Command::new(program());
        command.arg(format!("emu:{}?zones=64&zone-size=1MiB", drive.display())).args(args);
        command.env("FURROW_WAL", "group").env("LD_PRELOAD", plugin()).output().unwrap()
    }

    fn run_successfully(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Puts keys from `first` on until no space is left. Returns the first key that was not acknowledged.
    fn fill(&self, first: u64) -> u64 {
        let said = self.run_successfully(&["fill", &first.to_string()]);
        assert!(said.contains("No space left on device"), "{said}");
        said.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Opens the database for writing, and checks every acknowledged key.
    fn check(&self, keys: u64) {
        self.run_successfully(&["open", "0", &keys.to_string()]);
    }
}

#[test]
fn a_database_that_found_no_space_opens_for_writing_again_and_again() {
    let database = Database(tempfile::tempdir().unwrap());
    let mut keys = database.fill(0);
    assert!(keys > 20_000, "the reserve leaves most of the drive: {keys} keys of 1 KiB in 64 MiB");
    for _ in 0..5 {
        database.check(keys);
        keys = database.fill(keys);
    }
    database.check(keys);
    database.run_successfully(&["delete", &keys.to_string()]);
    database.check(keys / 2);
}

#[test]
fn openings_that_are_killed_after_no_space_leave_room_for_the_next_one() {
    let database = Database(tempfile::tempdir().unwrap());
    let keys = database.fill(0);
    for _ in 0..3 {
        let output = database.run(&["killed", "1"]);
        assert_eq!(output.status.signal(), Some(9), "{}", output_text(&output));
    }
    database.check(keys);
    database.run_successfully(&["delete", &keys.to_string()]);
}
