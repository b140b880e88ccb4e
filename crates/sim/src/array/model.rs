//! The states and contents that the device contract allows each zone of an array after a power cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use zoned::ZoneState;

use crate::model::Fault;
use crate::report::FailureKind;

/// The digest of a block whose read fails with a media error that the model allows.
pub(crate) const UNREADABLE_BLOCK_DIGEST: u64 = 0x6c6f_7374;

/// A step of the array's workload, or the array's answer to a step.
#[derive(Clone, Debug)]
pub(crate) enum WorkloadEvent {
    /// Blocks were submitted at a zone's pointer; a digest of each.
    Write {
        zone: usize,
        blocks: Vec<u64>,
    },
    /// The array acknowledged an append at block `at`: its blocks lie there, and not where they were submitted.
    Landed {
        zone: usize,
        life: usize,
        at: usize,
        blocks: Vec<u64>,
    },
    /// The array acknowledged all blocks below `end` of a zone's life. `durable`: a power cut keeps them.
    Acked {
        zone: usize,
        life: usize,
        end: usize,
        durable: bool,
    },
    /// A flush of the array was submitted.
    Flushing {
        id: u64,
    },
    /// A flush of the array completed.
    Flushed {
        id: u64,
    },
    Resetting {
        zone: usize,
    },
    Reset {
        zone: usize,
    },
    Finishing {
        zone: usize,
    },
    Finished {
        zone: usize,
    },
    /// The workload is about to make a zone fail.
    FailingZone {
        zone: usize,
    },
    ZoneFailed {
        zone: usize,
    },
    /// The array refused the reset of a failed zone, because a drive is missing.
    Refused {
        zone: usize,
    },
}

impl WorkloadEvent {
    /// Whether the event is a promise to the array's caller.
    pub(crate) fn is_promise(&self) -> bool {
        matches!(
            self,
            WorkloadEvent::Landed { .. }
                | WorkloadEvent::Acked { .. }
                | WorkloadEvent::Flushed { .. }
                | WorkloadEvent::Reset { .. }
                | WorkloadEvent::Finished { .. }
                | WorkloadEvent::ZoneFailed { .. }
        )
    }
}

/// One life of a zone: the time between two resets.
#[derive(Clone, Debug, Default)]
struct ZoneLife {
    number: usize,
    /// The digests of a life's blocks, shared with the models of earlier cuts.
    blocks: Arc<Vec<u64>>,
    acked: usize,
    durable: usize,
    /// Where the life's writes end, if they are atomic.
    ends: Option<Arc<Vec<usize>>>,
    finishing: bool,
    finished: bool,
    /// The life's reset was submitted (`ending`), completed (`ended`), and is durable (`gone`).
    ending: bool,
    ended: bool,
    gone: bool,
    /// A mount showed the zone full: blocks above the content's end read as any value.
    full: bool,
    /// The zone may have failed (`failing`), or surely has (`failed`).
    failing: bool,
    failed: bool,
}

impl ZoneLife {
    fn new(number: usize, atomic: bool) -> ZoneLife {
        ZoneLife { number, ends: atomic.then(Arc::default), ..ZoneLife::default() }
    }

    /// The end of the part of a write that a zone with `shown` blocks has, if its writes are atomic and it has only a part. Random
    /// content differs from that of blocks which were not written.
    fn torn_write(&self, shown: &[u64]) -> Option<usize> {
        let ends = self.ends.as_ref()?;
        let same = self.blocks.iter().zip(shown).take_while(|(wrote, found)| wrote == found).count();
        let unreadable = shown.get(same) == Some(&UNREADABLE_BLOCK_DIGEST);
        (same > 0 && !unreadable && !ends.contains(&same)).then_some(same)
    }
}

/// Lives that the model keeps of a zone. A power cut may undo a reset that no flush covers.
const KEPT_LIVES: usize = 3;

/// The state, pointer and content of a zone that a mount shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShownZone {
    pub state: ZoneState,
    /// A digest of each block below the zone's write pointer.
    pub blocks: Vec<u64>,
}

