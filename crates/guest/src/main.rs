//! What runs in the guest: as process 1 its init, else the test that the command line names.
#![forbid(unsafe_code)]

mod clock;
mod devices;
mod init;
mod network;
mod null_blk;
mod nvmet;
mod ports;
mod text;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run();
    }
    eprintln!("furrow-guest is the init of a guest: cargo xtask guest --help");
    ExitCode::from(2)
}
