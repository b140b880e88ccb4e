//! The `furrow` program: `furrow NOUN VERB`.
//!
//! docs/cli.md lists the commands and the exit codes.
#![forbid(unsafe_code)]

mod args;
mod array;
mod bench;
mod context;
mod crash;
mod demo;
mod device;
mod device_bench;
mod device_list;
mod erase;
mod exit;
mod figures;
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
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && asks_for_json() {
            let text = error.to_string();
            output::failure(text.lines().next().unwrap_or_default().trim_start_matches("error: "));
        }
        error.exit()
    });
    start_logging(match cli.command {
        Command::Serve(_) => "info",
        // Thousands of mounts after power cuts, of drives that fail as they are told to: what counts is in the report.
        Command::Crash(_) => "off",
        _ => "warn",
    });
    zoned::know_arrays(::array::url::open);
    let context = Context::new(cli.json);
    // These print what is not theirs to change.
    let is_own = !matches!(
        cli.command,
        Command::Serve(_) | Command::DbBench(_) | Command::Ldb(_) | Command::SstDump(_)
    );
    let result = match cli.command {
        Command::Serve(args) => serve::run(&context, args),
        Command::Fs(args) => fs::run(&context, args),
        Command::Device(args) => device::run(&context, args),
        Command::Array(args) => array::run(&context, args),
        Command::Bench(args) => bench::run(&context, args),
        Command::Zones(args) => zones::run(&context, &args),
        Command::DbBench(args) => stock::run(&context, stock::Program::DbBench, &args),
        Command::Ldb(args) => stock::run(&context, stock::Program::Ldb, &args),
        Command::SstDump(args) => stock::run(&context, stock::Program::SstDump, &args),
        Command::Crash(args) => crash::run(&context, args),
        Command::Figures(args) => figures::run(&context, &args),
        Command::Demo(args) => demo::run(&context, &args),
        Command::DemoArray(args) => demo::array::run(&context, &args),
    };
    match result {
        Ok(code) => code,
        Err(error) if exit::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let message = exit::message(&error);
            if context.json && is_own {
                output::failure(&message);
            }
            eprintln!("furrow: {message}");
            exit::code(&error).into()
        }
    }
}

/// Whether `--json` is there, on a command line that was not understood.
fn asks_for_json() -> bool {
    std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Sends the log to stderr, from `level` on; `FURROW_LOG` says otherwise.
fn start_logging(level: &str) {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;

    let filter = EnvFilter::try_from_env("FURROW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
