//! The crash explorer's target `array`: every point at which the power may fail, times an outcome for each drive, times one
//! failed drive.
//!
//! A workload runs on an array of recorded drives, alike or not. Either all drives are present, or one drive is missing from
//! the start, fails during the workload, is replaced during the workload, or has a zone that wears out before the cut, at the
//! cut or after the mount. The worn physical zone may hold parts of several zones, one beside the other or one after the other:
//! then the model takes any zone for a worn one. Each cut is taken once without a further failure, once for each drive that fails
//! *at* the cut, and once for each drive that fails *after* the mount; a replaced drive may come back.
//!
//! Some workloads have an array of two parities: then a second drive may be missing from the start, also where a zone wears out or
//! another drive is replaced, and two drives may fail, at the cut, after the mount, or one at each.
//!
//! Every state is mounted, compared with the model and read again. A few states are written on or rebuilt, cut again and
//! mounted again; in a few the mount itself is cut. In some rebuilds another drive cannot read a few blocks: a row that two
//! drives lack may then be a media error, and nothing else. Where all drives are present the workload begins with a failed
//! zone, as if two drives lacked their parts of the zone; a reset makes the zone usable again.
//!
//! In some workloads the array has spare room on other drives, and the parts of a lost drive move there, during the workload or after
//! the mount: then all zones are read again, and other drives may fail, as far as the array does without them.
//!
//! In some workloads the array's writes are atomic: then every zone ends behind a whole write.
//!
//! A state is the images of the present drives and the drive that fails after the mount. Equal states count once.

mod drive_failure;
pub(crate) mod engine;
mod model;
mod probe;
mod record;
mod shape;
pub(crate) mod stack;
mod states;
mod unreadable;
mod workload;

use crate::array::model::ZonesModel;
use crate::array::probe::{Probe, State};
use crate::array::record::{Entry, Recording};
use crate::array::shape::LOGICAL_ZONES;
use crate::array::states::Cut;
use crate::{CrashOptions, Report, Result};

/// Explores the target `array`; see [`CrashOptions`].
pub(crate) fn crash(options: &CrashOptions) -> Result<Report> {
    states::explore_workloads(options, |workload, share| {
        let record = Recording::of(options, workload)?;
        let judge = |cut: &Cut<ZonesModel>, failure, images, seed| {
            let (shape, broken) = (&record.shape, options.broken_rules);
            Probe::new(&State { shape, failure, model: &cut.model, broken }, seed).run(images)
        };
        states::explore(options, (&record, workload), share, cuts(&record), &judge)
    })
}

/// Every point of a recording at which the power may be cut.
fn cuts(record: &Recording) -> Vec<Cut<ZonesModel>> {
    let mut model = ZonesModel::new(LOGICAL_ZONES as usize, record.shape.atomic);
    let (mut promises, mut ready, mut replaced) = (0, false, false);
    let (mut rebuilding, mut moving, mut reclaiming, mut restoring) = (false, false, false, false);
    // Arrays with joined zones send appends to their drives as writes.
    let sends_appends = record.shape.sends_appends() && record.shape.sections == 1;
    let mut cuts = Vec::new();
    let mut open = false;
    for (at, entry) in record.entries.iter().enumerate() {
        match entry {
            Entry::Io(..) => {
                if ready {
                    cuts.push(Cut {
                        entry: at,
                        model: model.clone(),
                        promises,
                        replaced,
                        rebuilding,
                        moving,
                        reclaiming,
                        restoring,
                        appending: sends_appends && model.is_writing(),
                        resetting: model.is_resetting(),
                    });
                }
                open = ready;
            }
            Entry::Event(event) => {
                model.apply(event);
                promises += u64::from(event.is_promise());
                if let Some(cut) = cuts.last_mut().filter(|_| open && event.is_promise()) {
                    cut.model.apply(event);
                    cut.promises = promises;
                }
            }
            Entry::Ready => ready = true,
            Entry::Step(_) => {}
            Entry::Rebuilding => rebuilding = true,
            Entry::Replaced => (replaced, rebuilding) = (true, false),
            Entry::Moving(is_begun) => moving = *is_begun,
            Entry::Reclaiming(is_begun) => reclaiming = *is_begun,
            Entry::Restoring(is_begun) => restoring = *is_begun,
            Entry::Worn => model.worn = true,
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use zoned::ZoneState;

    use super::model::{ShownZone, WorkloadEvent};
    use super::shape::Shape;
    use super::*;
    use crate::Target;
    use crate::trace::Event;

    /// The last cut holds the acknowledgements behind the last operation, and with these the addresses that the appends got.
    #[test]
    fn a_cut_after_acknowledged_appends_has_their_addresses() {
        let write = |block| Entry::Event(WorkloadEvent::Write { zone: 0, blocks: vec![block] });
        let landed =
            |at, block| Entry::Event(WorkloadEvent::Landed { zone: 0, life: 0, at, blocks: vec![block] });
        let acked = |end| Entry::Event(WorkloadEvent::Acked { zone: 0, life: 0, end, durable: true });
        let entries = vec![
            Entry::Ready,
            write(1),
            write(2),
            Entry::Io(0, Event::Ready),
            landed(1, 1),
            landed(0, 2),
            acked(1),
            acked(2),
        ];
        let shape = Shape::of(&CrashOptions::new(Target::Array, 1, 1), 0);
        let cuts = cuts(&Recording { shape, entries, trace: None });
        let model = &cuts.last().expect("one cut").model;
        let shown = |blocks: [u64; 2]| {
            let empty = || ShownZone { state: ZoneState::Empty, blocks: Vec::new() };
            let mut zones: Vec<ShownZone> = (0..LOGICAL_ZONES).map(|_| empty()).collect();
            zones[0] = ShownZone { state: ZoneState::Closed, blocks: blocks.to_vec() };
            zones
        };
        assert!(model.judge(&shown([2, 1]), true, None).is_empty());
        assert!(!model.judge(&shown([1, 2]), true, None).is_empty());
    }
}
