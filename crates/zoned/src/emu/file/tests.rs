use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use units::VirtualDriver;
use zerocopy::{FromBytes, IntoBytes};

use crate::emu::file::format::{Damage, Entry, Header, TableEntry};
use crate::emu::{Emu, EmuOptions};
use crate::{
    Action, Blocks, Buf, BufMut, Durability, ErrorKind, Lba, Result, ZoneId, ZoneState, ZonedDevice,
};

const BLOCK_BYTES: usize = 4096;

fn options() -> EmuOptions {
    EmuOptions {
        conventional: 1,
        zones: 8,
        zone_size: Blocks(1024),
        zone_capacity: Blocks(1000),
        ..EmuOptions::tiny()
    }
}

struct TempDrivePath {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn temp_drive_path() -> TempDrivePath {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("drive.img");
    TempDrivePath { _folder: folder, path }
}

fn open(path: &Path) -> Result<Arc<Emu>> {
    Emu::open_file(path, Some(options()), VirtualDriver::new(1))
}

fn tagged(tag: u8, count: usize) -> Buf {
    Buf::copy_from(&vec![tag; BLOCK_BYTES * count])
}

fn append(dev: &Arc<Emu>, zone: u32, tag: u8, count: usize) {
    let dev: Arc<dyn ZonedDevice> = dev.clone();
    dev.append(ZoneId(zone), tagged(tag, count), Durability::Cached).wait().expect("fits");
}

fn flush(dev: &Arc<Emu>) {
    let dev: Arc<dyn ZonedDevice> = dev.clone();
    dev.flush().wait().expect("flushes");
}

fn act(dev: &Arc<Emu>, zone: u32, action: Action) {
    let dev: Arc<dyn ZonedDevice> = dev.clone();
    dev.zone(ZoneId(zone), action).wait().expect("legal");
}

/// The state of a zone and the tags of its blocks.
fn zone_content(dev: &Arc<Emu>, zone: u32) -> (ZoneState, Vec<u8>) {
    let dev: Arc<dyn ZonedDevice> = dev.clone();
    let info = dev.report(zone..zone + 1).wait().expect("reports").remove(0);
    let start = dev.geometry().start(ZoneId(zone));
    let tags = (0..info.pointer.0).map(|block| {
        let data = dev.read(start.plus(Blocks(block)), BufMut::zeroed(BLOCK_BYTES)).wait().expect("readable");
        assert!(data.iter().all(|b| *b == data[0]));
        data[0]
    });
    (info.state, tags.collect())
}

#[test]
fn flushed_data_survives_a_restart_and_unflushed_data_does_not() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    append(&dev, 1, b'a', 3);
    act(&dev, 2, Action::Finish);
    flush(&dev);
    append(&dev, 1, b'b', 2);
    append(&dev, 3, b'c', 1);
    assert_eq!(zone_content(&dev, 1), (ZoneState::ImplicitOpen, b"aaabb".to_vec()));
    drop(dev);
    let dev = open(&place.path).expect("opens");
    assert_eq!(zone_content(&dev, 1), (ZoneState::Closed, b"aaa".to_vec()));
    assert_eq!(zone_content(&dev, 2).0, ZoneState::Full);
    assert_eq!(zone_content(&dev, 3), (ZoneState::Empty, vec![]));
    append(&dev, 1, b'd', 1);
    assert_eq!(zone_content(&dev, 1).1, b"aaad");
}

#[test]
fn a_durable_write_needs_no_flush() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    append(&dev, 1, b'a', 1);
    append(&dev, 2, b'x', 1);
    let shared: Arc<dyn ZonedDevice> = dev.clone();
    shared.append(ZoneId(1), tagged(b'b', 1), Durability::Durable).wait().expect("fits");
    drop((dev, shared));
    let dev = open(&place.path).expect("opens");
    assert_eq!(zone_content(&dev, 1).1, b"ab");
    assert_eq!(zone_content(&dev, 2).1, b"");
}

#[test]
fn without_a_volatile_cache_everything_is_durable_at_once() {
    let place = temp_drive_path();
    let settings = EmuOptions { volatile_cache: false, ..options() };
    let dev = Emu::open_file(&place.path, Some(settings), VirtualDriver::new(1)).expect("made");
    append(&dev, 1, b'a', 2);
    append(&dev, 2, b'x', 2);
    act(&dev, 2, Action::Reset);
    drop(dev);
    let refused = open(&place.path).expect_err("another cache was asked for");
    assert!(refused.to_string().contains("cache=volatile"), "{refused}");
    let dev = Emu::open_file(&place.path, None, VirtualDriver::new(1)).expect("opens");
    assert_eq!(zone_content(&dev, 1).1, b"aa");
    assert_eq!(zone_content(&dev, 2), (ZoneState::Empty, vec![]));
}

