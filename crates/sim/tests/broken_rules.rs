//! Proof that the crash explorer finds defects: each broken safety rule is found, and the same seeds with the rule intact are
//! clean.

use fs::BrokenRule;
use kv::parallel_wal::BrokenRule as WalRule;
use sim::{BrokenRule as TablesRule, BrokenRules, CrashOptions, During, Report, Target, crash};

/// Replays of a failure that depends on RocksDB's threads.
const REPLAYS: usize = 8;
/// Number of states within which a broken rule must show.
const MAX_STATES: u64 = 4000;
/// Number of states that are explored with the rule intact.
const CLEAN_STATES: u64 = 400;

fn run(target: Target, seed: u64, states: u64, broken_rule: Option<BrokenRule>) -> Report {
    let broken_rules = BrokenRules { fs: broken_rule, ..BrokenRules::default() };
    let options =
        CrashOptions { broken_rules, first_failure: true, ..CrashOptions::new(target, seed, states) };
    crash(&options).expect("the exploration runs")
}

/// Breaks a safety rule and gives the description of the first failure.
fn rule_break_is_found(target: Target, seed: u64, broken_rule: BrokenRule) -> String {
    let report = run(target, seed, MAX_STATES, Some(broken_rule));
    assert!(
        report.lost + report.invented + report.mount_failures > 0,
        "{broken_rule:?} was not found in {} states",
        report.states
    );
    let clean = run(target, seed, CLEAN_STATES, None);
    assert!(clean.is_clean(), "with the rule intact: {clean:?}");
    report.failures.first().map(|f| f.what.clone()).unwrap_or_default()
}

#[test]
fn a_sync_that_does_not_flush_is_found() {
    rule_break_is_found(Target::Fs, 11, BrokenRule::Sync);
    rule_break_is_found(Target::Log, 12, BrokenRule::Sync);
}

#[test]
fn a_sync_of_leveldb_that_does_not_flush_is_found() {
    rule_break_is_found(Target::LevelDb, 4, BrokenRule::Sync);
}

#[test]
fn a_rename_below_leveldb_that_deletes_first_is_found() {
    rule_break_is_found(Target::LevelDb, 4, BrokenRule::Rename);
}

#[test]
fn a_rename_that_deletes_first_is_found() {
    rule_break_is_found(Target::Fs, 13, BrokenRule::Rename);
}

#[test]
fn writing_behind_a_torn_tail_is_found() {
    rule_break_is_found(Target::Fs, 14, BrokenRule::TornTail);
}

#[test]
fn a_reset_before_the_metadata_is_durable_is_found() {
    rule_break_is_found(Target::Fs, 20, BrokenRule::Reset);
}

#[test]
fn a_log_that_keeps_entries_behind_a_gap_is_found() {
    rule_break_is_found(Target::Log, 51, BrokenRule::Gap);
}

#[test]
fn versions_of_a_block_under_one_sequence_are_found() {
    rule_break_is_found(Target::Log, 17, BrokenRule::RewriteSequence);
}

#[test]
fn pages_that_are_kept_over_a_truncation_are_found_by_the_workload_s_reads() {
    let options = CrashOptions {
        broken_rules: BrokenRules { fs: Some(BrokenRule::StalePage), ..BrokenRules::default() },
        ..CrashOptions::new(Target::Fs, 3, MAX_STATES)
    };
    let error = crash(&options).expect_err("a read shows other bytes").to_string();
    assert!(error.contains("are not what was written"), "{error}");
    let clean = run(Target::Fs, 3, CLEAN_STATES, None);
    assert!(clean.is_clean(), "with the rule intact: {clean:?}");
}

#[test]
fn a_durable_write_that_counts_for_other_zones_is_found() {
    rule_break_is_found(Target::Log, 30, BrokenRule::DurableWrite);
}

#[test]
fn a_log_that_does_not_wait_at_its_barriers_is_found() {
    rule_break_is_found(Target::Log, 18, BrokenRule::Barrier);
}

#[test]
fn a_log_that_syncs_before_it_sends_its_buffer_is_found() {
    rule_break_is_found(Target::Log, 19, BrokenRule::SyncOrder);
}

