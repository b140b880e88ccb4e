//! `furrow prio`: arguments that make no sense, and programs as a whole. `crates/hook/tests` has the library.

use crate::common::{done, json, refused, run};

fn prio_run(args: &[&str]) -> std::process::Output {
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
    refused(&run(None, &["prio", "check", "/no/such/directory"]), 2, &["is no directory"]);
}

#[test]
fn a_program_begins_with_the_signals_that_the_command_began_with() {
    let furrow = env!("CARGO_BIN_EXE_furrow");
    let signals = |before: &str| {
        let text = format!("{before} exec {furrow} prio run --whole idle -- grep SigIgn /proc/self/status");
        let output = std::process::Command::new("sh").args(["-c", &text]).output().unwrap();
        u64::from_str_radix(done(&output).trim().rsplit('\t').next().unwrap(), 16).unwrap() >> 12 & 1
    };
    assert_eq!([signals("trap '' PIPE;"), signals("")], [1, 0]);
}

#[test]
fn a_file_in_path_that_may_not_be_executed_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("true"), "").unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_furrow"));
    command.args(["prio", "run", "--whole", "idle", "--", "true"]).env("PATH", path);
    done(&command.output().unwrap());
}
