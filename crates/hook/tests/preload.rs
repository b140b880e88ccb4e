//! A C program under the library: the class of each file, the counters, and that the program's own priority and errno stay.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// Builds the library with the test's profile, because `cargo test` does not build a library that no test links.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = if cfg!(debug_assertions) { "test" } else { "release" };
        let args =
            ["build", "--locked", "--offline", "--quiet", "--lib", "-p", "furrow-hook", "--profile", profile];
        let built = Command::new(env!("CARGO")).args(args).output().unwrap();
        assert!(built.status.success(), "building the library: {}", text(&built));
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        deps.parent().unwrap().join("libfurrow_prio.so")
    })
}

/// Compiles a C file of the tests to the file `to` of the folder for temporary files, with further arguments.
fn compile(from: &str, to: &str, arguments: &[&str]) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(to);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(from);
    let flags = ["-O2", "-Wall", "-Wno-unused-result", "-o"];
    let built = Command::new("cc").args(flags).arg(&to).arg(from).args(arguments).output().unwrap();
    assert!(built.status.success(), "{}; apt-get install gcc", text(&built));
    to
}

/// The compiled test program.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("classes.c", "classes", &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]))
}

/// The folder with the library that stands for libaio, and the program that submits requests through libaio.
fn requests_program() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libaio.so.1"];
        let libaio = compile("libaio.c", "libaio/libaio.so.1", &shared);
        let program = compile("requests.c", "requests", &[libaio.to_str().unwrap()]);
        (libaio.parent().unwrap().to_owned(), program)
    })
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A directory with the files, the pages and the counters of programs.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        Place::with(tempfile::tempdir().unwrap())
    }

    fn with(dir: TempDir) -> Place {
        std::fs::create_dir(dir.path().join("pages")).unwrap();
        // The command makes the file before it starts a program.
        std::fs::write(dir.path().join("counters"), "").unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with the library, on the file `name`. Logs are `*.log`, bulk files `*.bulk` and `*.both.log`.
    fn command(&self, what: &str, name: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(what).arg(self.path(name));
        self.preload(command)
    }

    /// The program that submits requests to the files `a.log`, `a.bulk` and `other`, with the library.
    fn requests(&self, own: &str) -> Command {
        let mut command = Command::new(&requests_program().1);
        command.args(["a.log", "a.bulk", "other"].map(|name| self.path(name))).arg(own);
        self.preload(command)
    }

    fn preload(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", library()).env("FURROW_PRIO", "1");
        command.env("FURROW_PRIO_LOG", "*.log").env("FURROW_PRIO_BULK", "*.bulk\n*.both.log");
        command.env("FURROW_PRIO_PAGES", self.path("pages"));
        command.env("FURROW_PRIO_COUNTERS", self.path("counters"));
        command
    }

    /// Runs the program, which must succeed. Returns its counters, a line for each process.
    fn run(&self, what: &str, name: &str) -> Vec<Value> {
        self.run_command(self.command(what, name))
    }

    fn run_command(&self, mut command: Command) -> Vec<Value> {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        self.counters()
    }

    /// Lets every user make files here.
    fn open_to_everybody(&self) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode;
        std::fs::set_permissions(self.dir.path(), mode(0o777)).unwrap();
        std::fs::set_permissions(self.path("counters"), mode(0o666)).unwrap();
    }

    fn counters(&self) -> Vec<Value> {
        let lines = std::fs::read_to_string(self.path("counters")).unwrap_or_default();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Files, writes, bytes and syncs of a class.
fn counts(counters: &Value, class: &str) -> [u64; 4] {
    ["files", "writes", "bytes", "syncs"].map(|name| counters[class][name].as_u64().unwrap())
}

/// The number of calls at a priority.
fn at(counters: &Value, class: &str, priority: &str) -> u64 {
    counters[class]["by_priority"][priority].as_u64().unwrap()
}

/// The priority of a log's calls and of bulk in this test's process: real-time wants a capability.
fn priorities(counters: &Value) -> (&'static str, &'static str) {
    match counters["refused_priorities"].as_u64() {
        Some(0) => ("real_time", "best_effort"),
        _ => ("best_effort", "idle"),
    }
}

/// The command as the process that `furrow prio run` became.
fn as_first(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    // The shell itself has neither the library nor a file with a class.
    shell.args(["-c", "export FURROW_PRIO_ROOT=$$ LD_PRELOAD=$LIBRARY; exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args()).env("LIBRARY", library());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) if name != "LD_PRELOAD" => drop(shell.env(name, value)),
            _ => drop(shell.env_remove(name)),
        }
    }
    shell
}

fn is_root() -> bool {
    text(&Command::new("id").arg("-u").output().unwrap()).contains("\n0\n")
}

#[test]
fn syncs_of_a_log_have_its_priority_and_leave_the_thread_s_own() {
    for own in ["none", "best-effort-3"] {
        let place = Place::new();
        let mut command = place.command("log", "a.log");
        command.arg(own);
        let counters = place.run_command(command);
        assert_eq!(counters.len(), 1);
        assert_eq!(counts(&counters[0], "log"), [1, 4, 512 + 300 + 1000 + 24, 4]);
        assert_eq!(counts(&counters[0], "bulk"), [0; 4]);
        assert_eq!(at(&counters[0], "log", priorities(&counters[0]).0), 4, "{}", counters[0]);
        assert_eq!(at(&counters[0], "log", "unchanged"), 4, "writes into the page cache: {}", counters[0]);
        assert_eq!(counters[0]["program"], "classes");
    }
}

#[test]
fn writes_of_a_descriptor_opened_with_o_dsync_are_syncs() {
    let place = Place::new();
    let counters = &place.run("synced", "a.log")[0];
    assert_eq!(counts(counters, "log"), [1, 2, 1024, 2]);
    assert_eq!(at(counters, "log", priorities(counters).0), 2, "{counters}");
}

#[test]
fn direct_writes_of_a_log_have_its_priority() {
    // Not in the folder for temporary files, which may be in memory.
    let place = Place::with(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let counters = &place.run("direct", "a.log")[0];
    assert_eq!(counts(counters, "log"), [1, 3, 4096 + 100 + 4096, 0]);
    assert_eq!(at(counters, "log", priorities(counters).0), 2, "{counters}");
    assert_eq!(at(counters, "log", "unchanged"), 1, "{counters}");
}

#[test]
fn bulk_is_written_behind_in_pieces_of_a_mebibyte() {
    let place = Place::new();
    let counters = place.run("bulk", "a.bulk");
    assert_eq!(counts(&counters[0], "bulk"), [1, 64, 4 << 20, 1]);
    assert_eq!(counters[0]["bulk"]["pieces"], 4);
    assert_eq!(at(&counters[0], "bulk", priorities(&counters[0]).1), 65, "{}", counters[0]);
    assert_eq!(counters[0]["bulk"]["held_ns"].as_u64().unwrap() / 1_000_000, 0, "no log, no hold");
}

#[test]
fn a_fortified_open_gives_the_class() {
    let place = Place::new();
    let symbols = Command::new("nm").arg("-D").arg(program()).output().unwrap();
    assert!(text(&symbols).contains("__open_2") || text(&symbols).contains("__open64_2"));
    // The descriptor of `creat` counts as a file, too.
    assert_eq!(counts(&place.run("fortified", "a.log")[0], "log"), [2, 1, 512, 1]);
}

#[test]
fn an_inherited_descriptor_has_the_class_of_its_file() {
    let place = Place::new();
    let counters = place.run("exec", "a.log");
    assert_eq!(counters.len(), 1, "the program before exec used no file: {counters:?}");
    assert_eq!(counts(&counters[0], "log"), [1, 1, 512, 1]);
}

#[test]
fn the_child_of_a_fork_counts_its_own_calls() {
    let place = Place::new();
    let counters = place.run("fork", "a.log");
    assert_eq!(counters.len(), 2);
    assert_eq!(counts(&counters[0], "log"), [0, 1, 200, 1], "the child");
    assert_eq!(counts(&counters[1], "log"), [1, 1, 100, 1], "the parent");
}

#[test]
fn the_child_of_a_vfork_changes_nothing_of_its_parent() {
    let place = Place::new();
    let counters = place.run("vfork", "a.log");
    assert_eq!(counters.len(), 1);
    assert_eq!(counts(&counters[0], "log"), [1, 1, 100, 0]);
}

#[test]
fn what_a_stream_takes_is_counted_and_written_behind() {
    let place = Place::new();
    let counters = place.run("stream", "a.bulk");
    assert_eq!(counts(&counters[0], "bulk"), [1, 32, 2 << 20, 1]);
    assert_eq!(counters[0]["bulk"]["pieces"], 2);
}

#[test]
fn a_descriptor_that_was_closed_unseen_loses_its_class() {
    let place = Place::new();
    assert_eq!(counts(&place.run("reused", "a.log")[0], "log"), [1, 1, 100, 0]);
}

#[test]
fn errors_are_those_of_the_c_library() {
    let place = Place::new();
    place.run("errors", "a.log");
}

#[test]
fn a_file_in_the_globs_of_both_classes_is_a_log_and_is_told() {
    let place = Place::new();
    let output = as_first(&place.command("log", "a.both.log")).output().unwrap();
    assert!(
        output.status.success()
            && text(&output).contains("a.both.log matches globs of logs and of bulk: it is a log")
    );
    let counters = place.counters();
    assert_eq!((counts(&counters[0], "log")[0], &counters[0]["in_both"]), (1, &1.into()));
}

#[test]
fn without_the_capability_logs_are_best_effort_and_bulk_is_idle() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_everybody();
    let mut command = place.command("unprivileged", "a.log");
    command.arg(place.path("a.bulk"));
    let counters = place.run_command(command);
    assert_eq!(at(&counters[0], "log", "best_effort"), 4, "{}", counters[0]);
    assert_eq!(at(&counters[0], "bulk", "idle"), 17, "{}", counters[0]);
    assert_eq!(counters[0]["refused_priorities"], 1);
}

/// The file of a run's matched globs is for three globs: `*.log`, `*.bulk` and `*.both.log`.
#[test]
fn globs_that_matched_a_file_are_marked_for_all_processes_of_the_run() {
    let place = Place::new();
    let matched = place.path("matched");
    let run = |name: &str| {
        let mut command = place.command("log", name);
        command.env("FURROW_PRIO_MATCHED", &matched);
        place.run_command(command).last().unwrap()["unmatched_globs"].clone()
    };
    std::fs::write(&matched, [0; 3]).unwrap();
    assert_eq!(run("a.log").to_string(), r#"{"bulk":["*.bulk","*.both.log"],"log":[]}"#);
    assert_eq!(run("a.both.log").to_string(), r#"{"bulk":["*.bulk"],"log":[]}"#, "by both processes");
    assert_eq!(std::fs::read(&matched).unwrap(), [1, 0, 1]);
    for not_of_this_run in [&[0; 2][..], &[0; 4]] {
        std::fs::write(&matched, not_of_this_run).unwrap();
        assert_eq!(run("a.log"), Value::Null);
        assert_eq!(std::fs::read(&matched).unwrap(), not_of_this_run);
    }
}

#[test]
fn without_the_variables_the_library_does_nothing() {
    let place = Place::new();
    let mut command = place.command("log", "a.log");
    command.env_remove("FURROW_PRIO");
    assert_eq!(place.run_command(command), [Value::Null; 0]);
}

/// The log and the bulk are of two processes, which share the drive's page.
#[test]
fn bulk_of_one_process_is_held_while_another_s_log_is_active() {
    let place = Place::new();
    let mut log = place.command("synced-for", "a.log").arg("1500").spawn().unwrap();
    let bulk = place.command("bulk-for", "a.bulk").arg("1000").stdout(Stdio::piped()).output().unwrap();
    assert!(bulk.status.success() && log.wait().unwrap().success(), "{}", text(&bulk));
    let counters = place.counters();
    let held = counters.iter().map(|line| line["bulk"]["held_ns"].as_u64().unwrap()).sum::<u64>();
    assert!(held > 10_000_000, "rests alone are two of 10 ms: {counters:?}");
}

#[test]
fn a_page_that_is_none_is_left_alone_and_bulk_goes_unheld() {
    let place = Place::new();
    place.run("bulk", "a.bulk");
    let page = std::fs::read_dir(place.path("pages")).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&page).unwrap();
    let mut other_version = good.clone();
    other_version[8] += 1;
    for garbled in [b"short".to_vec(), vec![0xff; good.len()], other_version] {
        std::fs::write(&page, &garbled).unwrap();
        place.run("bulk", "a.bulk");
        assert_eq!(std::fs::read(&page).unwrap(), garbled);
    }
}

/// The counters of the program that submits requests, and the priority and number of requests of each call of libaio.
fn submit_to_stand_in(place: &Place, own: &str) -> (Value, Vec<(u64, u64)>) {
    let output = place.requests(own).env("LD_LIBRARY_PATH", &requests_program().0).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let calls = String::from_utf8(output.stderr).unwrap();
    let call = |line: &str| {
        let (priority, number) = line.split_once(':').unwrap();
        (u64::from_str_radix(priority, 16).unwrap(), number.parse::<i64>().unwrap().max(0).unsigned_abs())
    };
    let calls = calls.lines().map(call).collect();
    (place.counters().remove(0), calls)
}

/// Checks the calls of libaio, and the counters, of the program that submits requests.
fn check_requests(counters: &Value, calls: &[(u64, u64)], log: u64, bulk: u64, own: u64) {
    let expected = [
        // A log's three writes and its sync, another file, bulk twice, a read of the log.
        &[(log, 4), (own, 1), (bulk, 2), (own, 1)][..],
        // The program's own priority is in the request.
        &[(bulk, 1)],
        // One that the kernel refuses: its error is the second call's.
        &[(log, 1), (bulk, 1), (own, 1), (own, 1)],
        // One that the kernel refuses behind another without a class: what follows does not go.
        &[(own, 2)],
        // No request, no context, a negative number.
        &[(own, 0), (log, 1), (own, 0)],
        &[(log, 64), (log, 64), (log, 2)],
    ];
    assert_eq!(calls, expected.concat(), "{counters}");
    assert_eq!(counts(counters, "log"), [1, 134, 512 + 300 + 88 + 100 + 1300, 2]);
    assert_eq!(counts(counters, "bulk"), [1, 4, 2 * 4096 + 100 + 100, 0]);
    let name = |raw: u64| ["unchanged", "real_time", "best_effort", "idle"][(raw >> 13) as usize];
    assert_eq!(at(counters, "log", name(log)), 134, "{counters}");
    assert_eq!(at(counters, "log", "unchanged"), 1, "the sync: {counters}");
    let chosen = u64::from(name(bulk) == "idle");
    assert_eq!(at(counters, "bulk", name(bulk)), 3 + chosen, "{counters}");
    assert_eq!(at(counters, "bulk", "idle"), if chosen == 1 { 4 } else { 1 }, "{counters}");
}

#[test]
fn requests_of_libaio_go_at_the_priority_of_their_class() {
    for (own, raw) in [("none", None), ("best-effort-3", Some(2 << 13 | 3))] {
        let place = Place::new();
        let (counters, calls) = submit_to_stand_in(&place, own);
        let (log, bulk) = match priorities(&counters) {
            ("real_time", _) => (1 << 13 | 4, 2 << 13 | 7),
            _ => (2 << 13, 3 << 13),
        };
        check_requests(&counters, &calls, log, bulk, raw.unwrap_or(calls[1].0));
    }
}

#[test]
fn without_the_capability_requests_of_logs_are_best_effort_and_those_of_bulk_idle() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_everybody();
    let (counters, calls) = submit_to_stand_in(&place, "unprivileged");
    check_requests(&counters, &calls, 2 << 13, 3 << 13, calls[1].0);
    assert_eq!(counters["refused_priorities"], 1);
}

#[test]
fn a_program_that_no_library_gives_the_function_reaches_the_kernel() {
    // As for a program that loads libaio for itself, and finds the library's function by its name.
    let program =
        compile("requests.c", "requests-alone", &["-DWITHOUT_LIBAIO", "-Wl,-z,dynamic-undefined-weak"]);
    let place = Place::new();
    let mut command = Command::new(program);
    command.args(["a.log", "a.bulk", "other"].map(|name| place.path(name)));
    let counters = place.run_command(place.preload(command));
    assert_eq!(counts(&counters[0], "log")[1], 134, "{}", counters[0]);
}

/// Set where the test of Debian's libaio must run: in CI.
const REQUIRE_LIBAIO: &str = "FURROW_REQUIRE_LIBAIO";

#[test]
fn a_program_that_links_libaio_is_seen() {
    let mut plain = Command::new(&requests_program().1);
    let place = Place::new();
    let alone = plain.args(["x", "y", "z"].map(|name| place.path(name))).output().unwrap();
    if text(&alone).contains("libaio.so.1") {
        assert!(std::env::var_os(REQUIRE_LIBAIO).is_none(), "{}", text(&alone));
        eprintln!("SKIPPED: no libaio.so.1; apt-get install libaio1");
        return;
    }
    assert!(alone.status.success(), "the program without the library: {}", text(&alone));
    let counters = place.run_command(place.requests("none"));
    assert_eq!(counts(&counters[0], "log")[1], 134, "{}", counters[0]);
}

#[test]
fn write_behind_takes_no_error_of_write_back_from_the_program() {
    let place = Place::new();
    for arguments in [&[][..], &["without-cachestat"]] {
        let mut command = place.command("keeps-errors", "a.bulk");
        command.args(arguments);
        let counters = place.run_command(command);
        assert_eq!(counters.last().unwrap()["bulk"]["pieces"], 4, "a filter ends the program at a wait");
    }
}

/// Set where the test with a drive that has no room must run: in CI.
const REQUIRE_LOOP: &str = "FURROW_REQUIRE_LOOP";

/// ext4 on a file of a memory file system that is full: write-back fails, then room is made, and what is written afterwards does not fail.
#[test]
fn a_sync_fails_after_a_failed_write_back_also_with_the_library() {
    let place = Place::new();
    // The mounts, and the loop device, go with the shell's mount namespace.
    let script = r#"
        set -e
        mount -t tmpfs -o size=48m none "$1"
        truncate -s 64m "$1/drive"
        mkfs.ext4 -q -F -O ^has_journal "$1/drive"
        mkdir "$1/on"
        mount -o loop "$1/drive" "$1/on"
        echo mounted
        if dd if=/dev/zero of="$1/filler" bs=64k status=none 2>/dev/null; then echo "the drive was not filled"; exit 1; fi
        LD_PRELOAD="$LIBRARY" "$2" lost "$1/on/a.bulk" "$1/filler" "$1/on"
    "#;
    let mount = place.path("mount");
    std::fs::create_dir(&mount).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&mount).arg(program());
    for (name, value) in place.preload(Command::new("sh")).get_envs() {
        if name != "LD_PRELOAD" {
            command.env(name, value.unwrap());
        }
    }
    let output = command.env("LIBRARY", library()).output().unwrap();
    let shown = text(&output);
    if !shown.contains("mounted") {
        assert!(std::env::var_os(REQUIRE_LOOP).is_none(), "{shown}");
        eprintln!("SKIPPED: no loop device, or not root: {shown}");
        return;
    }
    assert!(shown.contains("failed failed"), "bytes were lost, and no sync says so: {shown}");
    assert!(place.counters()[0]["bulk"]["pieces"].as_u64().unwrap() >= 12, "{shown}");
}

