//! `furrow prio`: arguments that make no sense, globs without a file, programs as a whole, runs that are joined, and the trial. `crates/hook/tests` has the library.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use units::{Driver, block_on, sleep_until};

use crate::common::{done, json, library_folder, refused, run, stderr_of};

fn prio_run(args: &[&str]) -> Output {
    run(None, &[&["prio", "run"][..], args].concat())
}

#[test]
fn arguments_that_make_no_sense_are_refused_in_words() {
    refused(&prio_run(&["--log", "*.log"]), 2, &["no command"]);
    refused(&prio_run(&["--log", "*.log", "--", ""]), 2, &["the command is empty"]);
    refused(&prio_run(&["--log", "*.log", "--", "no-such-program"]), 2, &["no-such-program is not found"]);
    refused(&prio_run(&["--", "true"]), 2, &["no file has a class", "--profile"]);
    refused(
        &prio_run(&["--log", "a", "--bulk", "a", "--", "true"]),
        2,
        &["\"a\" is given for logs and for bulk"],
    );
    refused(&prio_run(&["--log", "a[", "--", "true"]), 2, &["without ']'"]);
    refused(&prio_run(&["--profile", "mysql", "--", "true"]), 2, &["no profile \"mysql\"", "postgres"]);
}

/// `furrow prio run` in a folder, with its pages there.
fn prio_run_in(folder: &Path, args: &[&str]) -> Command {
    library_folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_furrow"));
    command.args(["prio", "run", "--counters", "counters"]).args(args);
    command.current_dir(folder).env("FURROW_PRIO_DIR", folder.join("pages")).stdin(Stdio::null());
    command
}

/// The counters of the processes that ended, in this order.
fn counters(folder: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(folder.join("counters")).expect("the counters' file");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn warnings(output: &Output) -> Vec<String> {
    let lines = stderr_of(output);
    lines.lines().filter(|line| line.starts_with("furrow prio: no file")).map(str::to_owned).collect()
}

/// The first process, a shell, has children that use the files.
const WRITES_LOG_AND_BULK: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "for file in a.log a.bulk; do dd if=/dev/zero of=$file bs=512 count=1 conv=fsync status=none; done; true",
];

