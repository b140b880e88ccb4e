//! Tests of the page cache: what reads find in memory, and what they must not find there.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use fs::{AccessPattern, BrokenRule, Bytes, CacheMode, ErrorKind, FormatOptions, Fs, MountOptions};
use units::{Driver, RealDriver, SplitMix64, block_on, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Blocks, ZonedDevice};

use crate::common::{Counter, Drive, bytes, data, read, write};

const MIB: u64 = 1 << 20;

/// Seeded numbers below a limit.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.draw() % limit
    }
}

fn options(cache: u64) -> MountOptions {
    MountOptions { cache: Bytes(cache), write_buffer: 16 << 10, ..MountOptions::default() }
}

fn drive(block_size: u32) -> Drive {
    let blocks = (MIB / 4 / u64::from(block_size)).max(16);
    Drive::new(EmuOptions {
        name: "emu:cache".into(),
        block_size,
        zones: 80,
        zone_size: Blocks(blocks),
        zone_capacity: Blocks(blocks),
        latency: Latency::all(std::time::Duration::from_micros(50)),
        ..EmuOptions::default()
    })
}

fn mounted(drive: &Drive, options: &MountOptions) -> (Arc<Counter>, Fs) {
    drive.format();
    let counter = Counter::over(drive);
    let dev: Arc<dyn ZonedDevice> = counter.clone();
    let fs = drive.run(Fs::mount(dev, options)).expect("mounts");
    counter.take();
    (counter, fs)
}

/// A mount with an empty page cache of 8 MiB, of a drive with the file `/data`.
fn mounted_with_file(drive: &Drive, content: &[u8]) -> (Arc<Counter>, Fs) {
    let (counter, fs) = mounted(drive, &MountOptions { write_buffer: 1 << 20, ..options(8 * MIB) });
    drive.run(async {
        write(&fs, "/data", content).await.unwrap();
        fs.unmount().await.unwrap();
    });
    let dev: Arc<dyn ZonedDevice> = counter.clone();
    let fs = drive.run(Fs::mount(dev, &options(8 * MIB))).expect("mounts");
    (counter, fs)
}

#[test]
fn what_was_written_or_read_is_read_from_memory() {
    for block_size in [512, 4096, 16384] {
        let drive = drive(block_size);
        let (counter, fs) = mounted(&drive, &options(8 * MIB));
        let content = bytes(300_000, 1);
        drive.run(async {
            write(&fs, "/data", &content).await.unwrap();
            assert_eq!(read(&fs, "/data").await.unwrap(), content);
            assert_eq!(counter.take(), (0, 0), "written pages are in memory, blocks of {block_size}");
            fs.unmount().await.unwrap();
        });
        let dev: Arc<dyn ZonedDevice> = counter.clone();
        let fs = drive.run(Fs::mount(dev, &options(8 * MIB))).expect("mounts");
        counter.take();
        drive.run(async {
            assert_eq!(read(&fs, "/data").await.unwrap(), content);
            let (reads, blocks) = counter.take();
            assert!(
                reads > 0 && blocks <= 300_000_u64.div_ceil(u64::from(block_size)),
                "{reads} reads of {blocks} blocks"
            );
            assert_eq!(read(&fs, "/data").await.unwrap(), content);
            assert_eq!(counter.take(), (0, 0), "read pages are in memory, blocks of {block_size}");
            fs.unmount().await.unwrap();
        });
    }
}

