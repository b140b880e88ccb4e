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

/// The compiled test program.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("classes");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/classes.c");
        let flags = ["-O2", "-Wall", "-Wno-unused-result", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-o"];
        let built = Command::new("cc").args(flags).arg(&to).arg(from).output().unwrap();
        assert!(built.status.success(), "{}; apt-get install gcc", text(&built));
        to
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
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pages")).unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with the library, on the file `name`. Logs are `*.log`, bulk files `*.bulk` and `*.both.log`.
    fn command(&self, what: &str, name: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(what).arg(self.path(name)).env("LD_PRELOAD", library()).env("FURROW_PRIO", "1");
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

#[test]
fn calls_for_a_log_have_its_priority_and_leave_the_thread_s_own() {
    for own in ["none", "best-effort-3"] {
        let place = Place::new();
        let mut command = place.command("log", "a.log");
        command.arg(own);
        let counters = place.run_command(command);
        assert_eq!(counters.len(), 1);
        assert_eq!(counts(&counters[0], "log"), [1, 4, 512 + 300 + 1000 + 24, 4]);
        assert_eq!(counts(&counters[0], "bulk"), [0; 4]);
        assert_eq!(at(&counters[0], "log", priorities(&counters[0]).0), 8, "{}", counters[0]);
        assert_eq!(counters[0]["program"], "classes");
    }
}

#[test]
fn writes_of_a_descriptor_opened_with_o_dsync_are_syncs() {
    let place = Place::new();
    assert_eq!(counts(&place.run("synced", "a.log")[0], "log"), [1, 2, 1024, 2]);
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
    let output = place.command("log", "a.both.log").output().unwrap();
    assert!(
        output.status.success()
            && text(&output).contains("a.both.log matches globs of logs and of bulk: it is a log")
    );
    let counters = place.counters();
    assert_eq!((counts(&counters[0], "log")[0], &counters[0]["in_both"]), (1, &1.into()));
}

#[test]
fn without_the_capability_logs_are_best_effort_and_bulk_is_idle() {
    if !text(&Command::new("id").arg("-u").output().unwrap()).contains("\n0\n") {
        return;
    }
    let place = Place::new();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.dir.path(), everybody).unwrap();
    std::fs::write(place.path("counters"), "").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(place.path("counters"), everybody).unwrap();
    let mut command = place.command("unprivileged", "a.log");
    command.arg(place.path("a.bulk"));
    let counters = place.run_command(command);
    assert_eq!(at(&counters[0], "log", "best_effort"), 8, "{}", counters[0]);
    assert_eq!(at(&counters[0], "bulk", "idle"), 17, "{}", counters[0]);
    assert_eq!(counters[0]["refused_priorities"], 1);
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
    for garbled in [b"short".to_vec(), vec![0xff; good.len()]] {
        std::fs::write(&page, &garbled).unwrap();
        place.run("bulk", "a.bulk");
        assert_eq!(std::fs::read(&page).unwrap(), garbled);
    }
}
