//! Tests of Debian's own `db_bench`, `ldb` and `sst_dump`, unmodified, on emulated drives through the plug-in.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rocks::stock::{Program, StockOptions, prepare};
use tempfile::TempDir;
use units::{Driver, VirtualDriver, block_on};

mod common;
use common::{SMALL_DRIVE, drive_url, output_text, plugin};

fn stock_options() -> StockOptions {
    StockOptions { plugin: Some(plugin()), ..Default::default() }
}

fn os(args: &[&str]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

/// The command that runs `program`. If the program is missing, the test fails with the command that installs it.
fn command(program: Program, url: &str, args: &[&str]) -> Command {
    prepare(program, url, &os(args), &stock_options()).unwrap_or_else(|error| panic!("{error}"))
}

fn run(program: Program, url: &str, args: &[&str]) -> Output {
    command(program, url, args).output().unwrap()
}

/// Runs a stock program that must succeed. Returns its stdout.
fn run_successfully(program: Program, url: &str, args: &[&str]) -> String {
    let output = run(program, url, args);
    assert!(output.status.success(), "{} {args:?}: {}", program.file_name(), output_text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a stock program that must end by itself. Returns its exit status and output.
fn run_to_end(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn Read| {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(|| read(&mut stdout));
        let err = scope.spawn(|| read(&mut stderr));
        for _ in 0..2400 {
            if let Some(status) = child.try_wait().unwrap() {
                return Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() };
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("the program hung");
    })
}

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

    fn file(&self) -> PathBuf {
        self.dir.path().join("drive.img")
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A drive whose database `/db` has keys `key0000` to `key{n-1}`, written through ldb.
    fn with_keys(n: usize) -> Drive {
        let drive = Drive::new();
        let mut args = vec![String::from("--create_if_missing"), String::from("batchput")];
        for i in 0..n {
            args.extend([format!("key{i:04}"), format!("value{i}")]);
        }
        run_successfully(Program::Ldb, &drive.url(), &args.iter().map(String::as_str).collect::<Vec<_>>());
        drive
    }
}

fn scan(url: &str, db: &str) -> String {
    run_successfully(Program::Ldb, url, &[&format!("--db={db}"), "scan"])
}

#[test]
fn db_bench_writes_and_reads_back_through_flushes_and_compactions() {
    let url = format!("emu:mem?{SMALL_DRIVE}");
    let out = run_successfully(
        Program::DbBench,
        &url,
        &[
            "--benchmarks=fillseq,fillrandom,overwrite,readrandom,readwhilewriting,verifychecksum,compact,levelstats",
            "--num=20000",
            "--threads=4",
            "--write_buffer_size=1048576",
            "--target_file_size_base=2097152",
            "--max_bytes_for_level_base=4194304",
            "--compression_type=none",
        ],
    );
    for name in ["fillseq", "fillrandom", "overwrite", "readrandom", "readwhilewriting"] {
        let line =
            out.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {out}"));
        assert!(line.contains("ops/sec"), "{line}");
    }
    assert!(!out.contains("Corruption"), "{out}");
}

#[test]
fn synced_writes_recycled_logs_and_range_syncs_work() {
    let url = format!("emu:mem?{SMALL_DRIVE}");
    let out = run_successfully(
        Program::DbBench,
        &url,
        &[
            "--benchmarks=fillrandom,readrandom",
            "--sync=1",
            "--num=3000",
            "--threads=2",
            "--write_buffer_size=131072",
            "--wal_bytes_per_sync=65536",
            "--bytes_per_sync=65536",
            "--use_direct_io_for_flush_and_compaction=true",
            "--use_direct_reads=true",
        ],
    );
    assert!(out.contains("found"), "{out}");
}

#[test]
fn a_database_is_there_when_the_next_program_opens_the_drive() {
    let drive = Drive::with_keys(200);
    let listed = scan(&drive.url(), "/db");
    assert_eq!(listed.lines().count(), 200, "{listed}");
    assert!(listed.contains("key0199"), "{listed}");
}

#[test]
fn a_checkpoint_and_a_backup_hold_what_the_database_holds() {
    let drive = Drive::with_keys(100);
    let url = drive.url();
    run_successfully(Program::Ldb, &url, &["checkpoint", "--checkpoint_dir=/copy"]);
    let whole = scan(&url, "/db");
    assert_eq!(scan(&url, "/copy"), whole);

    // The database's file system and the backup's have one URI, and RocksDB opens the URI twice.
    let uri = format!("--backup_fs_uri=furrow://{url}");
    run_successfully(Program::Ldb, &url, &["backup", &uri, "--backup_dir=/backup"]);
    run_successfully(Program::Ldb, &url, &["--db=/restored", "restore", &uri, "--backup_dir=/backup"]);
    assert_eq!(scan(&url, "/restored"), whole);
}

#[test]
fn sst_dump_verifies_the_tables_of_the_drive() {
    let drive = Drive::with_keys(100);
    run_successfully(Program::Ldb, &drive.url(), &["compact"]);
    let out = run_successfully(Program::SstDump, &drive.url(), &["--file=/db", "--command=verify"]);
    assert!(out.contains(".sst"), "{out}");
    assert!(!out.contains("Corruption"), "{out}");
}

#[test]
fn a_full_drive_fails_the_writer_still_reads_and_takes_writes_after_a_delete() {
    let drive = Drive::new();
    let url = format!("emu:{}?zones=24&zone-size=1MiB", drive.file().display());
    let fill = |num: &str| {
        let small =
            ["--write_buffer_size=524288", "--target_file_size_base=524288", "--compression_type=none"];
        let args = ["--benchmarks=fillrandom", "--value_size=400", "--max_bytes_for_level_base=2097152", num];
        run_to_end(command(Program::DbBench, &url, &[&args[..], &small].concat()))
    };
    let output = fill("--num=200000");
    assert!(!output.status.success(), "80 MB do not fit 24 MiB");
    assert!(output_text(&output).contains("No space left on device"), "{}", output_text(&output));
    assert!(run_successfully(Program::Ldb, &url, &["scan", "--no_value"]).lines().count() > 1000);
    // db_bench deletes an existing database before it fills a new one.
    let output = fill("--num=5000");
    assert!(output.status.success(), "{}", output_text(&output));
}

#[test]
fn the_second_process_on_a_drive_is_told_who_holds_it() {
    let drive = Drive::new();
    let mut holder = spawn_writer(&drive);
    // Wait for writes, because a process that writes has locked the drive file. Before that the second process could
    // lock it first.
    wait_for(|| allocated_bytes(&drive) > 1 << 20);
    let mut output = None;
    wait_for(|| {
        output = Some(run(Program::Ldb, &drive.url(), &["list_column_families"]));
        output.as_ref().is_some_and(|o| output_text(o).contains(&holder.id().to_string()))
    });
    let output = output.unwrap();
    assert!(!output.status.success());
    assert!(output_text(&output).contains("furrow: "), "{}", output_text(&output));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_killed_process_leaves_no_lock_and_no_damage() {
    let drive = Drive::with_keys(50);
    let before = allocated_bytes(&drive);
    let mut holder = spawn_writer(&drive);
    // Several memtables are written before the kill, so the log, the tables and the manifest exist.
    wait_for(|| allocated_bytes(&drive) > before + (4 << 20));
    assert!(holder.try_wait().unwrap().is_none(), "it writes until it is killed");
    holder.kill().unwrap();
    holder.wait().unwrap();

    let url = drive.url();
    let place = "--db=/bench";
    let keys = run_successfully(Program::Ldb, &url, &[place, "scan", "--no_value"]).lines().count();
    assert!(keys > 100, "{keys} keys of the killed database");
    run_successfully(Program::Ldb, &url, &[place, "checkconsistency"]);
    let out = run_successfully(
        Program::DbBench,
        &url,
        &[place, "--use_existing_db=1", "--benchmarks=verifychecksum"],
    );
    assert!(!out.contains("Corruption"), "{out}");
    run_successfully(Program::Ldb, &url, &[place, "put", "after", "the kill"]);
    assert!(run_successfully(Program::Ldb, &url, &[place, "get", "after"]).contains("the kill"));
    let listed = scan(&url, "/db");
    assert_eq!(listed.lines().filter(|line| line.starts_with("key")).count(), 50, "{listed}");
}

#[test]
fn the_text_log_goes_to_the_host_if_requested() {
    let drive = Drive::new();
    let log_dir = drive.path().join("logs");
    std::fs::create_dir(&log_dir).unwrap();
    let with_log = StockOptions { log_dir: Some(log_dir.clone()), ..stock_options() };
    let args = os(&["--create_if_missing", "put", "a", "b"]);
    let output = prepare(Program::Ldb, &drive.url(), &args, &with_log).unwrap().output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let log = std::fs::read_to_string(log_dir.join("db_LOG")).unwrap();
    assert!(log.contains("RocksDB version"), "{log}");

    let nowhere = StockOptions { log_dir: Some(drive.path().join("absent")), ..stock_options() };
    let refused = prepare(Program::Ldb, &drive.url(), &args, &nowhere).unwrap_err().to_string();
    assert!(refused.contains("FURROW_LOG_DIR") && refused.contains("absent"), "{refused}");
}

#[test]
fn what_an_array_wrote_is_counted_where_asked_and_a_drive_alone_is_refused() {
    let drive = Drive::new();
    let file = drive.path().join("counters");
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let url = |n| format!("emu:{}?zones=32&zone-size=4MiB", drive.path().join(format!("{n}.img")).display());
    let urls: Vec<String> = (0..3).map(url).collect();
    let made: Vec<_> =
        urls.iter().map(|url| zoned::open_or_create(url, Arc::clone(&driver)).unwrap()).collect();
    block_on(&*driver, array::create(&made, &array::CreateOptions::default())).unwrap();
    drop(made);
    let put = |url: &str| {
        let mut command = command(Program::Ldb, url, &["--create_if_missing", "put", "a", "b"]);
        command.env("FURROW_COUNTERS", &file).output().unwrap()
    };
    let array = format!("array:{}", urls.join(","));
    for mounts in 1..=2 {
        let output = put(&array);
        assert!(output.status.success(), "{}", output_text(&output));
        let lines = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            lines.lines().filter(|line| line.starts_with("{\"data_bytes\":")).count(),
            mounts,
            "{lines}"
        );
        assert!(!lines.contains("\"data_bytes\":0,"), "{lines}");
    }
    let output = put(&drive.url());
    assert!(
        !output.status.success() && output_text(&output).contains("FURROW_COUNTERS"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn a_wrong_device_is_named_with_what_is_wrong() {
    let output = run(Program::DbBench, "emu:mem?zoness=4", &["--benchmarks=fillseq", "--num=1"]);
    assert!(!output.status.success());
    let said = output_text(&output);
    assert!(said.contains("zoness") && said.contains("zone-size"), "{said}");
}

#[test]
fn a_plug_in_that_does_not_load_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("libfurrow_rocksdb.so");
    std::fs::write(&broken, "not a library").unwrap();
    let with_broken = StockOptions { plugin: Some(broken), ..stock_options() };
    let error = prepare(Program::Ldb, "emu:mem", &[], &with_broken).unwrap_err().to_string();
    assert!(error.contains("did not load the library"), "{error}");

    let missing = StockOptions { plugin: Some(dir.path().join("no.so")), ..stock_options() };
    let error = prepare(Program::Ldb, "emu:mem", &[], &missing).unwrap_err().to_string();
    assert!(error.contains("no.so"), "{error}");
}

#[test]
fn a_library_that_never_announces_itself_is_not_taken_for_the_plug_in() {
    let ldd = Command::new("ldd").arg(std::env::current_exe().unwrap()).output().unwrap();
    let listed = String::from_utf8(ldd.stdout).unwrap();
    let libc = listed.lines().find_map(|line| line.split_once("libc.so.6 => ")).unwrap().1;
    let other = PathBuf::from(libc.split(' ').next().unwrap());
    let with_other = StockOptions { plugin: Some(other), ..stock_options() };
    let error = prepare(Program::DbBench, "emu:mem", &[], &with_other).unwrap_err().to_string();
    assert!(error.contains("did not load the library"), "{error}");
}

/// Starts a db_bench that writes until it is killed.
fn spawn_writer(drive: &Drive) -> Child {
    let args = ["--benchmarks=overwrite", "--num=1000000", "--duration=300", "--sync=1", "--value_size=1000"];
    let place = ["--write_buffer_size=262144", "--db=/bench"];
    command(Program::DbBench, &drive.url(), &[&args[..], &place].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Allocated bytes of the emulated drive's file, which is sparse.
fn allocated_bytes(drive: &Drive) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(drive.file()).map_or(0, |file| file.blocks() * 512)
}

fn wait_for(mut done: impl FnMut() -> bool) {
    for _ in 0..2400 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited for 120 s in vain");
}
