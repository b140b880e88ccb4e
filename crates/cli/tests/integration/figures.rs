//! Tests of `furrow figures`: the files that it writes, and the figures measured after one that failed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn furrow(args: &[&str], plugin: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_furrow"), "figures"]).args(args).stdin(Stdio::null());
    command.env("FURROW_PLUGIN", plugin);
    command.output().expect("timeout comes with coreutils")
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("the file is there")).expect("it is JSON")
}

#[test]
fn a_figure_that_fails_is_named_and_the_others_are_written() {
    let out = TempDir::new().expect("a directory");
    let made = out.path().join("not/there/yet");
    let args = ["zwal", "--quick", "--only", "fig4,fig2", "--out", made.to_str().expect("text")];
    let output = furrow(&args, "/no/such/plugin.so");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("zwal-fig4") && said.contains("/no/such/plugin.so"), "{said}");
    assert!(!said.contains("zwal-fig2"), "{said}");
    let rows = json(&made.join("zwal-fig2.json"));
    assert_eq!((rows["quick"].as_bool(), rows["rows"].as_array().map(Vec::len)), (Some(true), Some(5 + 8)));
    assert!(rows["host"]["processor"].is_string() && rows["date"].is_string());
    for file in ["zwal-fig2.csv", "zwal-fig2.svg"] {
        assert!(made.join(file).is_file(), "{file}");
    }
    assert!(!made.join("zwal-fig4.json").exists());
}

#[test]
fn db_bench_on_arrays_without_the_plug_in_is_a_clear_error_and_leaves_no_drives_behind() {
    let output = furrow(&["raizn", "--quick", "--only", "fig13"], "/no/such/plugin.so");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("raizn-fig13") && said.contains("/no/such/plugin.so"), "{said}");
    let named = said.split("emu:").nth(1).and_then(|rest| rest.split('?').next()).expect("the drive");
    assert!(named.contains("/furrow-fig13-") && !Path::new(named).exists(), "{named}");
}

#[test]
fn an_unknown_figure_is_a_usage_error_that_lists_the_figures() {
    let output = furrow(&["zwal", "--only", "fig9"], "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("'fig9'") && said.contains("zwal-fig2"), "{said}");
}

#[test]
fn with_json_all_rows_are_in_one_object() {
    let output = furrow(&["zwal", "--quick", "--only", "fig2", "--json"], "");
    assert!(output.status.success() && output.stderr.is_empty());
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = &all["rows"][0];
    assert_eq!((row["figure"].as_str(), row["better"].as_str()), (Some("fig2a"), Some("higher")));
    assert!(row["note"].as_str().is_some_and(|note| note.contains("quick")), "{row}");
}

#[test]
fn too_few_records_and_runs_of_the_buffered_figures_are_usage_errors() {
    for (args, said) in [(["--records", "79999"], "80000"), (["--runs", "0"], "1..=99")] {
        let output = furrow(&[&["buffered"], &args[..]].concat(), "");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
    let unknown = furrow(&["buffered", "--only", "fig2"], "");
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(2) && text.contains("buffered-fig4, buffered-fig5"), "{text}");
}
