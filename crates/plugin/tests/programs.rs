//! Tests of two programs under a parallel log: one knows nothing of Furrow and loads the plug-in, the other links
//! Furrow and opens its database through `parallel_db.h`. Both are killed while they write, and both use all of
//! RocksDB's features.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

mod common;
use common::{compile, drive_url, output_text, plugin};

/// The number of acknowledgements after which a writing program is killed.
const ACKNOWLEDGEMENTS_BEFORE_KILL: usize = 300;

/// The two kinds of programs whose databases get a parallel log.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Program {
    /// The program is unmodified and loads the plug-in.
    Unmodified,
    /// The program links the plug-in's library and calls `furrow::OpenParallel`.
    Linked,
}

impl Program {
    fn file(self) -> &'static Path {
        static FILES: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
        FILES[self as usize].get_or_init(|| match self {
            Program::Unmodified => compile("unmodified.cc", "unmodified", &[]),
            Program::Linked => {
                let plugin = plugin();
                let directory = plugin.parent().unwrap().display().to_string();
                let path = format!("-Wl,-rpath,{directory}");
                compile("linked.cc", "linked", &[&path, plugin.to_str().unwrap()])
            }
        })
    }

    fn command(self, drive: &TempDir, wal: &str, what: &str) -> Command {
        let mut command = Command::new(self.file());
        command.arg(drive_url(drive.path())).arg(what).env("FURROW_WAL", wal);
        if self == Program::Unmodified {
            command.env("LD_PRELOAD", plugin());
        }
        command
    }

    fn run_successfully(self, drive: &TempDir, wal: &str, what: &str) -> String {
        let output = self.command(drive, wal, what).output().unwrap();
        assert!(output.status.success(), "{self:?} {wal} {what}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The numbers in each line of a program's output that begins with `word`.
fn numbers_after(said: &str, word: &str) -> Vec<Vec<usize>> {
    let lines = said.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(|line| line.split_whitespace().filter_map(|n| n.parse().ok()).collect()).collect()
}

/// Kills a program while it writes. Returns the number of acknowledged batches of each of its threads.
fn kill_while_writing(program: Program, drive: &TempDir, wal: &str) -> [usize; 4] {
    let mut child = program.command(drive, wal, "write").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acked = [0; 4];
    let mut note = |line: &str| {
        for line in numbers_after(line, "acked") {
            acked[line[0]] = acked[line[0]].max(line[1] + 1);
        }
    };
    let said = lines
        .by_ref()
        .map_while(Result::ok)
        .take(ACKNOWLEDGEMENTS_BEFORE_KILL)
        .inspect(|line| note(line))
        .count();
    child.kill().unwrap();
    let ended = child.wait().unwrap();
    assert_eq!(
        (said, ended.signal()),
        (ACKNOWLEDGEMENTS_BEFORE_KILL, Some(9)),
        "{program:?} {wal} ended by itself: {ended}"
    );
    // Acknowledgements that were printed before the kill count as well. The last line may be torn, and is skipped
    // then.
    lines.map_while(Result::ok).filter(|line| line.split(' ').count() == 3).for_each(|line| note(&line));
    acked
}

fn check_kill_and_recovery(program: Program, wals: [&str; 3]) {
    let drive = tempfile::tempdir().unwrap();
    let mut acked = [0; 4];
    for wal in wals {
        let before: usize = acked.iter().sum();
        let more = kill_while_writing(program, &drive, wal);
        acked = std::array::from_fn(|n| acked[n].max(more[n]));
        assert!(
            acked.iter().sum::<usize>() > before + ACKNOWLEDGEMENTS_BEFORE_KILL / 2,
            "{wal} wrote what was there: {acked:?}"
        );
        // The database is opened twice: the first opening recovers after the kill, the second one follows a clean
        // close.
        for again in [false, true] {
            let said = program.run_successfully(&drive, if again { wals[0] } else { wal }, "count");
            let there: Vec<usize> = numbers_after(&said, "there").iter().map(|line| line[1]).collect();
            assert_eq!(there.len(), acked.len(), "{said}");
            assert!(
                there.iter().zip(acked).all(|(there, acked)| *there >= acked),
                "{acked:?} acknowledged: {said}"
            );
        }
    }
}

/// Each run of the program writes keys after those of the earlier runs.
#[test]
fn an_unmodified_program_is_killed_and_loses_nothing_with_any_log() {
    check_kill_and_recovery(Program::Unmodified, ["waltz", "auto", "group"]);
}

#[test]
fn a_program_that_links_furrow_is_killed_and_loses_nothing() {
    check_kill_and_recovery(Program::Linked, ["waltz", "auto", "waltz"]);
}

/// Each batch has a merge, which a recovery must not apply twice: the counter must equal the number of batches.
#[test]
fn merges_are_counted_once_through_a_kill() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        let drive = tempfile::tempdir().unwrap();
        let acked: usize = kill_while_writing(program, &drive, wal).iter().sum();
        assert!(acked >= ACKNOWLEDGEMENTS_BEFORE_KILL, "{acked}");
        for again in [wal, "waltz"] {
            let said = program.run_successfully(&drive, again, "count");
            let line = said.lines().find(|line| line.starts_with("all")).unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[1], words[3], "{program:?}: {said}");
        }
    }
}

