//! The layering test: crates depend downwards only, and so do the modules of each crate.
//!
//! [`crates`] compares cargo's dependency graph with the table that ARCHITECTURE.md draws. [`modules`] reads the
//! sources of each crate and refuses files that import each other in a circle.

pub mod crates;
mod imports;
pub mod modules;
mod report;

use anyhow::Result;

use crate::metadata::Workspace;
pub use report::Report;

/// Checks the crates, then the modules of each crate.
pub fn check(workspace: &Workspace) -> Result<Report> {
    let mut report = modules::check(workspace, modules::KNOWN_CIRCLES)?;
    report.problems.extend(crates::check(workspace)?);
    Ok(report)
}
