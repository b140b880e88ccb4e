//! Tests of every verb of `furrow array`, its refusals and its exit codes.

mod zone_sizes;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{done, json, run, stderr_of, stdout_of};

/// Parameters of small drives, with which an array of four is made quickly.
const SMALL_DRIVE: &str = "zones=24&zone-size=2MiB";

/// A directory of a test's own with drive files.
struct ArrayDirectory {
    folder: TempDir,
}

impl ArrayDirectory {
    fn new() -> ArrayDirectory {
        ArrayDirectory { folder: TempDir::new().expect("a directory") }
    }

    /// A directory with an array of four drives, and a file system with a file on the array.
    fn filled() -> ArrayDirectory {
        let barn = ArrayDirectory::new();
        barn.create(&[]);
        done(&run(Some(&barn.array(0..4)), &["fs", "mkfs"]));
        std::fs::write(barn.path("source"), ArrayDirectory::content()).expect("a file");
        done(&run(Some(&barn.array(0..4)), &["fs", "cp", &barn.text("source"), "fs:/kept"]));
        barn
    }

    fn content() -> Vec<u8> {
        (0..1_000_000_u32).flat_map(|n| n.to_le_bytes()).collect()
    }

    fn create(&self, more: &[&str]) {
        let drives: Vec<String> = (0..4).map(|n| self.new_drive(n)).collect();
        let args =
            ["array", "create", "--label", "barn"].into_iter().chain(drives.iter().map(String::as_str));
        done(&run(None, &args.chain(more.iter().copied()).collect::<Vec<_>>()));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn drive(&self, number: u32) -> String {
        format!("emu:{}", self.text(&format!("{number}.img")))
    }

    /// The URL with which a new drive file is made.
    fn new_drive(&self, number: u32) -> String {
        format!("{}?{SMALL_DRIVE}", self.drive(number))
    }

    fn array(&self, numbers: impl IntoIterator<Item = u32>) -> String {
        format!("array:{}", numbers.into_iter().map(|n| self.drive(n)).collect::<Vec<_>>().join(","))
    }

    #[track_caller]
    fn check_file_on_array(&self, array: &str) {
        let back = self.text("back");
        done(&run(Some(array), &["fs", "cp", "fs:/kept", &back]));
        assert!(std::fs::read(&back).expect("a copy") == ArrayDirectory::content(), "the file differs");
        std::fs::remove_file(back).expect("a copy");
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).expect("a directory").count()
    }

    fn remove_drive_file(&self, number: u32) {
        std::fs::rename(self.path(&format!("{number}.img")), self.path(&format!("{number}.lost")))
            .expect("a drive");
    }
}

/// Checks that the program failed with `code`, and that the last line, after the log's warnings, has `words`.
#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = stderr_of(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("furrow: "), "{said}");
    for word in words {
        assert!(last.contains(word), "'{word}' is not in: {said}");
    }
}

fn status(array: &str) -> (Option<i32>, Value) {
    let output = run(Some(array), &["array", "status", "--json"]);
    (output.status.code(), json(&stdout_of(&output)))
}

fn member_states(view: &Value) -> Vec<&str> {
    view["members"]
        .as_array()
        .expect("members")
        .iter()
        .filter_map(|member| member["state"].as_str())
        .collect()
}

