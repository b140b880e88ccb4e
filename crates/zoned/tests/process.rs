//! Several processes and one drive file, one of them killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use units::RealDriver;
use zoned::{Action, Blocks, Buf, BufMut, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

/// The environment variable that tells the child, this same program, which drive file to hold.
const HELD_FILE: &str = "FURROW_TEST_HELD_FILE";

/// The lock that is held while a child is started and while a drive is opened: a child inherits this
/// process's open files until it executes.
static ALONE: Mutex<()> = Mutex::new(());

fn open(path: &Path) -> zoned::Result<Arc<dyn ZonedDevice>> {
    zoned::open_or_create(&format!("emu:{}?zones=8&zone-size=1MiB", path.display()), RealDriver::new())
}

fn tagged(tag: u8) -> Buf {
    Buf::copy_from(&[tag; 4096])
}

/// The child process of the test that kills it. Without the environment variable it does nothing.
#[test]
fn a_child_holds_a_drive_until_killed() {
    let Some(path) = std::env::var_os(HELD_FILE) else { return };
    let dev = open(Path::new(&path)).expect("free");
    let append = |zone, tag| dev.append(ZoneId(zone), tagged(tag), Durability::Cached).wait().expect("fits");
    append(1, b'a');
    append(2, b'm');
    dev.flush().wait().expect("flushes");
    append(1, b'b');
    append(3, b'c');
    dev.zone(ZoneId(2), Action::Reset).wait().expect("legal");
    append(2, b'n');
    println!("\nholding");
    loop {
        std::thread::park();
    }
}

fn start_child_that_holds(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "a_child_holds_a_drive_until_killed", "--nocapture"])
        .env(HELD_FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let ready = out.lines().map_while(Result::ok).any(|line| line == "holding");
    assert!(ready, "the child holds the drive");
    child
}

#[test]
fn a_killed_process_loses_unflushed_data_and_leaves_no_lock() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("drive.img");
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = start_child_that_holds(&path);
    drop(alone);
    let error = open(&path).expect_err("held by the child");
    assert_eq!(error.kind(), ErrorKind::Held { pid: child.id() });
    child.kill().expect("killed");
    child.wait().expect("gone");
    let dev = open(&path).expect("free at once");
    let zone_content = |zone| {
        let info = dev.report(zone..zone + 1).wait().expect("reports").remove(0);
        let start = dev.geometry().start(ZoneId(zone));
        let tags: Vec<u8> = (0..info.pointer.0)
            .map(|at| dev.read(start.plus(Blocks(at)), BufMut::zeroed(4096)).wait().expect("readable")[0])
            .collect();
        (info.state, tags)
    };
    assert_eq!(zone_content(1), (ZoneState::Closed, b"a".to_vec()));
    assert_eq!(zone_content(2), (ZoneState::Closed, b"m".to_vec()));
    assert_eq!(zone_content(3), (ZoneState::Empty, vec![]));
}

#[test]
fn a_dropped_drive_can_be_opened_again_at_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("drive.img");
    for round in 0..50_u64 {
        let dev = open(&path).expect("free");
        let at = dev.append(ZoneId(1), tagged(1), Durability::Cached).wait().expect("fits");
        assert_eq!(at, dev.geometry().start(ZoneId(1)).plus(Blocks(round)));
        dev.flush().wait().expect("flushes");
    }
}
