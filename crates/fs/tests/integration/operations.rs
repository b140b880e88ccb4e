//! Tests of the operations of a mount: each is counted under its purpose, and has the class of who waits for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fs::{AccessPattern, BrokenRule, Bytes, Fs, IoClass, MountOptions, ParallelOptions, Purpose};
use units::{Blocks, Driver, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency};
use zoned::{Geometry, Goal, Io, Op, Share, ZonedDevice};

use crate::common::{Drive, bytes, data, log, read, write};

/// A drive that counts its operations and the bytes written to it, and knows the classes of data operations.
#[derive(Debug)]
struct CountingDrive {
    emu: Arc<Emu>,
    operations: AtomicU64,
    written: AtomicU64,
    classes: Mutex<BTreeSet<IoClass>>,
}

impl CountingDrive {
    fn over(drive: &Drive) -> Arc<CountingDrive> {
        Arc::new(CountingDrive {
            emu: drive.emu.clone(),
            operations: AtomicU64::new(0),
            written: AtomicU64::new(0),
            classes: Mutex::default(),
        })
    }

    /// The classes of reads, writes and appends since the last call, the highest first.
    fn take_classes(&self) -> Vec<IoClass> {
        std::mem::take(&mut *self.classes.lock().unwrap()).into_iter().collect()
    }
}

