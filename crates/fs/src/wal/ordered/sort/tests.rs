use proptest::prelude::*;
use units::Lba;

use super::*;
use crate::wal::entry::EntryHeader;

fn found(sequence: u64, needs: u64, (part, parts): (u16, u16), odd: bool) -> Found {
    let header = EntryHeader { odd, part, parts, ..EntryHeader::for_recovery_tests(0, sequence, needs) };
    Found { header, segment: 0, lba: Lba(sequence * 100 + u64::from(part)), end: Blocks(1) }
}

fn sorter() -> Sorter {
    let cut = Cut { epoch: 0, first_sequence: 0 };
    Sorter::new(&[cut], &[], false)
}

fn out(sorter: &mut Sorter) -> Vec<u64> {
    sorter.ready().map(|part| part.found.header.sequence).collect()
}

fn push(sorter: &mut Sorter, found: Found) -> Vec<u64> {
    sorter.push(Part { found, payload: None }, 0);
    out(sorter)
}

fn single_part_entry(sequence: u64, odd: bool) -> Found {
    found(sequence, sequence, (0, 1), odd)
}

#[test]
fn an_entry_is_ready_as_soon_as_all_earlier_ones_came() {
    let mut sorter = sorter();
    assert_eq!(push(&mut sorter, single_part_entry(0, false)), [0]);
    assert_eq!(push(&mut sorter, single_part_entry(2, false)), []);
    assert_eq!(push(&mut sorter, single_part_entry(3, false)), []);
    assert_eq!(push(&mut sorter, single_part_entry(1, false)), [1, 2, 3]);
}

#[test]
fn entries_after_an_allowed_gap_are_ready_when_the_region_ends() {
    let mut sorter = sorter();
    // Entry 1 was not acknowledged when entry 2 was submitted.
    assert_eq!(push(&mut sorter, found(0, 0, (0, 1), false)), [0]);
    assert_eq!(push(&mut sorter, found(2, 1, (0, 1), false)), []);
    assert_eq!(push(&mut sorter, found(3, 1, (0, 1), true)), [2, 3]);
}

#[test]
fn the_end_of_a_segment_decides_all_entries_before_its_last_one() {
    let mut sorter = sorter();
    push(&mut sorter, found(1, 0, (0, 1), false));
    // The last entry of the segment has a second part in the next segment.
    push(&mut sorter, found(2, 0, (0, 2), false));
    sorter.end_of_segment();
    assert_eq!(out(&mut sorter), [1]);
    assert_eq!(push(&mut sorter, found(2, 0, (1, 2), false)), [2, 2]);
}

#[test]
fn an_entry_found_after_the_end_of_its_region_does_not_count() {
    let mut sorter = sorter();
    let order = [
        single_part_entry(0, false),
        single_part_entry(2, false),
        single_part_entry(3, true),
        single_part_entry(1, false),
    ];
    let all: Vec<u64> = order.into_iter().flat_map(|found| push(&mut sorter, found)).collect();
    assert_eq!(all, [0], "recovery relies on the writer's barriers");
    let mut same = super::tests::sorter();
    let order = [
        single_part_entry(0, false),
        single_part_entry(2, false),
        single_part_entry(3, false),
        single_part_entry(1, false),
    ];
    assert_eq!(order.into_iter().flat_map(|found| push(&mut same, found)).count(), 4);
}

#[test]
fn an_old_block_that_reappears_ends_no_region() {
    let mut sorter = sorter();
    assert_eq!(push(&mut sorter, single_part_entry(0, false)), [0]);
    assert_eq!(push(&mut sorter, single_part_entry(1, true)), [1]);
    assert_eq!(push(&mut sorter, single_part_entry(3, true)), []);
    assert_eq!(push(&mut sorter, single_part_entry(0, false)), [], "the old block");
    assert_eq!(push(&mut sorter, single_part_entry(2, true)), [2, 3]);
    sorter.finish();
    assert_eq!(sorter.recovered().dropped, 0);
}

#[test]
fn after_a_gap_only_the_parts_of_the_current_region_are_held() {
    let mut sorter = sorter();
    for sequence in 1..1000 {
        assert_eq!(push(&mut sorter, single_part_entry(sequence, sequence / 100 % 2 == 1)), []);
        assert!(sorter.held.len() <= 100);
    }
}

#[test]
fn the_broken_gap_rule_keeps_entries_after_a_gap() {
    let mut sorter = Sorter::new(&[Cut { epoch: 0, first_sequence: 0 }], &[], true);
    push(&mut sorter, single_part_entry(0, false));
    push(&mut sorter, single_part_entry(2, false));
    sorter.finish();
    assert_eq!(out(&mut sorter), [2]);
}

