//! Logs on an emulated drive in a file, and in ordinary files, behind the same calls.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use logs::{Error, Log, LogReader, Options};
use tempfile::TempDir;

/// A folder on a file system with direct I/O.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The places of a log in `folder`: on an emulated drive in a file, and in an ordinary file.
fn places(folder: &TempDir) -> [(PathBuf, Options); 2] {
    let drive = format!("emu:{}?zones=64&zone-size=1MiB", folder.path().join("drive.img").display());
    let on_zones = Options { drive: Some(drive), ..Options::default() };
    [("/wal/app/log.1".into(), on_zones), (folder.path().join("log.1"), Options::default())]
}

/// `len` bytes that are not zero, and differ by record.
fn record(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((n * 7 + i) % 255 + 1) as u8).collect()
}

fn read(path: &PathBuf, options: &Options) -> Vec<u8> {
    let reader = LogReader::open(path, options).unwrap();
    let mut content = vec![0; usize::try_from(reader.len().unwrap()).unwrap()];
    assert_eq!(reader.read_at(0, &mut content).unwrap(), content.len());
    content
}

#[test]
fn a_log_is_written_read_cut_and_continued() {
    let folder = folder();
    for (path, options) in places(&folder) {
        let log = Log::create(&path, &options).unwrap();
        let mut content = Vec::new();
        for n in 0..200 {
            let bytes = record(n, 1 + n * 37 % 1000);
            content.extend_from_slice(&bytes);
            let end = log.append(&bytes).unwrap();
            assert_eq!((end, log.end()), (content.len() as u64, content.len() as u64));
            if n % 3 == 0 {
                log.sync(end).unwrap();
                assert!(log.durable() >= end);
            }
        }
        let end = log.end();
        assert!(matches!(log.sync(end + 1), Err(Error::Log(prio::Error::BehindEnd { .. }))));
        log.close().unwrap();
        assert!(read(&path, &options) == content);

        assert!(matches!(
            Log::open(&path, end + 1, &options),
            Err(Error::Log(prio::Error::BehindFile { .. }))
        ));
        for cut in [end, end - 1, end / 2, 4096, 0] {
            content.truncate(cut as usize);
            let log = Log::open(&path, cut, &options).unwrap();
            assert_eq!((log.end(), log.durable()), (cut, cut));
            content.extend_from_slice(b"more");
            let upto = log.append(b"more").unwrap();
            log.sync(upto).unwrap();
            log.close().unwrap();
            assert!(read(&path, &options) == content, "cut at {cut}");
        }
        logs::remove(&path, &options).unwrap();
        LogReader::open(&path, &options).unwrap_err();
        logs::remove(&path, &options).unwrap_err();
        Log::open(&path, 0, &options).unwrap_err();
    }
}

#[test]
fn a_log_has_one_writer_and_one_creator() {
    let folder = folder();
    for (path, options) in places(&folder) {
        let log = Log::create(&path, &options).unwrap();
        let error = Log::create(&path, &options).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        Log::open(&path, 0, &options).unwrap_err();
        // Dropped without a close.
        drop(log);
        let log = Log::open(&path, 0, &options).unwrap();
        let upto = log.append(b"kept").unwrap();
        log.sync(upto).unwrap();
        drop(log);
        assert!(read(&path, &options).starts_with(b"kept"));
    }
}

#[test]
fn threads_append_and_sync_side_by_side() {
    const THREADS: usize = 8;
    let folder = folder();
    for (path, options) in places(&folder) {
        let log = Arc::new(Log::create(&path, &options).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let log = Arc::clone(&log);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let end = log.append(&[thread as u8 + 1; 100]).unwrap();
                        log.sync(end).unwrap();
                        assert!(log.durable() >= end);
                    }
                });
            }
        });
        Arc::into_inner(log).unwrap().close().unwrap();
        let content = read(&path, &options);
        assert_eq!(content.len(), THREADS * 50 * 100);
        for bytes in content.chunks(100) {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "the bytes of an append stay together");
        }
    }
}

#[test]
fn two_logs_of_a_drive_share_its_mount() {
    let folder = folder();
    let [(path, options), _] = places(&folder);
    let other = PathBuf::from("/other");
    let first = Log::create(&path, &options).unwrap();
    let second = Log::create(&other, &options).unwrap();
    for log in [&first, &second] {
        let end = log.append(b"entry").unwrap();
        log.sync(end).unwrap();
    }
    first.close().unwrap();
    assert_eq!(read(&path, &options), b"entry");
    second.close().unwrap();
    assert_eq!(read(&other, &options), b"entry");
}

