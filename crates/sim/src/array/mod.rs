//! The target `array`: every point at which the power may go, times an outcome of its own for each drive, times one
//! lost drive.
//!
//! A workload runs on an array of recorded drives: all there, one never there, one lost on the way, one replaced by a
//! new drive meanwhile. Each cut is taken in as many variants as there are drives to lose: none, each *at* the cut,
//! each *after* the mount; where a drive was replaced the old one may come back. Every state is mounted, compared with
//! the model and read again; one in a few is written on, or rebuilt, cut again, and mounted again, and in one in a few
//! the mount itself is cut.
//!
//! A state is what the mount finds: the images of the drives that are there, and the drive that is lost after it. It
//! is counted once, at however many points the same one comes up.

mod model;
mod probe;
mod record;
mod shape;
mod workload;

use zoned::emu::{Latency, Media};

use crate::array::model::ZonesModel;
use crate::array::probe::{Probe, State};
use crate::array::record::{Entry, Record};
use crate::array::shape::{Loss, ZONES};
use crate::choose::Sample;
use crate::replay::{Fates, Replay};
use crate::walk::{Walk, caught, thin, tidy};
use crate::{CrashOptions, Error, Outcome, Report, Result, Rng, StateId};

/// An exploration spreads over about so many workloads.
const WORKLOADS: u64 = 24;
/// But looks at so many states of each at least.
const SHARE: u64 = 300;
/// An exploration of so many states takes every cut of one workload of each kind.
const THOROUGH: u64 = 80_000;
/// One of each kind of loss.
const KINDS: u64 = 4;
/// The most outcomes that a cut with the same drive lost is given.
const ROUNDS: u64 = 24;

/// Explores; see [`CrashOptions`].
pub(crate) fn crash(options: &CrashOptions) -> Result<Report> {
    if let Some(only) = options.only {
        let record = Record::of(options, only.workload)?;
        return explore(options, &record, only.workload, 1);
    }
    let mut report = Report::default();
    let mut workload = 0;
    while report.states < options.states {
        let record = Record::of(options, workload)?;
        let left = options.states - report.states;
        let share = (options.states / WORKLOADS).max(SHARE).min(left);
        let whole = options.states >= THOROUGH && workload < KINDS;
        report.add(explore(options, &record, workload, if whole { u64::MAX } else { share })?);
        if options.first_failure && !report.is_clean() {
            break;
        }
        workload += 1;
    }
    tidy(&mut report);
    Ok(report)
}

/// A point at which the power is cut, and the model then: begun by then, and promised before anything else happens.
struct Cut {
    entry: usize,
    model: ZonesModel,
    /// How many promises that is.
    promises: u64,
    /// The new drive is a member.
    replaced: bool,
}

/// Every point at which the power may be cut.
fn cuts(record: &Record) -> Vec<Cut> {
    let mut model = ZonesModel::new(ZONES as usize);
    let (mut promises, mut ready, mut replaced) = (0, false, false);
    let mut cuts: Vec<Cut> = Vec::new();
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
            Entry::Replaced => replaced = true,
        }
    }
    cuts
}

fn explore(options: &CrashOptions, record: &Record, workload: u64, states: u64) -> Result<Report> {
    let mut cuts = cuts(record);
    let per_cut = record.shape.losses(true).len() as u64;
    let rounds = match states {
        u64::MAX => 1,
        _ => (states / (cuts.len() as u64 * per_cut).max(1)).clamp(1, ROUNDS),
    };
    if let Some(only) = options.only {
        cuts.retain(|cut| cut.entry as u64 == only.event);
        if cuts.is_empty() {
            return Err(Error::NoState(only.to_string()));
        }
    } else {
        thin(&mut cuts, states / (per_cut * rounds) + 1, options.seed ^ workload);
    }
    let fates: Vec<Fates> =
        (0..record.shape.recorded()).map(|drive| Fates::of(record.events(drive))).collect();
    let taker = Taker { options, record, workload, fates, rounds };
    Walk::new(options, cuts, states).run(|walk| {
        taker.run(walk);
        Ok(())
    })
}

