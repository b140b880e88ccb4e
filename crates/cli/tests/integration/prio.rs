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
