//! Runs the layering test on this workspace.

use xtask::layering;
use xtask::metadata::Workspace;

#[test]
fn dependencies_of_this_workspace_point_down() {
    let problems = layering::check(&Workspace::load().unwrap()).unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
