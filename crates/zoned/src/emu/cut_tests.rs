//! One test for each sentence of ARCHITECTURE.md, "What survives a power cut".

use std::collections::BTreeSet;

use super::*;
use crate::{Action, Blocks, Buf, BufMut, Done, Durability, Lba, Op, ZoneId, ZoneState};

const BLOCK_BYTES: usize = 4096;

/// The medium under test, and the number of the next operation.
struct Bench {
    media: Media,
    next: u64,
}

/// A zone after a power cut: its state, and the first byte of each block up to the pointer.
type ZoneAfterCut = (ZoneState, Vec<u8>);

fn block(tag: u8) -> Vec<u8> {
    vec![tag; BLOCK_BYTES]
}

fn blocks(tags: &[u8]) -> Buf {
    Buf::copy_from(&tags.iter().flat_map(|t| block(*t)).collect::<Vec<_>>())
}

impl Bench {
    fn new(change: impl FnOnce(&mut EmuOptions)) -> Bench {
        let mut options = EmuOptions::tiny();
        change(&mut options);
        Bench { media: Media::new(&options), next: 1 }
    }

    fn submit(&mut self, op: Op) -> OpId {
        let id = OpId(self.next);
        self.next += 1;
        self.media.submit(id, &op).expect("legal");
        id
    }

    fn append(&mut self, zone: u32, tags: &[u8]) -> OpId {
        self.submit(Op::Append { zone: ZoneId(zone), data: blocks(tags), how: Durability::Cached })
    }

    fn append_acked(&mut self, zone: u32, tags: &[u8]) {
        let id = self.append(zone, tags);
        self.media.acknowledge(id);
    }

    fn write(&mut self, at: u64, tags: &[u8], how: Durability) -> OpId {
        self.submit(Op::Write { at: Lba(at), data: blocks(tags), how })
    }

    fn zone(&mut self, zone: u32, action: Action) -> OpId {
        self.submit(Op::Zone { zone: ZoneId(zone), action })
    }

    fn flush(&mut self) {
        let id = self.submit(Op::Flush);
        self.media.acknowledge(id);
    }

    /// All outcomes of a power cut for the given zones.
    fn outcomes(&self, zones: &[u32]) -> BTreeSet<Vec<String>> {
        let mut all = Exhaustive::new();
        let mut seen = BTreeSet::new();
        while all.next() {
            let after = self.media.cut(&mut all);
            seen.insert(zones.iter().map(|z| describe_zone(&zone_content(&after, *z))).collect());
        }
        seen
    }

    fn outcomes_of_zone(&self, zone: u32) -> BTreeSet<String> {
        self.outcomes(&[zone]).into_iter().map(|mut zones| zones.remove(0)).collect()
    }
}

/// The zone's state and blocks. A block that is not all one byte is `?`, one of zeros `0`.
fn zone_content(media: &Media, zone: u32) -> ZoneAfterCut {
    let info = media.report(zone..zone + 1).remove(0);
    let start = media.geometry().start(ZoneId(zone));
    let tags = (0..info.pointer.0).map(|offset| tag_at(media, start.plus(Blocks(offset)))).collect();
    (info.state, tags)
}

fn tag_at(media: &Media, at: Lba) -> u8 {
    let op = Op::Read { at, into: BufMut::zeroed(BLOCK_BYTES) };
    let Ok(Done::Read(data)) = media.submit(OpId(0), &op) else { panic!("readable") };
    let first = data[0];
    if data.iter().all(|b| *b == first) { if first == 0 { b'0' } else { first } } else { b'?' }
}

fn describe_zone((state, tags): &ZoneAfterCut) -> String {
    let tags = String::from_utf8_lossy(tags);
    match state {
        ZoneState::Closed => format!("C:{tags}"),
        ZoneState::Full => format!("F:{}", tags.trim_end_matches('0')),
        ZoneState::Conventional => format!("V:{tags}"),
        other => format!("{other:?}:{tags}"),
    }
}

fn set(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|s| s.to_string()).collect()
}

/// The outcomes of a power cut in which the drive sets no open zone to full.
fn outcomes_without_filling(of: BTreeSet<String>) -> BTreeSet<String> {
    of.into_iter().filter(|s| !s.starts_with("F:")).collect()
}

#[test]
fn without_a_volatile_cache_acknowledged_is_durable() {
    let mut bench = Bench::new(|o| o.volatile_cache = false);
    bench.append_acked(0, b"ab");
    assert_eq!(bench.outcomes_of_zone(0), set(&["C:ab", "F:ab"]));
    bench.append(0, b"c");
    assert_eq!(
        outcomes_without_filling(bench.outcomes_of_zone(0)),
        set(&["C:ab", "C:abc", "C:ab?", "C:ab0"])
    );
}

#[test]
fn with_a_volatile_cache_a_suffix_of_unflushed_writes_may_be_lost() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"a");
    bench.append_acked(0, b"b");
    assert_eq!(outcomes_without_filling(bench.outcomes_of_zone(0)), set(&["Empty:", "C:a", "C:ab"]));
    bench.flush();
    assert_eq!(outcomes_without_filling(bench.outcomes_of_zone(0)), set(&["C:ab"]));
}