#[test]
fn a_parallel_log_that_syncs_without_a_flush_is_found() {
    rule_break_is_found(Target::Waltz, 21, BrokenRule::Sync);
}

#[test]
fn a_parallel_log_that_keeps_entries_whose_needs_are_missing_is_found() {
    rule_break_is_found(Target::Waltz, 22, BrokenRule::Needs);
}

#[test]
fn a_parallel_log_that_writes_no_void_entries_is_found() {
    rule_break_is_found(Target::Waltz, 23, BrokenRule::Void);
}

#[test]
fn a_parallel_log_that_leaves_a_zone_with_appends_in_flight_is_found() {
    rule_break_is_found(Target::Waltz, 24, BrokenRule::Replacement);
}

#[test]
fn an_engine_whose_sync_does_not_flush_is_found_and_its_trace_replays() {
    is_found_in_the_engine_and_replays(false);
}

#[test]
fn an_engine_on_an_array_whose_sync_does_not_flush_is_found_and_its_trace_replays() {
    is_found_in_the_engine_and_replays(true);
}

fn is_found_in_the_engine_and_replays(on_array: bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = CrashOptions {
        on_array,
        broken_rules: BrokenRules { fs: Some(BrokenRule::Sync), ..BrokenRules::default() },
        first_failure: true,
        trace: Some(directory.path().join("engine.trace")),
        ..CrashOptions::new(Target::Engine, 16, MAX_STATES)
    };
    let report = crash(&options).expect("runs");
    let failure = report.failures.into_iter().next().expect("found");
    let command = &failure.replay_command;
    let (_, rest) = command.split_once(" --trace ").expect("names the trace");
    let (file, _) = rest.split_once(" --state ").expect("names the state");
    let again = CrashOptions { trace: Some(file.into()), only: Some(failure.state), ..options };
    // RocksDB's threads decide which operations a recovery has made at the second cut of a crash state, so that one replay may pass.
    let is_found = (0..REPLAYS).any(|_| {
        let again = crash(&again).expect("runs");
        assert_eq!(again.states, 1);
        again.failures.iter().any(|found| found.state == failure.state)
    });
    assert!(is_found, "{failure:?} is not found again in {REPLAYS} replays");
}

#[test]
fn a_failure_names_the_command_that_replays_it() {
    let options = CrashOptions {
        broken_rules: BrokenRules { fs: Some(BrokenRule::Sync), ..BrokenRules::default() },
        first_failure: true,
        ..CrashOptions::new(Target::Fs, 11, MAX_STATES)
    };
    let failure = crash(&options).expect("runs").failures.into_iter().next().expect("found");
    assert!(failure.replay_command.starts_with("furrow crash --target fs --seed 11"), "{failure:?}");
    assert!(failure.replay_command.ends_with(&format!("--state {}", failure.state)));
    let again = crash(&CrashOptions { only: Some(failure.state), ..options }).expect("runs");
    assert_eq!(again.states, 1);
    assert!(again.failures.iter().any(|f| f.what == failure.what), "{failure:?} is not among {again:?}");
}

/// Breaks a safety rule under the target `engine`, with one seed after the other, each over `states` states. Recordings differ
/// from run to run, so that no single seed is sure to show the defect.
fn is_found_in_the_engine(
    seeds: impl IntoIterator<Item = u64>,
    states: u64,
    broken_rule: Option<BrokenRule>,
    broken_engine: Option<WalRule>,
) {
    let mut looked_at = 0;
    for seed in seeds {
        let options = CrashOptions {
            broken_rules: BrokenRules { fs: broken_rule, engine: broken_engine, ..BrokenRules::default() },
            first_failure: true,
            ..CrashOptions::new(Target::Engine, seed, states)
        };
        let report = crash(&options).expect("the exploration runs");
        looked_at += report.states;
        if report.lost + report.invented + report.mount_failures > 0 {
            println!("{looked_at} states: {:?}", report.failures.first().map(|f| &f.what));
            let clean =
                crash(&CrashOptions::new(Target::Engine, seed, CLEAN_STATES)).expect("the exploration runs");
            assert!(clean.is_clean(), "with the rules intact: {clean:?}");
            return;
        }
    }
    panic!("{broken_rule:?} and {broken_engine:?} were not found in {looked_at} states");
}

