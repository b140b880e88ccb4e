//! Random histories and random power cuts. The checker knows only the contract: from the submitted, acknowledged and
//! flushed operations it decides whether a cut's outcome is allowed.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{Action, Blocks, Buf, BufMut, Done, Durability, ErrorKind, Lba, Op, ZoneId, ZoneState};

const BLOCK_BYTES: usize = 512;
const ZONES: u32 = 4;
const CAPACITY_BLOCKS: u64 = 6;
const ZONE_SIZE_BLOCKS: u64 = 8;

/// A write of a block, as the host knows it.
#[derive(Clone, Debug)]
struct Written {
    op: u64,
    tag: u64,
}

/// A zone between two resets, as the host knows it.
#[derive(Clone, Debug, Default)]
struct EpochModel {
    /// The reset operation that began the epoch; 0 if none did.
    reset: u64,
    /// The epoch's writes by offset, at the addresses that the device chose.
    blocks: Vec<Written>,
    finish: Option<u64>,
}

#[derive(Default)]
struct Model {
    lives: BTreeMap<u32, Vec<EpochModel>>,
    /// Every tag ever written to a conventional block, with the operation that wrote it, in order.
    rewrites: BTreeMap<u64, Vec<Written>>,
    acked: BTreeMap<u64, u64>,
    appends: BTreeSet<u64>,
    /// The clock when each operation was submitted.
    born: BTreeMap<u64, u64>,
    fua: BTreeSet<u64>,
    /// For each flush in flight, the operations acknowledged before its submission.
    flushes: BTreeMap<u64, BTreeSet<u64>>,
    durable: BTreeSet<u64>,
    volatile: bool,
    clock: u64,
}

impl Model {
    fn acknowledge(&mut self, op: u64) {
        self.clock += 1;
        self.acked.insert(op, self.clock);
        if !self.volatile || self.fua.contains(&op) {
            self.durable.insert(op);
        }
        if let Some(covered) = self.flushes.remove(&op) {
            self.durable.extend(covered);
        }
    }

    /// Checks a sequential zone after a power cut: the zone is in one of its epochs with all blocks that must
    /// survive.
    fn check_after_cut(&self, zone: u32, state: ZoneState, tags: &[Option<u64>]) -> Result<(), String> {
        let empty = [EpochModel::default()];
        let lives = self.lives.get(&zone).map_or(&empty[..], |l| &l[..]);
        let mut reasons = Vec::new();
        for (index, life) in lives.iter().enumerate() {
            // A durable block of a later epoch rules an earlier epoch out.
            let later = lives[index + 1..]
                .iter()
                .any(|l| self.has_durable_block(l) || self.durable.contains(&l.reset));
            match if later {
                Err("a later life is durable".into())
            } else {
                self.fits_epoch(life, state, tags)
            } {
                Ok(()) => return Ok(()),
                Err(why) => reasons.push(format!("life {index}: {why}")),
            }
        }
        Err(format!("zone {zone} is {state:?} with {tags:?}: {}", reasons.join("; ")))
    }

    fn has_durable_block(&self, life: &EpochModel) -> bool {
        let finish = life.finish.is_some_and(|f| self.durable.contains(&f));
        finish || life.blocks.iter().any(|b| self.durable.contains(&b.op))
    }