#[test]
fn a_glob_that_matched_no_file_of_any_process_is_named_at_the_end() {
    for join in [&[][..], &["--join"]] {
        let folder = tempfile::tempdir().unwrap();
        let globs = ["--log", "*.log", "--log", "wal/*", "--bulk", "a.bulk", "--bulk", "*.\"sst\""];
        let output =
            prio_run_in(folder.path(), &[join, &globs, &WRITES_LOG_AND_BULK].concat()).output().unwrap();
        done(&output);
        let expected = ["--log \"wal/*\"", "--bulk \"*.\\\"sst\\\"\""];
        assert_eq!(warnings(&output), expected.map(|glob| format!("furrow prio: no file matched {glob}")));
        let counters = counters(folder.path());
        let unmatched = counters.iter().map(|line| line["unmatched_globs"].to_string()).collect::<Vec<_>>();
        // The first child used the log, the second one the bulk file; the shell itself ends last.
        let rest = r#"{"bulk":["*.\"sst\""],"log":["wal/*"]}"#;
        assert_eq!(unmatched, [r#"{"bulk":["a.bulk","*.\"sst\""],"log":["wal/*"]}"#, rest, rest]);
    }
}

#[test]
fn of_a_profile_that_matched_no_file_the_classes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        prio_run_in(folder.path(), &["--profile", "rocksdb", "--", "sh", "-c", "true"]).output().unwrap();
    done(&output);
    let class = |class| format!("furrow prio: no file matched a {class} glob of the profile rocksdb");
    assert_eq!(warnings(&output), ["log", "bulk"].map(class));
    let folder = tempfile::tempdir().unwrap();
    let args = [&["--profile", "rocksdb", "--bulk", "*.bulk"][..], &WRITES_LOG_AND_BULK].concat();
    let output = prio_run_in(folder.path(), &args).output().unwrap();
    // MANIFEST-* and *.blob are not named: one file of a class is enough.
    assert_eq!(warnings(&output), [class("bulk")]);
}

/// Nanoseconds for which the bulk of a run was held beside another run's log.
fn held_beside_log_of_another_run(join: &[&str]) -> u64 {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let load = |class: &str, what: &str, file: &str, time: &str| {
        let program = env!("CARGO_BIN_EXE_furrow");
        let load = [class, file, "--", program, "prio", "load", what, file, "--time", time];
        prio_run_in(folder.path(), &[join, &load].concat())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program")
    };
    let mut log = load("--log", "log", "a.log", "4s");
    let driver = units::RealDriver::new();
    let until = driver.now().after(Duration::from_secs(30));
    while std::fs::metadata(folder.path().join("a.log")).map_or(0, |log| log.len()) == 0 {
        assert!(driver.now() < until, "the log does not begin");
        block_on(&*driver, sleep_until(&*driver, driver.now().after(Duration::from_millis(5))));
    }
    let mut bulk = load("--bulk", "bulk", "a.bulk", "1500ms");
    for run in [&mut log, &mut bulk] {
        assert!(run.wait().expect("ends").success());
    }
    let counters = counters(folder.path());
    assert_eq!(counters.len(), 2, "{counters:?}");
    let sum = |class: &str, name: &str| {
        counters
            .iter()
            .map(|line| line.pointer(&format!("/{class}/{name}")).and_then(Value::as_u64).expect("a counter"))
            .sum::<u64>()
    };
    assert!(sum("log", "syncs") > 0 && sum("bulk", "bytes") > 0, "{counters:?}");
    sum("bulk", "held_ns")
}

#[test]
fn bulk_of_one_run_makes_way_for_the_log_of_another_if_both_are_joined() {
    let joined = held_beside_log_of_another_run(&["--join"]);
    assert!(joined > 0, "rests alone are two of 10 ms");
    // A run without a log in its page holds nothing.
    assert_eq!(held_beside_log_of_another_run(&[]), 0);
}

#[test]
fn a_trial_measures_the_log_alone_beside_bulk_and_with_priorities() {
    library_folder();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().to_str().unwrap();
    let output = run(None, &["--json", "prio", "check", "--trial", "3s", path]);
    let trial = json(&done(&output))["trial"].clone();
    let rows = trial.as_array().unwrap();
    let parts: Vec<&str> = rows.iter().map(|row| row["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["alone", "beside bulk", "beside bulk, prio run"]);
    for row in rows {
        // Beside bulk a write may take longer than a short trial.
        assert!(row["log"]["per_second"].as_f64().unwrap() >= 0.0, "{trial}");
        if row["part"] == "alone" {
            assert!(row["log"]["mean_us"].as_f64().unwrap() > 0.0, "{trial}");
        }
        let bulk = row["bulk_bytes_per_second"].as_f64().unwrap();
        assert_eq!(bulk > 0.0, row["part"] != "alone", "{trial}");
    }
    assert_eq!(stderr_of(&output), "");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the trial's files are left");
    refused(&run(None, &["prio", "check", "--trial", "1s", path]), 2, &["--trial is at least 3s"]);
}

#[test]
fn a_program_as_a_whole_has_its_class_from_the_start() {
    // The shell's child inherits the priority.
    let output = prio_run(&["--whole", "idle", "--", "sh", "-c", "ionice"]);
    assert_eq!(done(&output).trim(), "idle");
}

#[test]
fn what_priorities_do_is_shown_for_a_directory() {
    let facts = json(&done(&run(None, &["--json", "prio", "check", "--no-trial", "/"])));
    assert!(facts["facts"]["priorities"].is_string(), "{facts}");
    let of_a_file = json(&done(&run(None, &["--json", "prio", "check", "--no-trial", "/etc/passwd"])));
    assert!(of_a_file["facts"]["priorities"].is_string(), "{of_a_file}");
    refused(&run(None, &["prio", "check", "/no/such/directory"]), 2, &["is no directory"]);
}

#[test]
fn a_program_begins_with_the_signals_that_the_command_began_with() {
    let furrow = env!("CARGO_BIN_EXE_furrow");
    let signals = |before: &str| {
        let text = format!("{before} exec {furrow} prio run --whole idle -- grep SigIgn /proc/self/status");
        let output = Command::new("sh").args(["-c", &text]).output().unwrap();
        u64::from_str_radix(done(&output).trim().rsplit('\t').next().unwrap(), 16).unwrap() >> 12 & 1
    };
    assert_eq!([signals("trap '' PIPE;"), signals("")], [1, 0]);
}

#[test]
fn a_file_in_path_that_may_not_be_executed_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("true"), "").unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_furrow"));
    command.args(["prio", "run", "--whole", "idle", "--", "true"]).env("PATH", path);
    done(&command.output().unwrap());
}
