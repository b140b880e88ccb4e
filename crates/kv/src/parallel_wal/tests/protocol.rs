//! Tests of the parallel WAL's protocol, one for each rule.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use units::sync::Event;

use super::model::*;
use crate::parallel_wal::*;

/// The database after a power cut that lost every record that was not durable.
fn after_cut(world: &World) -> World {
    let durable = world.tables.state.lock().durable.clone();
    World::cut(&world.log, durable, &mut |_| false, false, &[])
}

#[test]
fn a_synced_write_survives_and_an_unsynced_one_may_not() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
    world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "b", 2)).unwrap();
    let after = after_cut(&world);
    assert_eq!((after.tables.get(0, "a"), after.tables.get(0, "b")), (Some(1), None));
    world.parallel_wal.sync().unwrap();
    assert_eq!(after_cut(&world).tables.get(0, "b"), Some(2));
}

#[test]
fn an_empty_batch_with_sync_makes_the_writes_before_it_durable() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
    world.write(WriteOptions::SYNCED, &ModelBatch::default()).unwrap();
    assert_eq!(world.log.len(), 1, "nothing was appended for it");
    assert_eq!(after_cut(&world).tables.get(0, "a"), Some(1));
}

#[test]
fn a_batch_that_the_tables_refuse_never_comes_back() {
    let seen = |broken_rule| {
        let world = World::new(ParallelWalOptions { broken_rule, ..DEFAULT });
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
        let error = world.refused(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 2));
        assert_eq!(error, WriteError::Apply("refused".to_owned()));
        after_cut(&world).tables.get(0, "a")
    };
    assert_eq!(seen(None), Some(1));
    assert_eq!(seen(Some(BrokenRule::Void)), Some(2), "without a void it does");
}

#[test]
fn a_void_that_fails_leaves_the_outcome_open_and_says_so() {
    let world = World::new(DEFAULT);
    let batch = ModelBatch::default().put(0, "a", 1).done();
    let outcome = world.parallel_wal.write(&batch, WriteOptions::SYNCED, |_| {
        world.log.poison();
        Err("refused")
    });
    let error = outcome.unwrap_err();
    assert!(matches!(&error, WriteError::Unknown("refused", _)), "{error}");
    assert!(error.to_string().contains("opened again"), "{error}");
    assert!(
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "b", 1)).is_err(),
        "the log is poisoned"
    );
    assert!(world.parallel_wal.close().is_err());
    assert!(world.parallel_wal.close().is_err(), "a second time, too");
    assert!(!world.log.is_removed(), "what it holds is still needed");
}

#[test]
fn a_batch_that_is_certain_to_fail_is_refused_before_the_log_has_it() {
    let world = World::new(DEFAULT);
    let merges = FamilyInfo { merges: false, one_stripe: false };
    world.parallel_wal.exclusive(|| world.parallel_wal.set_family(Family(0), Some(merges)));
    let mut unlogged_sync = WriteOptions::SYNCED;
    unlogged_sync.logged = false;
    let tries = [
        (WriteOptions::SYNCED, ModelBatch::default().put(9, "a", 1), "column family 9"),
        (WriteOptions::SYNCED, ModelBatch::default().merge(0, "a", 1), "merge operator"),
        (unlogged_sync, ModelBatch::default().put(0, "a", 1), "disableWAL"),
    ];
    for (how, batch, word) in tries {
        let error = world.write(how, &batch).unwrap_err();
        assert!(matches!(&error, WriteError::Invalid(text) if text.contains(word)), "{error}");
    }
    assert!(world.parallel_wal.write(&[0; 5], WriteOptions::SYNCED, |_| Err("never called")).is_err());
    assert!(world.log.is_empty());
    world
        .write(
            WriteOptions { ignore_missing: true, ..WriteOptions::SYNCED },
            &ModelBatch::default().put(9, "a", 1),
        )
        .unwrap();
}

