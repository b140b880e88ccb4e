//! The layering test: crates depend downwards only, and so do the modules of each crate.
//!
//! [`crates`] compares cargo's dependency graph with the table that ARCHITECTURE.md draws. [`modules`] reads the
//! sources of each crate and refuses files that import each other in a circle.

pub mod crates;
mod imports;
pub mod modules;

use anyhow::Result;

use crate::metadata::Workspace;

/// Checks the layering of the crates, then of the modules of each crate. Returns every broken rule as a
/// sentence.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = modules::check(workspace)?;
    problems.extend(crates::check(workspace)?);
    Ok(problems)
}