#[test]
fn a_reset_and_new_content_replace_the_old_at_the_flush_and_never_mix() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    append(&dev, 1, b'a', 8);
    flush(&dev);
    act(&dev, 1, Action::Reset);
    append(&dev, 1, b'b', 3);
    assert_eq!(zone_content(&dev, 1).1, b"bbb");
    drop(dev);
    let dev = open(&place.path).expect("opens");
    assert_eq!(zone_content(&dev, 1).1, b"aaaaaaaa");
    act(&dev, 1, Action::Reset);
    append(&dev, 1, b'b', 3);
    flush(&dev);
    drop(dev);
    assert_eq!(zone_content(&open(&place.path).expect("opens"), 1), (ZoneState::Closed, b"bbb".to_vec()));
}

#[test]
fn conventional_blocks_are_overwritten_at_the_flush() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    let shared: Arc<dyn ZonedDevice> = dev.clone();
    let put = |at, tag, n| shared.write(Lba(at), tagged(tag, n), Durability::Cached).wait().expect("fits");
    put(3, b'a', 4);
    flush(&dev);
    put(4, b'b', 2);
    assert_eq!(zone_content(&dev, 0).1[..8], *b"\0\0\0abba\0");
    drop((dev, shared));
    assert_eq!(zone_content(&open(&place.path).expect("opens"), 0).1[..8], *b"\0\0\0aaaa\0");
}

#[test]
fn the_error_of_a_second_open_names_the_holder() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    let error = open(&place.path).expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Held { pid: std::process::id() });
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    drop(dev);
    open(&place.path).expect("free again");
}

#[test]
fn a_dropped_drive_is_free_while_a_forked_child_has_a_copy_of_its_file() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    let copy = dev.media.drive.as_ref().expect("a drive file").file.try_clone().expect("copied");
    drop(dev);
    open(&place.path).expect("free again");
    drop(copy);
}

#[test]
fn a_truncated_or_foreign_file_is_refused_with_the_reason() {
    let place = temp_drive_path();
    drop(open(&place.path).expect("made"));
    let file = OpenOptions::new().write(true).open(&place.path).expect("there");
    let len = file.metadata().expect("has one").len();
    let refusal = || open(&place.path).expect_err("damaged");
    file.set_len(len - 1).expect("truncates");
    assert!(refusal().to_string().contains("cut short"), "{}", refusal());
    assert!(refusal().to_string().contains("restore"), "{}", refusal());
    assert_eq!(refusal().kind(), ErrorKind::Damaged);
    file.set_len(len).expect("grows");
    file.write_all_at(b"x", 50).expect("writes");
    assert!(refusal().to_string().contains("checksum"), "{}", refusal());
    file.write_all_at(&[9], 16).expect("writes");
    assert!(refusal().to_string().contains("version 9"), "{}", refusal());
    file.write_all_at(b"something else  ", 0).expect("writes");
    assert!(refusal().to_string().contains("no drive file"), "{}", refusal());
    file.set_len(40).expect("truncates");
    assert!(refusal().to_string().contains("too few"), "{}", refusal());
    assert_eq!(refusal().kind(), ErrorKind::Invalid);
}

#[test]
fn opening_makes_a_file_only_where_one_is_asked_for() {
    let place = temp_drive_path();
    let url = format!("emu:{}?zones=8&zone-size=1MiB", place.path.display());
    let refused = |url: &str| crate::open(url, VirtualDriver::new(1)).expect_err("nothing is there");
    assert_eq!(refused(&url).kind(), ErrorKind::NotFound);
    assert!(refused(&url).to_string().contains("furrow fs mkfs"), "{}", refused(&url));
    assert!(!place.path.exists());
    let none = Emu::open_file(&place.path, None, VirtualDriver::new(1)).expect_err("no settings, no file");
    assert_eq!(none.kind(), ErrorKind::NotFound);
    std::fs::write(&place.path, []).expect("an empty file");
    assert_eq!(refused(&url).kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::metadata(&place.path).expect("there").len(), 0);
    drop(crate::open_or_create(&url, VirtualDriver::new(1)).expect("made"));
    assert_eq!(crate::open(&url, VirtualDriver::new(1)).expect("opens").geometry().zones, 8);
}