#[test]
fn flushed_tickets_retire_and_a_dropped_family_takes_no_writes() {
    let world = World::new(DEFAULT);
    let batch = ModelBatch::default().put(0, "a", 1).put(1, "b", 1);
    for _ in 0..10 {
        world.write(WriteOptions::UNSYNCED, &batch).unwrap();
    }
    world.parallel_wal.all_flushed(Sequence(11));
    assert_eq!(world.log.len(), 5, "the sixth batch is half in tables");
    world.parallel_wal.all_flushed(Sequence(20));
    assert_eq!(world.log.len(), 0);
    world.write(WriteOptions::UNSYNCED, &batch).unwrap();
    world.parallel_wal.flushed(Family(0), Sequence(21));
    assert_eq!(world.log.len(), 1, "the batch has a record of the other family");
    world.parallel_wal.exclusive(|| world.parallel_wal.set_family(Family(1), None));
    assert!(world.write(WriteOptions::UNSYNCED, &batch).is_err());
    world.parallel_wal.flushed(Family(0), Sequence(21));
    assert_eq!(world.log.len(), 0, "that one is needed by nobody");
    let missing_too = WriteOptions { ignore_missing: true, ..WriteOptions::UNSYNCED };
    world.write(missing_too, &batch).unwrap();
    world.parallel_wal.flushed(Family(0), Sequence(23));
    assert_eq!(world.log.len(), 0, "nor is it where it was named all the same");
}

#[test]
fn a_flush_of_one_family_retires_no_batch_that_another_family_has_in_memory() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1).put(1, "b", 1)).unwrap();
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(1, "c", 2)).unwrap();
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 3)).unwrap();
    let all = |after: World| (after.tables.get(0, "a"), after.tables.get(1, "b"), after.tables.get(1, "c"));
    let there = (Some(3), Some(1), Some(2));
    world.tables.flush_family(0);
    assert_eq!((world.log.len(), all(after_cut(&world))), (3, there));
    world.tables.flush_family(1);
    assert_eq!((world.log.len(), all(after_cut(&world))), (0, there));
}

#[test]
fn a_batch_whose_mark_is_in_memory_stays_in_the_log() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "a", 1)).unwrap();
    world.tables.flush_family(0);
    assert_eq!(world.log.len(), 1, "its mark tells that it is in tables");
    world.tables.flush().unwrap();
    assert_eq!(world.log.len(), 0);
}

#[test]
fn a_marked_batch_retires_with_its_mark_whatever_its_families_report() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1).single_delete(0, "a")).unwrap();
    // The table of the batch's family ends below the batch: a single delete and its put leave no record.
    world.parallel_wal.flushed(Family(0), Sequence(0));
    assert_eq!(world.log.len(), 1);
    world.parallel_wal.flushed(Family::MARKS, Sequence(world.tables.state.lock().live.sequence));
    assert_eq!(world.log.len(), 0);
}

#[test]
fn a_full_log_asks_for_one_flush() {
    let world = World::new(ParallelWalOptions { log_limit: 3 * 4096, ..DEFAULT });
    for n in 0..20 {
        world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "a", n)).unwrap();
    }
    assert_eq!(world.tables.flushes_asked.load(Ordering::Relaxed), 1);
    world.tables.flush().unwrap();
    for n in 0..20 {
        world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "a", n)).unwrap();
    }
    assert_eq!(world.tables.flushes_asked.load(Ordering::Relaxed), 2);
}

#[test]
fn a_failed_flush_is_requested_again_but_not_at_every_write() {
    let world = World::new(ParallelWalOptions { log_limit: 40 * 4096, ..DEFAULT });
    let asked = || world.tables.flushes_asked.load(Ordering::Relaxed);
    let write = || world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
    (0..41).for_each(|_| write());
    assert_eq!(asked(), 1);
    (0..100).for_each(|_| write());
    assert_eq!(asked(), 1, "it is still on its way");
    world.tables.fail_flush();
    write();
    assert_eq!(asked(), 2);
    world.tables.fail_flush();
    (0..9).for_each(|_| write());
    assert_eq!(asked(), 2, "a flush for every write is no help");
    write();
    assert_eq!(asked(), 3);
}

