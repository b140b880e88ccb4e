//! Tests of an unmodified C program that is killed in the middle of synced writes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

mod common;
use common::{Drive, compile};

/// The number of acknowledged writes after which each run of the program is killed. The sum fills several memtables.
const WRITES: [usize; 5] = [1, 40, 120, 300, 77];

#[test]
fn what_was_acknowledged_is_there_after_each_kill() {
    let program = compile("gcc", "synced.c", "synced", &["-lleveldb"]);
    let drive = Drive::new();
    let mut acknowledged = 0;
    for writes in WRITES {
        let mut command = drive.program(&program);
        command.arg(drive.root().join("db")).arg(acknowledged.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = None;
        for line in lines.map(Result::unwrap).take(writes) {
            last = Some(line);
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        // A run that found something missing ends by itself, without a line.
        let last = last.unwrap_or_else(|| panic!("of {acknowledged} acknowledged: {status}"));
        acknowledged = last.parse::<u64>().unwrap() + 1;
    }
    assert_eq!(acknowledged, WRITES.iter().sum::<usize>() as u64);
    assert!(drive.host_is_empty());
}