#[test]
fn a_device_that_is_no_array_is_refused() {
    let verbs: [&[&str]; 9] = [
        &["status"],
        &["monitor", "--once"],
        &["fail", "0"],
        &["replace", "0", "emu:mem"],
        &["rebuild"],
        &["scrub"],
        &["check"],
        &["dump"],
        &["destroy"],
    ];
    for verb in verbs {
        let line: Vec<&str> = ["array"].into_iter().chain(verb.iter().copied()).collect();
        // `array status` and `array monitor --once` report with exit codes 1 and 2 how many drives are lacking.
        let tells = matches!(verb, ["status"] | ["monitor", "--once"]);
        let unknown = if tells { 6 } else { 2 };
        refused(&run(Some("emu:mem"), &line), unknown, &["no array", "array:URL,URL,URL"]);
        refused(&run(Some("array:emu:mem,x"), &line), unknown, &["did you mean emu:x"]);
        let unknown = if tells { 6 } else { 1 };
        refused(&run(Some("array:no-such-barn"), &line), unknown, &["no file no-such-barn", "array:URL"]);
        refused(&run(Some("array:emu:/no/a,emu:/no/b"), &line), unknown, &["none of its members"]);
    }
    refused(&run(Some("array:"), &["fs", "ls"]), 2, &["array:URL,URL,URL"]);
    let output = run(None, &["array", "status"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("--device"), "{}", stderr_of(&output));
    refused(&run(None, &["array", "fail", "--url", "ftp://x", "1"]), 2, &["http://127.0.0.1:9121"]);
    // No program listens on port 9 of loopback.
    refused(
        &run(None, &["array", "fail", "--url", "http://127.0.0.1:9", "1"]),
        1,
        &["127.0.0.1:9", "furrow serve"],
    );
}

#[test]
fn create_refuses_unfit_drives_and_leaves_no_files() {
    let barn = ArrayDirectory::new();
    let drive = |n| barn.new_drive(n);
    let create = |more: &[&str]| {
        run(None, &["array", "create"].into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let output = create(&[&drive(0), &drive(1)]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
    refused(&create(&[&drive(0), &drive(1), &drive(0)]), 2, &["named twice"]);
    refused(&create(&[&drive(0), &drive(1), "array:a,b"]), 2, &["not an array"]);
    refused(&create(&[&drive(0), &drive(1), "blk:/dev/no-such"]), 1, &["/dev/no-such"]);
    let other = format!("{}?{SMALL_DRIVE}&block-size=512", barn.drive(2));
    refused(&create(&[&drive(0), &drive(1), &other]), 2, &["blocks of 512 bytes"]);
    refused(
        &create(&["--stripe-unit", "5000", &drive(0), &drive(1), &drive(2)]),
        2,
        &["stripe unit of 5000"],
    );
    let dry = done(&create(&["--dry-run", &drive(0), &drive(1), &drive(2)]));
    assert!(dry.contains("would make") && dry.contains("20 zones"), "{dry}");
    assert_eq!(barn.files(), 0);
}

#[test]
fn create_overwrites_a_drive_with_data_only_with_force() {
    let barn = ArrayDirectory::new();
    done(&run(Some(&barn.new_drive(1)), &["fs", "mkfs"]));
    let drives = [0, 1, 2].map(|n| barn.new_drive(n));
    let create = ["array", "create", &drives[0], &drives[1], &drives[2]];
    refused(&run(None, &create), 1, &["1.img", "Furrow file system", "--force"]);
    assert_eq!(barn.files(), 1, "a drive file was made for an array that was refused");
    done(&run(Some(&barn.drive(1)), &["fs", "check"]));
    done(&run(None, &[&create[..], &["--force"]].concat()));
    assert_eq!(status(&barn.array(0..3)).0, Some(0));
    // A drive that is a member of an array counts as holding data too.
    refused(&run(None, &create), 1, &["member of a Furrow array"]);
}

#[test]
fn an_array_is_named_by_a_file_that_lists_its_drives() {
    let barn = ArrayDirectory::new();
    let list = barn.text("barn.array");
    barn.create(&["--save", &list]);
    let array = format!("array:{list}");
    let (code, view) = status(&array);
    assert_eq!((code, view["label"].as_str()), (Some(0), Some("barn")));
    let again = [3, 4, 5].map(|n| barn.new_drive(n));
    let create = ["array", "create", "--save", &list, &again[0], &again[1], &again[2]];
    refused(&run(None, &create), 1, &["there already"]);
    done(&run(Some(&array), &["fs", "mkfs"]));
    done(&run(Some(&array), &["array", "fail", "2"]));
    // The replacement adds the new drive to the list file.
    done(&run(Some(&array), &["array", "replace", "2", &barn.new_drive(7)]));
    let (code, view) = status(&array);
    assert_eq!((code, member_states(&view)), (Some(0), vec!["good"; 4]));
    assert!(view["members"][2]["drive"].as_str().is_some_and(|name| name.ends_with("7.img")), "{view}");
}

#[test]
fn the_exit_code_of_status_says_how_the_array_is() {
    let barn = ArrayDirectory::filled();
    let array = barn.array([3, 1, 0, 2]);
    let (code, view) = status(&array);
    assert_eq!(
        (code, view["health"].as_str(), member_states(&view)),
        (Some(0), Some("clean"), vec!["good"; 4])
    );
    let shown = done(&run(Some(&array), &["array", "status"]));
    assert!(shown.contains("clean") && shown.contains("64.0 KiB") && shown.contains("3.img"), "{shown}");

    barn.remove_drive_file(2);
    let output = run(Some(&array), &["array", "status", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("2.img"), "a missing member is named: {}", stderr_of(&output));
    assert_eq!(json(&stdout_of(&output))["members"][2]["state"], "missing");
    barn.check_file_on_array(&array);
    done(&run(Some(&array), &["fs", "check"]));
    // The array was used without the drive, which counts as failed from then on.
    assert_eq!(member_states(&status(&array).1), ["good", "good", "failed", "good"]);

    barn.remove_drive_file(0);
    assert_eq!(status(&array).0, Some(2));
    refused(&run(Some(&array), &["fs", "ls"]), 1, &["one drive only"]);
}

#[test]
fn two_copies_of_a_drive_and_drives_of_another_array_are_refused() {
    let barn = ArrayDirectory::filled();
    std::fs::copy(barn.path("1.img"), barn.path("8.img")).expect("a copy");
    let twice = barn.array([0, 1, 2, 3, 8]);
    refused(&run(Some(&twice), &["fs", "ls"]), 2, &["two drives", "leave one out"]);
    // All superblocks say that the array is clean, and yet no mount takes the drives.
    let (code, view) = status(&twice);
    assert_eq!(
        (code, view["health"].as_str(), member_states(&view)),
        (Some(2), Some("failed"), vec!["good"; 4])
    );
    assert!(view["mount_error"].as_str().is_some_and(|error| error.contains("leave one out")), "{view}");
    let shown = run(Some(&twice), &["array", "status"]);
    assert_eq!(shown.status.code(), Some(2));
    assert!(stdout_of(&shown).contains("cannot be mounted: "), "{}", stdout_of(&shown));
    assert_eq!(status(&barn.array(0..4)).1["mount_error"], Value::Null);
    barn.check_file_on_array(&barn.array(0..4));

    let other = ArrayDirectory::filled();
    let mixed = format!("{},{}", barn.array(0..3), other.drive(3));
    for verb in [&["fs", "ls"][..], &["array", "check"], &["array", "destroy", "--force"]] {
        refused(&run(Some(&mixed), verb), 2, &["array"]);
    }
    assert_eq!(run(Some(&mixed), &["array", "status"]).status.code(), Some(6));
    barn.check_file_on_array(&barn.array(0..4));

    // A drive that the array was used without for a while does not become a member again by itself.
    done(&run(Some(&barn.array([0, 1, 2])), &["fs", "ls"]));
    assert_eq!(member_states(&status(&barn.array(0..4)).1), ["good", "good", "good", "failed"]);
    barn.check_file_on_array(&barn.array(0..4));
}

#[test]
fn a_drive_is_failed_replaced_and_the_new_one_carries_the_array() {
    let barn = ArrayDirectory::filled();
    let array = barn.array(0..4);
    refused(&run(Some(&array), &["array", "fail", "4"]), 2, &["4 slots", "no 4"]);
    refused(&run(Some(&array), &["array", "replace", "1", &barn.new_drive(5)]), 2, &["is good", "fail 1"]);
    assert!(!barn.path("5.img").exists(), "a drive file was made for what was refused");
    let dry = done(&run(Some(&array), &["array", "fail", "1", "--dry-run"]));
    assert!(dry.contains("would fail drive 1") && dry.contains("1.img"), "{dry}");
    assert_eq!(status(&array).0, Some(0));

    done(&run(Some(&array), &["array", "fail", "1"]));
    let view = status(&array).1;
    assert_eq!(member_states(&view), ["good", "failed", "good", "good"]);
    assert_eq!(view["failures_left"], 0);
    refused(&run(Some(&array), &["array", "fail", "1"]), 2, &["failed or missing already"]);
    refused(&run(Some(&array), &["array", "fail", "2"]), 2, &["does without one only", "replace"]);
    refused(&run(Some(&array), &["array", "rebuild"]), 1, &["no rebuild is under way", "replace it"]);
    barn.check_file_on_array(&array);

    // The array refuses new drives that are too small, hold data, or are arrays.
    let tiny = format!("{}?zones=8&zone-size=2MiB", barn.drive(6));
    refused(&run(Some(&array), &["array", "replace", "1", &tiny]), 2, &["8 sequential zones", "needs 24"]);
    let narrow = format!("{}?{SMALL_DRIVE}&max-open=5&max-active=5", barn.drive(6));
    refused(
        &run(Some(&array), &["array", "replace", "1", &narrow]),
        2,
        &["5 zones of the drive can be open", "needs 14"],
    );
    assert!(!barn.path("6.img").exists(), "a drive file was made for what was refused");
    refused(&run(Some(&array), &["array", "replace", "1", "array:x"]), 2, &["is an array"]);
    refused(&run(Some(&array), &["array", "replace", "9", &barn.new_drive(5)]), 2, &["no drive 9"]);
    done(&run(Some(&barn.new_drive(5)), &["fs", "mkfs"]));
    let replace = ["array", "replace", "1", &barn.drive(5)];
    refused(&run(Some(&array), &replace), 1, &["5.img", "Furrow file system", "--force"]);
    let dry = run(Some(&array), &[&replace[..], &["--dry-run"]].concat());
    let said = String::from_utf8_lossy(&dry.stdout);
    assert!(said.contains("would refuse") && said.contains("--force"), "{dry:?}");
    assert_eq!(dry.status.code(), Some(1), "as the order itself would end");
    refused(&run(Some(&array), &[&replace[..], &["--max-rate", "1KiB"]].concat()), 2, &["64 KiB/s"]);
    done(&run(Some(&barn.drive(5)), &["fs", "check"]));

    let rebuilt = done(&run(Some(&array), &[&replace[..], &["--force"]].concat()));
    assert!(rebuilt.contains("drive 1 is emu:") && rebuilt.contains("the array is clean"), "{rebuilt}");
    // The URL that the array is opened by does not name the new drive.
    assert!(rebuilt.contains("among the members") && rebuilt.contains(&barn.drive(5)), "{rebuilt}");
    let array = barn.array([0, 5, 2, 3]);
    let (code, view) = status(&array);
    assert_eq!((code, member_states(&view)), (Some(0), vec!["good"; 4]));
    let idle = done(&run(Some(&array), &["array", "rebuild"]));
    assert!(idle.contains("nothing is rebuilt"), "{idle}");
    // Without one more of the old drives, the content of the new drive is needed.
    for lost in [0, 3] {
        let others = barn.array([0, 5, 2, 3].into_iter().filter(|n| *n != lost));
        let copies: Vec<u32> = [0, 5, 2, 3].into_iter().filter(|n| *n != lost).collect();
        let kept = ArrayDirectory::new();
        for n in &copies {
            std::fs::copy(barn.path(&format!("{n}.img")), kept.path(&format!("{n}.img"))).expect("a copy");
        }
        kept.check_file_on_array(&kept.array(copies));
        assert_eq!(status(&others).0, Some(1));
    }
}

#[test]
fn check_dump_and_destroy_read_the_metadata_of_the_drives() {
    let barn = ArrayDirectory::filled();
    let array = barn.array(0..4);
    let checked = json(&done(&run(Some(&array), &["array", "check", "--json"])));
    assert_eq!(checked["errors"], 0, "{checked}");
    let dumped = done(&run(Some(&array), &["array", "dump"]));
    assert!(dumped.contains("drive 3 of array") && dumped.contains("superblock"), "{dumped}");
    let dumped = json(&done(&run(Some(&array), &["array", "dump", "--json"])));
    assert_eq!(dumped[1]["slot"], 1);
    assert!(dumped[1]["records"].as_array().is_some_and(|records| !records.is_empty()), "{dumped}");

    refused(&run(Some(&array), &["array", "destroy"]), 1, &["barn", "--force"]);
    let dry = done(&run(Some(&array), &["array", "destroy", "--dry-run"]));
    assert!(dry.contains("would destroy"), "{dry}");
    barn.check_file_on_array(&array);
    let gone = done(&run(Some(&array), &["array", "destroy", "--yes"]));
    assert!(gone.contains("destroyed on") && gone.contains("0.img"), "{gone}");
    refused(&run(Some(&array), &["array", "status"]), 6, &["none of the drives is a member"]);
    refused(&run(Some(&array), &["fs", "ls"]), 1, &["none of the drives is a member"]);
}

#[test]
fn a_scrub_finds_nothing_on_a_sound_array() {
    let barn = ArrayDirectory::filled();
    let found = json(&done(&run(Some(&barn.array(0..4)), &["array", "scrub", "--json"])));
    assert!(found["stripes"].as_u64().is_some_and(|stripes| stripes > 10), "{found}");
    assert_eq!((&found["mismatches"], &found["read_errors"]), (&Value::from(0), &Value::from(0)));
}

#[test]
fn monitor_once_exits_as_status_does_and_runs_the_command_for_each_event() {
    let barn = ArrayDirectory::filled();
    let array = barn.array(0..4);
    let log = barn.text("log");
    let command = format!("echo $FURROW_EVENT $FURROW_HEALTH $FURROW_LABEL >> {log}");
    let once = ["array", "monitor", "--once", "--exec", &command];
    let output = run(Some(&array), &once);
    assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(0), ""));
    assert!(!barn.path("log").exists(), "nothing happened");
    done(&run(Some(&array), &["array", "fail", "3"]));
    let output = run(Some(&array), &once);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout_of(&output).contains("barn: degraded: "), "{}", stdout_of(&output));
    assert_eq!(std::fs::read_to_string(&log).expect("the command ran"), "degraded degraded barn\n");
    // An unknown health has neither the exit code of one lacking drive nor that of two.
    for nobody in ["array:nobody", "array:"] {
        let output = run(Some(nobody), &once);
        assert_eq!(output.status.code(), run(Some(nobody), &["array", "status"]).status.code());
        assert!(output.status.code() > Some(2), "{}", stderr_of(&output));
    }
}

#[test]
fn a_member_alone_is_refused_with_the_name_of_its_array() {
    let barn = ArrayDirectory::filled();
    let member = barn.drive(2);
    for args in [
        &["fs", "df"][..],
        &["fs", "ls"],
        &["fs", "check"],
        &["fs", "dump"],
        &["serve", "--port", "0", "--http", "none"],
        &["ldb"],
    ] {
        let output = run(Some(&member), args);
        refused(&output, 2, &["2.img", "drive 2 of the 4 of array 'barn'", "--device array:"]);
        assert!(!stderr_of(&output).contains("mkfs"), "{}", stderr_of(&output));
    }
    let output = run(Some(&member), &["zones"]);
    assert!(stderr_of(&output).contains("drive 2 of the 4 of array 'barn'"), "{}", stderr_of(&output));
    assert!(!stderr_of(&output).contains("mkfs") && done(&output).contains("24 zones"));
}

#[test]
fn create_says_how_much_of_larger_drives_stays_unused() {
    let barn = ArrayDirectory::new();
    let large = format!("{}?zones=48&zone-size=2MiB", barn.drive(2));
    let drives = [&barn.new_drive(0)[..], &barn.new_drive(1), &large];
    let create = |more: &[&str]| run(None, &[&["array", "create"], more, &drives].concat());
    for text in [done(&create(&["--dry-run"])), done(&create(&[]))] {
        assert!(text.contains("2.img: 48.0 MiB of 96.0 MiB stay unused"), "{text}");
        assert!(!text.contains("1.img: "), "{text}");
    }
    let made = json(&done(&create(&["--force", "--json"])));
    assert_eq!(made["unused"].as_array().map(Vec::len), Some(1), "{made}");
    assert_eq!(made["unused"][0]["bytes"], 48 << 20, "{made}");
}

#[test]
fn drives_with_conventional_zones_form_an_array_and_are_recognized_as_its_members() {
    let barn = ArrayDirectory::new();
    // Each drive has 24 sequential zones.
    let smr = |number: u32, conventional: u32| {
        let zones = 24 + conventional;
        format!("{}?zones={zones}&zone-size=2MiB&conventional={conventional}", barn.drive(number))
    };
    let drives = [smr(0, 4), smr(1, 0), smr(2, 70), smr(3, 1)];
    {
        let dev = zoned::open_or_create(&drives[0], units::RealDriver::new()).expect("a drive");
        let mut bytes = vec![0; 128 << 10];
        bytes[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
        let data = zoned::Buf::copy_from(&bytes);
        dev.write(zoned::Lba(0), data, zoned::Durability::Durable).wait().expect("written");
        dev.flush().wait().expect("flushed");
    }
    let args = |more: &[&str]| -> Vec<String> {
        let args = ["array", "create", "--label", "barn"].iter().chain(more).map(ToString::to_string);
        args.chain(drives.iter().cloned()).collect()
    };
    let create = |more| run(None, &args(more).iter().map(String::as_str).collect::<Vec<_>>());
    refused(&create(&[]), 1, &["0.img", "a btrfs file system", "--force"]);
    let made = done(&create(&["--force"]));
    assert!(made.contains("0.img: 8.0 MiB of 56.0 MiB stay unused"), "{made}");
    assert!(made.contains("its 4 conventional zones stay as they are") && !made.contains("1.img:"), "{made}");

    let array = barn.array(0..4);
    done(&run(Some(&array), &["fs", "mkfs"]));
    std::fs::write(barn.path("source"), ArrayDirectory::content()).expect("a file");
    done(&run(Some(&array), &["fs", "cp", &barn.text("source"), "fs:/kept"]));
    for member in [barn.drive(0), barn.drive(2)] {
        refused(&run(Some(&member), &["fs", "df"]), 2, &["of the 4 of array 'barn'", "--device array:"]);
        refused(&run(Some(&member), &["fs", "mkfs"]), 1, &["of the 4 of array 'barn'", "--force"]);
        let zones = run(Some(&member), &["zones"]);
        assert!(stderr_of(&zones).contains("of the 4 of array 'barn'"), "{}", stderr_of(&zones));
    }
    let dump = done(&run(Some(&array), &["array", "dump"]));
    let own = (70..73).any(|zone| dump.contains(&format!("  zone {zone} block")));
    assert!(own, "records are shown in the drive's own zones: {dump}");

    done(&run(Some(&array), &["array", "fail", "2"]));
    let small = format!("{}?zones=25&zone-size=2MiB&conventional=2", barn.drive(5));
    refused(&run(Some(&array), &["array", "replace", "2", &small]), 2, &["23 sequential zones", "needs 24"]);
    done(&run(Some(&array), &["array", "replace", "2", &smr(6, 2)]));
    let array = barn.array([0, 1, 6, 3]);
    assert_eq!(member_states(&status(&array).1), ["good"; 4]);
    barn.check_file_on_array(&array);
    done(&run(Some(&array), &["array", "check", "--deep"]));
    let blank = zoned::open(&barn.drive(0), units::RealDriver::new()).expect("a drive");
    let head = blank.read(zoned::Lba(0), zoned::BufMut::zeroed(128 << 10)).wait().expect("read");
    assert_eq!(head[(64 << 10) + 64..][..8], *b"_BHRfS_M", "the conventional zone keeps its content");
}

/// A child process that ends with the test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A running `furrow serve`.
struct Server {
    child: KilledOnDrop,
    pages: String,
    log: Option<JoinHandle<String>>,
}

impl Server {
    fn start(array: &str, more: &[&str]) -> Server {
        let child = Command::new(env!("CARGO_BIN_EXE_furrow"))
            .args(["serve", "--device", array, "--port", "0", "--http", "127.0.0.1:0"])
            .args(more)
            .env_remove("FURROW_DEVICE")
            .env("FURROW_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = KilledOnDrop(child.expect("a server"));
        let stderr = child.0.stderr.take().expect("a pipe");
        let log = std::thread::Builder::new().spawn(move || std::io::read_to_string(stderr).expect("text"));
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let pages = line.split("status on ").nth(1).map(|url| url.trim().trim_end_matches('/').to_owned());
        let pages = pages.unwrap_or_else(|| panic!("the server printed '{line}'"));
        Server { pages, child, log: Some(log.expect("a thread")) }
    }

    fn array(&self, args: &[&str]) -> Output {
        run(
            None,
            &["array"]
                .into_iter()
                .chain(args.iter().copied())
                .chain(["--url", &self.pages])
                .collect::<Vec<_>>(),
        )
    }

    /// Sends an HTTP request unchanged; returns the server's answer.
    fn raw(&self, request: &str) -> String {
        let mut stream =
            TcpStream::connect(self.pages.trim_start_matches("http://")).expect("the server's pages");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn page(&self, path: &str) -> String {
        self.raw(&format!("GET {path} HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n"))
    }
}

impl Drop for Server {
    /// The server logs errors only, and an operator's orders are none: the log is empty.
    fn drop(&mut self) {
        self.child.0.kill().ok();
        let log = self.log.take().expect("dropped once").join().expect("no panic");
        if !std::thread::panicking() {
            assert_eq!(log, "");
        }
    }
}

#[test]
fn an_array_that_a_server_holds_is_failed_and_replaced_through_its_pages() {
    let barn = ArrayDirectory::new();
    barn.create(&[]);
    let array = barn.array(0..4);
    // The array is emulated and blank, so the server makes a file system.
    let server = Server::start(&array, &[]);
    refused(&run(Some(&array), &["array", "status"]), 3, &["in use", "--url"]);
    assert_eq!(json(&done(&server.array(&["status", "--json"])))["health"], "clean");
    assert!(server.page("/").contains("Array barn: clean"));
    assert!(server.page("/metrics").contains("furrow_array_members{state=\"good\"} 4"));

    let log = barn.text("log");
    let exec = format!("echo $FURROW_EVENT $FURROW_SLOT >> {log}");
    let monitor = Command::new(env!("CARGO_BIN_EXE_furrow"))
        .args(["array", "monitor", "--url", &server.pages, "--interval", "50ms", "--exec", &exec, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut monitor = KilledOnDrop(monitor.expect("a monitor"));
    // The monitor prints its first line after the first poll, and only later events: the test waits for the line.
    let mut stderr = BufReader::new(monitor.0.stderr.take().expect("a pipe")).lines();
    assert_eq!(
        stderr.next().expect("the monitor polls").expect("a line"),
        "furrow: watching array barn: clean"
    );
    let mut lines = BufReader::new(monitor.0.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("the monitor goes on").expect("a line");
        json(&line)
    };

    refused(&server.array(&["fail", "7"]), 2, &["no 7"]);
    refused(&server.array(&["replace", "2", &barn.new_drive(5)]), 2, &["is good"]);
    assert_eq!(json(&done(&server.array(&["rebuild", "--cancel", "--json"])))["cancelled"], false);
    done(&server.array(&["fail", "2"]));
    assert_eq!(server.array(&["status"]).status.code(), Some(1));
    assert!(server.page("/metrics").contains("furrow_array_health 1"));
    assert!(server.page("/healthz").starts_with("HTTP/1.0 200"), "writes are taken without a drive");
    refused(&server.array(&["fail", "3"]), 2, &["does without one only"]);
    let event = next();
    assert_eq!((&event["event"], &event["slot"]), (&Value::from("drive-failed"), &Value::from(2)));
    assert_eq!(next()["event"], "degraded");

    done(&run(Some(&barn.new_drive(5)), &["fs", "mkfs"]));
    refused(&server.array(&["replace", "2", &barn.drive(5)]), 1, &["holds", "--force"]);
    let rebuilt = done(&server.array(&["replace", "2", "--force", &barn.drive(5)]));
    assert!(rebuilt.contains("5.img") && rebuilt.contains("the array is clean"), "{rebuilt}");
    assert_eq!(server.array(&["status"]).status.code(), Some(0));
    assert!(server.page("/").contains("5.img"));
    assert_eq!(next()["event"], "rebuild-started");
    // The monitor's poll may fall between the drive's admission and the end of the rebuild.
    let mut last = [next(), next()].map(|event| event["event"].as_str().unwrap_or_default().to_owned());
    last.sort();
    assert_eq!(last, ["clean", "rebuild-ended"]);
    drop(server);
    let last = next();
    assert_eq!(last["event"], "unreachable");
    drop(monitor);
    let events = std::fs::read_to_string(&log).expect("the command ran");
    assert!(events.starts_with("drive-failed 2\ndegraded\nrebuild-started 2\n"), "{events}");
    assert_eq!(status(&barn.array([0, 1, 5, 3])).0, Some(0));
}

#[test]
fn a_spare_takes_the_place_of_a_failed_drive_without_an_order() {
    let barn = ArrayDirectory::filled();
    let list = barn.text("members");
    let urls: Vec<String> = (0..4).map(|n| barn.drive(n)).collect();
    std::fs::write(&list, urls.join("\n")).expect("a list of members");
    let array = format!("array:{list}");
    let tiny = format!("{}?zones=8&zone-size=2MiB", barn.drive(6));
    refused(&run(Some(&array), &["array", "spare", "add", &tiny]), 2, &["8 sequential zones", "needs 24"]);
    assert!(!barn.path("6.img").exists(), "a drive file was made for what was refused");
    done(&run(Some(&barn.new_drive(5)), &["fs", "mkfs"]));
    let add = ["array", "spare", "add", &barn.drive(5)];
    refused(&run(Some(&array), &add), 1, &["5.img", "Furrow file system", "--force"]);
    let dry = run(Some(&array), &[&add[..], &["--dry-run"]].concat());
    assert_eq!(dry.status.code(), Some(1), "as the order itself would end: {dry:?}");
    let added = done(&run(Some(&array), &[&add[..], &["--force"]].concat()));
    assert!(added.contains("spare") && added.contains("5.img"), "{added}");
    let text = std::fs::read_to_string(&list).expect("the list");
    assert!(text.contains(&barn.drive(5)), "{text}");
    refused(&run(Some(&barn.drive(5)), &["fs", "mkfs"]), 1, &["array"]);
    refused(&run(Some(&array), &["array", "spare", "remove", "emu:none"]), 1, &["no idle spare", "emu:none"]);
    // A spare that is given up leaves the list of members.
    done(&run(Some(&array), &["array", "spare", "remove", &barn.drive(5)]));
    let text = std::fs::read_to_string(&list).expect("the list");
    assert!(!text.contains(&barn.drive(5)) && text.contains(&barn.drive(3)), "{text}");
    done(&run(Some(&array), &[&add[..], &["--force"]].concat()));

    let server = Server::start(&array, &[]);
    assert!(server.page("/metrics").contains("furrow_array_spares{state=\"spare\"} 1"));
    done(&server.array(&["fail", "2"]));
    // Each look is a process of some milliseconds.
    let views = (0..2000).map(|_| json(&stdout_of(&server.array(&["status", "--json"]))));
    let is_over = |view: &Value| view["last_rebuild"] != Value::Null;
    let view = views.into_iter().find(is_over).expect("the rebuild onto the spare ends");
    assert_eq!(view["failures_left"], 1, "{view}");
    assert_eq!((&view["health"], &view["spares"]), (&Value::from("clean"), &Value::Array(Vec::new())));
    assert!(view["members"][2]["drive"].as_str().is_some_and(|drive| drive.contains("5.img")), "{view}");
    let events: Vec<&str> =
        view["events"].as_array().expect("events").iter().filter_map(|e| e["event"].as_str()).collect();
    assert_eq!(events, ["drive-failed", "spare-used", "rebuild-started", "rebuild-ended"]);
    // A spare that a server's order adds, and whose drive is missing afterwards, is given up by its UUID.
    done(&server.array(&["spare", "add", &barn.new_drive(7)]));
    drop(server);
    barn.remove_drive_file(7);
    let server = Server::start(&array, &[]);
    let view = json(&done(&server.array(&["status", "--json"])));
    assert_eq!(view["spares"][0]["state"], "missing", "{view}");
    assert_eq!(view["events"][0]["event"], "spare-missing", "{view}");
    assert!(server.page("/").contains("<td>spare</td><td>missing</td>"));
    let uuid = view["spares"][0]["uuid"].as_str().expect("a UUID");
    let shown = done(&server.array(&["spare", "remove", uuid]));
    assert!(!shown.contains(uuid), "{shown}");
    drop(server);
    barn.remove_drive_file(0);
    barn.check_file_on_array(&array);
}

#[test]
fn a_cancelled_job_has_ended_when_the_order_returns() {
    let barn = ArrayDirectory::filled();
    let server = Server::start(&barn.array(0..4), &[]);
    done(&server.array(&["fail", "2"]));
    let new = barn.new_drive(5);
    done(&server.array(&["replace", "2", &new, "--max-rate", "64KiB", "--no-wait"]));
    assert_eq!(json(&done(&server.array(&["rebuild", "--cancel", "--json"])))["cancelled"], true);
    let output = server.array(&["status", "--json"]);
    assert_eq!(json(&stdout_of(&output))["rebuild"], Value::Null, "{}", stdout_of(&output));
}

#[test]
fn orders_are_taken_from_programs_and_not_from_web_pages() {
    let barn = ArrayDirectory::new();
    barn.create(&[]);
    let secret = barn.text("secret");
    std::fs::write(&secret, "open sesame\n").expect("a file");
    let server = Server::start(&barn.array(0..4), &["--password-file", &secret]);
    let order = |headers: &str| {
        let body = "{\"slot\":1}";
        server.raw(&format!(
            "POST /array/fail HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        ))
    };
    let json_kind = "content-type: application/json\r\n";
    let key = "authorization: Bearer open sesame\r\n";
    assert!(order(key).contains(" 415 "));
    assert!(order(&format!("{json_kind}{key}origin: http://evil.example\r\n")).contains(" 403 "));
    assert!(order(&format!("{json_kind}{key}sec-fetch-site: cross-site\r\n")).contains(" 403 "));
    assert!(order(json_kind).contains(" 401 "));
    assert!(order(&format!("{json_kind}authorization: Bearer guess\r\n")).contains(" 401 "));
    refused(&server.array(&["fail", "1"]), 1, &["password", "--password-file"]);
    assert_eq!(json(&done(&server.array(&["status", "--json"])))["health"], "clean");
    done(&server.array(&["fail", "1", "--password-file", &secret]));
    assert_eq!(server.array(&["status"]).status.code(), Some(1));
}

#[test]
fn a_server_without_an_array_says_so() {
    let barn = ArrayDirectory::new();
    let server = Server::start(&format!("{}?zones=24&zone-size=2MiB", barn.drive(0)), &[]);
    refused(&server.array(&["status"]), 6, &["on no array"]);
    refused(&server.array(&["fail", "1"]), 1, &["on no array"]);
    assert!(!server.page("/metrics").contains("furrow_array"));
}