/// [`is_found_in_the_engine`] with one seed and many workloads.
fn shows_in_any_engine(seed: u64, broken_rule: Option<BrokenRule>, broken_engine: Option<WalRule>) {
    is_found_in_the_engine([seed], 10 * MAX_STATES, broken_rule, broken_engine);
}

#[test]
fn an_engine_without_key_locks_is_found() {
    // A workload shows the defect where one writer overtakes another: about one recording in eight. The first seeds showed it
    // more often than the others.
    let seeds = [117, 118, 124, 130, 116, 120, 114, 134, 136, 135, 127, 133];
    is_found_in_the_engine(seeds.into_iter().chain(100..160), 500, None, Some(WalRule::KeyLocks));
}

#[test]
fn an_engine_whose_log_keeps_refused_batches_is_found() {
    shows_in_any_engine(42, None, Some(WalRule::Void));
}

#[test]
fn an_engine_that_repeats_merges_of_tables_is_found() {
    shows_in_any_engine(44, None, Some(WalRule::Marks));
}

#[test]
fn an_engine_that_marks_merges_alone_is_found() {
    shows_in_any_engine(45, None, Some(WalRule::MarksOfPuts));
}

#[test]
fn an_engine_whose_log_leaves_a_zone_with_appends_in_flight_is_found() {
    // The first workload of each of these seeds appends each record alone under key locks, syncs seldom, and has zones of a few
    // records.
    let leave_many_zones =
        [71, 72, 76, 86, 98, 150, 152, 181, 183, 192, 201, 8, 241, 288, 303, 379, 405, 410];
    is_found_in_the_engine(leave_many_zones, 500, Some(BrokenRule::Replacement), None);
}

/// Seeds whose first workload has no merges, takes key locks, syncs seldom, often flushes one family past the parallel WAL, and has
/// zones of a few records.
const FLUSH_PAST_SEEDS: [u64; 12] = [71, 150, 72, 526, 433, 8, 241, 288, 379, 152, 410, 303];

#[test]
fn an_engine_that_takes_a_flush_of_one_family_for_a_flush_of_all_is_found() {
    is_found_in_the_engine(FLUSH_PAST_SEEDS, 500, None, Some(WalRule::OtherFamilies));
}

#[test]
fn an_engine_whose_log_keeps_entries_whose_needs_are_missing_is_found() {
    // The first workload of each of these seeds shows the loss in one state of some dozens.
    let seeds = [106, 111, 112, 110, 100, 101, 104, 113, 109];
    is_found_in_the_engine(seeds, 500, Some(BrokenRule::Needs), None);
}

#[test]
fn an_engine_whose_log_writes_no_void_entries_is_found() {
    shows_in_any_engine(48, Some(BrokenRule::Void), None);
}

/// Number of states of an exploration that spreads over five workloads, of which two run on modelled tables.
const MODELLED_STATES: u64 = 2500;

/// A broken rule of the modelled tables shows in the workloads of some of these seeds. Recordings differ from run to run, so
/// that no single seed is sure to show the defect.
fn is_found_in_modelled_tables(seeds: impl IntoIterator<Item = u64>, broken_rule: TablesRule) {
    let mut states = 0;
    for seed in seeds {
        let options = CrashOptions {
            broken_rules: BrokenRules { tables: Some(broken_rule), ..BrokenRules::default() },
            first_failure: true,
            ..CrashOptions::new(Target::Engine, seed, MODELLED_STATES)
        };
        let report = crash(&options).expect("the exploration runs");
        states += report.states;
        let Some(failure) = report.failures.first() else { continue };
        println!("{states} states: {}", failure.what);
        // An exploration of the same seed with the rule intact, and at least as many states, finds no failure.
        let clean = CrashOptions::new(Target::Engine, seed, report.states.max(CLEAN_STATES));
        let clean = crash(&clean).expect("the exploration runs");
        assert!(clean.is_clean(), "with the rule intact: {clean:?}");
        return;
    }
    panic!("{broken_rule:?} was not found in {states} states");
}

