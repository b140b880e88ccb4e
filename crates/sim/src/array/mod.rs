//! The target `array`: every point at which the power may go, times an outcome of its own for each drive, times one
//! lost drive.
//!
//! A workload runs on an array of recorded drives, alike or not: all there, one never there, one lost on the way, one
//! replaced by a new drive meanwhile, one whose part of a zone wears out before the cut, at it or after the mount. Each cut is taken in as many variants as there are drives to lose: none, each *at* the cut,
//! each *after* the mount; where a drive was replaced the old one may come back. Every state is mounted, compared with
//! the model and read again; one in a few is written on, or rebuilt, cut again, and mounted again, and in one in a few
//! the mount itself is cut. In some rebuilds another drive cannot read a few blocks: what two drives lack may be an error from
//! then on, and nothing else. Where all drives are there a zone is lost at the beginning, as if two drives lacked their part of it,
//! and comes back with a reset.
//!
//! A state is what the mount finds: the images of the drives that are there, and the drive that is lost after it. It
//! is counted once, at however many points the same one comes up.

pub(crate) mod engine;
mod model;
mod probe;
mod record;
mod shape;
mod spoilt;
pub(crate) mod stack;
mod states;
mod workload;

use crate::array::model::ZonesModel;
use crate::array::probe::{Probe, State};
use crate::array::record::{Entry, Record};
use crate::array::shape::ZONES;
use crate::array::states::Cut;
pub(crate) use crate::array::states::Images;
use crate::{CrashOptions, Report, Result};

/// Explores; see [`CrashOptions`].
pub(crate) fn crash(options: &CrashOptions) -> Result<Report> {
    states::spread(options, |workload, share| {
        let record = Record::of(options, workload)?;
        let judge = |cut: &Cut<ZonesModel>, loss, images, seed| {
            let (shape, open) = (&record.shape, &options.array_open());
            Probe::new(&State { shape, loss, model: &cut.model, open }, seed).run(images)
        };
        states::explore(options, (&record, workload), share, cuts(&record), &judge)
    })
}

/// Every point at which the power may be cut.
fn cuts(record: &Record) -> Vec<Cut<ZonesModel>> {
    let mut model = ZonesModel::new(ZONES as usize);
    let (mut promises, mut ready, mut replaced) = (0, false, false);
    let mut cuts = Vec::new();
    let mut open = false;
    for (at, entry) in record.entries.iter().enumerate() {
        match entry {
            Entry::Io(..) => {
                if ready {
                    cuts.push(Cut { entry: at, model: model.clone(), promises, replaced });
                }
                open = ready;
            }
            Entry::Did(mark) => {
                model.apply(mark);
                promises += u64::from(mark.is_promise());
                if let Some(cut) = cuts.last_mut().filter(|_| open && mark.is_promise()) {
                    cut.model.apply(mark);
                    cut.promises = promises;
                }
            }
            Entry::Ready => ready = true,
            Entry::Step(_) => {}
            Entry::Replaced => replaced = true,
            Entry::Worn => model.worn = true,
        }
    }
    cuts
}
