//! Tests of Debian's own `db_bench` and `ldb`, unmodified, under a parallel log: `FURROW_WAL=waltz` and `auto`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rocks::stock::{Program, StockOptions, prepare};
use tempfile::TempDir;

mod common;
use common::{drive_url, output_text, plugin};

struct Drive {
    dir: TempDir,
}

impl Drive {
    fn new() -> Drive {
        Drive { dir: tempfile::tempdir().unwrap() }
    }

    fn url(&self) -> String {
        drive_url(self.dir.path())
    }

    fn command(&self, wal: &str, program: Program, args: &[&str]) -> Command {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let options = StockOptions { plugin: Some(plugin()), ..Default::default() };
        let mut command = prepare(program, &self.url(), &args, &options).unwrap();
        command.env("FURROW_WAL", wal);
        command
    }

    fn run(&self, wal: &str, program: Program, args: &[&str]) -> Output {
        self.command(wal, program, args).output().unwrap()
    }

    fn ldb(&self, wal: &str, args: &[&str]) -> String {
        let output = self.run(wal, Program::Ldb, args);
        assert!(output.status.success(), "{wal} {args:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Arguments of db_bench with four threads, for a run that is short enough for a test.
const BENCH_ARGUMENTS: [&str; 5] = [
    "--threads=4",
    "--write_buffer_size=262144",
    "--target_file_size_base=524288",
    "--compression_type=none",
    "--db=/bench",
];

#[test]
fn db_bench_writes_and_reads_under_a_parallel_log_through_flushes_and_compactions() {
    for wal in ["waltz", "auto"] {
        let drive = Drive::new();
        let benchmarks =
            "--benchmarks=fillrandom,readrandom,overwrite,readwhilewriting,seekrandom,compact,verifychecksum";
        let output =
            drive.run(wal, Program::DbBench, &[&BENCH_ARGUMENTS[..], &[benchmarks, "--num=4000"]].concat());
        let said = output_text(&output);
        assert!(output.status.success(), "{said}");
        let line = said.lines().find(|line| line.starts_with("readrandom")).unwrap();
        assert!(line.contains("of 4000 found"), "{line}");
        // After a clean close the database needs no parallel log.
        assert!(drive.ldb("group", &["--db=/bench", "scan", "--no_value"]).lines().count() > 2000);
        assert_eq!(drive.ldb("group", &["--db=/bench", "list_column_families"]).matches("furrow").count(), 0);
    }
}

#[test]
fn db_bench_may_count_file_operations() {
    let drive = Drive::new();
    let args = ["--benchmarks=fillrandom,readrandom", "--num=500", "--report_file_operations=1"];
    let output = drive.run("waltz", Program::DbBench, &[&BENCH_ARGUMENTS[..], &args[..]].concat());
    let said = output_text(&output);
    assert!(output.status.success() && said.contains("found") && said.contains("Num files opened"), "{said}");
}

#[test]
fn synced_keys_of_a_killed_program_are_recovered_and_openings_without_the_log_are_refused() {
    let drive = Drive::new();
    let args = ["--benchmarks=fillseq", "--num=1000000", "--sync=1", "--value_size=300"];
    let mut child = drive
        .command("auto", Program::DbBench, &[&BENCH_ARGUMENTS[1..], &args[..]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let written = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(drive.dir.path().join("drive.img")).map_or(0, |m| m.blocks() * 512)
    };
    for _ in 0..2400 {
        if written() > 3 << 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(written() > 3 << 20, "waited for 120 s in vain");
    assert!(child.try_wait().unwrap().is_none(), "it writes until it is killed");
    child.kill().unwrap();
    child.wait().unwrap();

    for args in [&["scan"][..], &["get", "x"], &["list_column_families"]] {
        let output = drive.run("group", Program::Ldb, &[&["--db=/bench"][..], args].concat());
        assert!(
            output_text(&output).contains("FURROW_WAL=auto or waltz"),
            "{args:?}: {}",
            output_text(&output)
        );
    }
    let keys = drive.ldb("waltz", &["--db=/bench", "put", "after", "the kill"]);
    assert!(keys.contains("OK"), "{keys}");
    // One thread wrote the keys by fillseq, so the keys have no gap.
    let keys = drive.ldb("group", &["--db=/bench", "scan", "--no_value", "--key_hex"]);
    let numbers: Vec<u64> = keys
        .lines()
        .filter_map(|line| line.trim().strip_prefix("0x"))
        .filter_map(|hex| u64::from_str_radix(hex.get(..16)?, 16).ok())
        .filter(|n| *n < 1_000_000)
        .collect();
    assert!(numbers.len() > 100, "{} keys", numbers.len());
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_database_that_is_destroyed_takes_its_log_along() {
    let drive = Drive::new();
    drive.ldb("waltz", &["--db=/db", "--create_if_missing", "put", "old", "1"]);
    let small = ["--benchmarks=fillrandom", "--num=10"];
    for wal in ["waltz", "group", "auto"] {
        let output = drive.run(wal, Program::DbBench, &[&BENCH_ARGUMENTS[..], &small[..]].concat());
        assert!(output.status.success(), "{wal}: {}", output_text(&output));
    }
    assert!(drive.ldb("group", &["--db=/db", "get", "old"]).contains('1'));
}

#[test]
fn a_checkpoint_holds_what_the_database_holds() {
    let drive = Drive::new();
    drive.ldb("waltz", &["--db=/db", "--create_if_missing", "batchput", "a", "1", "b", "2"]);
    drive.ldb("waltz", &["--db=/db", "checkpoint", "--checkpoint_dir=/copy"]);
    assert_eq!(drive.ldb("group", &["--db=/copy", "scan"]), drive.ldb("group", &["--db=/db", "scan"]));
}

#[test]
fn several_column_families_are_written_under_a_parallel_log() {
    let drive = Drive::new();
    let args = ["--benchmarks=fillrandom,readrandom", "--num=2000", "--num_column_families=3"];
    let output = drive.run("waltz", Program::DbBench, &[&BENCH_ARGUMENTS[..], &args[..]].concat());
    let said = output_text(&output);
    assert!(output.status.success() && said.contains("found"), "{said}");
    let listed = drive.ldb("group", &["--db=/bench", "list_column_families"]);
    assert!(listed.contains("column_family_name_000002") && !listed.contains("furrow"), "{listed}");
}

#[test]
fn unsupported_operations_are_refused_with_a_message() {
    let drive = Drive::new();
    let small = ["--benchmarks=fillrandom", "--num=10"];
    for (wal, flag, word) in [
        ("waltz", "--transaction_db=1", "transaction databases"),
        ("auto", "--optimistic_transaction_db=1", "transaction databases"),
        ("walz", "--num=9", "group, waltz or auto"),
    ] {
        let output = drive.run(wal, Program::DbBench, &[&BENCH_ARGUMENTS[..], &small[..], &[flag]].concat());
        assert!(!output.status.success(), "{flag}: {}", output_text(&output));
        assert!(output_text(&output).contains(word), "{flag}: {}", output_text(&output));
    }
}
