//! Tests of the file system end to end, on a tiny drive.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use crate::common::{Drive, bytes, data, log, read, write};
use fs::{ErrorKind, FileKind, FormatOptions, Fs, MountOptions};
use std::future::Future;

use units::Bytes;
use zoned::emu::EmuOptions;

#[test]
fn a_file_reads_back_after_a_remount() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let content = bytes(70_001, 1);
    drive.run(async {
        write(&fs, "/a", &content).await.unwrap();
        assert_eq!(read(&fs, "/a").await.unwrap(), content);
        fs.unmount().await.unwrap();
    });
    drive.check();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/a")).unwrap(), content);
    drive.run(fs.unmount()).unwrap();
}

#[test]
fn a_reader_sees_buffered_bytes_and_still_reads_after_the_removal() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        let writer = fs.create("/a", &data()).await.unwrap();
        let reader = fs.open("/a").unwrap();
        let mut content = Vec::new();
        for n in 0..40 {
            let part = bytes(1000 + n * 13, n as u8);
            writer.append(&part).await.unwrap();
            content.extend_from_slice(&part);
            if n % 9 == 3 {
                writer.sync().await.unwrap();
            }
            let mut got = vec![0; content.len() + 5];
            assert_eq!(reader.read_at(Bytes(0), &mut got).await.unwrap(), content.len());
            assert_eq!(&got[..content.len()], content);
        }
        fs.unlink("/a").await.unwrap();
        writer.append(b"more").await.unwrap();
        writer.close().await.unwrap();
        content.extend_from_slice(b"more");
        let mut got = vec![0; content.len()];
        reader.read_at(Bytes(0), &mut got).await.unwrap();
        assert_eq!(got, content);
        assert_eq!(fs.open("/a").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(fs.statfs().used > Bytes(0));
        drop((reader, writer));
        assert_eq!(fs.statfs().used, Bytes(0));
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn name_changes_follow_posix() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        fs.mkdir("/d").await.unwrap();
        fs.mkdir("/d/e").await.unwrap();
        assert_eq!(fs.mkdir("/d").await.unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(fs.mkdir("/x/y").await.unwrap_err().kind(), ErrorKind::NotFound);
        write(&fs, "/d/a", b"one").await.unwrap();
        write(&fs, "/d/b", b"two").await.unwrap();
        assert_eq!(fs.rmdir("/d").await.unwrap_err().kind(), ErrorKind::NotEmpty);
        assert_eq!(fs.unlink("/d/e").await.unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(fs.rmdir("/d/a").await.unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(fs.stat("/d/a/z").unwrap_err().kind(), ErrorKind::NotADirectory);
        fs.rename("/d/a", "/d/b").await.unwrap();
        assert_eq!(read(&fs, "/d/b").await.unwrap(), b"one");
        fs.link("/d/b", "/c").await.unwrap();
        assert_eq!(fs.stat("/c").unwrap().links, 2);
        assert_eq!(fs.rename("/d", "/d/e/f").await.unwrap_err().kind(), ErrorKind::Invalid);
        fs.rename("/d", "/g").await.unwrap();
        assert_eq!(read(&fs, "/g/b").await.unwrap(), b"one");
        let names: Vec<_> = fs.read_dir("/").unwrap().into_iter().map(|e| (e.name, e.kind)).collect();
        assert_eq!(names, [("c".into(), FileKind::Data), ("g".into(), FileKind::Directory)]);
        fs.unmount().await.unwrap();
        assert_eq!(fs.stat("/c").unwrap_err().kind(), ErrorKind::Closed);
    });
    drive.check();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/g/b")).unwrap(), b"one");
    assert_eq!(fs.stat("/g").unwrap().size, Bytes(2));
}

#[test]
fn a_reopened_file_is_appended_to_at_its_end() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let mut content = Vec::new();
    drive.run(async {
        for n in 0..30 {
            let writer =
                if n == 0 { fs.create("/a", &data()).await } else { fs.open_append("/a").await }.unwrap();
            let part = bytes(901, n);
            writer.append(&part).await.unwrap();
            writer.close().await.unwrap();
            content.extend_from_slice(&part);
        }
        assert_eq!(read(&fs, "/a").await.unwrap(), content);
        fs.unmount().await.unwrap();
    });
    drive.check();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/a")).unwrap(), content);
}

