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

/// Many small zones, each smaller than a memtable; few zones, each larger than all memtables.
const DRIVES: [&str; 2] = ["zones=64&zone-size=1MiB", "zones=20&zone-size=8MiB"];

/// A database with RocksDB's own log, on a drive with the given parameters.
struct Database(TempDir, &'static str);

impl Database {
    fn run(&self, args: &[&str]) -> Output {
        let drive = self.0.path().join("drive.img");
        let mut command = Command::new(program());
        command.arg(format!("emu:{}?{}", drive.display(), self.1)).args(args);
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

    /// Opens the database for writing. False if its log was empty, so that the opening wrote no table.
    fn is_killed_at_its_first_table(&self) -> bool {
        let output = self.run(&["killed", "1"]);
        let killed = output.status.signal() == Some(9);
        let empty = output.stdout.starts_with(b"0 bytes in logs");
        assert!(killed || (empty && output.status.success()), "{}: {}", self.1, output_text(&output));
        killed
    }

    /// Opens the database for writing, and checks every acknowledged key.
    fn check(&self, keys: u64) {
        self.run_successfully(&["open", "0", &keys.to_string()]);
    }
}

#[test]
fn a_database_that_found_no_space_opens_for_writing_again_and_again() {
    for (drive, least) in [(DRIVES[0], 5_000), (DRIVES[1], 12_000)] {
        let database = Database(tempfile::tempdir().unwrap(), drive);
        let mut keys = database.fill(0);
        assert!(keys > least, "{drive}: the reserve leaves half of the drive: {keys} keys of 4 KB");
        for _ in 0..3 {
            database.check(keys);
            keys = database.fill(keys);
        }
        database.check(keys);
        database.run_successfully(&["delete", &keys.to_string()]);
        database.check(keys / 2);
    }
}

#[test]
fn openings_that_are_killed_after_no_space_leave_room_for_the_next_one() {
    for drive in DRIVES {
        let database = Database(tempfile::tempdir().unwrap(), drive);
        let mut keys = database.fill(0);
        // The put that finds no space may be the first one of an empty log. The next opening has nothing to write then.
        let mut attempts = 0;
        while !database.is_killed_at_its_first_table() {
            attempts += 1;
            assert!(attempts < 5, "{drive}: the log is empty each time that no space is left");
            keys = database.fill(keys);
        }
        for _ in 0..2 {
            assert!(
                database.is_killed_at_its_first_table(),
                "{drive}: the opening before it emptied the log"
            );
        }
        database.check(keys);
        database.run_successfully(&["delete", &keys.to_string()]);
    }
}