/// The recovery rule, applied to all parts at once: the parts that count, and the lowest missing sequence.
fn parts_by_the_rule(all: &[Found]) -> (Vec<(u64, u16)>, u64) {
    let mut parts: BTreeMap<(u64, u16), Found> = BTreeMap::new();
    for found in all {
        parts.entry((found.header.sequence, found.header.part)).or_insert(*found);
    }
    let whole = |sequence: u64| {
        let mine: Vec<&Found> =
            parts.range((sequence, 0)..=(sequence, u16::MAX)).map(|(_, found)| found).collect();
        mine.first().is_some_and(|f| mine.len() == usize::from(f.header.parts))
    };
    let mut kept = Vec::new();
    for (&(sequence, part), found) in &parts {
        if whole(sequence) && (0..found.header.needs).all(whole) {
            kept.push((sequence, part));
        }
    }
    (kept, (0..).find(|sequence| !whole(*sequence)).expect("a log ends"))
}

#[derive(Clone, Debug)]
struct Entry {
    parts: u16,
    slack: u64,
    lost: Option<u16>,
    shuffle: u64,
    again: bool,
}

fn entries(parallel: bool) -> impl Strategy<Value = Vec<Entry>> {
    let slack = if parallel { 0..6_u64 } else { 0..1 };
    let lost = prop_oneof![9 => Just(None), 1 => (0..3_u16).prop_map(Some)];
    let entry = (1..4_u16, slack, lost, any::<u64>(), prop::bool::weighted(0.1))
        .prop_map(|(parts, slack, lost, shuffle, again)| Entry { parts, slack, lost, shuffle, again });
    prop::collection::vec(entry, 0..60)
}

