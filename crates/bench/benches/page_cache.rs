//! A 4 KiB read that hits the page cache, beside the copy of a random page: `cargo bench -p furrow-bench --bench page_cache`.
#![allow(missing_docs, reason = "a benchmark")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fs::{CreateOptions, FormatOptions, Fs, MountOptions, Reader};
use units::{Blocks, Bytes, Driver, RealDriver, SplitMix64, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

const PAGE: usize = 4096;
/// Pages in the file, all of them in memory: more than a processor's caches hold.
const PAGES: u64 = 64 << 10;
const ZONE_BLOCKS: Blocks = Blocks(16 << 10);

/// A mounted drive with a file of [`PAGES`] pages in memory, and the file's reader.
fn cached_file(driver: &Arc<dyn Driver>, content: &[u8]) -> (Fs, Reader) {
    let options = EmuOptions {
        zones: 16,
        zone_size: ZONE_BLOCKS,
        zone_capacity: ZONE_BLOCKS,
        track_power_cuts: false,
        ..EmuOptions::default()
    };
    let dev: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(driver));
    block_on(&**driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.expect("a new drive");
        let mount = MountOptions { cache: Bytes(2 * PAGES * PAGE as u64), ..MountOptions::default() };
        let fs = Fs::mount(dev, &mount).await.expect("formatted");
        let writer = fs.create("/file", &CreateOptions::default()).await.expect("a new name");
        writer.append(content).await.expect("room");
        writer.sync().await.expect("room");
        let reader = fs.open("/file").expect("the file exists");
        (fs, reader)
    })
}

fn page_cache(criterion: &mut Criterion) {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let content: Vec<u8> = (0..PAGES * PAGE as u64 / 8).flat_map(u64::to_le_bytes).collect();
    let (fs, reader) = cached_file(&driver, &content);
    let misses = fs.cache_stats().misses;
    let mut into = vec![0; PAGE];
    let mut random = SplitMix64::new(7);
    let mut page = || random.draw() % PAGES * PAGE as u64;
    let mut group = criterion.benchmark_group("4 KiB of a random page");
    group.throughput(Throughput::Elements(1));
    group.bench_function("copied", |b| {
        b.iter(|| {
            let at = page() as usize;
            black_box(&mut into).copy_from_slice(content.get(at..at + PAGE).expect("a page of the file"));
        });
    });
    group.bench_function("hit", |b| {
        b.iter(|| {
            let read = reader.read_at(Bytes(page()), black_box(&mut into));
            assert_eq!(block_on(&*driver, read).expect("readable"), PAGE);
        });
    });
    group.finish();
    assert_eq!(fs.cache_stats().misses, misses, "all reads hit");
}

criterion_group!(benches, page_cache);
criterion_main!(benches);
