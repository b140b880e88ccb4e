//! The writer process of logs in files (`prio::How::Process`). A program starts it with a socket as standard input, and sends the log's file through it. With the capability
//! `cap_sys_nice` on its file (`setcap cap_sys_nice+ep furrow-prio-writer`) the log's writes are real-time requests, whatever the program may do itself.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    let served = || prio::serve(std::io::stdin().as_fd().try_clone_to_owned()?);
    match served() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("furrow-prio-writer: {error}: programs start it themselves, with a log of how=process");
            ExitCode::FAILURE
        }
    }
}