proptest! {
    #[test]
    fn any_order_within_regions_gives_what_the_rule_says(
        entries in prop_oneof![entries(false), entries(true)],
        region in 1..20_usize,
        segments: bool,
    ) {
        let mut sorter = sorter();
        let (mut all, mut got) = (Vec::new(), Vec::new());
        for (number, group) in entries.chunks(region).enumerate() {
            // A new region flips the parts' region bit; the end of a segment does not.
            let odd = !segments && number % 2 == 1;
            let mut here = Vec::new();
            for (at, entry) in (number * region..).zip(group) {
                let sequence = at as u64;
                for part in (0..entry.parts).filter(|part| entry.lost != Some(*part)) {
                    let found = found(sequence, sequence.saturating_sub(entry.slack), (part, entry.parts), odd);
                    let mixed = (entry.shuffle ^ u64::from(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    here.push((mixed, found));
                    if entry.again {
                        here.push((mixed.rotate_left(17), Found { lba: Lba(u64::MAX), ..found }));
                    }
                }
            }
            here.sort_by_key(|(mixed, _)| *mixed);
            for (_, found) in here {
                all.push(found);
                sorter.push(Part { found, payload: None }, 0);
                got.extend(sorter.ready());
            }
            if segments {
                sorter.end_of_segment();
                got.extend(sorter.ready());
            }
        }
        sorter.finish();
        got.extend(sorter.ready());
        let (kept, absent) = parts_by_the_rule(&all);
        let got: Vec<(u64, u16)> = got.iter().map(|p| (p.found.header.sequence, p.found.header.part)).collect();
        prop_assert_eq!(&got, &kept);
        prop_assert_eq!(sorter.absent, absent);
        let left = sorter.recovered();
        let mut distinct: Vec<(u64, u16)> = all.iter().map(|f| (f.header.sequence, f.header.part)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(left.next_sequence, kept.last().map_or(0, |(s, _)| s + 1));
        prop_assert_eq!(left.size, kept.len() as u64 * 10);
        prop_assert!(left.dropped >= distinct.len() - kept.len());
    }
}

fn part(epoch: u32, sequence: u64, needs: u64, (part, parts): (u16, u16)) -> Found {
    let header = EntryHeader { part, parts, ..EntryHeader::for_recovery_tests(epoch, sequence, needs) };
    Found { header, segment: 0, lba: Lba(sequence * 100 + u64::from(part)), end: Blocks(1) }
}

/// The parts that count, in the order in which they are ready, and the result of the recovery.
fn sort_result(found: &[Found], cuts: &[(u32, u64)]) -> (Vec<Found>, Recovered) {
    let cuts: Vec<Cut> = cuts.iter().map(|&(epoch, first_sequence)| Cut { epoch, first_sequence }).collect();
    let mut sorter = Sorter::new(&cuts, &[], false);
    found.iter().for_each(|found| sorter.push(Part { found: *found, payload: None }, 0));
    sorter.finish();
    (sorter.ready().map(|part| part.found).collect(), sorter.recovered())
}

fn kept_sequences(found: Vec<Found>, cuts: &[(u32, u64)]) -> (Vec<u64>, u64, Option<u64>) {
    let (kept, left) = sort_result(&found, cuts);
    (kept.iter().map(|p| p.header.sequence).collect(), left.next_sequence, left.missing)
}

fn entries_with_sequences(epoch: u32, sequences: &[u64]) -> Vec<Found> {
    sequences.iter().map(|&s| part(epoch, s, s, (0, 1))).collect()
}

#[test]
fn a_gap_ends_a_stream() {
    assert_eq!(
        kept_sequences(entries_with_sequences(0, &[2, 0, 1, 4, 5]), &[(0, 0)]),
        (vec![0, 1, 2], 3, None)
    );
    assert_eq!(kept_sequences(entries_with_sequences(0, &[1, 2]), &[(0, 0)]), (vec![], 0, None));
}

#[test]
fn a_gap_that_no_entry_needs_is_allowed() {
    // Entry 1 was never acknowledged, and entries 2 and 3 were written meanwhile. Entry 5 needs entry 4,
    // which is lost.
    let found = [(0, 0), (2, 1), (3, 1), (5, 5)].map(|(s, needs)| part(0, s, needs, (0, 1))).to_vec();
    assert_eq!(kept_sequences(found, &[(0, 0)]).0, vec![0, 2, 3]);
}

#[test]
fn parts_are_kept_together_or_not_at_all() {
    let mut found = entries_with_sequences(0, &[0, 2]);
    found.extend([part(0, 1, 1, (0, 3)), part(0, 1, 1, (2, 3))]);
    assert_eq!(kept_sequences(found.clone(), &[(0, 0)]).0, vec![0]);
    found.push(part(0, 1, 1, (1, 3)));
    assert_eq!(kept_sequences(found, &[(0, 0)]).0, vec![0, 1, 1, 1, 2]);
}

#[test]
fn parts_with_different_counts_do_not_make_an_entry() {
    let found = vec![part(0, 0, 0, (0, 2)), part(0, 0, 0, (1, 3))];
    assert_eq!(kept_sequences(found, &[(0, 0)]).0, vec![]);
}

#[test]
fn an_older_epoch_counts_up_to_the_cut_only() {
    let mut found = entries_with_sequences(1, &[0, 1, 2, 3, 4]);
    found.extend(entries_with_sequences(2, &[2, 3]));
    let (_, survivors) =
        (kept_sequences(found.clone(), &[(1, 0)]), kept_sequences(found.clone(), &[(1, 0), (2, 2)]));
    assert_eq!(survivors, (vec![0, 1, 2, 3], 4, None));
    let (left, _) = sort_result(&found, &[(1, 0), (2, 2)]);
    assert!(left.iter().all(|p| (p.header.sequence >= 2) == (p.header.epoch == 2)));
}

#[test]
fn an_epoch_without_a_cut_does_not_count() {
    assert_eq!(kept_sequences(entries_with_sequences(7, &[0, 1]), &[(1, 0)]), (vec![], 0, None));
}

#[test]
fn a_gap_below_a_cut_is_reported_as_damage() {
    let mut found = entries_with_sequences(1, &[0, 2]);
    found.extend(entries_with_sequences(2, &[3]));
    assert_eq!(kept_sequences(found, &[(1, 0), (2, 3)]), (vec![0], 3, Some(1)));
}

#[test]
fn a_gap_that_a_later_entry_knew_to_be_durable_is_damage() {
    let mut found = entries_with_sequences(1, &[0, 2, 3]);
    found[1].header.open = 1;
    assert_eq!(kept_sequences(found.clone(), &[(1, 0)]), (vec![0], 1, None), "1 was open when 2 was sealed");
    found[2].header.open = 1;
    assert_eq!(kept_sequences(found, &[(1, 0)]), (vec![0], 1, Some(1)), "2 was durable when 3 was sealed");
}

#[test]
fn an_empty_reopened_log_continues_at_its_cut() {
    assert_eq!(kept_sequences(Vec::new(), &[(1, 0), (2, 0)]), (vec![], 0, None));
}
