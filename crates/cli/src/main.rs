//! The `furrow` program: `furrow NOUN VERB`.
//!
//! docs/cli.md lists the commands and the exit codes.
#![forbid(unsafe_code)]

mod args;
mod context;
mod crash;
mod demo;
mod device;
mod exit;
mod fs;
mod output;
mod progress;
mod serve;
mod size;
mod stock;
mod zones;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::context::Context;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(matches!(cli.command, Command::Serve(_)));
    let context = Context::new(cli.json);
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Fs(args) => fs::run(&context, args),
        Command::Device(args) => device::run(&context, args),
        Command::Zones(args) => zones::run(&context, &args),
        Command::DbBench(args) => stock::run(stock::Program::DbBench, &args),
        Command::Ldb(args) => stock::run(stock::Program::Ldb, &args),
        Command::SstDump(args) => stock::run(stock::Program::SstDump, &args),
        Command::Crash(args) => crash::run(&context, args),
        Command::Demo(args) => demo::run(&context, &args),
    };
    match result {
        Ok(code) => code,
        Err(error) if exit::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("furrow: {}", exit::message(&error));
            exit::code(&error).into()
        }
    }
}

/// Sends the log to stderr: warnings only, for the server its start and stop too; `FURROW_LOG` says otherwise.
fn start_logging(server: bool) {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;

    let default = if server { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("FURROW_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
