//! The program in the guest: init if it is process 1, otherwise the test that the command line names.
#![forbid(unsafe_code)]

mod checks;
mod clock;
mod control;
mod devices;
mod init;
mod network;
mod null_blk;
mod nvmet;
mod ports;
mod shell;
mod tests;
mod text;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(done) = tests::run_program(&words) {
        return exit_code(done.map(|()| 0));
    }
    let [verb, name] = words.as_slice() else {
        eprintln!("furrow-guest is the init of a guest: cargo xtask guest --help");
        return ExitCode::from(2);
    };
    exit_code(tests::run(verb, name))
}

/// The exit code of a program of which so many tests failed.
fn exit_code(done: anyhow::Result<u32>) -> ExitCode {
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("furrow-guest: {why:#}");
            ExitCode::FAILURE
        }
    }
}