#[test]
fn a_flush_that_chooses_its_families_before_it_waits_for_a_stall_is_found() {
    // Each of the first seeds shows the defect in most runs.
    let seeds = [51, 58, 53, 55, 57, 52, 59, 54, 56];
    is_found_in_modelled_tables(seeds.into_iter().chain(60..66), TablesRule::FlushChoice);
}

#[test]
fn a_flush_that_a_dropped_family_abandoned_and_that_counts_as_done_is_found() {
    // Each of the first seeds shows the defect in most runs.
    let seeds = [53, 56, 62, 54, 61, 52, 59, 60, 64, 55];
    is_found_in_modelled_tables(seeds, TablesRule::AbandonedFlush);
}

#[test]
fn a_table_that_is_ingested_without_marks_is_found() {
    // Each of the first three seeds shows the defect in most runs.
    is_found_in_modelled_tables([54, 57, 59, 52, 55, 56, 58, 60], TablesRule::IngestionMarks);
}

/// Breaks a safety rule of the array and expects a failure.
fn is_found_in_an_array(seed: u64, broken_rule: array::BrokenRule) {
    is_found_in_an_array_during(None, seed, broken_rule);
}

/// As [`is_found_in_an_array`], with the power cut during this work only.
fn is_found_in_an_array_during(during: Option<During>, seed: u64, broken_rule: array::BrokenRule) {
    let run = |array, states| {
        let broken_rules = BrokenRules { array, ..BrokenRules::default() };
        let options = CrashOptions::new(Target::Array, seed, states);
        crash(&CrashOptions { broken_rules, first_failure: true, during, ..options })
            .expect("the exploration runs")
    };
    let report = run(Some(broken_rule), 10 * MAX_STATES);
    assert!(!report.is_clean(), "{broken_rule:?} was not found in {} states", report.states);
    // An exploration of the same seed with the rule intact, and at least as many states, finds no failure.
    let clean = run(None, report.states.max(CLEAN_STATES));
    assert!(clean.is_clean(), "{broken_rule:?}, with the rule intact: {clean:?}");
}

#[test]
fn a_reset_of_an_array_without_its_log_is_found() {
    is_found_in_an_array(31, array::BrokenRule::ResetIntent);
}

#[test]
fn a_mount_that_completes_a_reset_which_one_drive_knows_of_is_found() {
    is_found_in_an_array_during(Some(During::Reset), 210, array::BrokenRule::MountedReset);
}

#[test]
fn an_array_without_partial_parity_is_found() {
    is_found_in_an_array(32, array::BrokenRule::PartialParity);
}

#[test]
fn partial_parity_that_no_reorder_record_corrects_is_found() {
    is_found_in_an_array(44, array::BrokenRule::Reordered);
}

#[test]
fn a_second_parity_that_an_array_does_not_log_is_found() {
    is_found_in_an_array(40, array::BrokenRule::SecondParity);
}

#[test]
fn a_generation_that_an_array_does_not_record_is_found() {
    is_found_in_an_array(41, array::BrokenRule::Generation);
}

#[test]
fn a_durable_write_that_an_array_does_not_flush_is_found() {
    is_found_in_an_array(34, array::BrokenRule::DurableWrite);
}

#[test]
fn a_write_hole_that_an_array_leaves_is_found() {
    is_found_in_an_array(35, array::BrokenRule::Resync);
}

#[test]
fn stale_rows_that_an_array_forgets_are_found() {
    is_found_in_an_array(36, array::BrokenRule::StaleRows);
}

#[test]
fn a_zone_rewrite_that_an_array_forgets_is_found() {
    is_found_in_an_array(37, array::BrokenRule::ZoneRewrite);
}

#[test]
fn a_note_of_a_rebuild_that_an_array_does_not_compare_is_found() {
    is_found_in_an_array(38, array::BrokenRule::RebuildNotes);
}