#[test]
fn a_torn_table_entry_falls_back_to_the_one_before() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    append(&dev, 1, b'a', 1);
    flush(&dev);
    append(&dev, 1, b'b', 1);
    flush(&dev);
    drop(dev);
    let file = OpenOptions::new().read(true).write(true).open(&place.path).expect("there");
    // In zone 1's table entry the sequence 2 lies in slot 0.
    file.write_all_at(&[0xff; 4], 8192 + 64 + 16).expect("writes");
    assert_eq!(zone_content(&open(&place.path).expect("opens"), 1).1, b"a");
    file.write_all_at(&[0xff; 4], 8192 + 96 + 16).expect("writes");
    assert!(open(&place.path).expect_err("both are damaged").to_string().contains("of zone 1"));
}

#[test]
fn settings_that_contradict_the_file_are_named_with_both_values() {
    let place = temp_drive_path();
    let at = place.path.display();
    let try_open = |query: &str| crate::open_or_create(&format!("emu:{at}{query}"), VirtualDriver::new(1));
    drop(try_open("?zones=8&zone-size=1MiB").expect("made"));
    drop(try_open("").expect("what is not said is the file's"));
    drop(try_open("?zone-size=1MiB&delay=1ms").expect("agrees"));
    for (query, parts) in [
        ("?zones=9", ["zones=9", "has 8"]),
        ("?zone-size=2MiB", ["zone-size=2MiB", "1.0MiB"]),
        ("?cache=none", ["cache=none", "volatile"]),
    ] {
        let text = try_open(query).expect_err(query).to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn more_unflushed_data_than_the_bound_goes_to_the_file_unasked() {
    let place = temp_drive_path();
    let settings =
        EmuOptions { zone_size: Blocks(16_384), zone_capacity: Blocks(16_384), conventional: 0, ..options() };
    let reopen =
        || Emu::open_file(&place.path, Some(settings.clone()), VirtualDriver::new(1)).expect("opens");
    let dev = reopen();
    for _ in 0..16_384 / 8 + 1 {
        append(&dev, if pointer_in_report(&dev, 1) < 16_384 { 1 } else { 2 }, b'a', 8);
    }
    drop(dev);
    let dev = reopen();
    assert!(pointer_in_report(&dev, 1) == 16_384);
}

fn pointer_in_report(dev: &Arc<Emu>, zone: u32) -> u64 {
    let dev: Arc<dyn ZonedDevice> = dev.clone();
    dev.report(zone..zone + 1).wait().expect("reports").remove(0).pointer.0
}

#[test]
fn a_worn_zone_stays_worn() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    append(&dev, 1, b'a', 1);
    dev.wear(ZoneId(1), ZoneState::ReadOnly);
    flush(&dev);
    drop(dev);
    assert_eq!(zone_content(&open(&place.path).expect("opens"), 1), (ZoneState::ReadOnly, b"a".to_vec()));
}

#[test]
fn a_copy_of_the_medium_reads_like_the_drive() {
    let place = temp_drive_path();
    let dev = open(&place.path).expect("made");
    (0..100).for_each(|_| append(&dev, 1, b'a', 1));
    flush(&dev);
    append(&dev, 1, b'b', 5);
    let copy = Emu::from_media(dev.media(), "copy", crate::emu::Latency::NONE, VirtualDriver::new(1));
    assert_eq!(zone_content(&copy, 1), zone_content(&dev, 1));
}

#[test]
fn a_large_sparse_drive_costs_next_to_nothing() {
    let place = temp_drive_path();
    let url = format!("emu:{}?zones=75000&zone-size=96MiB", place.path.display());
    let dev = crate::open_or_create(&url, VirtualDriver::new(1)).expect("made");
    assert_eq!(dev.geometry().zones, 75_000);
    let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&place.path).expect("there"));
    assert!(used * 512 < 1 << 20, "{used} sectors");
}

/// Writes to the drive file since the last call, as offset and bytes, and `None` for each sync.
type Journal = Vec<Option<(u64, Vec<u8>)>>;

thread_local! {
    static JOURNAL: std::cell::RefCell<Journal> = const { std::cell::RefCell::new(Vec::new()) };
}

pub(super) fn note_write(what: Option<(u64, &[u8])>) {
    JOURNAL.with_borrow_mut(|journal| journal.push(what.map(|(at, bytes)| (at, bytes.to_vec()))));
}

