//! `cargo xtask CHORE`
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xtask::layering;
use xtask::metadata::Workspace;

const USAGE: &str = "usage: cargo xtask layering\n\n  layering   checks which crate uses which, where unsafe code may live, who may use tokio";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("layering") => run_layering(),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_layering() -> ExitCode {
    let found = Workspace::load()
        .and_then(|workspace| layering::check(&workspace).map(|problems| (workspace.crates.len(), problems)));
    match found {
        Ok((crates, problems)) if problems.is_empty() => {
            println!("layering: {crates} crates, every dependency points down");
            ExitCode::SUCCESS
        }
        Ok((_, problems)) => {
            for problem in &problems {
                eprintln!("layering: {problem}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