#[test]
fn a_reader_without_admission_finds_pages_and_keeps_none() {
    let drive = drive(4096);
    let (counter, fs) = mounted(&drive, &options(8 * MIB));
    let content = bytes(300_000, 1);
    drive.run(async {
        write(&fs, "/data", &content).await.unwrap();
        fs.unmount().await.unwrap();
    });
    let dev: Arc<dyn ZonedDevice> = counter.clone();
    let fs = drive.run(Fs::mount(dev, &options(8 * MIB))).expect("mounts");
    counter.take();
    drive.run(async {
        let (kept, direct) = (fs.open("/data").unwrap(), fs.open("/data").unwrap().without_admission());
        let mut into = vec![0; 20_000];
        for _ in 0..2 {
            direct.read_at(Bytes(100_000), &mut into).await.unwrap();
            assert_eq!(into, content[100_000..120_000]);
            assert!(counter.take().0 > 0, "the pages were not kept");
        }
        kept.read_at(Bytes(100_000), &mut into).await.unwrap();
        assert!(counter.take().0 > 0);
        direct.read_at(Bytes(100_000), &mut into).await.unwrap();
        assert_eq!(
            (counter.take(), &into[..]),
            ((0, 0), &content[100_000..120_000]),
            "pages of another reader"
        );
        fs.unmount().await.unwrap();
    });
}

#[test]
fn dropped_pages_are_read_again_and_pages_beside_them_are_not() {
    let drive = drive(4096);
    let (counter, fs) = mounted(&drive, &options(8 * MIB));
    let content = bytes(300_000, 1);
    drive.run(async {
        write(&fs, "/data", &content).await.unwrap();
        let reader = fs.open("/data").unwrap();
        // The pages 3 to 6 lie within these bytes: the file's bytes from 12,288 to 28,672.
        reader.drop_cached(Bytes(9_000), Bytes(20_000));
        let mut into = vec![0; 12_288];
        reader.read_at(Bytes::ZERO, &mut into).await.unwrap();
        assert_eq!(counter.take(), (0, 0));
        let mut into = vec![0; 300_000 - 28_672];
        reader.read_at(Bytes(28_672), &mut into).await.unwrap();
        assert_eq!(counter.take(), (0, 0));
        assert_eq!(read(&fs, "/data").await.unwrap(), content);
        let (_, blocks) = counter.take();
        assert_eq!(blocks, 4);
        reader.drop_cached(Bytes::ZERO, Bytes(u64::MAX));
        assert_eq!(read(&fs, "/data").await.unwrap(), content);
        let (_, blocks) = counter.take();
        assert_eq!(blocks, 300_000_u64.div_ceil(4096));
        fs.unmount().await.unwrap();
    });
}

#[test]
fn concurrent_reads_of_a_page_are_one_device_read() {
    let drive = drive(4096);
    let (_, fs) = mounted(&drive, &options(8 * MIB));
    drive.run(async {
        write(&fs, "/data", &bytes(200_000, 1)).await.unwrap();
        fs.unmount().await.unwrap();
    });
    let counter = Counter::over(&drive);
    let dev: Arc<dyn ZonedDevice> = counter.clone();
    let fs = drive.run(Fs::mount(dev, &options(8 * MIB))).expect("mounts");
    counter.take();
    drive.run(async {
        let reader = fs.open("/data").unwrap();
        let reads: Vec<_> = (0..8_u64)
            .map(|n| {
                let reader = reader.clone();
                let read = async move {
                    let mut into = [0; 3000];
                    reader.read_at(Bytes(40_000 + 100 * n), &mut into).await.unwrap();
                    into.to_vec()
                };
                spawn(&**fs.driver(), "read", read)
            })
            .collect();
        let content = bytes(200_000, 1);
        for (n, read) in reads.into_iter().enumerate() {
            let at = 40_000 + 100 * n;
            assert_eq!(read.await, content[at..at + 3000]);
        }
    });
    // The reads cover the pages 9 and 10: the first reader reads both, or each is read once.
    let (reads, blocks) = counter.take();
    assert!(reads <= 2 && blocks == 2, "{reads} reads of {blocks} blocks");
}