/// Runs the program for at most ten seconds.
fn run_within_limit(command: &Command) {
    let mut limited = Command::new("timeout");
    limited.arg("10").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap());
    }
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_first_call_while_another_thread_loads_a_library_does_not_wait() {
    let plugin = compile("plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    let place = Place::new();
    run_within_limit(place.command("plugin", "a.log").arg(plugin));
}

#[test]
fn what_dlerror_says_stays() {
    let place = Place::new();
    place.run("dlerror", "a.log");
}

#[test]
fn a_page_without_room_is_not_used() {
    let place = Place::new();
    assert_eq!(counts(&place.run("limited", "a.log")[0], "log")[1], 4, "a limit of a file's length");
    if !is_root() {
        return;
    }
    let script = r#"mount -t tmpfs -o size=64k none "$1" && dd if=/dev/zero of="$1/filler" bs=4k count=15 status=none && LD_PRELOAD="$LIBRARY" "$2" log "$3""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(place.path("pages")).arg(program());
    command.arg(place.path("b.log")).env("LIBRARY", library());
    for (name, value) in
        place.preload(Command::new("sh")).get_envs().filter(|(name, _)| *name != "LD_PRELOAD")
    {
        command.env(name, value.unwrap());
    }
    let output = command.output().unwrap();
    assert!(output.status.success() || text(&output).contains("mount"), "{}", text(&output));
}

#[test]
fn counters_for_a_stderr_that_nobody_reads_end_nothing() {
    for full in [false, true] {
        let place = Place::new();
        let mut command = place.command("log", "a.log");
        command.env_remove("FURROW_PRIO_COUNTERS");
        let (reader, mut writer) = std::io::pipe().unwrap();
        // The reader is there, and the pipe is full; or it is gone.
        let _reader = if full {
            std::io::Write::write_all(&mut writer, &[0; 65_536]).unwrap();
            Some(reader)
        } else {
            None
        };
        let mut child = as_first(&command).stderr(writer).spawn().unwrap();
        let start = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed().as_secs() > 20 {
                child.kill().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert!(status.success(), "full {full}: {status}");
    }
}

#[test]
fn the_first_process_alone_writes_its_counters_to_stderr() {
    let place = Place::new();
    let mut command = place.command("fork", "a.log");
    command.env_remove("FURROW_PRIO_COUNTERS");
    let output = as_first(&command).output().unwrap();
    assert_eq!(text(&output).matches("\"pid\"").count(), 1, "{}", text(&output));
    assert!(command.output().unwrap().stderr.is_empty());
}

#[test]
fn a_thread_that_jumped_out_of_a_call_has_its_own_priority_again() {
    let place = Place::new();
    place.run("jump", "a.log");
}

#[test]
fn bulk_from_a_signal_handler_that_interrupted_malloc_is_written() {
    let place = Place::new();
    let mut command = place.command("handler", "a.log");
    command.arg(place.path("a.bulk"));
    let counters = place.run_command(command);
    assert!(counts(&counters[0], "bulk")[1] >= 1000, "{}", counters[0]);
}

#[test]
fn descriptors_of_a_range_are_closed_and_forgotten() {
    let place = Place::new();
    place.run("closefrom", "a.log");
    let place = Place::new();
    assert_eq!(counts(&place.run("close-range", "a.log")[0], "log")[1], 0);
}

#[test]
fn a_thread_that_is_real_time_stays_as_it_is() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_everybody();
    let mut command = place.command("real-time-0", "a.log");
    command.arg(place.path("a.bulk"));
    let counters = place.run_command(command);
    assert_eq!(at(&counters[0], "bulk", "real_time"), 1, "there would be no way back: {}", counters[0]);
}

#[test]
fn writes_that_must_not_wait_are_not_written_behind() {
    let place = Place::with(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let counters = place.run("no-wait", "a.bulk");
    assert_eq!((counts(&counters[0], "bulk")[1], &counters[0]["bulk"]["pieces"]), (32, &0.into()));
}

#[test]
fn writes_at_other_offsets_than_the_descriptor_s_succeed() {
    let place = Place::with(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let counters = place.run("offsets", "a.bulk");
    assert_eq!(counts(&counters[0], "bulk"), [1, 33, (2 << 20) + 65_536, 1], "{}", counters[0]);
    assert_eq!(counters[0]["bulk"]["pieces"], 2);
}

#[test]
fn a_stream_that_is_opened_again_has_the_class_of_its_file() {
    let place = Place::new();
    assert_eq!(counts(&place.run("freopen", "a.log")[0], "log"), [1, 0, 0, 1]);
}

#[test]
fn a_program_that_left_the_root_directory_gets_no_file_there() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let inside = place.path("inside");
    std::fs::create_dir_all(inside.join(place.dir.path().strip_prefix("/").unwrap())).unwrap();
    let mut command = place.command("outside", "a.log");
    command.arg(&inside);
    place.run_command(command);
    assert!(!inside.join(place.path("counters").strip_prefix("/").unwrap()).exists());
}

#[test]
fn the_library_exports_functions_of_the_c_library_and_of_libaio_alone() {
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let is_ours = |name: &&str| {
        let start = ["open", "__open", "creat", "mkstemp", "fopen", "freopen", "fclose", "fwrite", "write"];
        let start = start.into_iter().chain(["pwrite", "copy_file_range", "sendfile", "fsync", "fdatasync"]);
        let mut start =
            start.chain(["sync_file_range", "close", "dup", "fcntl", "_exit", "_Exit", "io_submit"]);
        start.any(|start| name.starts_with(start))
    };
    let others: Vec<&&str> = names.iter().filter(|name| !is_ours(name)).collect();
    assert!(names.len() > 40 && others.is_empty(), "{others:?}");
}