/// An ordered write that has its record in the log, and applies its batch when `goes_on` is set.
async fn apply_after_event(world: &World, goes_on: &Event) {
    let batch = ModelBatch::default().put(0, "a", 1).done();
    let written = world.parallel_wal.write_ordered(&batch, WriteOptions::SYNCED, |mark| {
        let batch = &batch;
        async move {
            let seen = goes_on.version();
            goes_on.changed_since(seen).await;
            Ok::<_, String>(world.tables.apply(batch, mark))
        }
    });
    written.await.unwrap();
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn exclusive_sections_and_ordered_writes_wait_for_each_other() {
    let alone: [fn(&World); 3] = [
        |world| world.parallel_wal.exclusive(|| ()),
        |world| world.parallel_wal.exactly_once().unwrap(),
        |world| world.parallel_wal.close().unwrap(),
    ];
    for alone in alone {
        let (world, goes_on, is_alone) = (World::new(DEFAULT), Event::new(), AtomicBool::new(false));
        let mut first = Box::pin(apply_after_event(&world, &goes_on));
        assert!(poll(first.as_mut()).is_pending());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                alone(&world);
                is_alone.store(true, Ordering::Release);
            });
            let batch = ModelBatch::default().put(0, "b", 2).done();
            // Wait until the exclusive section waits: from then on no write begins.
            let mut second = loop {
                let write = world.parallel_wal.write_ordered(&batch, WriteOptions::SYNCED, |mark| {
                    std::future::ready(Ok::<_, String>(world.tables.apply(&batch, mark)))
                });
                let mut write = Box::pin(write);
                if poll(write.as_mut()).is_pending() {
                    break write;
                }
                std::thread::yield_now();
            };
            assert!(!is_alone.load(Ordering::Acquire), "a batch is between log and tables");
            goes_on.notify();
            assert!(poll(first.as_mut()).is_ready());
            while !is_alone.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            assert!(poll(second.as_mut()).is_ready(), "it waits though nobody is alone any more");
        });
        assert_eq!(world.tables.get(0, "a"), Some(1));
    }
}

#[test]
fn a_flush_makes_room_in_a_full_log() {
    let world = World::new(DEFAULT);
    world.log.limit(3);
    for n in 0..10 {
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", n)).unwrap();
    }
    assert_eq!((world.log.len(), after_cut(&world).tables.get(0, "a")), (1, Some(9)));
    world.log.limit(0);
    let error = world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 10)).unwrap_err();
    assert!(matches!(&error, WriteError::Log(log) if log.kind == LogErrorKind::NoSpace), "{error}");
    assert_eq!(world.tables.get(0, "a"), Some(9));
}

#[test]
fn tables_that_refuse_every_batch_fill_no_log() {
    let world = World::new(DEFAULT);
    world.tables.refuses.store(true, Ordering::Relaxed);
    let error = world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap_err();
    assert!(matches!(&error, WriteError::Log(log) if log.kind == LogErrorKind::NoSpace), "{error}");
    assert_eq!(world.log.next_ticket(), Ticket(0), "nothing was appended, nor taken back");
    world.tables.refuses.store(false, Ordering::Relaxed);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
}

#[test]
fn puts_and_deletes_need_no_marks_and_a_merge_turns_them_on() {
    let world = World::new(DEFAULT);
    let before = ModelBatch::default().put(0, "a", 1).delete(0, "b").delete_range(0, "x", "z");
    world.write(WriteOptions::SYNCED, &before).unwrap();
    assert!(!world.parallel_wal.is_exact() && !world.tables.has_marks());
    for batch in [ModelBatch::default().merge(0, "a", 1), ModelBatch::default().single_delete(0, "a")] {
        let world = World::new(DEFAULT);
        world.write(WriteOptions::SYNCED, &batch).unwrap();
        assert!(world.parallel_wal.is_exact() && world.tables.has_marks());
    }
    let world = World::new(DEFAULT);
    world
        .write(
            WriteOptions { logged: false, ..WriteOptions::UNSYNCED },
            &ModelBatch::default().put(0, "a", 1),
        )
        .unwrap();
    assert!(world.parallel_wal.is_exact());
    assert!(world.log.is_empty());
}