#[test]
fn bytes_asked_for_ahead_are_in_memory_before_they_are_read() {
    let drive = drive(4096);
    let (_, fs) = mounted(&drive, &options(8 * MIB));
    let content = bytes(600_000, 1);
    drive.run(async {
        write(&fs, "/data", &content).await.unwrap();
        fs.unmount().await.unwrap();
    });
    for cache in [0, 8 * MIB] {
        let counter = Counter::over(&drive);
        let dev: Arc<dyn ZonedDevice> = counter.clone();
        let fs = drive.run(Fs::mount(dev, &options(cache))).expect("mounts");
        counter.take();
        drive.run(async {
            let reader = fs.open("/data").unwrap();
            let begun = reader.read_ahead(Bytes(100_000), Bytes(300_000));
            assert_eq!(begun, cache > 0);
            assert!(!fs.open("/data").unwrap().without_admission().read_ahead(Bytes::ZERO, Bytes(4096)));
            let mut into = vec![0; 300_000];
            // The first read waits for its page, and the other ones are read meanwhile.
            reader.read_at(Bytes(100_000), &mut into[..4096]).await.unwrap();
            let later = fs.driver().now().after(Duration::from_millis(100));
            units::sleep_until(&**fs.driver(), later).await;
            let (reads, blocks) = counter.take();
            reader.read_at(Bytes(100_000), &mut into).await.unwrap();
            assert_eq!(into, content[100_000..400_000]);
            if cache > 0 {
                assert!(reads <= 4 && blocks == 74, "{reads} reads of {blocks} blocks");
                assert_eq!(counter.take(), (0, 0));
            }
            // A range behind the end is empty.
            assert_eq!(reader.read_ahead(Bytes(1 << 40), Bytes(1 << 40)), cache > 0);
            fs.unmount().await.unwrap();
            assert!(!reader.read_ahead(Bytes::ZERO, Bytes(4096)), "the file system is unmounted");
        });
    }
}

#[test]
fn pages_behind_an_announced_pass_leave_the_cache() {
    let drive = drive(4096);
    let (counter, fs) = mounted(&drive, &options(8 * MIB));
    let content = bytes(400_000, 1);
    drive.run(async {
        write(&fs, "/data", &content).await.unwrap();
        let reader = fs.open("/data").unwrap();
        let mut into = vec![0; 100_000];
        reader.read_at(Bytes(300_000), &mut into).await.unwrap();
        let all = fs.cache_stats().pages;
        assert!(all >= 97, "{all} pages");
        reader.expect(AccessPattern::Once);
        // A read at another offset is no part of the pass.
        reader.read_at(Bytes(200_000), &mut into).await.unwrap();
        assert_eq!(fs.cache_stats().pages, all);
        for at in (0..240_000).step_by(3000) {
            reader.read_at(Bytes(at as u64), &mut into[..3000]).await.unwrap();
            assert!(into[..3000] == content[at..at + 3000]);
        }
        assert_eq!(fs.cache_stats().pages, all - 240_000 / 4096);
        // Bytes behind the pass are read from the device, and stay from then on.
        for misses in [true, false] {
            counter.take();
            reader.read_at(Bytes(1000), &mut into).await.unwrap();
            assert!(into == content[1000..101_000]);
            assert_eq!(counter.take().0 > 0, misses);
        }
        fs.unmount().await.unwrap();
    });
}

#[test]
fn sequential_reads_read_ahead_and_random_reads_do_not() {
    let drive = drive(4096);
    let content = bytes(1_000_000, 1);
    let (counter, fs) = mounted_with_file(&drive, &content);
    counter.take();
    drive.run(async {
        let reader = fs.open("/data").unwrap();
        let mut into = [0; 4000];
        // No read ends where another one begins.
        for at in (0..900_000).step_by(90_000) {
            assert_eq!(reader.read_at(Bytes(at), &mut into).await.unwrap(), 4000);
        }
        let (reads, blocks) = counter.take();
        assert!(reads == 10 && blocks <= 20, "{reads} reads of {blocks} blocks");
        fs.unmount().await.unwrap();
    });
    let dev: Arc<dyn ZonedDevice> = counter.clone();
    let fs = drive.run(Fs::mount(dev, &options(8 * MIB))).expect("mounts");
    counter.take();
    drive.run(async {
        let reader = fs.open("/data").unwrap();
        let mut into = [0; 4000];
        for at in (0..1_000_000).step_by(4000) {
            reader.read_at(Bytes(at as u64), &mut into).await.unwrap();
            assert!(into == content[at..at + 4000]);
        }
        // An extent ends with its zone, of 256 KiB: a page, 64, 128 and 64 KiB; then a whole zone at a time.
        let (reads, blocks) = counter.take();
        assert!(reads <= 9 && blocks == 245, "{reads} reads of {blocks} blocks");
    });
}

