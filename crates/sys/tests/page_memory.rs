//! The memory that freed pages take, in a process of its own.

use std::sync::Arc;

use sys::{Page, PageMemory};

/// The resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}

#[test]
fn memory_of_freed_pages_returns_to_the_kernel() {
    let memory = PageMemory::new(4096, 64);
    let before = resident();
    for _ in 0..8 {
        let m = Arc::clone(&memory);
        let take = move || (0..16_384).map(|_| m.page(&[7; 4096])).collect::<Vec<Page>>();
        let taken = std::thread::scope(|scope| scope.spawn(take).join().expect("taken"));
        assert!(resident() > before + (60 << 20), "64 MiB are in use");
        // Every other page is freed first: no slab is ever free as a whole.
        let free = move || drop(taken.into_iter().step_by(2).collect::<Vec<Page>>());
        std::thread::scope(|scope| scope.spawn(free).join().expect("freed"));
        assert!(resident() < before + (8 << 20), "{} after {before} bytes", resident());
    }
}