#[test]
fn marks_of_merges_alone_do_not_keep_replays_exact() {
    let counted = |broken_rule| {
        let world = World::new(ParallelWalOptions { broken_rule, ..DEFAULT });
        world.parallel_wal.exactly_once().unwrap();
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "n", 10)).unwrap();
        world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
        world.tables.flush().unwrap();
        after_cut(&world).tables.get(0, "n")
    };
    assert_eq!(counted(None), Some(11));
    assert_eq!(counted(Some(BrokenRule::MarksOfPuts)), Some(10));
}

#[test]
fn a_merge_in_tables_is_not_repeated_and_neither_is_a_put_before_it() {
    let counted = |broken_rule, put_first: bool| {
        let world = World::new(ParallelWalOptions { broken_rule, ..DEFAULT });
        if !put_first {
            world.parallel_wal.exactly_once().unwrap();
        }
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "n", 10)).unwrap();
        world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
        world.tables.flush().unwrap();
        world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
        // The power cut lost the log's retired ticket, so that the whole log is replayed.
        after_cut(&world).tables.get(0, "n")
    };
    for put_first in [false, true] {
        assert_eq!(counted(None, put_first), Some(12), "put first: {put_first}");
    }
    // The log has no put of the counter, so that every replayed merge shows.
    let merged = |broken_rule| {
        let world = World::new(ParallelWalOptions { broken_rule, ..DEFAULT });
        world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
        world.tables.flush().unwrap();
        world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
        after_cut(&world).tables.get(0, "n")
    };
    assert_eq!(merged(None), Some(2));
    assert_eq!(merged(Some(BrokenRule::Marks)), Some(3), "without marks the first is repeated");
}

#[test]
fn a_single_delete_in_tables_is_not_repeated() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
    world.tables.flush().unwrap();
    world.write(WriteOptions::SYNCED, &ModelBatch::default().single_delete(0, "a")).unwrap();
    assert_eq!(after_cut(&world).tables.get(0, "a"), None);
}

#[test]
fn a_write_without_the_log_that_was_flushed_is_not_undone_by_an_older_record() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
    let unlogged = WriteOptions { logged: false, ..WriteOptions::UNSYNCED };
    world.write(unlogged, &ModelBatch::default().put(0, "a", 2)).unwrap();
    world.tables.flush().unwrap();
    assert_eq!(after_cut(&world).tables.get(0, "a"), Some(2));
}

#[test]
fn a_write_without_the_log_to_a_family_that_is_gone_never_reaches_the_tables() {
    let world = World::new(DEFAULT);
    let unlogged = WriteOptions { logged: false, ..WriteOptions::UNSYNCED };
    let refused = world.write(unlogged, &ModelBatch::default().put(7, "a", 1)).unwrap_err();
    assert!(matches!(refused, WriteError::Invalid(_)), "{refused:?}");
}

#[test]
fn a_flush_does_not_tear_a_batch_whose_record_is_lost() {
    let seen = |broken_rule| {
        let world = World::new(ParallelWalOptions { broken_rule, ..DEFAULT });
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).unwrap();
        world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "a", 2).put(0, "b", 2)).unwrap();
        world.tables.flush().unwrap();
        let after = after_cut(&world);
        (after.tables.get(0, "a"), after.tables.get(0, "b"))
    };
    assert_eq!(seen(None), (Some(2), Some(2)));
    assert_eq!(seen(Some(BrokenRule::SyncAtFlush)), (Some(1), Some(2)));
}

/// The key's value before and after a crash. A second write of the key begins while the first is between log and tables.
fn overtaken_values(broken_rule: Option<BrokenRule>) -> (Option<i64>, Option<i64>) {
    let world = World::new(ParallelWalOptions { broken_rule, ..DEFAULT });
    let first = ModelBatch::default().put(0, "a", 1).done();
    let second_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let outcome = world.parallel_wal.write(&first, WriteOptions::SYNCED, |mark| {
            let (world, second_done) = (&world, &second_done);
            scope.spawn(move || {
                world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 2)).unwrap();
                second_done.store(true, Ordering::Release);
            });
            // While the first write holds the key's stripe, the second write waits.
            let patience = if broken_rule == Some(BrokenRule::KeyLocks) { u32::MAX } else { 2000 };
            let mut waited = 0;
            while !second_done.load(Ordering::Acquire) && waited < patience {
                std::thread::yield_now();
                waited += 1;
            }
            Ok::<_, String>(world.tables.apply(&first, mark))
        });
        outcome.unwrap();
    });
    (world.tables.get(0, "a"), after_cut(&world).tables.get(0, "a"))
}