#[test]
fn a_drive_that_durable_writes_of_an_array_leave_unflushed_is_found() {
    is_found_in_an_array(39, array::BrokenRule::FlushedSlots);
}

#[test]
fn a_frame_that_an_array_logs_once_is_found() {
    is_found_in_an_array(40, array::BrokenRule::FrameCopies);
}

#[test]
fn a_part_that_goes_behind_rows_that_are_not_durable_is_found() {
    is_found_in_an_array(51, array::BrokenRule::PartBelow);
}

#[test]
fn a_map_that_an_array_does_not_wait_for_is_found() {
    is_found_in_an_array(43, array::BrokenRule::MapAwaited);
}

#[test]
fn a_map_of_an_array_with_one_copy_is_found() {
    is_found_in_an_array(41, array::BrokenRule::MapCopies);
}

#[test]
fn physical_zones_that_an_array_resets_before_their_map_has_ended_are_found() {
    is_found_in_an_array(42, array::BrokenRule::MapEnd);
}

#[test]
fn a_part_of_an_array_that_leaves_its_place_before_the_move_is_durable_is_found() {
    is_found_in_an_array(100, array::BrokenRule::MoveEnd);
}

#[test]
fn a_moved_map_that_an_array_does_not_wait_for_is_found() {
    is_found_in_an_array_during(Some(During::Move), 109, array::BrokenRule::MovedMapAwaited);
}

#[test]
fn a_moved_part_that_an_array_does_not_flush_is_found() {
    is_found_in_an_array(114, array::BrokenRule::MovedPart);
}

/// Seeds whose first workload writes as the server does: the writer keeps the order of keys, on one, two or four threads. Eight batches
/// or more are refused.
const ORDERED_SEEDS: [u64; 6] = [59, 64, 74, 347, 435, 26];

/// Breaks a safety rule under the target `engine`, in workloads of ordered writes.
fn is_found_in_ordered_writes(broken_rule: Option<BrokenRule>, broken_engine: Option<WalRule>) {
    for seed in ORDERED_SEEDS {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ordered.trace");
        let options = CrashOptions {
            broken_rules: BrokenRules { fs: broken_rule, engine: broken_engine, ..BrokenRules::default() },
            first_failure: true,
            trace: Some(path.clone()),
            ..CrashOptions::new(Target::Engine, seed, 500)
        };
        let report = crash(&options).expect("the exploration runs");
        let trace = sim::Trace::load(&path).expect("recorded");
        assert!(trace.ordered && trace.workload == 0, "seed {seed}");
        if report.lost + report.invented + report.mount_failures > 0 {
            println!("seed {seed}, {} states: {:?}", report.states, report.failures.first().map(|f| &f.what));
            let clean =
                crash(&CrashOptions::new(Target::Engine, seed, CLEAN_STATES)).expect("the exploration runs");
            assert!(clean.is_clean(), "with the rule intact: {clean:?}");
            return;
        }
    }
    panic!("{broken_rule:?} and {broken_engine:?} were not found");
}

#[test]
fn an_engine_of_ordered_writes_whose_log_keeps_refused_batches_is_found() {
    is_found_in_ordered_writes(None, Some(WalRule::Void));
}

#[test]
fn an_engine_of_ordered_writes_whose_log_writes_no_void_entries_is_found() {
    is_found_in_ordered_writes(Some(BrokenRule::Void), None);
}

#[test]
fn a_staged_write_that_is_acknowledged_before_it_is_written_is_found() {
    let run = |stage, states| {
        let broken_rules = BrokenRules { stage, ..BrokenRules::default() };
        let options = CrashOptions::new(Target::Stage, 25, states);
        crash(&CrashOptions { broken_rules, first_failure: true, ..options }).expect("the exploration runs")
    };
    let report = run(Some(zoned::StageBrokenRule::EarlyAcknowledgement), MAX_STATES);
    assert!(report.lost > 0, "not found in {} states", report.states);
    let clean = run(None, report.states.max(CLEAN_STATES));
    assert!(clean.is_clean(), "with the rule intact: {clean:?}");
}