/// Command `Features` uses ingestion, merges, single and range deletes, families, a checkpoint, a backup, and
/// operations that are refused. The process ends without closing the database.
#[test]
fn all_that_rocksdb_offers_goes_through_a_parallel_log() {
    for (program, wal) in
        [(Program::Unmodified, "waltz"), (Program::Unmodified, "auto"), (Program::Linked, "auto")]
    {
        let drive = tempfile::tempdir().unwrap();
        let said = program.run_successfully(&drive, wal, "features");
        assert!(said.contains("parallel") && said.contains("done"), "{said}");
        let said = program.run_successfully(&drive, wal, "read-only");
        assert!(said.contains("for writing once, with FURROW_WAL=auto or waltz"), "{said}");
        program.run_successfully(&drive, wal, "after");
        for copy in ["/checkpoint", "/restored"] {
            program.run_successfully(&drive, wal, copy);
        }
    }
}

/// A recovery must not let an older log record undo data that bypassed the log and is in tables.
#[test]
fn data_that_bypasses_the_log_into_tables_survives_a_kill() {
    for (program, wal) in
        [(Program::Unmodified, "waltz"), (Program::Linked, "auto"), (Program::Unmodified, "group")]
    {
        let drive = tempfile::tempdir().unwrap();
        program.run_successfully(&drive, wal, "unlogged");
        for again in [wal, "waltz"] {
            program.run_successfully(&drive, again, "after unlogged");
        }
    }
}

/// Two keys of different bytes that the program's comparator calls equal are one key.
#[test]
fn two_spellings_of_a_key_are_recovered_in_the_order_they_were_written_in() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        let drive = tempfile::tempdir().unwrap();
        let written = program.run_successfully(&drive, wal, "spell");
        let writers = numbers_after(&written, "spelled");
        assert!(writers.len() == 100 && writers.iter().all(|line| line.len() == 2), "{written}");
        for again in [wal, "waltz"] {
            assert_eq!(
                numbers_after(&program.run_successfully(&drive, again, "spelled"), "spelled"),
                writers,
                "{wal}"
            );
        }
    }
}

/// Runs command `Features` on plain RocksDB: the results must be the same, except for the refused operations.
#[test]
fn an_unmodified_program_without_a_parallel_log_has_rocksdb_as_it_is() {
    let drive = tempfile::tempdir().unwrap();
    let said = Program::Unmodified.run_successfully(&drive, "group", "features");
    assert!(said.contains("plain"), "{said}");
    Program::Unmodified.run_successfully(&drive, "group", "after");
}

#[test]
fn opens_within_opens_are_passed_on_and_transactions_are_refused() {
    let opens = |wal| Program::Unmodified.run_successfully(&tempfile::tempdir().unwrap(), wal, "opens");
    let said = opens("waltz");
    for what in ["transactions:", "optimistic:", "trim:"] {
        let line = said.lines().find(|line| line.starts_with(what)).unwrap();
        assert!(line.contains("Not implemented") && line.contains("FURROW_WAL=group"), "{said}");
    }
    assert!(said.contains("ttl: value parallel"), "{said}");
    let said = opens("group");
    assert!(said.contains("transactions: OK") && said.contains("ttl: value plain"), "{said}");
}