#[test]
fn two_writes_of_a_key_reach_log_and_tables_in_one_order() {
    assert_eq!(overtaken_values(None), (Some(2), Some(2)));
    assert_eq!(
        overtaken_values(Some(BrokenRule::KeyLocks)),
        (Some(1), Some(2)),
        "without stripes a crash changes the value"
    );
}

#[test]
fn marks_below_the_floor_are_removed_while_writes_continue() {
    let world = World::new(DEFAULT);
    for n in 0..5000 {
        world.write(WriteOptions::UNSYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
        if n % 500 == 0 {
            world.tables.flush().unwrap();
        }
    }
    assert!(world.tables.marks() < 2000, "{}", world.tables.marks());
    world.parallel_wal.sync().unwrap();
    assert_eq!(after_cut(&world).tables.get(0, "n"), Some(5000));
}

/// A batch that raises the floor is applied after a later batch, with a flush between them.
#[test]
fn the_floor_does_not_go_down_when_batches_reach_the_tables_in_another_order() {
    let world = World::new(DEFAULT);
    let merge = || world.write(WriteOptions::UNSYNCED, &ModelBatch::default().merge(0, "n", 1)).unwrap();
    (0..1200).for_each(|_| merge());
    // One flush covers only the first half of the writes.
    let sealed = world.tables.state.lock().live.clone();
    (0..1200).for_each(|_| merge());
    let flushed = Sequence(sealed.sequence);
    world.tables.state.lock().durable = sealed;
    world.parallel_wal.all_flushed(flushed);
    let slow = ModelBatch::default().put(0, "slow", 1).done();
    let outcome = world.parallel_wal.write(&slow, WriteOptions::SYNCED, |mark| {
        assert!(mark.unwrap().floor.is_some(), "it raises the floor");
        world.tables.flush().unwrap();
        world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "fast", 1)).unwrap();
        Ok::<_, String>(world.tables.apply(&slow, mark))
    });
    outcome.unwrap();
    world.tables.flush().unwrap();
    // The power cut lost the log's retired ticket, so that the whole log is replayed.
    assert_eq!(after_cut(&world).tables.get(0, "n"), Some(2400));
    // The batch of the next merge may raise the floor.
    merge();
    assert!(world.tables.marks() < 10, "{}", world.tables.marks());
}

#[test]
fn an_interrupted_close_keeps_the_log_while_marks_exist() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::SYNCED, &ModelBatch::default().merge(0, "n", 3)).unwrap();
    let at_the_end = Arc::new(Mutex::new(None));
    let (log, seen) = (Arc::clone(&world.log), Arc::clone(&at_the_end));
    world
        .tables
        .when_marks_go(move || *seen.lock() = Some((log.is_removed(), log.cut(&mut |_| true, false).len())));
    world.parallel_wal.close().unwrap();
    assert_eq!(
        *at_the_end.lock(),
        Some((false, 0)),
        "the log is there, and a cut gives none of its records again"
    );
    assert!(world.log.is_removed());
}

#[test]
fn a_close_leaves_no_log_and_no_marks_and_everything_in_tables() {
    let world = World::new(DEFAULT);
    world.write(WriteOptions::UNSYNCED, &ModelBatch::default().merge(0, "n", 3)).unwrap();
    world.parallel_wal.close().unwrap();
    assert!(world.log.is_removed() && !world.tables.has_marks());
    assert_eq!(world.tables.state.lock().durable.get(0, "n"), Some(3));
    assert!(world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, "a", 1)).is_err());
    world.parallel_wal.close().unwrap();
}