/// A zone with a worn physical zone, in the states that a mount may show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WornZone {
    /// The zone's number; `None` if it may be any zone.
    pub zone: Option<usize>,
    /// A second drive lacks its physical zone too: the logical zone may be offline.
    pub offline: bool,
    /// A drive filled its physical zone as the power failed: the number of written blocks is unknown.
    pub filled: bool,
}

impl WornZone {
    /// True if the zone with this number may be the worn one.
    fn may_be(&self, zone: usize) -> bool {
        self.zone.is_none_or(|worn| worn == zone)
    }
}

/// The model of all zones of an array.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZonesModel {
    /// Whether a physical zone of the array has worn out.
    pub worn: bool,
    zones: Vec<Vec<ZoneLife>>,
    flushes: BTreeMap<u64, Vec<(usize, usize, bool)>>,
}

impl ZonesModel {
    /// The model of an array whose zones are empty. `atomic`: a power cut tears no write.
    pub(crate) fn new(zones: usize, atomic: bool) -> ZonesModel {
        ZonesModel { zones: vec![vec![ZoneLife::new(0, atomic)]; zones], ..ZonesModel::default() }
    }

    /// The model after a mount: all content that the mount showed is durable, since it was read back.
    pub(crate) fn shown(shown: &[ShownZone], atomic: bool) -> ZonesModel {
        let life = |shown: &ShownZone| {
            let known = shown.blocks.len();
            let full = shown.state == ZoneState::Full;
            let failed = shown.state == ZoneState::Offline;
            vec![ZoneLife {
                failing: failed,
                failed,
                blocks: Arc::new(shown.blocks.clone()),
                acked: known,
                durable: known,
                finishing: full,
                finished: full,
                full,
                ends: atomic.then(|| Arc::new(vec![known])),
                ..ZoneLife::default()
            }]
        };
        ZonesModel { zones: shown.iter().map(life).collect(), ..ZonesModel::default() }
    }

    pub(crate) fn apply(&mut self, event: &WorkloadEvent) {
        match event {
            WorkloadEvent::Flushing { id } => {
                let now = |lives: &Vec<ZoneLife>| {
                    lives.last().map_or((0, 0, false), |l| (l.number, l.acked, l.ended))
                };
                self.flushes.insert(*id, self.zones.iter().map(now).collect());
            }
            WorkloadEvent::Flushed { id } => {
                let Some(then) = self.flushes.remove(id) else { return };
                for (lives, (number, acked, ended)) in self.zones.iter_mut().zip(then) {
                    for life in lives {
                        if life.number == number {
                            life.durable = life.durable.max(acked);
                            life.gone |= ended;
                        }
                        life.gone |= life.number < number;
                    }
                }
            }
            WorkloadEvent::Acked { zone, life, end, durable } => {
                let Some(lives) = self.zones.get_mut(*zone) else { return };
                let Some(at) = lives.iter().position(|l| l.number == *life) else { return };
                if let Some(life) = lives.get_mut(at) {
                    life.acked = life.acked.max(*end);
                    if *durable {
                        life.durable = life.durable.max(*end);
                    }
                }
                if *durable {
                    // Old and new content of a zone never mix: the lives before the one shown have ended.
                    lives.iter_mut().take(at).for_each(|life| life.gone = true);
                }
            }
            WorkloadEvent::Landed { zone, life, at, blocks } => {
                let lives = self.zones.get_mut(*zone).into_iter().flatten();
                for life in lives.filter(|of| of.number == *life) {
                    let known = Arc::make_mut(&mut life.blocks);
                    if let Some(known) = known.get_mut(*at..*at + blocks.len()) {
                        known.copy_from_slice(blocks);
                    }
                }
            }
            WorkloadEvent::Write { zone, blocks } => self.last(*zone, |life| {
                Arc::make_mut(&mut life.blocks).extend(blocks);
                if let Some(ends) = &mut life.ends {
                    Arc::make_mut(ends).push(life.blocks.len());
                }
            }),
            WorkloadEvent::Resetting { zone } => self.last(*zone, |life| life.ending = true),
            WorkloadEvent::Reset { zone } => {
                self.last(*zone, |life| life.ended = true);
                if let Some(lives) = self.zones.get_mut(*zone) {
                    let number = lives.last().map_or(0, |life| life.number + 1);
                    let atomic = lives.last().is_some_and(|life| life.ends.is_some());
                    lives.push(ZoneLife::new(number, atomic));
                    let extra = lives.len().saturating_sub(KEPT_LIVES);
                    lives.drain(..extra);
                }
            }
            WorkloadEvent::FailingZone { zone } => self.last(*zone, |life| life.failing = true),
            WorkloadEvent::ZoneFailed { zone } => self.last(*zone, |life| life.failed = true),
            WorkloadEvent::Refused { zone } => self.last(*zone, |life| life.ending = false),
            WorkloadEvent::Finishing { zone } => self.last(*zone, |life| life.finishing = true),
            WorkloadEvent::Finished { zone } => self.last(*zone, |life| life.finished = true),
        }
    }