#[test]
fn a_drive_that_is_none_and_a_path_that_is_none_are_refused() {
    let folder = folder();
    for drive in ["nonsense:/x", "emu:/no/such/folder/drive.img?zones=64&zone-size=1MiB"] {
        let options = Options { drive: Some(drive.to_owned()), ..Options::default() };
        let error = Log::create("/log", &options).unwrap_err().to_string();
        assert!(error.contains(drive), "{error}");
    }
    let [(_, options), _] = places(&folder);
    for path in ["/", "/a/../b", "/log.furrow-cut"] {
        Log::create(path, &options).unwrap_err();
    }
}

/// A drive that refuses a write: the log says how many bytes are durable, and has them.
#[test]
fn a_log_without_room_fails_and_keeps_what_is_durable() {
    let folder = folder();
    let drive = format!("emu:{}?zones=12&zone-size=256KiB", folder.path().join("drive.img").display());
    let options = Options { drive: Some(drive), ..Options::default() };
    let log = Log::create("/log", &options).unwrap();
    let bytes = record(1, 64 << 10);
    let mut durable = 0;
    let error = loop {
        match log.append(&bytes).and_then(|end| log.sync(end).map(|()| end)) {
            Ok(end) => durable = end,
            Err(error) => break error,
        }
        assert!(durable < 64 << 20, "the drive has 3 MiB");
    };
    assert!(
        matches!(error, Error::Log(prio::Error::Poisoned { durable: at, .. }) if at == durable),
        "{error}"
    );
    assert_eq!(log.durable(), durable);
    assert!(matches!(log.append(b"x"), Err(Error::Log(prio::Error::Poisoned { .. }))));
    // Bytes that are durable already need no write.
    log.sync(durable).unwrap();
    log.close().unwrap_err();
    let content = read(&"/log".into(), &options);
    assert!(content.len() as u64 >= durable);
    for bytes_of_append in content[..durable as usize].chunks(bytes.len()) {
        assert!(*bytes_of_append == bytes[..]);
    }
    // A cut needs room for a copy: without it the log stays as it is, and opens at its end.
    let error = Log::open("/log", durable - 1, &options).unwrap_err().to_string();
    assert!(error.contains("space"), "{error}");
    assert!(read(&"/log".into(), &options) == content);
    let log = Log::open("/log", content.len() as u64, &options).unwrap();
    assert_eq!(log.durable(), content.len() as u64);
    drop(log);
    logs::remove("/log", &options).unwrap();
    let log = Log::create("/log", &options).unwrap();
    let end = log.append(&bytes).unwrap();
    log.sync(end).unwrap();
}

/// Bytes of a record of the program that is killed.
const RECORD: usize = 100;
/// Environment variables: the path of that program's log, and the drive's URL or nothing.
const PATH: &str = "FURROW_TEST_LOG";
const DRIVE: &str = "FURROW_TEST_DRIVE";

#[test]
#[ignore = "the program that another test starts and kills"]
fn program_that_syncs_each_record() {
    let path = std::env::var(PATH).unwrap();
    let options = Options { drive: std::env::var(DRIVE).ok(), ..Options::default() };
    let log = Log::create(path, &options).unwrap();
    for n in 0.. {
        let end = log.append(&record(n, RECORD)).unwrap();
        log.sync(end).unwrap();
        println!("durable {end}");
    }
}

#[test]
fn what_was_synced_is_there_after_a_kill() {
    let folder = folder();
    for (path, options) in places(&folder) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "program_that_syncs_each_record"]);
        command.env(PATH, &path).stdout(Stdio::piped());
        if let Some(drive) = &options.drive {
            command.env(DRIVE, drive);
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let synced = lines.filter_map(|line| line.strip_prefix("durable ")?.parse::<u64>().ok()).nth(300);
        child.kill().unwrap();
        child.wait().unwrap();
        let durable = synced.expect("the program wrote until it was killed");
        let content = read(&path, &options);
        assert!(content.len() as u64 >= durable);
        // Records that are whole and have the right bytes count, as in a program's recovery.
        let is_right = |(n, bytes): &(usize, &[u8])| **bytes == record(*n, RECORD)[..];
        let records = content.chunks(RECORD).enumerate().take_while(is_right).count();
        assert!((records * RECORD) as u64 >= durable, "{records} records, {durable} bytes durable");
        let log = Log::open(&path, durable, &options).unwrap();
        let end = log.append(b"more").unwrap();
        log.close().unwrap();
        assert_eq!(end, durable + 4);
        assert!(read(&path, &options)[..durable as usize] == content[..durable as usize]);
    }
}
