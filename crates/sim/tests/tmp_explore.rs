use sim::{ClusterRules, explore_cluster};
#[test]
fn explore() {
    let n = |k: &str, d: u64| std::env::var(k).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
    let start = std::time::Instant::now();
    let r = explore_cluster(n("SEED", 1), n("FROM", 0), n("RUNS", 100), ClusterRules::default(), false);
    println!("{r:#?} {:?}", start.elapsed());
}
