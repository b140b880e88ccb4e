//! Tests of a program that creates and drops column families while memtables are flushed, and is then killed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

mod common;
use common::{compile, output_text, plugin};

/// Parameters of a drive whose parallel log takes 4 MiB before the engine requests a flush.
const DRIVE_PARAMETERS: &str = "zones=64&zone-size=1MiB";

fn program() -> &'static Path {
    static FILE: OnceLock<std::path::PathBuf> = OnceLock::new();
    FILE.get_or_init(|| compile("families.cc", "families", &[]))
}

fn run(directory: &TempDir, wal: &str, args: &[&str]) -> Output {
    let drive = directory.path().join("drive.img");
    let mut command = Command::new(program());
    command.arg(format!("emu:{}?{DRIVE_PARAMETERS}", drive.display())).args(args);
    command.env("FURROW_WAL", wal).env("LD_PRELOAD", plugin()).output().unwrap()
}

/// RocksDB abandons a flush of all families if one of them is dropped during the flush, and returns `Column family
/// dropped` or even OK.
#[test]
fn synced_keys_survive_a_kill_after_a_family_was_dropped_under_a_flush() {
    for (wal, way) in [
        ("auto", "flush"),
        ("waltz", "compaction"),
        ("auto", "live files"),
        ("waltz", "checkpoint"),
        ("auto", "the log's own"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = run(&directory, wal, &["drop under", way]);
        assert_eq!(output.status.signal(), Some(9), "{wal} {way}: {}", output_text(&output));
        let copies: &[&str] = if way == "checkpoint" { &["/copy", "/db"] } else { &["/db"] };
        for database in copies {
            let output = run(&directory, wal, &["check", database]);
            assert!(output.status.success(), "{wal} {way}: {}", output_text(&output));
        }
    }
}

/// RocksDB 7.8 chooses the families of some flushes before it waits for the end of a write stall. If a batch comes
/// during the wait, the flush must not write its mark without its record, nor its record without its mark.
#[test]
fn a_write_while_a_flush_waits_for_a_stall_is_applied_once_after_a_kill() {
    let ways = ["flush", "compaction", "bounded compaction", "live files", "checkpoint", "cancelled work"];
    for (n, way) in ways.into_iter().enumerate() {
        for (command, check) in [
            ("write under", "check late write"),
            ("create under", "check late write"),
            ("merge under", "check late merge"),
        ] {
            let wal = if n.is_multiple_of(2) { "waltz" } else { "auto" };
            let directory = tempfile::tempdir().unwrap();
            let output = run(&directory, wal, &[command, way]);
            assert_eq!(output.status.signal(), Some(9), "{wal}, {command} {way}: {}", output_text(&output));
            let output = run(&directory, wal, &[check]);
            assert!(output.status.success(), "{wal}, {command} {way}: {}", output_text(&output));
        }
    }
}

/// RocksDB never flushes the memtables of a dropped family, and counts their entries while a handle of the family is
/// kept.
#[test]
fn a_dropped_family_whose_handle_is_kept_stops_no_write() {
    for wal in ["waltz", "auto"] {
        let directory = tempfile::tempdir().unwrap();
        let output = run(&directory, wal, &["keep dropped handle"]);
        assert!(output.status.success(), "{wal}: {}", output_text(&output));
    }
}

#[test]
fn a_batch_that_names_the_family_of_the_marks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(&directory, "waltz", &["name hidden family"]);
    assert!(output.status.success(), "{}", output_text(&output));
}