#[test]
fn the_hosts_own_power_loss_never_mixes_old_and_new_content() {
    use crate::emu::{Choose, Seeded};
    let settings =
        EmuOptions { zone_size: Blocks(16), zone_capacity: Blocks(14), conventional: 0, ..options() };
    let place = temp_drive_path();
    let open =
        |path: &Path| Emu::open_file(path, Some(settings.clone()), VirtualDriver::new(1)).expect("opens");
    let dev = open(&place.path);
    append(&dev, 1, b'a', 8);
    flush(&dev);
    let base = std::fs::read(&place.path).expect("readable");
    JOURNAL.take();
    act(&dev, 1, Action::Reset);
    append(&dev, 1, b'b', 3);
    flush(&dev);
    let first_flush = JOURNAL.with_borrow(Vec::len);
    append(&dev, 1, b'c', 2);
    act(&dev, 1, Action::Reset);
    append(&dev, 1, b'd', 6);
    flush(&dev);
    let journal = JOURNAL.take();
    assert!(first_flush > 4 && journal.len() > first_flush + 4);
    let image = place.path.with_extension("cut");
    let mut seen = std::collections::BTreeSet::new();
    for end in 0..=journal.len() {
        let synced = journal[..end].iter().rposition(Option::is_none).unwrap_or(0);
        for seed in 0..8 {
            let mut choose = Seeded::new(seed * 1000 + end as u64);
            let mut bytes = base.clone();
            for (index, what) in journal[..end].iter().enumerate() {
                if let Some((at, data)) = what
                    && (index < synced || choose.choose(2) == 0)
                {
                    bytes[*at as usize..][..data.len()].copy_from_slice(data);
                }
            }
            std::fs::write(&image, &bytes).expect("writable");
            let (_, tags) = zone_content(&open(&image), 1);
            let old: &[&[u8]] = if end < first_flush { &[b"aaaaaaaa"] } else { &[] };
            let new: &[&[u8]] = if end < journal.len() { &[b"", b"bbb", b"dddddd"] } else { &[b"dddddd"] };
            assert!(old.contains(&&tags[..]) || new.contains(&&tags[..]), "after {end}: {tags:?}");
            seen.insert(tags);
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// A drive file's header and two zone table entries as version 1 writes them.
fn golden_bytes() -> Vec<u8> {
    let uuid = *b"0123456789abcdef";
    let header =
        Header::new(&EmuOptions { conventional: 2, max_active: None, ..EmuOptions::default() }, uuid);
    let closed = TableEntry { state: ZoneState::Closed, sequence: 7, written: 1234, resets: 3 };
    let full = TableEntry { state: ZoneState::Full, sequence: 8, written: 16_384, resets: 1 };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(closed.encode(&uuid, 2).as_bytes());
    bytes.extend_from_slice(full.encode(&uuid, 3).as_bytes());
    bytes
}

#[test]
fn the_golden_file_of_version_1_reads_and_writes_back_byte_for_byte() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/emu-drive-v1.bin");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, golden_bytes()).expect("writable");
    }
    let bytes = std::fs::read(path).expect("committed");
    assert_eq!(bytes, golden_bytes());
    let header = Header::decode(&bytes).expect("valid");
    let options = header.options("x".into());
    assert_eq!((options.zones, options.conventional, options.max_active), (256, 2, None));
    let entry = |from: usize| Entry::read_from_bytes(&bytes[from..from + 32]).expect("whole");
    let closed = TableEntry::decode(&entry(128), &header.uuid, 2, 1).expect("valid").expect("written");
    assert_eq!((closed.state, closed.written, closed.resets), (ZoneState::Closed, 1234, 3));
    assert!(TableEntry::decode(&entry(128), &header.uuid, 3, 1).is_err(), "bound to its zone");
    assert!(TableEntry::decode(&entry(128), &header.uuid, 2, 0).is_err(), "bound to its slot");
    assert!(TableEntry::decode(&entry(128), &[0; 16], 2, 1).is_err(), "bound to its drive");
}

proptest::proptest! {
    #[test]
    fn any_bytes_give_a_header_or_an_error(mut bytes in proptest::collection::vec(0_u8.., 0..200), whole: bool) {
        if whole {
            let good = golden_bytes();
            let n = bytes.len().min(20);
            bytes.splice(..n, good[..n].iter().copied());
        }
        let _either: std::result::Result<Header, Damage> = Header::decode(&bytes);
        if let Ok((entry, _)) = Entry::read_from_prefix(&bytes) {
            let _either = TableEntry::decode(&entry, &[7; 16], 3, 1);
        }
    }
}
