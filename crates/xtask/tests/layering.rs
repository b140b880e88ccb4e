//! The layering test on this workspace.

use xtask::layering;
use xtask::metadata::Workspace;

#[test]
fn dependencies_of_this_workspace_point_down() {
    let report = layering::check(&Workspace::load().unwrap()).unwrap();
    assert!(report.problems.is_empty(), "{}", report.problems.join("\n"));
}
