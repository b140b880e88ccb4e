//! Logs in real files.

use std::fs;
use std::sync::Arc;

use prio::{Error, How, LogFile, Options};

/// A folder on a file system with direct I/O: beside the test's program.
fn folder() -> tempfile::TempDir {
    let beside = std::env::current_exe().expect("has a path");
    tempfile::tempdir_in(beside.parent().expect("lies in a folder")).expect("a folder")
}

fn options(how: How) -> Options {
    Options { how, room: 256 << 10, ..Options::default() }
}

fn record(n: u32, len: usize) -> Vec<u8> {
    n.to_le_bytes().iter().copied().cycle().take(len).map(|byte| byte | 1).collect()
}

#[test]
fn a_log_is_its_bytes_then_zeros_and_after_closing_its_bytes() {
    for how in [How::Request, How::Thread] {
        let folder = folder();
        let path = folder.path().join("log");
        let log = LogFile::create(&path, &options(how)).expect("creates");
        let mut wanted = Vec::new();
        for n in 0..200 {
            let record = record(n, 1 + (n as usize * 37) % 9000);
            wanted.extend_from_slice(&record);
            let end = log.append(&record).expect("appends");
            assert_eq!(end, wanted.len() as u64);
            if n % 3 == 0 {
                log.sync(end).expect("syncs");
                assert!(log.durable() >= end);
            }
        }
        log.sync(log.end()).expect("syncs");
        let found = fs::read(&path).expect("reads");
        assert!(found.starts_with(&wanted) && found[wanted.len()..].iter().all(|byte| *byte == 0), "{how:?}");
        log.close().expect("closes");
        assert!(fs::read(&path).expect("reads") == wanted, "{how:?}");
    }
}

#[test]
fn threads_append_and_sync_side_by_side() {
    let folder = folder();
    let path = folder.path().join("log");
    let log = Arc::new(LogFile::create(&path, &options(How::Request)).expect("creates"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..100 {
                    let end = log.append(&record(thread * 1000 + n, 100)).expect("appends");
                    log.sync(end).expect("syncs");
                }
            });
        }
    });
    Arc::into_inner(log).expect("the threads have ended").close().expect("closes");
    let found = fs::read(&path).expect("reads");
    let mut records: Vec<&[u8]> = found.chunks(100).collect();
    records.sort();
    let mut wanted: Vec<Vec<u8>> =
        (0..4).flat_map(|t| (0..100).map(move |n| record(t * 1000 + n, 100))).collect();
    wanted.sort();
    assert!(records == wanted.iter().map(|r| &r[..]).collect::<Vec<_>>());
}

#[test]
fn a_log_goes_on_where_its_last_record_ends_and_drops_what_lies_behind() {
    let folder = folder();
    let path = folder.path().join("log");
    let log = LogFile::create(&path, &options(How::Request)).expect("creates");
    log.sync(log.append(&[5; 6000]).expect("appends")).expect("syncs");
    drop(log);
    let log = LogFile::open(&path, 4500, &options(How::Request)).expect("opens");
    log.sync(log.append(&[6; 10]).expect("appends")).expect("syncs");
    let found = fs::read(&path).expect("reads");
    assert!(found[..4500].iter().all(|b| *b == 5) && found[4500..4510].iter().all(|b| *b == 6));
    assert!(found[4510..].iter().all(|b| *b == 0), "the old bytes are gone");
    log.close().expect("closes");
    assert_eq!(fs::metadata(&path).expect("is there").len(), 4510);
}

#[test]
fn wrong_uses_are_refused_in_words_and_lose_nothing() {
    let folder = folder();
    let path = folder.path().join("log");
    let log = LogFile::create(&path, &options(How::Request)).expect("creates");
    log.sync(log.append(b"kept").expect("appends")).expect("syncs");
    let text = |error: Error| error.to_string();
    let again = LogFile::open(&path, 4, &options(How::Request)).expect_err("is open");
    assert!(text(again).contains("one writer"));
    assert!(
        text(LogFile::create(&path, &options(How::Request)).expect_err("exists")).contains("cannot open")
    );
    assert!(text(log.sync(5).expect_err("was never appended")).contains("4 bytes were appended"));
    let wrong = Options { block: 1000, ..Options::default() };
    assert!(
        text(LogFile::create(folder.path().join("b"), &wrong).expect_err("no power of two"))
            .contains("power of two")
    );
    let memory =
        LogFile::create(format!("/dev/shm/furrow-prio-{}", std::process::id()), &options(How::Request));
    assert!(text(memory.expect_err("a file system in memory")).contains("no direct I/O"));
    let lost = folder.path().join("lost");
    let no_writer = Options { writer: "/nonexistent".into(), ..options(How::Process) };
    assert!(text(LogFile::create(&lost, &no_writer).expect_err("no writer")).contains("cannot start"));
    assert!(!lost.exists(), "a failed creation leaves no file");
    log.close().expect("closes");
    let behind = LogFile::open(&path, 5, &options(How::Request)).expect_err("is shorter");
    assert!(text(behind).contains("has 4 bytes"));
    assert_eq!(fs::read(&path).expect("reads"), b"kept");
}
