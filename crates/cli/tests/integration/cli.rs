//! Tests of the program's output and its exit codes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use units::RealDriver;

use crate::common::{done, json, refused, run, stderr_of, stdout_of};

const SMALL_DRIVE: &str = "zones=24&zone-size=1MiB";

struct Drive {
    directory: TempDir,
    url: String,
}

impl Drive {
    fn new() -> Drive {
        let directory = TempDir::new().expect("a directory");
        let url = format!("emu:{}?{SMALL_DRIVE}", directory.path().join("drive.img").display());
        Drive { directory, url }
    }

    /// A new emulated drive that holds nothing.
    fn blank() -> Drive {
        let drive = Drive::new();
        drop(zoned::open_or_create(&drive.url, RealDriver::new()).expect("a drive is made"));
        drive
    }

    fn formatted() -> Drive {
        let drive = Drive::new();
        done(&drive.furrow(&["fs", "mkfs", "--label", "test"]));
        drive
    }

    fn furrow(&self, args: &[&str]) -> Output {
        run(Some(&self.url), args)
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

#[test]
fn a_command_without_a_device_names_the_flag() {
    let output = run(None, &["device", "info"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("--device"), "{}", stderr_of(&output));
}

#[test]
fn a_noun_alone_shows_its_verbs() {
    let output = run(None, &["fs"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("mkfs") && stderr_of(&output).contains("check"));
}

#[test]
fn an_unknown_parameter_is_named_and_the_known_ones_are_listed() {
    let output = run(Some("emu:mem?zons=8"), &["device", "info"]);
    refused(&output, 2, &["zons", "zone-size", "max-open"]);
}

#[test]
fn an_unknown_scheme_is_named_and_the_known_ones_are_listed() {
    let output = run(Some("ssd:x"), &["device", "info"]);
    refused(&output, 2, &["ssd", "emu:", "blk:", "nvme:", "array:"]);
}

#[test]
fn a_path_without_a_scheme_is_refused_with_advice() {
    refused(&run(Some("drive.img"), &["device", "info"]), 2, &["drive.img", "emu:"]);
}

#[test]
fn the_properties_of_a_drive_are_shown_and_parse() {
    let drive = Drive::formatted();
    assert!(done(&drive.furrow(&["device", "info"])).contains("1.0 MiB"));
    let info = json(&done(&drive.furrow(&["device", "info", "--json"])));
    assert_eq!((info["zones"].as_u64(), info["zone_size"].as_u64()), (Some(24), Some(1 << 20)));
    let zones = json(&done(&drive.furrow(&["device", "zones", "--json"])));
    assert_eq!(zones.as_array().unwrap().len(), 24);
    assert_eq!(zones[20]["state"], "empty");
}

#[test]
fn a_held_drive_is_refused_with_the_holders_pid() {
    let drive = Drive::new();
    let _holder = zoned::open_or_create(&drive.url, RealDriver::new()).unwrap();
    let pid = std::process::id().to_string();
    for args in [
        &["device", "info"][..],
        &["fs", "ls"],
        &["fs", "mkfs", "--force"],
        &["fs", "check"],
        &["serve"],
        &["ldb"],
    ] {
        refused(&drive.furrow(args), 3, &["drive.img", &pid]);
    }
}

#[test]
fn a_drive_with_data_is_formatted_only_by_force() {
    let drive = Drive::formatted();
    refused(&drive.furrow(&["fs", "mkfs"]), 1, &["--force"]);
    assert!(done(&drive.furrow(&["fs", "mkfs", "--dry-run"])).contains("would refuse"));
    assert!(done(&drive.furrow(&["fs", "df"])).contains("test"), "the dry run left it alone");
    done(&drive.furrow(&["fs", "mkfs", "--force", "--label", "second"]));
    assert!(done(&drive.furrow(&["fs", "df"])).contains("second"));
}

#[test]
fn data_in_a_conventional_zone_is_named_before_it_is_overwritten() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("drive.img");
    let url = format!("emu:{}?zones=24&zone-size=1MiB&conventional=4", file.display());
    {
        use zoned::{Buf, Durability, Lba};
        let dev = zoned::open_or_create(&url, RealDriver::new()).unwrap();
        let mut bytes = vec![0; 128 << 10];
        bytes[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
        dev.write(Lba(0), Buf::copy_from(&bytes), Durability::Durable).wait().unwrap();
        dev.flush().wait().unwrap();
    }
    let force = &["fs", "mkfs", "--force"][..];
    for verb in [&["fs", "mkfs"][..], &["device", "check"], &["device", "bench"]] {
        refused(&run(Some(&url), verb), 1, &["drive.img", "a btrfs file system", "--force"]);
    }
    let dry = done(&run(Some(&url), &["fs", "mkfs", "--dry-run"]));
    assert!(dry.contains("would refuse") && dry.contains("btrfs"), "{dry}");
    let dry = json(&done(&run(Some(&url), &["fs", "mkfs", "--dry-run", "--force", "--json"])));
    assert_eq!(dry["signatures"][0], "a btrfs file system");
    assert_eq!(dry["would"], "make a file system on it");
    assert!(done(&run(Some(&url), force)).contains("btrfs"), "what is lost is shown");
    assert!(done(&run(Some(&url), &["fs", "mkfs", "--dry-run"])).contains("a Furrow file system"));
}

#[test]
fn the_machines_drives_are_listed() {
    let text = done(&run(None, &["device", "list"]));
    assert!(text.contains("no zoned drive") || text.contains("DEVICE"), "{text}");
    assert!(json(&done(&run(None, &["device", "list", "--json"]))).is_array());
}

#[test]
fn a_drive_with_data_is_tested_only_by_force() {
    let drive = Drive::formatted();
    refused(&drive.furrow(&["device", "check"]), 1, &["--force"]);
    done(&drive.furrow(&["fs", "df"]));
}

#[test]
fn a_drive_without_a_file_system_says_how_to_make_one() {
    let output = Drive::blank().furrow(&["fs", "ls"]);
    refused(&output, 1, &["emu:", "superblock", "furrow fs mkfs"]);
}

#[test]
fn a_file_copied_in_and_out_is_unchanged() {
    let drive = Drive::formatted();
    let tree = Path::new(&drive.file("tree")).join("sub");
    std::fs::create_dir_all(&tree).unwrap();
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(tree.join("big"), &big).unwrap();
    std::fs::write(tree.join("empty"), b"").unwrap();
    let from = drive.file("tree");
    assert!(stderr_of(&drive.furrow(&["fs", "cp", &from, "fs:/tree"])).contains("-r"));
    done(&drive.furrow(&["fs", "cp", "-r", &from, "fs:/tree"]));
    let back = drive.file("back");
    done(&drive.furrow(&["fs", "cp", "-r", "fs:/tree", &back]));
    assert_eq!(std::fs::read(Path::new(&back).join("sub/big")).unwrap(), big);
    assert_eq!(std::fs::read(Path::new(&back).join("sub/empty")).unwrap(), b"");
    assert_eq!(drive.furrow(&["fs", "cat", "/tree/sub/big"]).stdout, big);

    let listed = json(&done(&drive.furrow(&["fs", "ls", "-r", "--json"])));
    let paths: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|entry| entry["path"].as_str()).collect();
    assert_eq!(paths, ["/tree", "/tree/sub", "/tree/sub/big", "/tree/sub/empty"]);
    assert!(done(&drive.furrow(&["fs", "check"])).contains("clean"));
    assert!(!done(&drive.furrow(&["fs", "dump"])).is_empty());

    refused(&drive.furrow(&["fs", "rm", "/tree"]), 2, &["--yes"]);
    assert!(
        done(&drive.furrow(&["fs", "rm", "-r", "--dry-run", "/tree"])).contains("would remove /tree/sub/big")
    );
    done(&drive.furrow(&["fs", "rm", "-r", "--yes", "/tree"]));
    assert_eq!(json(&done(&drive.furrow(&["fs", "ls", "--json"]))), Value::Array(Vec::new()));
}

#[test]
fn the_error_of_a_missing_file_names_the_file() {
    refused(&Drive::formatted().furrow(&["fs", "cat", "/nothing"]), 1, &["/nothing", "not found"]);
}

#[test]
fn a_full_drive_has_its_own_exit_code_and_still_reads() {
    let drive = Drive::formatted();
    let big = drive.file("big");
    std::fs::write(&big, vec![7; 30 << 20]).unwrap();
    std::fs::write(drive.file("small"), b"kept").unwrap();
    done(&drive.furrow(&["fs", "cp", &drive.file("small"), "fs:/small"]));
    refused(&drive.furrow(&["fs", "cp", &big, "fs:/big"]), 4, &["no space"]);
    assert_eq!(drive.furrow(&["fs", "cat", "/small"]).stdout, b"kept");
    done(&drive.furrow(&["fs", "cp", &drive.file("small"), "fs:/again"]));
}

/// The paths of all files on the drive.
fn paths(drive: &Drive) -> Vec<String> {
    let listed = json(&done(&drive.furrow(&["fs", "ls", "-r", "--json"])));
    let paths = listed.as_array().expect("a list").iter().filter_map(|entry| entry["path"].as_str());
    paths.map(str::to_owned).collect()
}

#[test]
fn a_failed_copy_leaves_its_target_unchanged() {
    let drive = Drive::formatted();
    std::fs::write(drive.file("big"), vec![7; 30 << 20]).unwrap();
    std::fs::write(drive.file("small"), b"kept").unwrap();
    refused(&drive.furrow(&["fs", "cp", &drive.file("big"), "fs:/big"]), 4, &["no space"]);
    assert_eq!(paths(&drive), [""; 0]);
    done(&drive.furrow(&["fs", "cp", &drive.file("small"), "fs:/big"]));
    refused(&drive.furrow(&["fs", "cp", &drive.file("big"), "fs:/big"]), 4, &["no space"]);
    assert_eq!(paths(&drive), ["/big"]);
    assert_eq!(drive.furrow(&["fs", "cat", "/big"]).stdout, b"kept");
    // The target on the host is a directory, which no file replaces.
    let target = drive.file("directory");
    std::fs::create_dir_all(Path::new(&target).join("big")).unwrap();
    assert_eq!(drive.furrow(&["fs", "cp", "fs:/big", &target]).status.code(), Some(1));
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1, "no part stays");
    assert_eq!(drive.furrow(&["fs", "cp", "fs:/big", "/dev/stdout"]).stdout, b"keptcopied 1 files, 4 B\n");
}

#[test]
fn directories_are_made_on_the_drive() {
    let drive = Drive::formatted();
    std::fs::write(drive.file("small"), b"kept").unwrap();
    let copy = ["fs", "cp", &drive.file("small"), "fs:/a/b/small"];
    refused(&drive.furrow(&copy), 1, &["not found", "/a/b", "furrow fs mkdir -p /a/b"]);
    refused(&drive.furrow(&["fs", "mkdir", "/a/b"]), 1, &["not found"]);
    done(&drive.furrow(&["fs", "mkdir", "-p", "fs:/a/b", "c"]));
    done(&drive.furrow(&["fs", "mkdir", "-p", "/a/b"]));
    refused(&drive.furrow(&["fs", "mkdir", "/a"]), 1, &["/a"]);
    done(&drive.furrow(&copy));
    refused(&drive.furrow(&["fs", "mkdir", "-p", "/a/b/small/d"]), 1, &["/a/b/small"]);
    assert_eq!(paths(&drive), ["/a", "/a/b", "/a/b/small", "/c"]);
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let drive = Drive::formatted();
    done(&drive.furrow(&["fs", "mkdir", "-p", "/a/b"]));
    refused(&drive.furrow(&["fs", "cp", "-r", "fs:/a", "fs:/a/b"]), 2, &["onto itself", "/a/b/a"]);
    refused(&drive.furrow(&["fs", "cp", "-r", "fs:/a", "fs:/"]), 2, &["onto itself"]);
    done(&drive.furrow(&["fs", "cp", "-r", "fs:/a", "fs:/ab"]));
    assert_eq!(paths(&drive), ["/a", "/a/b", "/ab", "/ab/b"]);
}

#[test]
fn the_parts_of_the_space_are_all_of_it() {
    let drive = Drive::formatted();
    // Half of each zone's blocks die: a reclaim does not free them.
    for n in 0..24 {
        let file = drive.file(&format!("{n}"));
        std::fs::write(&file, vec![7; 300 << 10]).unwrap();
        done(&drive.furrow(&["fs", "cp", &file, &format!("fs:/{n}")]));
    }
    for n in (0..24).step_by(3) {
        done(&drive.furrow(&["fs", "rm", &format!("/{n}")]));
    }
    let text = done(&drive.furrow(&["fs", "df"]));
    let percent = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split('(').nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
    };
    let sum = percent("used") + percent("unusable") + percent("free");
    assert!((sum - 100.0).abs() < 1e-9, "{text}");
    let of = json(&done(&drive.furrow(&["fs", "df", "--json"])));
    let bytes = |name: &str| of[name].as_u64().unwrap();
    assert_eq!(bytes("used") + bytes("unusable") + bytes("free"), bytes("capacity"), "{of}");
}

#[test]
fn the_cause_of_a_failure_stands_before_its_context() {
    let drive = Drive::formatted();
    let said = stderr_of(&drive.furrow(&["fs", "cp", "/no/such/file", "fs:/x"]));
    assert!(said.starts_with("furrow: No such file"), "{said}");
}

#[test]
fn a_demo_overwrites_only_files_that_demos_made() {
    let folder = TempDir::new().expect("a directory");
    for (demo, image) in [("demo", "demo.img"), ("demo-array", "drive2.img")] {
        let file = folder.path().join(demo).join(image);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, b"a user's drive").unwrap();
        let output = run(None, &[demo, "--directory", folder.path().to_str().expect("text")]);
        refused(&output, 1, &[image, "not made by this demo"]);
        assert_eq!(std::fs::read(&file).unwrap(), b"a user's drive");
    }
}

