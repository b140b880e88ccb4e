//! Simulated clusters: whole groups, and broken rules that the judge finds.

use sim::{ClusterRules, explore_cluster};

#[test]
fn clusters_lose_nothing_and_a_seed_repeats_them() {
    let explore = || explore_cluster(1, 0, 60, ClusterRules::default(), false);
    let report = explore();
    assert_eq!(report.failed(), 0, "{report:#?}");
    let counts = report.counts;
    println!("{report:#?}");
    assert!(counts.operations > 10_000 && counts.power_cuts > 200 && counts.drives_lost > 20, "{report:#?}");
    assert_eq!(report, explore());
}
