//! Simulated clusters: whole groups, and broken rules that the judge finds.

use sim::{ClusterReport, ClusterRules, explore_cluster};

fn explore(seed: u64, first: u64, runs: u64) -> ClusterReport {
    explore_cluster(seed, first, runs, ClusterRules::default(), false)
}

#[test]
fn clusters_lose_nothing_and_a_seed_repeats_them() {
    let env = |name: &str, or: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let start = std::time::Instant::now();
    let report = explore(env("SEED", 1), env("FROM", 0), env("RUNS", 20));
    println!("{report:#?} {:?}", start.elapsed());
    assert_eq!(report.failed(), 0);
}
