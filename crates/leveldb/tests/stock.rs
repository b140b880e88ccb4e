//! Tests of Debian's python3-plyvel, unmodified, on emulated drives.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

mod common;
use common::{Drive, compile, run, run_successfully};

#[test]
fn a_database_below_the_root_lies_on_the_drive() {
    let drive = Drive::new();
    let write =
        "db = plyvel.DB(root + '/made/by/the/way/db', create_if_missing=True, write_buffer_size=1 << 16)
for n in range(4000): db.put(b'%d' % n, b'v%d' % n * 30)
db.compact_range()
db.delete(b'7', sync=True)";
    run_successfully(drive.python(write));
    assert!(drive.host_is_empty());
    let read = "db = plyvel.DB(root + '//made/./by/the/way/db/')
assert db.get(b'3999') == b'v3999' * 30 and db.get(b'7') is None
print(sum(1 for _ in db))";
    assert_eq!(run_successfully(drive.python(read)), "3999\n");
    let relative = "os.chdir(root); print(plyvel.DB('made/by/the/way/db').get(b'8')[:2])";
    assert_eq!(run_successfully(drive.python(relative)), "b'v8'\n");
    let destroy = "plyvel.destroy_db(root + '/made/by/the/way/db')
plyvel.DB(root + '/made/by/the/way/db')";
    assert!(run(drive.python(destroy)).contains("does not exist"));
}

#[test]
fn a_database_elsewhere_stays_on_the_host() {
    let drive = Drive::new();
    let script = "db = plyvel.DB(elsewhere + '/db', create_if_missing=True)
db.put(b'a', b'b', sync=True)";
    run_successfully(drive.python(script));
    assert!(drive.elsewhere().join("db/CURRENT").exists());
    assert!(!drive.elsewhere().join("drive.img").exists(), "no drive was needed");
}

#[test]
fn the_second_process_is_told_who_holds_the_drive() {
    let drive = Drive::new();
    let hold = "db = plyvel.DB(root + '/db', create_if_missing=True)
print('open', flush=True)
sys.stdin.read()";
    let mut holder = drive.python(hold).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    let said = run(drive.python("plyvel.DB(root + '/db')"));
    assert!(said.contains(&format!("stop process {}", holder.id())), "{said}");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    run_successfully(drive.python("plyvel.DB(root + '/db')"));
}

#[test]
fn a_database_is_opened_once_at_a_time() {
    let drive = Drive::new();
    let script = "db = plyvel.DB(root + '/db', create_if_missing=True)
try: plyvel.DB(root + '/db')
except plyvel.IOError as error: print(error)
db.close()
plyvel.DB(root + '/db')";
    let said = run_successfully(drive.python(script));
    assert!(said.contains("the lock is held by this process"), "{said}");
}

#[test]
fn a_forked_child_gets_errors_and_its_parent_goes_on() {
    let drive = Drive::new();
    let script = "db = plyvel.DB(root + '/db', create_if_missing=True)
db.put(b'a', b'b')
child = os.fork()
if child == 0:
    for attempt in (lambda: db.put(b'c', b'd'), lambda: plyvel.DB(root + '/other', create_if_missing=True)):
        try: attempt(); print('done')
        except plyvel.IOError as error: print(error)
    plyvel.DB(elsewhere + '/db', create_if_missing=True).put(b'g', b'h', sync=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
db.put(b'e', b'f', sync=True)
db.close()
print([key for key, _ in plyvel.DB(root + '/db')])";
    let said = run_successfully(drive.python(script));
    assert_eq!(said.matches("forked from one that has mounted a drive").count(), 2, "{said}");
    assert!(said.ends_with("[b'a', b'e']\n"), "{said}");
}

#[test]
fn nonsense_in_the_environment_is_an_error_and_nothing_is_made_on_the_host() {
    let open = "plyvel.DB(root + '/db', create_if_missing=True)";
    for (name, value) in [
        ("FURROW_LEVELDB", ""),
        ("FURROW_LEVELDB", "flash:/dev/null"),
        ("FURROW_LEVELDB_ROOT", "relative"),
        ("FURROW_LEVELDB_ROOT", "/a/../b"),
        ("FURROW_LEVELDB_FLUSH", "disk"),
        ("FURROW_LEVELDB_RUT", "/a"),
        ("FURROW_CACHE", "much"),
        ("FURROW_WAL_BUFFER", "none"),
    ] {
        let drive = Drive::new();
        let mut command = drive.python(open);
        command.env(name, value);
        let said = run(command);
        let named = if value.starts_with("flash") { value } else { name };
        assert!(
            said.contains("plyvel._plyvel") && said.matches(named).count() >= 2,
            "{name}={value}: {said}"
        );
        assert!(drive.host_is_empty(), "{name}={value}");
    }
    let drive = Drive::new();
    for missing in ["FURROW_LEVELDB", "FURROW_LEVELDB_ROOT"] {
        let mut command = drive.python(open);
        command.env_remove(missing);
        let said = run(command);
        assert!(said.contains("plyvel._plyvel") && said.contains(missing), "{missing}: {said}");
    }
    assert!(drive.host_is_empty());
}

#[test]
fn without_settings_the_library_says_that_the_host_is_used() {
    let drive = Drive::new();
    let mut command = drive.python("plyvel.DB(root + '/db', create_if_missing=True)");
    let output = command.env_remove("FURROW_LEVELDB").env_remove("FURROW_LEVELDB_ROOT").output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("stay on the host"));
    assert!(drive.root().join("db/CURRENT").exists());
}