#[test]
fn a_copy_between_two_host_paths_is_refused() {
    refused(&Drive::formatted().furrow(&["fs", "cp", "a", "b"]), 2, &["fs:"]);
}

#[test]
fn the_zone_map_shows_every_zone() {
    let drive = Drive::formatted();
    let text = done(&drive.furrow(&["zones"]));
    assert!(text.contains("superblock") && text.contains("free"), "{text}");
    let svg = drive.file("map.svg");
    done(&drive.furrow(&["zones", "--svg", &svg]));
    assert_eq!(std::fs::read_to_string(svg).unwrap().matches("<g>").count(), 24);
    let zones = json(&done(&drive.furrow(&["zones", "--json"])));
    assert_eq!(zones[0]["use"], "superblock");
    assert!(done(&Drive::blank().furrow(&["zones"])).contains("24 zones"), "without a file system too");
}

#[test]
fn an_address_beyond_loopback_needs_a_password() {
    refused(&run(Some("emu:mem"), &["serve", "--bind", "0.0.0.0"]), 2, &["--password-file"]);
}

#[test]
fn a_crash_target_that_does_not_exist_is_refused() {
    let output = run(None, &["crash", "--target", "moon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("engine"), "{}", stderr_of(&output));
}

#[test]
fn a_crash_exploration_of_no_states_is_refused() {
    let output = run(None, &["crash", "--states", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("--states"), "{}", stderr_of(&output));
}

#[test]
fn simulated_clusters_are_the_same_in_two_processes_and_one_run_is_a_part_of_them() {
    let explore = |from: &str, runs: &str| {
        let args = ["crash", "--target", "cluster", "--seed", "7", "--from", from, "--runs", runs, "--json"];
        json(&done(&run(None, &args)))
    };
    let all = explore("0", "100");
    assert_eq!(all["runs"], 100);
    for count in ["lost", "invented", "not_linearizable", "stuck", "diverged"] {
        assert_eq!(all[count], 0, "{all}");
    }
    assert_eq!(all, explore("0", "100"));
    // The digest of runs is the sum of theirs: a run is the same by itself.
    let digest = |found: &Value| found["digest"].as_u64().expect("a number");
    let (most, last) = (explore("0", "99"), explore("99", "1"));
    assert_eq!(digest(&most).wrapping_add(digest(&last)), digest(&all));
}

#[test]
fn no_flag_breaks_a_rule_of_the_file_system() {
    let output = run(None, &["crash", "--states", "1", "--sabotage", "sync"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
}

/// Checks that a failure prints one line of JSON on stdout, and the same words on stderr.
#[track_caller]
fn refused_in_json(output: &Output, code: i32, words: &[&str]) {
    let printed = stdout_of(output);
    assert_eq!(output.status.code(), Some(code), "{printed}{}", stderr_of(output));
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let error = json(&printed).get("error").and_then(|e| e.as_str()).expect("says what failed").to_owned();
    for word in words {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
    assert!(stderr_of(output).contains(&error), "{}", stderr_of(output));
}

#[test]
fn a_failure_is_json_where_json_is_asked_for() {
    let drive = Drive::new();
    let damaged = drive.file("damaged.img");
    std::fs::write(&damaged, "something else").unwrap();
    let damaged = format!("emu:{damaged}");
    for args in [&["fs", "check", "--json"][..], &["device", "info", "--json"], &["--json", "fs", "df"]] {
        refused_in_json(&run(Some(&damaged), args), 2, &["damaged.img"]);
    }
    for args in [&["fs", "check", "--json"][..], &["fs", "ls", "--json"], &["fs", "dump", "--json"]] {
        let output = drive.furrow(args);
        refused_in_json(&output, output.status.code().unwrap(), &["drive.img"]);
        assert!(!output.status.success());
    }
    refused_in_json(&Drive::formatted().furrow(&["fs", "cat", "/nothing", "--json"]), 1, &["/nothing"]);
    refused_in_json(&run(None, &["crash", "--target", "moon", "--json"]), 2, &["moon"]);
}

#[test]
fn a_drive_without_a_file_system_is_named() {
    for args in [&["fs", "ls"][..], &["fs", "check"], &["fs", "dump"]] {
        let output = run(Some("emu:mem?zones=24&zone-size=1MiB"), args);
        let said = stderr_of(&output);
        assert!(!output.status.success() && said.contains("emu:mem"), "{said}");
    }
}

#[test]
fn the_error_of_a_write_protected_drive_gives_advice() {
    let drive = Drive::formatted();
    let file = drive.directory.path().join("drive.img");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    // Root may write every file: the test then checks nothing.
    if std::fs::OpenOptions::new().write(true).open(&file).is_err() {
        refused(&drive.furrow(&["fs", "ls"]), 1, &["drive.img", "write permission"]);
    }
}

#[test]
fn a_command_that_only_reads_makes_no_drive_file() {
    let drive = Drive::new();
    for args in [
        &["fs", "ls"][..],
        &["fs", "df"],
        &["fs", "check"],
        &["fs", "dump"],
        &["device", "info"],
        &["device", "zones"],
        &["zones"],
        &["device", "check", "--dry-run"],
        &["serve", "--no-format", "--port", "0", "--http", "none"],
    ] {
        refused(&drive.furrow(args), 1, &["drive.img", "furrow fs mkfs"]);
        assert!(!drive.directory.path().join("drive.img").exists(), "{args:?}");
    }
    done(&drive.furrow(&["fs", "mkfs", "--dry-run"]));
    assert!(!drive.directory.path().join("drive.img").exists());
}

#[test]
fn what_is_refused_leaves_no_drive_file_behind() {
    let drive = Drive::new();
    let at = |settings: &str| format!("emu:{}?{settings}", drive.file("new.img"));
    let few = at("zones=4&zone-size=1MiB");
    let narrow = at("zones=24&zone-size=1MiB&max-open=3&max-active=3");
    let serve = &["serve", "--port", "0", "--http", "none"][..];
    for (url, words) in [(&few, "too few"), (&narrow, "at least 4")] {
        refused(&run(Some(url), &["fs", "mkfs"]), 1, &["new.img", words]);
        refused(&run(Some(url), serve), 1, &["new.img", words]);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let sound = at(SMALL_DRIVE);
    refused(&run(Some(&sound), &["serve", "--port", &port, "--http", "none"]), 1, &[&port]);
    assert_eq!(std::fs::read_dir(drive.directory.path()).unwrap().count(), 0);
}

#[test]
fn a_truncated_drive_file_is_damage_and_the_error_gives_advice() {
    let drive = Drive::formatted();
    let file =
        std::fs::OpenOptions::new().write(true).open(drive.directory.path().join("drive.img")).unwrap();
    file.set_len(2 << 20).unwrap();
    refused(&drive.furrow(&["fs", "ls"]), 5, &["cut short", "restore"]);
}

#[test]
fn the_error_of_a_missing_device_node_names_the_node() {
    for url in ["blk:/dev/no-such-drive", "nvme:/dev/no-such-drive"] {
        refused(&run(Some(url), &["fs", "ls"]), 1, &[url, "furrow device list"]);
    }
}

#[test]
fn what_is_no_zoned_drive_is_a_wrong_argument() {
    refused(&run(Some("blk:/proc/self/exe"), &["fs", "mkfs", "--force"]), 2, &["emu:"]);
    refused(&run(Some("nvme:/dev/null"), &["fs", "mkfs", "--force"]), 2, &["/dev/null", "character device"]);
}