#[test]
fn a_flush_covers_exactly_the_writes_acknowledged_before_its_submission() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"a");
    let late = bench.append(0, b"b");
    let flush = bench.submit(Op::Flush);
    bench.media.acknowledge(late);
    assert!(bench.outcomes_of_zone(0).contains("Empty:"), "the flush itself is not acknowledged");
    bench.media.acknowledge(flush);
    assert_eq!(outcomes_without_filling(bench.outcomes_of_zone(0)), set(&["C:a", "C:ab"]));
}

#[test]
fn a_durable_block_makes_every_lower_block_of_its_zone_durable() {
    let mut bench = Bench::new(|_| {});
    bench.append(0, b"a");
    let fua = bench.write(1, b"b", Durability::Durable);
    bench.media.acknowledge(fua);
    assert_eq!(outcomes_without_filling(bench.outcomes_of_zone(0)), set(&["C:ab"]));
}

#[test]
fn a_durable_write_says_nothing_about_other_zones() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(1, b"x");
    let fua = bench.write(0, b"a", Durability::Durable);
    bench.media.acknowledge(fua);
    assert!(bench.outcomes_of_zone(1).contains("Empty:"));
}

#[test]
fn appends_in_flight_land_in_any_order_and_leave_holes() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"z");
    bench.flush();
    bench.append(0, b"a");
    bench.append(0, b"b");
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    for outcome in ["C:z", "C:za", "C:zb", "C:zab", "C:zba", "C:z?b", "C:z0a", "C:z??"] {
        assert!(seen.contains(outcome), "{outcome} is missing from {seen:?}");
    }
    assert!(!seen.contains("C:zaa") && !seen.contains("C:zbb"));
}

#[test]
fn an_acknowledged_append_stays_at_its_address() {
    let mut bench = Bench::new(|_| {});
    bench.append(0, b"a");
    bench.append_acked(0, b"b");
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    assert_eq!(seen, set(&["Empty:", "C:a", "C:?", "C:0", "C:ab", "C:?b", "C:0b"]));
}

#[test]
fn only_appends_submitted_before_an_acknowledgement_may_precede_it_in_the_zone() {
    let mut bench = Bench::new(|_| {});
    bench.append(0, b"a");
    let fixed = bench.append(0, b"b");
    bench.append(0, b"c");
    bench.media.acknowledge(fixed);
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    assert!(seen.contains("C:cb") && seen.contains("C:cba") && seen.contains("C:abc"), "{seen:?}");
    assert!(!seen.iter().any(|s| s.contains("ca") || s.contains("ac")), "{seen:?}");
    let mut bench = Bench::new(|_| {});
    bench.append(0, b"a");
    bench.append_acked(0, b"b");
    bench.append(0, b"c");
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    assert!(seen.contains("C:abc") && !seen.contains("C:cb") && !seen.contains("C:cba"), "{seen:?}");
}

#[test]
fn writes_in_flight_keep_their_order_but_not_their_content() {
    let mut bench = Bench::new(|_| {});
    bench.write(0, b"a", Durability::Cached);
    bench.write(1, b"b", Durability::Cached);
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    assert!(seen.contains("C:?b") && seen.contains("C:ab") && !seen.contains("C:ba"), "{seen:?}");
}

#[test]
fn a_multi_block_operation_tears_at_the_atomic_unit() {
    let mut bench = Bench::new(|o| o.atomic_write = Blocks(2));
    bench.append(0, b"abcd");
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    let whole = ["Empty:", "C:ab", "C:??", "C:00", "C:abcd", "C:ab??", "C:??cd", "C:ab00", "C:00cd"];
    assert_eq!(seen, set(&[&whole[..], &["C:????", "C:0000"]].concat()));
}

#[test]
fn a_reset_that_no_flush_covers_happened_wholly_or_not_at_all() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"ab");
    bench.flush();
    let reset = bench.zone(0, Action::Reset);
    assert_eq!(bench.outcomes_of_zone(0), set(&["Empty:", "C:ab"]));
    bench.media.acknowledge(reset);
    assert_eq!(bench.outcomes_of_zone(0), set(&["Empty:", "C:ab"]));
    bench.flush();
    assert_eq!(bench.outcomes_of_zone(0), set(&["Empty:"]));
}

#[test]
fn a_reset_may_outrun_earlier_writes_of_other_zones() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(1, b"m");
    bench.flush();
    bench.append_acked(0, b"a");
    let reset = bench.zone(1, Action::Reset);
    bench.media.acknowledge(reset);
    let seen = bench.outcomes(&[0, 1]);
    for (a, b) in [("Empty:", "Empty:"), ("Empty:", "C:m"), ("C:a", "Empty:"), ("C:a", "C:m")] {
        assert!(seen.contains(&vec![a.to_string(), b.to_string()]), "{a} {b}");
    }
}