#[test]
fn pages_of_removed_and_truncated_files_are_freed_at_once() {
    let drive = drive(4096);
    let (_, fs) = mounted(&drive, &options(8 * MIB));
    drive.run(async {
        let empty = fs.cache_stats();
        assert_eq!((empty.pages, empty.capacity), (0, Bytes(8 * MIB)));
        write(&fs, "/removed", &bytes(100_000, 1)).await.unwrap();
        write(&fs, "/replaced", &bytes(100_000, 2)).await.unwrap();
        write(&fs, "/cut", &bytes(100_000, 3)).await.unwrap();
        assert_eq!(fs.cache_stats().pages, 75);
        let reader = fs.open("/removed").unwrap();
        fs.unlink("/removed").await.unwrap();
        assert_eq!(fs.cache_stats().pages, 75, "the file has a reader");
        drop(reader);
        assert_eq!(fs.cache_stats().pages, 50);
        fs.rename("/cut", "/replaced").await.unwrap();
        assert_eq!(fs.cache_stats().pages, 25);
        fs.truncate("/replaced", Bytes(50_000)).await.unwrap();
        assert_eq!(fs.cache_stats().pages, 13, "the page with the new end was read again");
    });
}

/// Cuts a file, writes other bytes behind its new end, and reads all of it. `keeps_pages`: the truncation leaves the pages in the cache.
fn content_after_truncation(keeps_pages: bool) -> (Vec<u8>, Vec<u8>) {
    let drive = drive(4096);
    let broken_rule = keeps_pages.then_some(BrokenRule::StalePage);
    let (_, fs) = mounted(&drive, &MountOptions { broken_rule, ..options(8 * MIB) });
    drive.run(async {
        let (first, second) = (bytes(100_000, 1), bytes(60_000, 2));
        write(&fs, "/data", &first).await.unwrap();
        let writer = fs.open_append("/data").await.unwrap();
        writer.truncate(Bytes(50_001)).await.unwrap();
        writer.truncate(Bytes(60_000)).await.unwrap();
        writer.append(&second).await.unwrap();
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
        let expected = [&first[..50_001], &vec![0; 9_999], &second[..]].concat();
        (read(&fs, "/data").await.unwrap(), expected)
    })
}

#[test]
fn no_page_from_before_a_truncation_is_read() {
    let (read, expected) = content_after_truncation(false);
    assert!(read == expected);
    let (read, expected) = content_after_truncation(true);
    assert!(read != expected, "the broken rule is not seen");
}

/// A truncation beside a long read on another thread: no page of the run that was read before stays in memory. Real threads, since no task
/// waits between the look-up of a run and its guards.
#[test]
fn a_truncation_beside_a_long_read_leaves_no_page() {
    const BYTES: u64 = 512 << 10;
    let driver: Arc<dyn Driver> = RealDriver::new();
    let options = EmuOptions {
        name: "emu:threads".into(),
        zones: 80,
        zone_size: Blocks(512),
        zone_capacity: Blocks(512),
        ..EmuOptions::default()
    };
    let dev: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
    let mount =
        MountOptions { cache: Bytes(16 * MIB), cache_mode: CacheMode::Direct, ..MountOptions::default() };
    let fs = block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        Fs::mount(Arc::clone(&dev), &mount).await.unwrap()
    });
    let mut random = Random(SplitMix64::new(5));
    let end = driver.now().after(Duration::from_secs(3));
    while driver.now() < end {
        let writer = block_on(&*driver, async {
            let writer = fs.create("/data", &data()).await.unwrap();
            writer.append(&vec![0xaa; BYTES as usize]).await.unwrap();
            writer.sync().await.unwrap();
            writer
        });
        let reader = fs.open("/data").unwrap();
        let (both, delay) = (Barrier::new(2), Duration::from_nanos(random.below(60_000)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut into = vec![0; BYTES as usize];
                both.wait();
                block_on(&*driver, reader.read_at(Bytes(0), &mut into)).unwrap();
            });
            both.wait();
            let begin = driver.now().after(delay);
            while driver.now() < begin {
                std::hint::spin_loop();
            }
            block_on(&*driver, writer.truncate(Bytes(4096))).unwrap();
        });
        block_on(&*driver, async {
            assert_eq!(reader.read_at(Bytes(0), &mut [0; 8192]).await.unwrap(), 4096, "read beyond the end");
            writer.truncate(Bytes(BYTES - 1000)).await.unwrap();
            writer.append(&[0xbb; 100]).await.unwrap();
            writer.close().await.unwrap();
            let content = read(&fs, "/data").await.unwrap();
            assert!(
                content[4096..BYTES as usize - 1000].iter().all(|byte| *byte == 0),
                "an old page was read"
            );
            drop(reader);
            fs.unlink("/data").await.unwrap();
        });
    }
}