impl ZonedDevice for CountingDrive {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        if matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Append { .. }) {
            self.classes.lock().unwrap().insert(class);
        }
        self.operations.fetch_add(1, Ordering::Relaxed);
        if let Op::Append { data, .. } | Op::Write { data, .. } = &op {
            self.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

fn counts(fs: &Fs) -> Vec<u64> {
    Purpose::ALL.iter().map(|purpose| fs.operations(*purpose)).collect()
}

/// The purposes whose counts of device operations changed between two times.
fn purposes_with_new_operations(before: &[u64], after: &[u64]) -> Vec<Purpose> {
    let counts = before.iter().zip(after).zip(Purpose::ALL);
    counts.filter(|((before, after), _)| before < after).map(|(_, purpose)| purpose).collect()
}

#[test]
fn each_device_operation_is_counted_under_its_purpose() {
    let drive = Drive::new(EmuOptions::tiny());
    drive.format();
    let counted = CountingDrive::over(&drive);
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    drive.run(async {
        let fs = Fs::mount(dev, &MountOptions::default()).await.unwrap();
        let mut last = counts(&fs);
        assert_eq!(
            purposes_with_new_operations(&[0; 5], &last),
            [Purpose::Metadata],
            "a mount of an empty file system"
        );
        let mut since = async |fs: &Fs| {
            let now = counts(fs);
            purposes_with_new_operations(&std::mem::replace(&mut last, now.clone()), &now)
        };
        write(&fs, "/data", &bytes(50_000, 1)).await.unwrap();
        assert!(since(&fs).await.contains(&Purpose::Write));
        assert_eq!(fs.written_bytes(Purpose::Write), Bytes(50_000_u64.next_multiple_of(4096)));
        read(&fs, "/data").await.unwrap();
        assert_eq!(since(&fs).await, [Purpose::Read]);
        let writer = fs.create("/log", &log()).await.unwrap();
        writer.append(&bytes(5000, 2)).await.unwrap();
        writer.sync().await.unwrap();
        assert!(since(&fs).await.contains(&Purpose::Log));
        writer.append(&bytes(5000, 3)).await.unwrap();
        writer.sync().await.unwrap();
        assert_eq!(since(&fs).await, [Purpose::Log], "an append to a log with a zone");
        writer.close().await.unwrap();
        fs.sync().await.unwrap();
        since(&fs).await;
        let mut into = vec![0; 5000];
        fs.open("/log").unwrap().read_at(Bytes(0), &mut into).await.unwrap();
        assert_eq!(since(&fs).await, [Purpose::Read], "a read of a closed log");
        let (parallel, _) = fs.parallel_log("/parallel", &ParallelOptions::default()).await.unwrap();
        parallel.close().await.unwrap();
        let zone = fs.statfs().capacity.0 / 8;
        for n in 0..40 {
            write(&fs, "/data", &bytes(usize::try_from(zone).unwrap(), n)).await.unwrap();
        }
        assert!(since(&fs).await.contains(&Purpose::Reclaim));
        fs.unmount().await.unwrap();
        assert_eq!(counts(&fs).iter().sum::<u64>(), counted.operations.load(Ordering::Relaxed));
        let written: u64 = Purpose::ALL.iter().map(|purpose| fs.written_bytes(*purpose).0).sum();
        assert_eq!(written, counted.written.load(Ordering::Relaxed));
        assert_eq!(fs.written_bytes(Purpose::Read), Bytes(0));
    });
}

#[test]
fn an_operation_has_the_class_of_who_waits_for_it() {
    let drive = Drive::new(EmuOptions::tiny());
    drive.format();
    let counted = CountingDrive::over(&drive);
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    drive.run(async {
        let options = MountOptions { cache: Bytes(4 << 20), ..MountOptions::default() };
        let fs = Fs::mount(dev, &options).await.unwrap();
        counted.take_classes();
        // Only the metadata's commit and the write that a sync waits for.
        let client = fs.create("/client", &data()).await.unwrap();
        client.append(&bytes(20_000, 1)).await.unwrap();
        client.sync().await.unwrap();
        assert_eq!(counted.take_classes(), [IoClass::Metadata, IoClass::Read]);
        for class in [IoClass::Flush, IoClass::Compaction] {
            let table = fs.create("/table", &data()).await.unwrap();
            table.set_class(class);
            table.append(&bytes(200_000, 2)).await.unwrap();
            table.sync().await.unwrap();
            table.close().await.unwrap();
            assert_eq!(counted.take_classes(), [IoClass::Metadata, class], "a sync by a background thread");
        }
        // A writer that writers wait for says that compactions are waited for too, until a writer of another class.
        for (said, expected) in [(IoClass::Read, IoClass::Read), (IoClass::Flush, IoClass::Compaction)] {
            let table = fs.create("/table", &data()).await.unwrap();
            table.set_class(IoClass::Compaction);
            fs.create("/other", &data()).await.unwrap().set_class(said);
            table.append(&bytes(200_000, 2)).await.unwrap();
            table.sync().await.unwrap();
            table.close().await.unwrap();
            assert_eq!(counted.take_classes(), [IoClass::Metadata, expected], "{said:?}");
        }
        // After its time in memory the mount writes the file, for which nobody waits.
        client.append(&bytes(20_000, 3)).await.unwrap();
        sleep_until(&*drive.driver, drive.driver.now().after(Duration::from_secs(30))).await;
        assert!(counted.take_classes().contains(&IoClass::Flush), "write-back");
        let log = fs.create("/log", &log()).await.unwrap();
        log.append(&bytes(5000, 4)).await.unwrap();
        log.sync().await.unwrap();
        // The log's name and segment are metadata.
        assert_eq!(counted.take_classes(), [IoClass::Log, IoClass::Metadata]);
        fs.unmount().await.unwrap();
        // Without a cache every read goes to the drive.
        let fs = Fs::mount(counted.clone(), &MountOptions::default()).await.unwrap();
        counted.take_classes();
        let (reader, mut into) = (fs.open("/table").unwrap(), vec![0; 50_000]);
        reader.read_at(Bytes(100_000), &mut into).await.unwrap();
        assert_eq!(counted.take_classes(), [IoClass::Read]);
        reader.expect(AccessPattern::Once);
        for at in [0, 50_000] {
            reader.read_at(Bytes(at), &mut into).await.unwrap();
        }
        assert_eq!(counted.take_classes(), [IoClass::Compaction], "a pass over the file");
        reader.read_at(Bytes(0), &mut into).await.unwrap();
        assert_eq!(counted.take_classes(), [IoClass::Read], "a read beside the pass");
        fs.unmount().await.unwrap();
    });
}

/// Reads a file in a pass, 3,000 bytes at a time, in a mount without a page cache. Cuts the file in the middle of what was read ahead and appends other bytes, then reads on.
/// Returns the content read, the content expected, and the device's operations before and after the cut.
fn pass_without_page_cache(broken_rule: Option<BrokenRule>) -> (Vec<u8>, Vec<u8>, [u64; 2]) {
    let drive = Drive::new(EmuOptions::tiny());
    drive.format();
    let counted = CountingDrive::over(&drive);
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    drive.run(async {
        let fs = Fs::mount(dev, &MountOptions { broken_rule, ..MountOptions::default() }).await.unwrap();
        let mut expected = bytes(400_000, 1);
        write(&fs, "/table", &expected).await.unwrap();
        let reader = fs.open("/table").unwrap();
        reader.expect(AccessPattern::Once);
        let (mut content, mut into) = (Vec::new(), vec![0; 3000]);
        let before = counted.operations.load(Ordering::Relaxed);
        // Past some blocks, which an engine has in a cache of its own.
        reader.read_at(Bytes(0), &mut into).await.unwrap();
        content.extend_from_slice(&expected[..9000]);
        while content.len() < 100_000 {
            let read = reader.read_at(Bytes(content.len() as u64), &mut into).await.unwrap();
            content.extend_from_slice(&into[..read]);
        }
        let first = counted.operations.load(Ordering::Relaxed) - before;
        fs.truncate("/table", Bytes(110_000)).await.unwrap();
        let writer = fs.open_append("/table").await.unwrap();
        expected.truncate(110_000);
        expected.extend(bytes(200_000, 2));
        writer.append(&expected[110_000..]).await.unwrap();
        writer.close().await.unwrap();
        let before = counted.operations.load(Ordering::Relaxed);
        loop {
            let read = reader.read_at(Bytes(content.len() as u64), &mut into).await.unwrap();
            content.extend_from_slice(&into[..read]);
            if read == 0 {
                break;
            }
        }
        let second = counted.operations.load(Ordering::Relaxed) - before;
        fs.unmount().await.unwrap();
        (content, expected, [first, second])
    })
}

#[test]
fn a_pass_without_a_page_cache_reads_ahead_and_forgets_what_a_truncation_cut_off() {
    let (content, expected, operations) = pass_without_page_cache(None);
    assert!(content == expected);
    // An extent ends with its zone or where an append ended: a few reads instead of 31 and 70.
    assert!(operations.iter().all(|operations| (1..=6).contains(operations)), "{operations:?}");
    let (content, expected, _) = pass_without_page_cache(Some(BrokenRule::StalePage));
    assert!(content != expected, "the broken rule is not seen");
}

#[test]
fn a_pass_whose_read_ahead_fails_reads_what_was_asked_for() {
    let drive = Drive::new(EmuOptions::tiny());
    drive.format();
    let fs = drive.mount();
    drive.run(async {
        let expected = bytes(40_000, 1);
        write(&fs, "/table", &expected).await.unwrap();
        let reader = fs.open("/table").unwrap();
        reader.expect(AccessPattern::Once);
        let mut into = vec![0; 3000];
        drive.emu.fail(FaultSpec::next(FaultOp::Read));
        reader.read_at(Bytes(0), &mut into).await.unwrap();
        assert!(into == expected[..3000]);
        drive.emu.fail(FaultSpec::all(FaultOp::Read));
        assert!(reader.read_at(Bytes(3000), &mut into).await.is_err());
        drop(reader);
        drive.emu.clear_faults();
        fs.unmount().await.unwrap();
    });
}

/// Bulk beside a log goes at a kilobyte a second: what is held goes soon only if somebody raises it, or the log is over.
const SLOW_BULK: Goal = Goal { log_target: 1.2, least_rate: 1e3, most_rate: Some(1e3) };

/// The time of `wait` beside a log, while the write-back of a table of 4,100,000 bytes is held.
fn time_beside_held_write_back<F: Future<Output = ()>>(wait: impl FnOnce(Fs, fs::Writer) -> F) -> Duration {
    let latency = Latency::all(Duration::from_micros(10));
    let (zones, zone_size) = (80, Blocks(512));
    let drive =
        Drive::new(EmuOptions { latency, zones, zone_size, zone_capacity: zone_size, ..EmuOptions::tiny() });
    drive.format();
    let share = Share::over(drive.emu.clone(), SLOW_BULK);
    drive.run(async {
        let options = MountOptions { cache: Bytes(16 << 20), ..MountOptions::default() };
        let fs = Fs::mount(share.clone(), &options).await.unwrap();
        let log = fs.create("/log", &log()).await.unwrap();
        let table = fs.create("/table", &data()).await.unwrap();
        log.append(&bytes(5000, 2)).await.unwrap();
        log.sync().await.unwrap();
        // Nearly a quarter of the cache, which may be dirty.
        table.append(&bytes(4_100_000, 1)).await.unwrap();
        sleep_until(&*drive.driver, drive.driver.now().after(Duration::from_millis(1))).await;
        assert!(share.share_status().unwrap().held > 0);
        let begun = drive.driver.now();
        wait(fs.clone(), table).await;
        let took = drive.driver.now().since(begun);
        drop(log);
        fs.unmount().await.unwrap();
        took
    })
}

#[test]
fn a_sync_or_a_truncation_takes_along_the_file_s_write_back_that_is_held() {
    let took = time_beside_held_write_back(async |_, table| table.sync().await.unwrap());
    assert!(took < Duration::from_millis(10), "{took:?}");
    let took = time_beside_held_write_back(async |_, table| table.truncate(Bytes(10)).await.unwrap());
    assert!(took < Duration::from_millis(10), "{took:?}");
}

#[test]
fn an_append_that_waits_for_memory_takes_along_the_write_back_that_is_held() {
    let took = time_beside_held_write_back(async |fs, _table| {
        let other = fs.create("/other", &data()).await.unwrap();
        other.append(&bytes(200_000, 3)).await.unwrap();
    });
    assert!(took < Duration::from_millis(10), "{took:?}");
}

#[test]
fn an_append_that_waits_for_space_takes_along_the_reclaim_that_is_held() {
    let latency = Latency::all(Duration::from_micros(10));
    let (zones, zone_size) = (40, Blocks(64));
    let drive =
        Drive::new(EmuOptions { latency, zones, zone_size, zone_capacity: zone_size, ..EmuOptions::tiny() });
    drive.format();
    let share = Share::over(drive.emu.clone(), SLOW_BULK);
    drive.run(async {
        let fs = Fs::mount(share.clone(), &MountOptions::default()).await.unwrap();
        let log = fs.create("/log", &log()).await.unwrap();
        // Four files a zone, until the drive is nearly full.
        let file = 64 << 10;
        let mut names = Vec::new();
        while fs.statfs().free.0 > 12 * file as u64 {
            let name = format!("/{}", names.len());
            write(&fs, &name, &bytes(file, 1)).await.unwrap();
            names.push(name);
        }
        log.append(&bytes(5000, 2)).await.unwrap();
        log.sync().await.unwrap();
        // One bulk write, which has the rate of some seconds: even the reclaim's first read is held.
        let table = fs.create("/table", &data()).await.unwrap();
        table.set_class(IoClass::Compaction);
        table.append(&bytes(5000, 4)).await.unwrap();
        table.close().await.unwrap();
        // Three in four blocks of each zone are dead: reclaim begins in the background.
        for (name, _) in names.iter().zip(0..).filter(|(_, n)| n % 4 > 0) {
            fs.unlink(name).await.unwrap();
        }
        sleep_until(&*drive.driver, drive.driver.now().after(Duration::from_millis(1))).await;
        assert!(share.share_status().unwrap().held > 0, "{:?}", fs.statfs());
        let begun = drive.driver.now();
        write(&fs, "/more", &bytes(24 * file, 3)).await.unwrap();
        let took = drive.driver.now().since(begun);
        assert!(took < Duration::from_millis(30), "{took:?}");
        drop(log);
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_read_of_a_page_that_a_compaction_s_held_read_is_for_takes_that_read_along() {
    let latency = Latency::all(Duration::from_micros(10));
    let drive = Drive::new(EmuOptions { latency, ..EmuOptions::tiny() });
    drive.format();
    // Bulk beside a log goes at a kilobyte a second; without a log for 50 ms, all that is held goes.
    let goal = Goal { least_rate: 1e3, most_rate: Some(1e3), ..Goal::default() };
    let share = Share::over(drive.emu.clone(), goal);
    drive.run(async {
        let options = MountOptions { cache: Bytes(4 << 20), ..MountOptions::default() };
        let fs = Fs::mount(share.clone(), &options).await.unwrap();
        for name in ["/table", "/other"] {
            write(&fs, name, &bytes(200_000, 1)).await.unwrap();
        }
        fs.unmount().await.unwrap();
        let fs = Fs::mount(share.clone(), &options).await.unwrap();
        let log = fs.create("/log", &log()).await.unwrap();
        log.append(&bytes(5000, 2)).await.unwrap();
        log.sync().await.unwrap();
        // One read of the device, which takes the rate of some seconds.
        let mut other = vec![0; 100];
        let pass = fs.open("/other").unwrap();
        pass.expect(AccessPattern::Once);
        pass.read_at(Bytes(0), &mut other).await.unwrap();
        let held = || share.share_status().unwrap().held;
        let pass = fs.open("/table").unwrap();
        pass.expect(AccessPattern::Once);
        let pass = spawn(&*drive.driver, "pass", async move {
            let mut into = vec![0; 50_000];
            pass.read_at(Bytes(0), &mut into).await.unwrap();
            into
        });
        sleep_until(&*drive.driver, drive.driver.now().after(Duration::from_millis(1))).await;
        assert!(held() > 0);
        let begun = drive.driver.now();
        let mut into = vec![0; 100];
        fs.open("/table").unwrap().read_at(Bytes(8000), &mut into).await.unwrap();
        let took = drive.driver.now().since(begun);
        assert!(took < Duration::from_millis(10), "{took:?}");
        assert_eq!(into, pass.await[8000..8100]);
        fs.unmount().await.unwrap();
    });
}
