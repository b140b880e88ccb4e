//! Tests of the shell functions that parse the output of programs.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a function of `scripts/compare.sh` over a text; gives its output and whether it succeeded.
fn run_script_function(name: &str, input: &str) -> (String, bool) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/compare.sh");
    let source = std::fs::read_to_string(script).expect("the script");
    let text = source.split(&format!("\n{name}()")).nth(1).expect("the function");
    let text = text.split("\n}").next().expect("its end");
    let mut bash = Command::new("bash")
        .args(["-c", &format!("{name}(){text}\n}}\n{name}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    bash.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    let output = bash.wait_with_output().expect("ended");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

#[test]
fn only_the_benchmarks_lines_of_db_bench_are_figures() {
    let output = "Keys:       16 bytes each\n\
                  Write rate: 0 bytes/second\n\
                  Read rate: 0 ops/second\n\
                  fillrandom   :       2.000 micros/op 500000 ops/sec 1.000 seconds 500000 operations;   55.3 MB/s\n\
                  readrandom   :       1.000 micros/op 1000000 ops/sec 1.000 seconds 1000000 operations; (1 of 1 found)\n";
    let (figures, good) = run_script_function("db_bench_figures", output);
    assert_eq!((figures.as_str(), good), ("fillrandom 500000\nreadrandom 1000000\n", true));
    let one = output.replace("readrandom", "#").lines().take(4).collect::<Vec<_>>().join("\n");
    assert!(!run_script_function("db_bench_figures", &one).1, "one benchmark is missing");
}