    /// The fewest blocks that were submitted in a life that the zone may show.
    pub(crate) fn submitted(&self, zone: usize) -> u64 {
        let lives = self.zones.get(zone).into_iter().flatten();
        lives.filter(|life| !life.gone).map(|life| life.blocks.len() as u64).min().unwrap_or(0)
    }

    /// True if blocks were submitted that the array has not acknowledged.
    pub(crate) fn is_writing(&self) -> bool {
        let is_written = |life: &ZoneLife| life.acked < life.blocks.len();
        self.zones.iter().any(|lives| lives.last().is_some_and(is_written))
    }

    /// True if a reset was submitted that the array has not acknowledged.
    pub(crate) fn is_resetting(&self) -> bool {
        self.zones.iter().any(|lives| lives.last().is_some_and(|life| life.ending))
    }

    fn last(&mut self, zone: usize, change: impl FnOnce(&mut ZoneLife)) {
        if let Some(life) = self.zones.get_mut(zone).and_then(|lives| lives.last_mut()) {
            change(life);
        }
    }

    /// Compares the model with the zones that a mount shows. `strict`: acknowledged blocks below the pointer must be right,
    /// durable or not.
    pub(crate) fn judge(&self, shown: &[ShownZone], strict: bool, worn: Option<WornZone>) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (zone, (lives, shown)) in self.zones.iter().zip(shown).enumerate() {
            let worn = worn.filter(|worn| worn.may_be(zone));
            let empty = match shown.state {
                ZoneState::ReadOnly => worn.is_some() && shown.blocks.is_empty(),
                state => state == ZoneState::Empty,
            };
            let reset = empty && lives.last().is_some_and(|life| life.ending);
            let mut verdicts: Vec<Option<(FailureKind, String)>> =
                lives.iter().rev().map(|life| judge(life, shown, strict, worn)).collect();
            if reset || verdicts.iter().any(Option::is_none) {
                continue;
            }
            // The newest life's fault describes the zone.
            if let Some(Some((kind, what))) = verdicts.drain(..).next() {
                faults.push(Fault { kind, what: format!("zone {zone}: {what}") });
            }
        }
        faults
    }

    /// Compares two mounts, the second without a drive: the second must show the content of the first. `restored`: data
    /// blocks of a stripe, if the array moved lost parts to spare room in between.
    pub(crate) fn judge_again(
        first: &[ShownZone],
        second: &[ShownZone],
        worn: Option<WornZone>,
        restored: Option<u64>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (zone, (a, b)) in first.iter().zip(second).enumerate() {
            // A worn physical zone makes the logical zone read-only; without its drive the zone has its earlier state. A full
            // zone that is read-only shows no blocks above the content's end.
            let as_worn =
                worn.filter(|worn| worn.may_be(zone)).is_some_and(|worn| match (a.state, b.state) {
                    (_, ZoneState::Offline) => worn.offline,
                    (ZoneState::Full, ZoneState::ReadOnly) => a.blocks.starts_with(&b.blocks),
                    (ZoneState::ReadOnly, ZoneState::Full) => b.blocks.starts_with(&a.blocks),
                    (ZoneState::ReadOnly, _) | (_, ZoneState::ReadOnly) => a.blocks == b.blocks,
                    _ => false,
                });
            // A part that is written to its end, while the zone's last stripe is not whole, fills its physical zone, and a mount cannot
            // tell who filled it. A lost part may be such a one at its new place.
            let as_restored = restored.is_some_and(|stripe| {
                let rest = b.blocks.strip_prefix(&a.blocks[..]).unwrap_or_default();
                let is_filler = rest.windows(2).all(|pair| pair.first() == pair.last());
                (a.state, b.state) == (ZoneState::Closed, ZoneState::Full)
                    && (1..stripe).contains(&(rest.len() as u64))
                    && is_filler
            });
            if a != b && !as_worn && !as_restored {
                let (from, to) = ((a.state, a.blocks.len()), (b.state, b.blocks.len()));
                let what =
                    format!("zone {zone} changed when a drive failed after the mount: {from:?}, {to:?}");
                faults.push(Fault { kind: FailureKind::Lost, what });
            }
        }
        faults
    }
}