#[test]
fn truncate_cuts_and_extends_with_zeros() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let mut content = bytes(30_000, 3);
    drive.run(async {
        write(&fs, "/a", &content).await.unwrap();
        for (size, more) in [(20_001, 3), (25_000, 0), (9_000, 5_000), (8_192, 10), (40_000, 1), (0, 9)] {
            fs.truncate("/a", Bytes(size as u64)).await.unwrap();
            content.resize(size, 0);
            assert_eq!(read(&fs, "/a").await.unwrap(), content, "cut to {size}");
            let writer = fs.open_append("/a").await.unwrap();
            writer.append(&bytes(more, 9)).await.unwrap();
            writer.close().await.unwrap();
            content.extend_from_slice(&bytes(more, 9));
            assert_eq!(read(&fs, "/a").await.unwrap(), content, "after {size} and {more}");
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/a")).unwrap(), content);
}

#[test]
fn a_log_survives_a_close_and_a_crash_of_the_process() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let mut content = Vec::new();
    drive.run(async {
        let writer = fs.create("/1.log", &log()).await.unwrap();
        for n in 0..60 {
            let part = bytes(1500 + 40 * usize::from(n), n);
            writer.append(&part).await.unwrap();
            writer.sync().await.unwrap();
            content.extend_from_slice(&part);
        }
        assert_eq!(read(&fs, "/1.log").await.unwrap(), content);
        writer.close().await.unwrap();
        assert_eq!(read(&fs, "/1.log").await.unwrap(), content);
        let again = fs.open_append("/1.log").await.unwrap();
        again.append(b"second epoch").await.unwrap();
        again.sync().await.unwrap();
        content.extend_from_slice(b"second epoch");
        assert_eq!(read(&fs, "/1.log").await.unwrap(), content);
        std::mem::forget(again);
    });
    std::mem::forget(fs);
    drive.check();
    for _ in 0..3 {
        let fs = drive.mount();
        assert_eq!(drive.run(read(&fs, "/1.log")).unwrap(), content);
        drive.run(fs.unmount()).unwrap();
        drive.check();
    }
}

#[test]
fn many_logs_one_after_the_other_leave_no_zones_behind() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        for n in 0..100_u8 {
            let path = format!("/{n}.log");
            let writer = fs.create(&path, &log()).await.unwrap();
            for _ in 0..10 {
                writer.append(&bytes(5000, n)).await.unwrap();
                writer.sync().await.unwrap();
            }
            writer.close().await.unwrap();
            drop(writer);
            if n >= 2 {
                fs.unlink(&format!("/{}.log", n - 2)).await.unwrap();
            }
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn a_full_drive_returns_no_space_still_reads_and_writes_again_after_a_delete() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        let mut written = Vec::new();
        let error = loop {
            let path = format!("/{}", written.len());
            match write(&fs, &path, &bytes(20_000, written.len() as u8)).await {
                Ok(()) => written.push(path),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let stat = fs.statfs();
        assert!(stat.used.0 * 10 > stat.capacity.0 * 9, "{stat:?}");
        for (n, path) in written.iter().enumerate() {
            assert_eq!(read(&fs, path).await.unwrap(), bytes(20_000, n as u8));
        }
        for path in written.iter().step_by(2) {
            fs.unlink(path).await.unwrap();
        }
        for n in 0..written.len() / 2 - 2 {
            write(&fs, &format!("/new{n}"), &bytes(20_000, n as u8)).await.unwrap();
        }
        for (n, path) in written.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(read(&fs, path).await.unwrap(), bytes(20_000, n as u8));
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn five_open_zones_are_enough() {
    let options = EmuOptions { max_open: Some(5), max_active: Some(5), ..EmuOptions::tiny() };
    let (drive, fs) = Drive::formatted(options);
    drive.run(async {
        for n in 0..200_u32 {
            let (wal, file) = (format!("/{}.log", n % 3), format!("/{}", n % 7));
            let log = fs.create(&wal, &log()).await.unwrap();
            log.append(&bytes(9000, n as u8)).await.unwrap();
            log.sync().await.unwrap();
            write(&fs, &file, &bytes(30_000, n as u8)).await.unwrap();
            log.close().await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/3")).unwrap(), bytes(30_000, 199));
}

#[test]
fn format_refuses_a_device_with_data_without_force() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(fs.unmount()).unwrap();
    let dev = drive.dev();
    let error = drive.run(Fs::format(&dev, &FormatOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("force"), "{error}");
    drive.run(Fs::format(&dev, &FormatOptions { force: true, ..FormatOptions::default() })).unwrap();
    drive.check();
}

#[test]
fn a_read_only_mount_writes_nothing() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        let log = fs.create("/a.log", &log()).await.unwrap();
        log.append(b"entry").await.unwrap();
        log.sync().await.unwrap();
        std::mem::forget(log);
    });
    std::mem::forget(fs);
    let before = drive.emu.media().fingerprint();
    drive.run(async {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let fs = Fs::mount(drive.dev(), &options).await.unwrap();
        assert_eq!(read(&fs, "/a.log").await.unwrap(), b"entry");
        assert_eq!(fs.unlink("/a.log").await.unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(fs.create("/b", &data()).await.unwrap_err().kind(), ErrorKind::ReadOnly);
        fs.unmount().await.unwrap();
    });
    assert_eq!(drive.emu.media().fingerprint(), before);
}

#[test]
fn a_second_lock_fails_until_the_first_is_released() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let lock = fs.lock("/db/LOCK").unwrap();
    assert_eq!(fs.lock("/db//LOCK").unwrap_err().kind(), ErrorKind::Busy);
    drop(lock);
    drop(fs.lock("/db/LOCK").unwrap());
    drive.run(fs.unmount()).unwrap();
}

#[test]
fn a_close_whose_future_was_dropped_can_be_repeated() {
    let latency = zoned::emu::Latency::all(std::time::Duration::from_micros(100));
    let (drive, fs) = Drive::formatted(EmuOptions { latency, ..EmuOptions::tiny() });
    drive.run(async {
        for way in 0..2 {
            let path = format!("/log{way}");
            let writer = fs.create(&path, &log()).await.unwrap();
            writer.append(&bytes(3000, 1)).await.unwrap();
            let mut close = Box::pin(writer.close());
            std::future::poll_fn(|cx| {
                assert!(close.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            drop(close);
            // A second close of a writer, or its drop, does nothing.
            if way == 0 {
                writer.close().await.unwrap();
            }
            drop(writer);
            units::sleep_until(&**fs.driver(), fs.driver().now().after(latency.write * 100)).await;
            let writer = fs.open_append(&path).await.unwrap();
            writer.append(&bytes(500, 2)).await.unwrap();
            writer.close().await.unwrap();
            assert_eq!(read(&fs, &path).await.unwrap(), [bytes(3000, 1), bytes(500, 2)].concat());
        }
    });
}
