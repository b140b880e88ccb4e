//! A log whose writer is a process of its own.

use std::path::Path;
use std::process::Command;

use prio::{Error, How, LogFile, Options};

const WRITER: &str = env!("CARGO_BIN_EXE_furrow-prio-writer");

fn options() -> Options {
    Options { how: How::Process, writer: WRITER.into(), room: 1 << 20, ..Options::default() }
}

/// The processes that this one has started and not waited for.
fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("lists");
    let children =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.flatten().map(children).collect();
    all.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

// One test: it looks for the process's children.
#[test]
fn a_log_with_a_writer_process_is_its_bytes_and_dies_with_the_writer_in_words() {
    let folder =
        tempfile::tempdir_in(Path::new(WRITER).parent().expect("lies in a folder")).expect("a folder");
    let path = folder.path().join("log");
    let log = LogFile::create(&path, &options()).expect("creates");
    assert_eq!(children().len(), 1);
    let mut wanted = Vec::new();
    for n in 0..60_u32 {
        // Some are longer than a message, and than all that the socket takes at once.
        let record = vec![n as u8 + 1; 1 + (n as usize * 4099) % 9000 + usize::from(n % 20 == 7) * 700_000];
        wanted.extend_from_slice(&record);
        let end = log.append(&record).expect("appends");
        if n % 2 == 0 {
            log.sync(end).expect("syncs");
        }
    }
    log.close().expect("closes");
    assert!(std::fs::read(&path).expect("reads") == wanted);
    let log = LogFile::open(&path, wanted.len() as u64, &options()).expect("opens");
    log.sync(log.append(b"kept").expect("appends")).expect("syncs");
    let [writer] = children()[..] else { panic!("one writer: {:?}", children()) };
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &writer.to_string()]).status().expect("runs").success());
    };
    // Signals that a whole process group gets leave the writer to its program, which may close the log in order.
    for name in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        signal(name);
        log.sync(log.append(b"on").expect("appends")).expect("the writer lives");
    }
    signal("-9");
    let error = loop {
        match log.append(b"lost").and_then(|end| log.sync(end)) {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, Error::Poisoned { durable, .. } if *durable >= wanted.len() as u64 + 4),
        "{error}"
    );
    assert!(error.to_string().contains("writer process is dead"), "{error}");
    let kept = log.durable();
    drop(log);
    let log = LogFile::open(&path, kept, &options()).expect("opens");
    log.close().expect("closes");
    let found = std::fs::read(&path).expect("reads");
    assert!(found.starts_with(&wanted) && found[wanted.len()..].starts_with(b"kept"));
    assert_eq!(children().len(), 0, "no writer is left");

    // Programs that are no writers.
    for (program, word) in
        [("/nonexistent", "cannot start"), ("/bin/true", "no log's writer"), ("/bin/echo", "no log's writer")]
    {
        let refused =
            LogFile::open(&path, kept, &Options { writer: program.into(), ..options() }).expect_err(program);
        assert!(refused.to_string().contains(word), "{program}: {refused}");
    }
}
