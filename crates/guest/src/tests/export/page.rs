//! The commands of docs/export.md, as a reader runs them.

use anyhow::{Context, Result, ensure};

use super::super::exported::LIMIT;
use crate::checks::Checks;
use crate::shell;

const PAGE: &str = include_str!("../../../../../docs/export.md");
/// Directory of the drives' files.
const DIRECTORY: &str = "/tmp/page";

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check("the commands of the page on exports work", LIMIT, |_| commands())
}

fn commands() -> Result<()> {
    let commands = PAGE.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("```"));
    let (commands, _) = commands.context("the page has no commands")?;
    std::fs::create_dir_all(DIRECTORY)?;
    std::fs::create_dir_all("/mnt")?;
    let said = shell::run_successfully(&["sh", "-exc", &format!("cd {DIRECTORY}\n{commands}")], LIMIT)?;
    ensure!(said.contains("no errors found"), "btrfs scrub: {said}");
    ensure!(said.contains("passwd"), "without a drive the files are not listed: {said}");
    Ok(())
}