#[test]
fn old_and_new_content_never_mix_over_several_resets() {
    let mut bench = Bench::new(|_| {});
    for tags in [b"abc", b"mno"] {
        bench.append_acked(0, tags);
        let reset = bench.zone(0, Action::Reset);
        bench.media.acknowledge(reset);
    }
    bench.append_acked(0, b"xyz");
    let seen = outcomes_without_filling(bench.outcomes_of_zone(0));
    let all = ["Empty:", "C:a", "C:ab", "C:abc", "C:m", "C:mn", "C:mno", "C:x", "C:xy", "C:xyz"];
    assert_eq!(seen, set(&all));
}

#[test]
fn a_durable_block_of_the_new_content_makes_the_reset_durable() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"abc");
    bench.zone(0, Action::Reset);
    let fua = bench.write(0, b"x", Durability::Durable);
    assert!(bench.outcomes_of_zone(0).contains("C:abc"));
    bench.media.acknowledge(fua);
    assert_eq!(outcomes_without_filling(bench.outcomes_of_zone(0)), set(&["C:x"]));
}

#[test]
fn a_finish_happened_wholly_or_not_at_all_and_never_before_the_zones_writes() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"ab");
    let finish = bench.zone(0, Action::Finish);
    bench.media.acknowledge(finish);
    assert_eq!(bench.outcomes_of_zone(0), set(&["Empty:", "C:a", "C:ab", "F:ab"]));
    bench.flush();
    assert_eq!(bench.outcomes_of_zone(0), set(&["F:ab"]));
}

#[test]
fn open_zones_come_back_closed_empty_or_full() {
    let mut bench = Bench::new(|_| {});
    bench.zone(0, Action::Open);
    bench.append_acked(1, b"a");
    bench.append_acked(2, b"abcdefgh");
    bench.append_acked(2, b"ijklmn");
    bench.flush();
    assert_eq!(bench.outcomes_of_zone(0), set(&["Empty:"]));
    assert_eq!(bench.outcomes_of_zone(1), set(&["C:a", "F:a"]));
    assert_eq!(bench.outcomes_of_zone(2), set(&["F:abcdefghijklmn"]));
}

#[test]
fn a_conventional_block_holds_its_old_or_its_new_content_each_on_its_own() {
    let mut bench = Bench::new(|o| {
        o.conventional = 1;
        o.zone_size = Blocks(2);
        o.zone_capacity = Blocks(2);
        o.max_append = Blocks(2);
    });
    let id = bench.write(0, b"ab", Durability::Cached);
    bench.media.acknowledge(id);
    bench.flush();
    assert_eq!(bench.outcomes_of_zone(0), set(&["V:ab"]));
    let id = bench.write(0, b"xy", Durability::Cached);
    bench.media.acknowledge(id);
    bench.write(1, b"z", Durability::Cached);
    assert_eq!(bench.outcomes_of_zone(0), set(&["V:ab", "V:xb", "V:ay", "V:xy", "V:az", "V:xz"]));
    bench.flush();
    assert_eq!(bench.outcomes_of_zone(0), set(&["V:xy", "V:xz"]));
}

#[test]
fn resets_that_did_not_happen_never_leave_more_active_zones_than_allowed() {
    let mut bench = Bench::new(|o| {
        o.max_open = Some(2);
        o.max_active = Some(2);
    });
    for zone in 0..2 {
        bench.append_acked(zone, b"a");
    }
    bench.flush();
    for zone in 0..2 {
        let reset = bench.zone(zone, Action::Reset);
        bench.media.acknowledge(reset);
        bench.append_acked(zone + 2, b"b");
    }
    let mut all = Exhaustive::new();
    let mut outcomes = 0;
    while all.next() {
        let after = bench.media.cut(&mut all);
        assert!(after.in_use().1 <= 2);
        assert_eq!(after.in_use().0, 0);
        outcomes += 1;
    }
    assert!(outcomes > 16);
}

#[test]
fn a_clone_keeps_its_content_when_the_original_is_overwritten() {
    let mut bench = Bench::new(|_| {});
    bench.append_acked(0, b"abc");
    let before = bench.media.clone();
    let print = before.fingerprint();
    bench.zone(0, Action::Reset);
    bench.append(0, b"xyz");
    assert_eq!(zone_content(&before, 0).1, b"abc");
    assert_eq!(before.fingerprint(), print);
    assert_ne!(bench.media.fingerprint(), print);
}

#[test]
fn images_with_equal_content_have_equal_fingerprints() {
    let mut bench = Bench::new(|_| {});
    let mut other = Bench::new(|_| {});
    bench.append_acked(0, b"zzz");
    bench.zone(0, Action::Reset);
    bench.append_acked(0, b"a");
    other.append_acked(0, b"a");
    assert_eq!(bench.media.fingerprint(), other.media.fingerprint());
    other.append_acked(0, b"b");
    assert_ne!(bench.media.fingerprint(), other.media.fingerprint());
}