/// Each broken rule of the groups' log or tables is found, and an exploration as long with the rules intact finds nothing.
fn find_rules_of_groups(target: Target, seed: u64, rules: &[shard::BrokenRule]) {
    let run = |groups, states| {
        let broken_rules = BrokenRules { groups, ..BrokenRules::default() };
        let options = CrashOptions::new(target, seed, states);
        crash(&CrashOptions { broken_rules, first_failure: true, ..options }).expect("the exploration runs")
    };
    let mut most = CLEAN_STATES;
    for rule in rules {
        let report = run(Some(*rule), MAX_STATES);
        println!("{rule:?} after {} states: {:?}", report.states, report.failures.first());
        assert!(!report.is_clean(), "{rule:?} is not found in {} states", report.states);
        most = most.max(report.states);
    }
    let clean = run(None, most);
    assert!(clean.is_clean(), "with the rules intact: {clean:?}");
}

#[test]
fn a_groups_log_that_gives_up_what_a_group_needs_is_found() {
    use shard::BrokenRule::{EarlyRetirement, Replaced, Vote};
    find_rules_of_groups(Target::Groups, 27, &[EarlyRetirement, Replaced, Vote]);
}

#[test]
fn groups_tables_that_are_not_what_their_index_says_are_found() {
    use shard::BrokenRule::{IndexApart, LaterRecord, Unflushed};
    find_rules_of_groups(Target::Tables, 28, &[IndexApart, LaterRecord, Unflushed]);
}

#[test]
fn a_zone_s_order_that_a_scheduler_loses_across_classes_is_found_by_the_workload_s_writes() {
    let broken_rules =
        BrokenRules { share: Some(zoned::ShareBrokenRule::ZoneOrder), ..BrokenRules::default() };
    let options = CrashOptions { broken_rules, ..CrashOptions::new(Target::Array, 26, MAX_STATES) };
    let error = crash(&options).expect_err("a write is off the write pointer").to_string();
    assert!(error.contains("not at the write pointer"), "{error}");
    let clean = run(Target::Array, 26, CLEAN_STATES, None);
    assert!(clean.is_clean(), "with the rule intact: {clean:?}");
}

/// Explores logs in files with a broken rule until a state is wrong, then as many with the rule intact.
fn is_found_in_a_file_log(seed: u64, rule: prio::BrokenRule) {
    let run = |prio, states| {
        let broken_rules = BrokenRules { prio, ..BrokenRules::default() };
        let options = CrashOptions::new(Target::Prio, seed, states);
        crash(&CrashOptions { broken_rules, first_failure: true, ..options }).expect("the exploration runs")
    };
    let report = run(Some(rule), MAX_STATES);
    assert!(!report.is_clean(), "{rule:?} was not found in {} states", report.states);
    let clean = run(None, report.states.max(CLEAN_STATES));
    assert!(clean.is_clean(), "with the rule intact: {clean:?}");
}

#[test]
fn a_sync_of_a_file_log_that_overtakes_a_lower_block_is_found() {
    is_found_in_a_file_log(71, prio::BrokenRule::SyncOvertakesLowerBlock);
}

#[test]
fn a_last_block_of_a_file_log_without_its_bytes_is_found() {
    is_found_in_a_file_log(72, prio::BrokenRule::TailWithoutItsBlock);
}

#[test]
fn two_writes_of_a_last_block_in_flight_are_found() {
    is_found_in_a_file_log(73, prio::BrokenRule::TwoTailsInFlight);
}

#[test]
fn zeros_that_land_on_entries_are_found() {
    is_found_in_a_file_log(74, prio::BrokenRule::ZerosOverEntries);
}

#[test]
fn a_section_that_an_array_leaves_ahead_of_a_gap_is_found() {
    is_found_in_an_array(61, array::BrokenRule::SectionGap);
}

#[test]
fn a_sync_that_forgets_a_tail_in_memory_is_found() {
    rule_break_is_found(Target::Fs, 31, BrokenRule::ForgottenTail);
}

#[test]
fn a_name_before_its_data_is_found() {
    rule_break_is_found(Target::Fs, 32, BrokenRule::NameBeforeData);
}
