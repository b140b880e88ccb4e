//! Simulated runs, by number, on all processors.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `run` with each number from `first` on, `runs` times, on all processors, until `is_over`.
pub(crate) fn on_all_processors(
    first: u64,
    runs: u64,
    is_over: &(dyn Fn() -> bool + Sync),
    run: &(dyn Fn(u64) + Sync),
) {
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first.saturating_add(runs) || is_over() {
                        return;
                    }
                    run(number);
                }
            });
        }
    });
}