#[test]
fn reads_end_at_the_largest_offset() {
    for cache in [0, 8 * MIB] {
        let drive = drive(4096);
        let (_, fs) = mounted(&drive, &options(cache));
        drive.run(async {
            let writer = fs.create("/data", &data()).await.unwrap();
            writer.truncate(Bytes(u64::MAX - 200)).await.unwrap();
            writer.append(&[1; 100]).await.unwrap();
            writer.close().await.unwrap();
            let mut into = [0; 200];
            let len = fs.open("/data").unwrap().read_at(Bytes(u64::MAX - 200), &mut into).await.unwrap();
            assert_eq!((len, &into[..100]), (100, &[1; 100][..]));
            fs.unlink("/data").await.unwrap();
        });
    }
}

/// Pages in memory do not divide long reads, nor end a sequential one.
#[test]
fn pages_in_memory_do_not_divide_long_reads() {
    for len in [16 << 10, 256 << 10] {
        let drive = drive(4096);
        let (counter, fs) = mounted_with_file(&drive, &bytes(1 << 20, 1));
        drive.run(async {
            let mut into = vec![0; len];
            for at in (0..1 << 20).step_by(32 << 10) {
                fs.open("/data").unwrap().read_at(Bytes(at), &mut [0; 4096]).await.unwrap();
            }
            counter.take();
            let reader = fs.open("/data").unwrap();
            for at in (0..1 << 20).step_by(len) {
                assert_eq!(reader.read_at(Bytes(at as u64), &mut into).await.unwrap(), len);
                assert!(into == bytes(1 << 20, 1)[at..at + len]);
            }
        });
        let (reads, blocks) = counter.take();
        assert!(reads <= 12 && blocks <= 256, "{reads} reads of {blocks} blocks");
    }
}

#[test]
fn a_window_ends_before_many_pages_in_memory() {
    let drive = drive(4096);
    let (counter, fs) = mounted_with_file(&drive, &bytes(256 << 10, 1));
    drive.run(async {
        let in_memory = fs.open("/data").unwrap();
        in_memory.read_at(Bytes(32 << 10), &mut vec![0; 128 << 10]).await.unwrap();
        counter.take();
        let reader = fs.open("/data").unwrap();
        reader.expect(AccessPattern::Sequential);
        reader.read_at(Bytes(0), &mut [0; 4096]).await.unwrap();
        assert_eq!(counter.take(), (1, 8), "up to the pages in memory");
    });
}

