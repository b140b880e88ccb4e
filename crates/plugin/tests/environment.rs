//! Tests of programs that mount, lock, release and reopen drives through the plug-in.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

mod common;
use common::{compile, output_text, plugin};

fn program() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| compile("environment.cc", "environment", &[]))
}

fn run(settings: &str, args: &[&str]) -> Output {
    run_with(settings, args, &[])
}

fn run_with(settings: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("emu:{}?{settings}", directory.path().join("drive.img").display());
    let mut command = Command::new(program());
    command.arg(url).args(args).env("FURROW_WAL", "group").env("LD_PRELOAD", plugin());
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_drive_that_was_released_can_be_mounted_again_at_once() {
    let output = run("zones=64&zone-size=1MiB", &["remount", "30"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", output_text(&output));
}

/// A RocksDB log file that RocksDB still keeps, but no longer writes to, must not keep a zone open.
#[test]
fn sixteen_memtables_are_flushed_while_file_deletions_are_disabled() {
    for sync in ["synced", "unsynced"] {
        let output = run("zones=200&zone-size=1MiB", &["no deletions", sync]);
        assert!(output.status.success(), "{sync}: {}", output_text(&output));
    }
}

/// With four families flushed in turn, RocksDB keeps 24 log files while file deletions are disabled; a drive with 14 open zones has to do.
#[test]
fn memtables_of_four_families_are_flushed_while_file_deletions_are_disabled() {
    for sync in ["synced", "unsynced"] {
        let output = run("zones=200&zone-size=1MiB&max-open=14", &["families in turn", sync]);
        assert!(output.status.success(), "{sync}: {}", output_text(&output));
    }
}

/// RocksDB's own tests expect the word "lock" in the error of a second opening.
#[test]
fn a_database_that_is_open_cannot_be_opened_again_and_the_error_says_lock() {
    let output = run("zones=64&zone-size=1MiB", &["open twice"]);
    let said = output_text(&output);
    assert!(output.status.success() && said.contains("IO error: ") && said.contains("lock "), "{said}");
}

/// Formatting such a drive would erase it and change nothing.
#[test]
fn logs_in_conventional_zones_that_a_drive_lacks_are_refused_without_the_advice_to_format() {
    let output =
        run_with("zones=64&zone-size=1MiB", &["open twice"], &[("FURROW_WAL_ZONES", "conventional")]);
    let said = output_text(&output);
    assert!(!output.status.success() && said.contains("conventional zones"), "{said}");
    assert!(!said.contains("FURROW_FORMAT"), "{said}");
}

#[test]
fn settings_that_would_have_no_effect_are_refused() {
    for (name, value, says) in [
        ("FURROW_CACH", "1GiB", "FURROW_CACH in the environment is not known"),
        ("FURROW_FORMAT", "maybe", "FURROW_FORMAT=maybe"),
        ("FURROW_COUNTERS_EVERY", "1", "FURROW_COUNTERS,"),
    ] {
        let output = run_with("zones=64&zone-size=1MiB", &["open twice"], &[(name, value)]);
        let said = output_text(&output);
        assert!(!output.status.success() && said.contains(says), "{name}: {said}");
    }
}

/// `Prefetch`, `Hint`, `InvalidateCache` and `PositionedAppend`, as RocksDB calls them.
#[test]
fn the_page_cache_follows_the_calls_that_rocksdb_makes_about_its_reads() {
    for (cache, argument) in [("64MiB", "cached"), ("0", "uncached")] {
        let variables = [("FURROW_CACHE", cache)];
        let output = run_with("zones=64&zone-size=1MiB", &["read hints", argument], &variables);
        assert!(output.status.success(), "{cache}: {}", output_text(&output));
    }
}