/// A recovery replays RocksDB's own log before the parallel log, whatever the order of the writes was.
#[test]
fn a_write_past_the_parallel_log_is_refused_and_leaves_nothing() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        let drive = tempfile::tempdir().unwrap();
        let said = program.run_successfully(&drive, wal, "past");
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("past:")).collect();
        assert!(lines.len() == 2 && lines.iter().all(|l| l.contains("past the parallel log")), "{said}");
        let said = program.run_successfully(&drive, wal, "read");
        assert!(said.contains("before yes past none"), "{said}");
    }
    let drive = tempfile::tempdir().unwrap();
    let said = Program::Unmodified.run_successfully(&drive, "group", "past");
    assert!(said.contains("past: OK"), "{said}");
    let said = Program::Unmodified.run_successfully(&drive, "group", "read");
    assert!(said.contains("before yes past yes"), "{said}");
}

#[test]
fn options_that_a_parallel_log_does_not_support_are_refused_when_opening() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        let said = program.run_successfully(&tempfile::tempdir().unwrap(), wal, "refused");
        for word in ["persist_stats_to_disk", "inplace_update_support", "no Env", "wrapped in wrapping"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        for (what, word) in [
            ("prepared", "allow_2pc"),
            ("timestamps", "user-defined timestamps"),
            ("mempurge", "mempurge does"),
        ] {
            let line = said.lines().find(|line| line.starts_with(&format!("{what}: "))).unwrap();
            assert!(line.contains(word) && line.contains("FURROW_WAL=group"), "{line}");
        }
    }
}

#[test]
fn a_flush_does_not_wait_for_compactions() {
    Program::Unmodified.run_successfully(&tempfile::tempdir().unwrap(), "waltz", "level");
}

#[test]
fn a_program_sees_neither_events_nor_counts_of_the_hidden_family() {
    for (program, wal) in
        [(Program::Unmodified, "waltz"), (Program::Linked, "auto"), (Program::Unmodified, "group")]
    {
        program.run_successfully(&tempfile::tempdir().unwrap(), wal, "own families");
    }
}

#[test]
fn the_hidden_family_holds_up_no_writes() {
    Program::Unmodified.run_successfully(&tempfile::tempdir().unwrap(), "waltz", "without flushes");
}

#[test]
fn a_close_with_a_snapshot_and_ends_without_background_work_leave_no_log() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        program.run_successfully(&tempfile::tempdir().unwrap(), wal, "closes");
    }
}

#[test]
fn a_close_that_cannot_empty_the_log_is_an_error_and_loses_nothing() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        let drive = tempfile::tempdir().unwrap();
        for merged in ["none", "1", "2"] {
            let said = program.run_successfully(&drive, wal, "close broken");
            assert!(said.contains(&format!("merged {merged}\n")), "{said}");
        }
    }
}

#[test]
fn options_that_rocksdb_keeps_open_a_database_whose_batches_are_marked() {
    for (program, wal) in [(Program::Unmodified, "waltz"), (Program::Linked, "auto")] {
        let drive = tempfile::tempdir().unwrap();
        program.run_successfully(&drive, wal, "features");
        program.run_successfully(&drive, wal, "loaded");
    }
}

#[test]
fn a_recovery_by_best_efforts_or_a_repair_is_refused_while_there_is_a_parallel_log_and_leaves_all_as_it_is() {
    let drive = tempfile::tempdir().unwrap();
    Program::Unmodified.run_successfully(&drive, "waltz", "features");
    for way in ["best efforts", "repair"] {
        let said = Program::Unmodified.run_successfully(&drive, "group", way);
        assert!(said.contains("for writing once, with FURROW_WAL=auto or waltz"), "{way}: {said}");
    }
    Program::Unmodified.run_successfully(&drive, "waltz", "after");
}

#[test]
fn a_forked_process_leaves_the_drive_alone() {
    let drive = tempfile::tempdir().unwrap();
    let output = Program::Unmodified.command(&drive, "waltz", "fork").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", output_text(&output));
}

#[test]
fn a_rocksdb_version_that_the_plug_in_was_not_compiled_against_is_refused() {
    let other = compile("version.cc", "version.so", &["-shared", "-fPIC"]);
    let drive = tempfile::tempdir().unwrap();
    for program in [Program::Unmodified, Program::Linked] {
        let mut command = program.command(&drive, "waltz", "count");
        let both = format!("{}:{}", other.display(), plugin().display());
        let output: Output = command.env("LD_PRELOAD", both).output().unwrap();
        assert!(!output.status.success(), "{}", output_text(&output));
        let said = output_text(&output);
        assert!(said.contains("compiled against another RocksDB") && said.contains("9.1.0"), "{said}");
    }
}