/// Random operations on some files, beside a model, with a cache smaller than the files.
#[test]
fn files_have_their_content_whatever_the_cache_holds() {
    for (seed, block_size) in [(1, 512), (2, 4096), (3, 4096), (4, 512), (5, 16384)] {
        let drive = drive(block_size);
        let (_, fs) = mounted(&drive, &options(4 * MIB));
        let mut random = Random(SplitMix64::new(seed));
        drive.run(async {
            let mut model: Vec<Option<Vec<u8>>> = vec![None; 24];
            for step in 0..800_u32 {
                let file = random.below(24) as usize;
                let path = format!("/{file}");
                match (random.below(10), &mut model[file]) {
                    (0, Some(_)) => {
                        fs.unlink(&path).await.unwrap();
                        model[file] = None;
                    }
                    (1, Some(content)) => {
                        let size = random.below(content.len() as u64 + 10_000);
                        fs.truncate(&path, Bytes(size)).await.unwrap();
                        content.resize(size as usize, 0);
                    }
                    (2..5, content) => {
                        let more = bytes(random.below(300_000) as usize + 1, (step % 251) as u8);
                        let writer = match content {
                            Some(_) => fs.open_append(&path).await.unwrap(),
                            None => fs.create(&path, &data()).await.unwrap(),
                        };
                        for part in more.chunks(random.below(70_000) as usize + 1) {
                            writer.append(part).await.unwrap();
                            if random.below(4) == 0 {
                                writer.sync().await.unwrap();
                            }
                        }
                        let content = content.get_or_insert_default();
                        content.extend_from_slice(&more);
                        check_at(&fs, &path, content, &mut random).await;
                        writer.close().await.unwrap();
                        if content.len() > 1 << 20 {
                            fs.unlink(&path).await.unwrap();
                            model[file] = None;
                        }
                    }
                    (_, Some(content)) => check_at(&fs, &path, content, &mut random).await,
                    (_, None) => {}
                }
            }
            for (file, content) in model.iter().enumerate() {
                if let Some(content) = content {
                    assert!(read(&fs, &format!("/{file}")).await.unwrap() == *content, "file {file}");
                }
            }
            let stats = fs.cache_stats();
            assert!(stats.used <= stats.capacity && stats.hits > 1000 && stats.misses > 100, "{stats:?}");
        });
    }
}

/// Reads a random part of a file and compares it.
async fn check_at(fs: &Fs, path: &str, content: &[u8], random: &mut Random) {
    let reader = fs.open(path).unwrap();
    for _ in 0..4 {
        let at = random.below(content.len() as u64 + 1) as usize;
        let mut into = vec![0; random.below(50_000) as usize];
        let len = reader.read_at(Bytes(at as u64), &mut into).await.unwrap();
        let expected = &content[at..content.len().min(at + into.len())];
        assert!(into[..len] == *expected, "{path} at {at}");
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let drive = drive(4096);
    drive.format();
    for (size, why) in [(1, "too few"), (1 << 60, "larger than")] {
        let error = drive.run(Fs::mount(drive.dev(), &options(size))).expect_err("refused");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Of a zone that is offline the blocks in memory are read, and all others are errors. Other files are not concerned.
#[test]
fn of_an_offline_zone_blocks_in_memory_alone_are_read() {
    let drive = drive(4096);
    let content = bytes(100_000, 1);
    let (_, fs) = mounted_with_file(&drive, &content);
    drive.run(async {
        write(&fs, "/other", &bytes(9000, 2)).await.unwrap();
        let reader = fs.open("/data").unwrap();
        reader.expect(AccessPattern::Random);
        let mut into = vec![0; 8192];
        reader.read_at(Bytes(40_960), &mut into).await.unwrap();
        let is_data =
            |zone: &fs::ZoneUse| matches!(zone.role, fs::ZoneRole::Data { .. }) && zone.live.0 >= 20;
        let zone = fs.zone_map().into_iter().find(is_data).unwrap().zone;
        drive.emu.wear(zone, zoned::ZoneState::Offline);
        for _ in 0..2 {
            into.fill(0);
            assert_eq!(reader.read_at(Bytes(40_960), &mut into).await.unwrap(), 8192);
            assert!(into == content[40_960..49_152]);
            for at in [0, 36_864, 49_152, 90_000] {
                let error = reader.read_at(Bytes(at), &mut into).await.unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Device(_)), "{error}");
            }
        }
        write(&fs, "/more", &bytes(9000, 3)).await.unwrap();
        assert!(read(&fs, "/more").await.unwrap() == bytes(9000, 3));
        fs.unmount().await.unwrap();
    });
}