#[test]
fn a_name_with_two_dots_at_the_root_is_refused() {
    let drive = Drive::new();
    for name in ["root + '/x/../db'", "elsewhere + '/x/../root/db'"] {
        let said = run(drive.python(&format!("plyvel.DB({name}, create_if_missing=True)")));
        assert!(said.contains("write it without '..'"), "{name}: {said}");
    }
    assert!(drive.host_is_empty());
    let outside = "os.mkdir(elsewhere + '/x'); plyvel.DB(elsewhere + '/x/../db', create_if_missing=True)";
    run_successfully(drive.python(outside));
    assert!(drive.elsewhere().join("db/CURRENT").exists());
}

#[test]
fn a_database_of_the_host_is_not_hidden_by_the_root() {
    let drive = Drive::new();
    let put = "plyvel.DB(root + '/db', create_if_missing=True).put(b'a', b'b', sync=True)";
    run_successfully(drive.python_on_host(put));
    for attempt in [put, "plyvel.destroy_db(root + '/db')", "plyvel.repair_db(root + '/db')"] {
        let said = run(drive.python(attempt));
        let advice = format!("-r '{}/db' 'fs:/'`", drive.root().display());
        assert!(said.contains(&advice), "{attempt}: {said}");
    }
    let get = "print(plyvel.DB(root + '/db').get(b'a'))";
    assert_eq!(run_successfully(drive.python_on_host(get)), "b'b'\n");
    std::fs::rename(drive.root().join("db"), drive.root().join("old")).unwrap();
    run_successfully(drive.python(put));
}

#[test]
fn a_copy_of_another_version_keeps_the_host() {
    let copy = compile("g++", "other_copy.cc", "libother_copy.so", &["-shared", "-fPIC"]);
    let drive = Drive::new();
    let script = format!(
        "import ctypes
print(ctypes.CDLL({copy:?}).gets_its_own())
plyvel.DB(root + '/db', create_if_missing=True)"
    );
    let output = drive.python(&script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"1\n", "{said}");
    assert!(said.contains("libother_copy.so is LevelDB 1.20"), "{said}");
    assert!(drive.host_is_empty(), "the system's LevelDB beside it uses the drive");
}

#[test]
fn a_program_with_leveldb_within_itself_is_not_started() {
    let libraries = ["-l:libleveldb.a", "-lsnappy", "-lstdc++", "-lm", "-lpthread"];
    let program = compile("gcc", "static.c", "static", &libraries);
    let drive = Drive::new();
    let said = run(drive.program(&program));
    assert!(said.contains("LevelDB linked into itself") && !said.contains("1.23 runs"), "{said}");
    let mut command = drive.program(&program);
    command.env_remove("FURROW_LEVELDB").env_remove("FURROW_LEVELDB_ROOT");
    assert_eq!(run_successfully(command), "1.23 runs\n");
}

/// Writes one record with sync and 1000 without, and kills the process.
const KILLED: &str = "db = plyvel.DB(root + '/db', create_if_missing=True)
db.put(b'first', b'', sync=True)
for n in range(1000): db.put(b'%04d' % n, b'')
os.kill(os.getpid(), 9)";
const COUNT: &str = "print(sum(1 for _ in plyvel.DB(root + '/db')))";

#[test]
fn a_program_that_ends_without_closing_its_database_keeps_its_writes() {
    let drive = Drive::new();
    let script = "import ctypes
db = plyvel.DB(root + '/db', create_if_missing=True)
for n in range(100): db.put(b'%d' % n, b'')
ctypes.CDLL(None).exit(0)";
    run_successfully(drive.python(script));
    assert_eq!(run_successfully(drive.python(COUNT)), "100\n");
}

#[test]
fn unsynced_writes_survive_the_process_if_each_flush_goes_to_the_drive() {
    let drive = Drive::without_cache();
    let mut command = drive.python(KILLED);
    command.env("FURROW_LEVELDB_FLUSH", "drive").output().unwrap();
    assert_eq!(run_successfully(drive.python(COUNT)), "1001\n");
    let drive = Drive::without_cache();
    drive.python(KILLED).output().unwrap();
    let kept: u64 = run_successfully(drive.python(COUNT)).trim().parse().unwrap();
    assert!((1..1001).contains(&kept), "{kept} of 1001 outlived their buffer");
}
