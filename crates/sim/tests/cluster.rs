//! Simulated clusters of whole nodes.

use sim::{ClusterRules, explore_cluster};

#[test]
fn clusters_lose_nothing_and_a_seed_repeats_them() {
    let explore = || explore_cluster(1, 0, 60, ClusterRules::default(), false);
    let report = explore();
    assert_eq!(report.failed(), 0, "{report:#?}");
    assert!(report.least_operations >= 300 && report.least_faults >= 8, "{report:#?}");
    let counts = report.counts;
    assert!(counts.power_cuts > 200 && counts.drives_lost > 10 && counts.drive_errors > 20, "{report:#?}");
    assert!(counts.pairs > 2_000 && counts.counts > 1_000 && counts.groups > 80, "{report:#?}");
    assert!(counts.full > 20 && counts.retired > 1_000 && counts.table_parts > 200, "{report:#?}");
    assert!(counts.tables_behind > 200 && counts.slow_drives > 20, "{report:#?}");
    assert!(counts.plans > 80 && counts.joined > 80 && counts.deleted > 50, "{report:#?}");
    assert!(counts.drains > 20 && counts.etcd_outages > 20 && counts.etcd_restores > 5, "{report:#?}");
    assert_eq!(report, explore());
}
