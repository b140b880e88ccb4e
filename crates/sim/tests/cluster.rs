//! Simulated clusters: whole groups, and broken rules that the judge finds.

use sim::{ClusterRules, explore_cluster};

#[test]
fn clusters_lose_nothing_and_a_seed_repeats_them() {
    let explore = || explore_cluster(1, 0, 60, ClusterRules::default(), false);
    let report = explore();
    assert_eq!(report.failed(), 0, "{report:#?}");
    assert!(report.operations > 10_000 && report.power_cuts > 200 && report.drives_lost > 20, "{report:#?}");
    assert_eq!(report, explore());
}