/// Takes the cuts of one workload.
struct Taker<'a> {
    options: &'a CrashOptions,
    record: &'a Record,
    workload: u64,
    fates: Vec<Fates>,
    rounds: u64,
}

impl Taker<'_> {
    /// Takes cut after cut, replaying the drives up to each.
    fn run(&self, walk: &Walk<'_, Cut>) {
        let shape = &self.record.shape;
        let mut replays: Vec<Replay<'_>> = (0..shape.recorded())
            .zip(&self.fates)
            .map(|(drive, fates)| Replay::new(Media::new(&shape.drive(drive, Latency::NONE)), fates))
            .collect();
        let mut entries = self.record.entries.iter().enumerate();
        let mut at = None;
        while let Some(cut) = walk.next() {
            while at.is_none_or(|at| at < cut.entry) {
                let Some((index, entry)) = entries.next() else { break };
                if let Entry::Io(drive, event) = entry
                    && let Some(replay) = replays.get_mut(*drive)
                {
                    replay.step(event);
                }
                at = Some(index);
            }
            self.outcomes(walk, &replays, cut);
        }
    }

    fn outcomes(&self, walk: &Walk<'_, Cut>, replays: &[Replay<'_>], cut: &Cut) {
        let losses = self.record.shape.losses(cut.replaced);
        let of = losses.len() as u64;
        let rounds = match self.options.only.map(|only| only.outcome) {
            Some(Outcome::Sampled(n)) => n / of..n / of + 1,
            Some(Outcome::Enumerated(_)) => 0..0,
            None => 0..self.rounds,
        };
        for round in rounds {
            // The variants of a round share their outcome: what the loss makes of it is to be seen.
            let place = [self.workload, cut.entry as u64, round];
            let images: Vec<Media> = replays
                .iter()
                .zip(0..)
                .map(|(replay, slot)| {
                    let rng = Rng::at(self.options.seed, &place).draw();
                    replay.image().cut(&mut Sample::new(Rng::at(rng, &[slot])))
                })
                .collect();
            let fingerprints: Vec<u128> = images.iter().map(Media::fingerprint).collect();
            for (n, loss) in (round * of..).zip(&losses) {
                let outcome = Outcome::Sampled(n);
                if walk.is_over() || self.options.only.is_some_and(|only| only.outcome != outcome) {
                    continue;
                }
                self.state(walk, (&images, &fingerprints), cut, outcome, *loss);
            }
        }
    }

    fn state(
        &self,
        walk: &Walk<'_, Cut>,
        (images, fingerprints): (&[Media], &[u128]),
        cut: &Cut,
        outcome: Outcome,
        loss: Loss,
    ) {
        let shape = &self.record.shape;
        let present = shape.present(loss);
        let after = match loss {
            Loss::After(drive) => drive as u128 + 1,
            _ => 0,
        };
        let mix =
            |sum: u128, part: u128| (sum ^ part).wrapping_mul(0x0100_0000_0000_0000_0000_0000_0000_013b);
        let parts = present.iter().filter_map(|drive| Some(*drive as u128 ^ *fingerprints.get(*drive)?));
        let fingerprint = parts.fold(mix(1, after), mix);
        if !walk.is_new(fingerprint, cut.promises) {
            return;
        }
        let images = present.iter().filter_map(|drive| Some((*drive, images.get(*drive)?.clone()))).collect();
        let state = State { shape, loss, model: &cut.model, sabotage: self.options.array_sabotage };
        let faults = caught(|| Probe::new(&state, fingerprint as u64).run(images));
        let id = StateId { workload: self.workload, event: cut.entry as u64, outcome, twice: false };
        walk.add(id, &faults, |what| format!("{shape:?}, {loss:?}: {what}"), || self.command(id));
    }

    fn command(&self, id: StateId) -> String {
        let mut command = format!("furrow crash --target array --seed {}", self.options.seed);
        if let Some(volatile) = self.options.volatile_cache {
            command += &format!(" --volatile-cache {volatile}");
        }
        command + &format!(" --state {id}")
    }
}