    fn fits_epoch(&self, life: &EpochModel, state: ZoneState, tags: &[Option<u64>]) -> Result<(), String> {
        let finish_durable = life.finish.is_some_and(|f| self.durable.contains(&f));
        let durable = if finish_durable {
            life.blocks.len()
        } else {
            life.blocks.iter().rposition(|b| self.durable.contains(&b.op)).map_or(0, |at| at + 1)
        };
        // A full zone reads to its capacity; unwritten blocks read as zeros.
        let reach = if state == ZoneState::Full { tags.len().min(life.blocks.len()) } else { tags.len() };
        if reach > life.blocks.len() {
            return Err("the pointer lies above everything submitted".into());
        }
        if state != ZoneState::Full && tags.len() < durable {
            return Err(format!("the pointer lies below the durable {durable}"));
        }
        if finish_durable && state != ZoneState::Full {
            return Err("a durable finish is undone".into());
        }
        if state == ZoneState::Empty && !tags.is_empty() {
            return Err("an empty zone has blocks".into());
        }
        let written: BTreeMap<u64, &Written> = life.blocks.iter().map(|b| (b.tag, b)).collect();
        let mut seen = BTreeSet::new();
        for (offset, found) in tags.iter().enumerate() {
            let here = life.blocks.get(offset);
            let acked = here.is_some_and(|b| self.acked.contains_key(&b.op));
            match found {
                Some(tag) => {
                    let Some(block) = written.get(tag) else {
                        return Err(format!("block {offset} holds what was never written in this life"));
                    };
                    let moved = here.is_none_or(|b| b.tag != *tag);
                    let free = self.appends.contains(&block.op) && !self.acked.contains_key(&block.op);
                    if moved && (acked || !free) {
                        return Err(format!("block {offset} holds another block"));
                    }
                    let origin = life.blocks.iter().position(|b| b.tag == *tag).unwrap_or(offset);
                    let passed = life.blocks.get(offset..origin).unwrap_or_default();
                    let late =
                        |b: &Written| self.acked.get(&b.op).is_some_and(|ack| *ack <= self.born[&block.op]);
                    if passed.iter().any(late) {
                        return Err(format!(
                            "block {offset} holds an append from above the pointer of its time"
                        ));
                    }
                    if !seen.insert(*tag) {
                        return Err(format!("block {offset} is there twice"));
                    }
                }
                None if state == ZoneState::Full && offset >= durable => {
                    // A missing block is a hole only if an acknowledged block lies above it.
                    let above = tags[offset..].iter().any(Option::is_some);
                    if acked && above {
                        return Err(format!("block {offset} was acknowledged and is a hole"));
                    }
                }
                None if acked => return Err(format!("block {offset} was acknowledged and reads as garbage")),
                None if offset < durable => {
                    return Err(format!("block {offset} is durable and reads as garbage"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn judge_rewritten(&self, at: u64, found: Option<u64>) -> Result<(), String> {
        let none = Vec::new();
        let versions = self.rewrites.get(&at).unwrap_or(&none);
        let oldest = versions.iter().rposition(|w| self.durable.contains(&w.op));
        let allowed = &versions[oldest.unwrap_or(0)..];
        let ok = match found {
            None => oldest.is_none(),
            Some(tag) => allowed.iter().any(|w| w.tag == tag),
        };
        if ok { Ok(()) } else { Err(format!("conventional block {at} holds {found:?} of {versions:?}")) }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(u32, u64, bool),
    Write(u32, u64, bool),
    Rewrite(u64, u64, bool),
    Act(u32, Action),
    Flush,
    /// Acknowledges the `n`-th operation in flight.
    Ack(usize),
    AckAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let zone = 1..ZONES;
    let step = prop_oneof![
        6 => (zone.clone(), 1..4_u64, prop::bool::weighted(0.1)).prop_map(|(z, n, f)| Step::Append(z, n, f)),
        3 => (zone.clone(), 1..4_u64, prop::bool::weighted(0.1)).prop_map(|(z, n, f)| Step::Write(z, n, f)),
        2 => (0..ZONE_SIZE_BLOCKS, 1..3_u64, prop::bool::weighted(0.1)).prop_map(|(a, n, f)| Step::Rewrite(a, n, f)),
        2 => (zone.clone(), Just(Action::Reset)).prop_map(|(z, a)| Step::Act(z, a)),
        1 => (zone, prop_oneof![Just(Action::Finish), Just(Action::Open), Just(Action::Close)])
            .prop_map(|(z, a)| Step::Act(z, a)),
        2 => Just(Step::Flush),
        6 => (0..8_usize).prop_map(Step::Ack),
        1 => Just(Step::AckAll),
    ];
    prop::collection::vec(step, 1..40)
}

/// Blocks whose every word is the block's tag.
fn tagged_blocks(tags: &[u64]) -> Buf {
    let bytes: Vec<u8> =
        tags.iter().flat_map(|tag| tag.to_le_bytes().into_iter().cycle().take(BLOCK_BYTES)).collect();
    Buf::copy_from(&bytes)
}

/// The tag of a block, or `None` for zeros and noise.
fn tag_of(block: &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(block[..8].try_into().ok()?);
    let whole = block.chunks_exact(8).all(|w| w == word.to_le_bytes());
    (whole && word != 0).then_some(word)
}

struct Run {
    media: Media,
    model: Model,
    next: u64,
    in_flight: Vec<u64>,
    tag: u64,
}

impl Run {
    fn new(volatile: bool) -> Run {
        let options = EmuOptions {
            block_size: BLOCK_BYTES as u32,
            zones: ZONES,
            conventional: 1,
            zone_size: Blocks(ZONE_SIZE_BLOCKS),
            zone_capacity: Blocks(CAPACITY_BLOCKS),
            max_open: Some(2),
            max_active: Some(2),
            volatile_cache: volatile,
            ..EmuOptions::tiny()
        };
        let model = Model { volatile, ..Model::default() };
        Run { media: Media::new(&options), model, next: 1, in_flight: Vec::new(), tag: 0 }
    }

    fn submit(&mut self, op: &Op) -> Option<(u64, Done)> {
        let id = self.next;
        self.next += 1;
        match self.media.submit(OpId(id), op) {
            Ok(done) => {
                self.model.born.insert(id, self.model.clock);
                self.in_flight.push(id);
                Some((id, done))
            }
            Err(e) => {
                use ErrorKind::{CrossesZone, IllegalMove, TooManyActive, TooManyOpen, ZoneFull};
                let refused = [CrossesZone, IllegalMove, TooManyActive, TooManyOpen, ZoneFull];
                assert!(refused.contains(&e.kind()), "{e}");
                None
            }
        }
    }

    fn new_tags(&mut self, count: u64) -> Vec<u64> {
        (0..count)
            .map(|_| {
                self.tag += 1;
                // Tags of the test's blocks: noise is very unlikely to produce them.
                self.tag << 8 | 0xa5
            })
            .collect()
    }

    fn current_epoch(&mut self, zone: u32) -> &mut EpochModel {
        let lives = self.model.lives.entry(zone).or_insert_with(|| vec![EpochModel::default()]);
        lives.last_mut().expect("one at least")
    }

    fn perform_step(&mut self, step: &Step) {
        let how = |fua: bool| if fua { Durability::Durable } else { Durability::Cached };
        match *step {
            Step::Append(zone, count, fua) | Step::Write(zone, count, fua) => {
                let tags = self.new_tags(count);
                let (zone_id, data, how) = (ZoneId(zone), tagged_blocks(&tags), how(fua));
                let append = matches!(step, Step::Append(..));
                let pointer = self.current_epoch(zone).blocks.len() as u64;
                let at = Lba(u64::from(zone) * ZONE_SIZE_BLOCKS + pointer);
                let op = if append {
                    Op::Append { zone: zone_id, data, how }
                } else {
                    Op::Write { at, data, how }
                };
                if let Some((op, done)) = self.submit(&op) {
                    if let Done::At(landed) = done {
                        assert_eq!(landed, at);
                    }
                    self.current_epoch(zone).blocks.extend(tags.into_iter().map(|tag| Written { op, tag }));
                    if append {
                        self.model.appends.insert(op);
                    }
                    if fua {
                        self.model.fua.insert(op);
                    }
                }
            }
            Step::Rewrite(at, count, fua) => {
                let count = count.min(ZONE_SIZE_BLOCKS - at);
                let tags = self.new_tags(count);
                let op = Op::Write { at: Lba(at), data: tagged_blocks(&tags), how: how(fua) };
                let (op, _) = self.submit(&op).expect("conventional zones take all");
                for (tag, at) in tags.into_iter().zip(at..) {
                    self.model.rewrites.entry(at).or_default().push(Written { op, tag });
                }
                if fua {
                    self.model.fua.insert(op);
                }
            }
            Step::Act(zone, action) => {
                let before = self.media.report(zone..zone + 1).remove(0).state;
                let Some((op, _)) = self.submit(&Op::Zone { zone: ZoneId(zone), action }) else { return };
                self.current_epoch(zone);
                match action {
                    Action::Reset if before != ZoneState::Empty => {
                        let lives = self.model.lives.get_mut(&zone).expect("made above");
                        lives.push(EpochModel { reset: op, ..EpochModel::default() });
                    }
                    Action::Finish if before != ZoneState::Full => self.current_epoch(zone).finish = Some(op),
                    _ => {}
                }
            }
            Step::Flush => {
                let (op, _) = self.submit(&Op::Flush).expect("always works");
                let covered = self.model.acked.keys().copied().collect();
                self.model.flushes.insert(op, covered);
            }
            Step::Ack(nth) => {
                if nth < self.in_flight.len() {
                    let op = self.in_flight.remove(nth);
                    self.acknowledge(op);
                }
            }
            Step::AckAll => {
                for op in std::mem::take(&mut self.in_flight) {
                    self.acknowledge(op);
                }
            }
        }
    }

    fn acknowledge(&mut self, op: u64) {
        self.media.acknowledge(OpId(op));
        self.model.acknowledge(op);
    }

    fn check_after_cut(&self, after: &Media) -> Result<(), String> {
        for info in after.report(0..ZONES) {
            let start = u64::from(info.zone.0) * ZONE_SIZE_BLOCKS;
            let tags: Vec<_> = (0..info.pointer.0).map(|offset| read(after, start + offset)).collect();
            if info.zone.0 == 0 {
                tags.iter().zip(0..).try_for_each(|(tag, at)| self.model.judge_rewritten(at, *tag))?;
            } else {
                if info.state.is_open() {
                    return Err(format!("{info:?} is open after a cut"));
                }
                self.model.check_after_cut(info.zone.0, info.state, &tags)?;
            }
        }
        let (open, active) = after.in_use();
        if open > 0 || active > 2 { Err(format!("{open} open, {active} active")) } else { Ok(()) }
    }
}

fn read(media: &Media, at: u64) -> Option<u64> {
    match media.submit(OpId(0), &Op::Read { at: Lba(at), into: BufMut::zeroed(BLOCK_BYTES) }) {
        Ok(Done::Read(data)) => tag_of(&data),
        other => panic!("a read gave {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_cut_ever_leaves_what_the_contract_forbids(steps in steps(), volatile: bool, seed: u64) {
        let mut run = Run::new(volatile);
        for step in &steps {
            run.perform_step(step);
            let before = run.media.fingerprint();
            for round in 0..8 {
                let after = run.media.cut(&mut Seeded::new(seed.wrapping_add(round)));
                if let Err(why) = run.check_after_cut(&after) {
                    return Err(TestCaseError::fail(why));
                }
                // After a power cut everything is durable: a second cut changes nothing.
                let print = after.fingerprint();
                prop_assert_eq!(after.cut(&mut Seeded::new(round)).fingerprint(), print);
            }
            prop_assert_eq!(run.media.fingerprint(), before, "a cut leaves the drive alone");
        }
    }
}

#[test]
fn the_checker_finds_a_lost_durable_write() {
    let mut run = Run::new(true);
    for step in [Step::Append(1, 2, false), Step::AckAll, Step::Flush, Step::AckAll] {
        run.perform_step(&step);
    }
    let fresh = Run::new(true).media;
    assert!(run.check_after_cut(&fresh).is_err());
    run.check_after_cut(&run.media.cut(&mut Seeded::new(1))).expect("the medium keeps it");
}
