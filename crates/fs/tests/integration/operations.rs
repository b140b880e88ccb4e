//! Tests of operation classes: every operation of a mount goes to the device under the class of its purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs::{Bytes, Fs, IoClass, MountOptions, ParallelOptions};
use units::Driver;
use zoned::emu::{Emu, EmuOptions};
use zoned::{Geometry, Io, Op, ZonedDevice};

use crate::common::{Drive, bytes, log, read, write};

/// A drive that counts its operations and the bytes written to it.
#[derive(Debug)]
struct CountingDrive {
    emu: Arc<Emu>,
    operations: AtomicU64,
    written: AtomicU64,
}

impl ZonedDevice for CountingDrive {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
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
    IoClass::ALL.iter().map(|class| fs.operations(*class)).collect()
}

/// The classes whose counts of device operations changed between two times.
fn classes_with_new_operations(before: &[u64], after: &[u64]) -> Vec<IoClass> {
    let counts = before.iter().zip(after).zip(IoClass::ALL);
    counts.filter(|((before, after), _)| before < after).map(|(_, class)| class).collect()
}

#[test]
fn each_device_operation_is_counted_in_the_io_class_of_its_purpose() {
    let drive = Drive::new(EmuOptions::tiny());
    drive.format();
    let (operations, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let counted = Arc::new(CountingDrive { emu: drive.emu.clone(), operations, written });
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    drive.run(async {
        let fs = Fs::mount(dev, &MountOptions::default()).await.unwrap();
        let mut last = counts(&fs);
        assert_eq!(
            classes_with_new_operations(&[0; 5], &last),
            [IoClass::Metadata],
            "a mount of an empty file system"
        );
        let mut since = async |fs: &Fs| {
            let now = counts(fs);
            classes_with_new_operations(&std::mem::replace(&mut last, now.clone()), &now)
        };
        write(&fs, "/data", &bytes(50_000, 1)).await.unwrap();
        assert!(since(&fs).await.contains(&IoClass::Write));
        assert_eq!(fs.written_bytes(IoClass::Write), Bytes(50_000_u64.next_multiple_of(4096)));
        read(&fs, "/data").await.unwrap();
        assert_eq!(since(&fs).await, [IoClass::Read]);
        let writer = fs.create("/log", &log()).await.unwrap();
        writer.append(&bytes(5000, 2)).await.unwrap();
        writer.sync().await.unwrap();
        assert!(since(&fs).await.contains(&IoClass::Log));
        writer.append(&bytes(5000, 3)).await.unwrap();
        writer.sync().await.unwrap();
        assert_eq!(since(&fs).await, [IoClass::Log], "an append to a log with a zone");
        writer.close().await.unwrap();
        fs.sync().await.unwrap();
        since(&fs).await;
        let mut into = vec![0; 5000];
        fs.open("/log").unwrap().read_at(Bytes(0), &mut into).await.unwrap();
        assert_eq!(since(&fs).await, [IoClass::Read], "a read of a closed log");
        let (parallel, _) = fs.parallel_log("/parallel", &ParallelOptions::default()).await.unwrap();
        parallel.close().await.unwrap();
        let zone = fs.statfs().capacity.0 / 8;
        for n in 0..40 {
            write(&fs, "/data", &bytes(usize::try_from(zone).unwrap(), n)).await.unwrap();
        }
        assert!(since(&fs).await.contains(&IoClass::Reclaim));
        fs.unmount().await.unwrap();
        assert_eq!(counts(&fs).iter().sum::<u64>(), counted.operations.load(Ordering::Relaxed));
        let written: u64 = IoClass::ALL.iter().map(|class| fs.written_bytes(*class).0).sum();
        assert_eq!(written, counted.written.load(Ordering::Relaxed));
        assert_eq!(fs.written_bytes(IoClass::Read), Bytes(0));
    });
}
