//! `cargo bench -p furrow-bench --bench contract [-- --json]`: what the device contract costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use bench::contract::measure;

/// The system's allocator, with a count of its allocations.
struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged, which keeps the trait's promises.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the conditions of `GlobalAlloc::alloc`, which are those of the system allocator's `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from this allocator's `alloc`, hence from the system's allocator, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn main() {
    let rounds = if cfg!(debug_assertions) { 3 } else { 101 };
    let host = bench::Host::here();
    let n = measure(rounds, &|| ALLOCATIONS.load(Ordering::Relaxed));
    if std::env::args().any(|arg| arg == "--json") {
        println!("{}", serde_json::json!({ "host": host, "rounds": rounds, "contract": n }));
        return;
    }
    println!("device contract on emu:mem without delay; median of {rounds} rounds of 4096 operations");
    println!(
        "{}, {} cores{}",
        host.processor,
        host.cores,
        if host.optimised { "" } else { ", NOT OPTIMISED" }
    );
    let rows = [
        ("4 KiB copied", format!("{:8.0} ns", n.copy_ns), format!("{:.0} k/s", 1e6 / n.copy_ns)),
        ("4 KiB appended", format!("{:8.0} ns", n.append_ns), format!("{:.0} k/s", 1e6 / n.append_ns)),
        ("4 KiB written", format!("{:8.0} ns", n.write_ns), format!("{:.0} k/s", 1e6 / n.write_ns)),
        ("4 KiB read", format!("{:8.0} ns", n.read_ns), format!("{:.0} k/s", 1e6 / n.read_ns)),
        ("appends at the rate of copies", format!("{:8.2}", n.append_rate), "goal 0.80".into()),
        ("an append without its copy", format!("{:8.0} ns", n.overhead_ns), "goal below 1000".into()),
        ("512 B appended: hardly a copy", format!("{:8.0} ns", n.small_append_ns), "goal 100".into()),
        ("a flush with nothing to do", format!("{:8.0} ns", n.flush_ns), String::new()),
        (
            "a scheduler: a log's append, more",
            format!("{:8.0} ns", n.scheduler_ns[0]),
            "goal below 100".into(),
        ),
        ("a scheduler: a flush's, more", format!("{:8.0} ns", n.scheduler_ns[1]), "goal below 100".into()),
        ("allocations per append", format!("{:8.3}", n.append_allocations), String::new()),
        ("allocations per read", format!("{:8.3}", n.read_allocations), String::new()),
        ("two threads over one", format!("{:8.2}", n.two_threads), String::new()),
    ];
    for (what, value, note) in rows {
        println!("  {what:<32}{value:<14}{note}");
    }
}