/// The fault of a zone, supposing that the zone is in the given life; `None` where the device contract allows what the mount
/// shows.
fn judge(
    life: &ZoneLife,
    shown: &ShownZone,
    strict: bool,
    worn: Option<WornZone>,
) -> Option<(FailureKind, String)> {
    let (state, pointer) = (shown.state, shown.blocks.len());
    let about = || {
        format!(
            "{state:?} at {pointer}, with {} blocks submitted, {} acknowledged, {} durable",
            life.blocks.len(),
            life.acked,
            life.durable
        )
    };
    let full = match state {
        ZoneState::ReadOnly => worn.is_some_and(|worn| worn.filled),
        state => state == ZoneState::Full,
    };
    if life.gone {
        return Some((FailureKind::Invented, format!("a life that is over: {}", about())));
    }
    if state == ZoneState::Offline {
        let may = life.failing || worn.is_some_and(|worn| worn.offline);
        return (!may).then(|| (FailureKind::Lost, about()));
    }
    let read_only = state == ZoneState::ReadOnly;
    if read_only && worn.is_none() {
        return Some((FailureKind::Lost, about()));
    }
    if life.failed {
        return Some((FailureKind::Invented, format!("a life that was failed: {}", about())));
    }
    if state == ZoneState::Empty {
        return (life.durable > 0).then(|| (FailureKind::Lost, about()));
    }
    // A full zone that is read-only shows no blocks above the content's end.
    let durable = if read_only && life.full { life.durable.min(pointer) } else { life.durable };
    if !full && pointer < durable {
        return Some((FailureKind::Lost, about()));
    }
    if !full && pointer > life.blocks.len() && !(read_only && life.finishing) {
        return Some((FailureKind::Invented, about()));
    }
    if !full && !read_only && life.finished {
        return Some((FailureKind::Lost, format!("finished, and yet {}", about())));
    }
    // A full zone whose part wore out after a mount shows no zeros above its content's end, which is no part of a write.
    let shows_end = read_only && life.full;
    if let Some(at) = life.torn_write(&shown.blocks).filter(|_| !shows_end) {
        return Some((FailureKind::Invented, format!("a part of a write, up to block {at}: {}", about())));
    }
    let must = if full || !strict { durable } else { life.acked.min(pointer).max(durable) };
    let wrong = (0..must).find(|n| {
        let found = shown.blocks.get(*n);
        found != life.blocks.get(*n) && found != Some(&UNREADABLE_BLOCK_DIGEST)
    });
    wrong.map(|n| {
        let kind = if n < life.durable { FailureKind::Lost } else { FailureKind::Invented };
        (kind, format!("block {n} is wrong: {}", about()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model_after(events: &[WorkloadEvent]) -> ZonesModel {
        let mut model = ZonesModel::new(1, false);
        events.iter().for_each(|event| model.apply(event));
        model
    }

    fn fault_kinds(model: &ZonesModel, state: ZoneState, blocks: &[u64]) -> Vec<FailureKind> {
        let shown = [ShownZone { state, blocks: blocks.to_vec() }];
        model.judge(&shown, true, None).into_iter().map(|fault| fault.kind).collect()
    }

    #[test]
    fn the_pointer_lies_between_what_is_durable_and_what_was_submitted() {
        let model = model_after(&[
            WorkloadEvent::Write { zone: 0, blocks: vec![1, 2, 3] },
            WorkloadEvent::Acked { zone: 0, life: 0, end: 2, durable: false },
            WorkloadEvent::Flushing { id: 1 },
            WorkloadEvent::Acked { zone: 0, life: 0, end: 3, durable: false },
            WorkloadEvent::Flushed { id: 1 },
            WorkloadEvent::Write { zone: 0, blocks: vec![4] },
        ]);
        for (blocks, wanted) in [
            (&[1, 2][..], vec![]),
            (&[1, 2, 3, 99], vec![]),
            (&[1], vec![FailureKind::Lost]),
            (&[1, 9], vec![FailureKind::Lost]),
            (&[1, 2, 9], vec![FailureKind::Invented]),
            (&[1, 2, 3, 4, 5], vec![FailureKind::Invented]),
        ] {
            assert_eq!(fault_kinds(&model, ZoneState::Closed, blocks), wanted, "{blocks:?}");
        }
        assert_eq!(fault_kinds(&model, ZoneState::Empty, &[]), [FailureKind::Lost]);
        assert_eq!(fault_kinds(&model, ZoneState::Full, &[1, 2, 7, 7, 7, 7]), []);
    }

    #[test]
    fn an_append_lies_where_it_landed() {
        let mut model = model_after(&[
            WorkloadEvent::Write { zone: 0, blocks: vec![1, 2] },
            WorkloadEvent::Write { zone: 0, blocks: vec![3] },
            WorkloadEvent::Landed { zone: 0, life: 0, at: 0, blocks: vec![3] },
            WorkloadEvent::Landed { zone: 0, life: 0, at: 1, blocks: vec![1, 2] },
        ]);
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[1, 2, 3]), []);
        model.apply(&WorkloadEvent::Acked { zone: 0, life: 0, end: 3, durable: true });
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[3, 1, 2]), []);
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[1, 2, 3]), [FailureKind::Lost]);
    }

    #[test]
    fn a_part_of_an_atomic_write_is_a_fault() {
        let mut model = ZonesModel::new(1, true);
        for blocks in [vec![1, 2, 3], vec![4, 5]] {
            model.apply(&WorkloadEvent::Write { zone: 0, blocks });
        }
        for (blocks, wanted) in [
            (&[][..], vec![]),
            (&[1, 2, 3], vec![]),
            (&[1, 2, 3, 4, 5], vec![]),
            (&[1, 2], vec![FailureKind::Invented]),
            (&[1, 2, 3, 4], vec![FailureKind::Invented]),
        ] {
            assert_eq!(fault_kinds(&model, ZoneState::Closed, blocks), wanted, "{blocks:?}");
        }
        assert_eq!(fault_kinds(&model, ZoneState::Full, &[1, 2, 3, 9, 9]), []);
        assert_eq!(fault_kinds(&model, ZoneState::Full, &[1, 9, 9, 9, 9]), [FailureKind::Invented]);
        model.apply(&WorkloadEvent::Resetting { zone: 0 });
        model.apply(&WorkloadEvent::Reset { zone: 0 });
        model.apply(&WorkloadEvent::Write { zone: 0, blocks: vec![6, 7] });
        model.apply(&WorkloadEvent::Acked { zone: 0, life: 1, end: 2, durable: true });
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[6]), [FailureKind::Lost]);
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[6, 7]), []);
    }

    #[test]
    fn a_failed_zone_stays_failed_until_a_reset() {
        let mut model = model_after(&[
            WorkloadEvent::Write { zone: 0, blocks: vec![1] },
            WorkloadEvent::Acked { zone: 0, life: 0, end: 1, durable: true },
        ]);
        assert_eq!(fault_kinds(&model, ZoneState::Offline, &[]), [FailureKind::Lost]);
        model.apply(&WorkloadEvent::FailingZone { zone: 0 });
        assert_eq!(fault_kinds(&model, ZoneState::Offline, &[]), []);
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[1]), []);
        model.apply(&WorkloadEvent::ZoneFailed { zone: 0 });
        assert_eq!(fault_kinds(&model, ZoneState::Offline, &[]), []);
        for (state, blocks) in
            [(ZoneState::Closed, &[1][..]), (ZoneState::Full, &[1]), (ZoneState::Empty, &[])]
        {
            assert_eq!(fault_kinds(&model, state, blocks), [FailureKind::Invented]);
        }
        model.apply(&WorkloadEvent::Resetting { zone: 0 });
        assert_eq!(fault_kinds(&model, ZoneState::Empty, &[]), []);
        assert_eq!(fault_kinds(&model, ZoneState::Offline, &[]), []);
        for event in [
            WorkloadEvent::Reset { zone: 0 },
            WorkloadEvent::Flushing { id: 1 },
            WorkloadEvent::Flushed { id: 1 },
        ] {
            model.apply(&event);
        }
        assert_eq!(fault_kinds(&model, ZoneState::Empty, &[]), []);
        assert_eq!(fault_kinds(&model, ZoneState::Offline, &[]), [FailureKind::Lost]);
    }

    #[test]
    fn a_worn_zone_is_read_only_and_keeps_its_content() {
        let events = [
            WorkloadEvent::Write { zone: 0, blocks: vec![1, 2, 3] },
            WorkloadEvent::Acked { zone: 0, life: 0, end: 2, durable: true },
        ];
        let mut model = model_after(&events);
        let part = WornZone { zone: Some(0), offline: false, filled: false };
        let read_only = |model: &ZonesModel, blocks: &[u64], worn| {
            let shown = [ShownZone { state: ZoneState::ReadOnly, blocks: blocks.to_vec() }];
            model.judge(&shown, false, worn).into_iter().map(|fault| fault.kind).collect::<Vec<_>>()
        };
        assert_eq!(read_only(&model, &[1, 2], None), [FailureKind::Lost], "nothing of it is worn");
        for (blocks, wanted) in [
            (&[1, 2][..], vec![]),
            (&[1, 2, 3], vec![]),
            (&[1], vec![FailureKind::Lost]),
            (&[1, 9], vec![FailureKind::Lost]),
            (&[], vec![FailureKind::Lost]),
            (&[1, 2, 3, 4], vec![FailureKind::Invented]),
        ] {
            assert_eq!(read_only(&model, blocks, Some(part)), wanted, "{blocks:?}");
        }
        let filled = WornZone { filled: true, ..part };
        assert_eq!(read_only(&model, &[1, 2, 3, 4], Some(filled)), []);
        let offline = [ShownZone { state: ZoneState::Offline, blocks: Vec::new() }];
        assert_eq!(model.judge(&offline, false, Some(part)).len(), 1, "one drive alone loses nothing");
        assert_eq!(model.judge(&offline, false, Some(WornZone { offline: true, ..part })).len(), 0);
        model.apply(&WorkloadEvent::Resetting { zone: 0 });
        assert_eq!(read_only(&model, &[], Some(part)), []);

        // The zones that two mounts show; the second mount lacks a drive.
        let show = |state, blocks: &[u64]| [ShownZone { state, blocks: blocks.to_vec() }];
        let first = show(ZoneState::ReadOnly, &[1, 2]);
        for (state, blocks, wanted) in [
            (ZoneState::Closed, &[1, 2][..], 0),
            (ZoneState::Closed, &[1, 2, 3], 1),
            (ZoneState::Full, &[1, 2, 0, 0], 0),
            (ZoneState::ReadOnly, &[1], 1),
            (ZoneState::Offline, &[], 1),
        ] {
            let faults = ZonesModel::judge_again(&first, &show(state, blocks), Some(part), None);
            assert_eq!(faults.len(), wanted, "{state:?} {blocks:?}");
        }
    }

    #[test]
    fn a_reset_may_be_undone_until_a_flush_covers_it() {
        let begin = [
            WorkloadEvent::Write { zone: 0, blocks: vec![1] },
            WorkloadEvent::Acked { zone: 0, life: 0, end: 1, durable: true },
            WorkloadEvent::Resetting { zone: 0 },
        ];
        let mut model = model_after(&begin);
        assert_eq!(fault_kinds(&model, ZoneState::Empty, &[]), []);
        model.apply(&WorkloadEvent::Reset { zone: 0 });
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[1]), []);
        model.apply(&WorkloadEvent::Flushing { id: 1 });
        model.apply(&WorkloadEvent::Flushed { id: 1 });
        assert_eq!(fault_kinds(&model, ZoneState::Closed, &[1]), [FailureKind::Invented]);
        assert_eq!(fault_kinds(&model, ZoneState::Empty, &[]), []);
    }
}
