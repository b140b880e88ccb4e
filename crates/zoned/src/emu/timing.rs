//! Completion times of an emulated drive's operations.

use std::sync::Arc;

use crate::emu::model::{Model, ModelState};
use crate::emu::{EmuOptions, Latency, Profile, ZoneFacts};
use crate::{Geometry, Instant, Op};

/// The timing of a drive: computes completion times from constant delays or a time model. The current time is
/// an argument.
#[derive(Clone, Debug)]
pub struct Timing {
    kind: Kind,
    dilation: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Constant(Latency),
    Model(Arc<Model>),
}

/// State of a drive's time model.
#[derive(Clone, Debug, Default)]
pub struct TimingState(Option<Box<ModelState>>);

impl Timing {
    /// A timing of constant delays for each kind of operation.
    pub fn new(latency: Latency) -> Timing {
        Timing { kind: Kind::Constant(latency), dilation: 1 }
    }

    /// The timing of a drive with `options` and `geometry`: the profile's times if it has any, else the
    /// constant delays.
    pub fn of(options: &EmuOptions, geometry: &Geometry) -> Timing {
        let kind = match &options.profile {
            Some(profile) if !profile.is_instant() => Kind::Model(Arc::new(Model::new(profile, geometry))),
            _ => Kind::Constant(options.latency),
        };
        Timing { kind, dilation: u64::from(options.dilation.max(1)) }
    }

    /// The timing of a drive of `geometry` with the times of a profile.
    pub fn model(profile: &Profile, geometry: &Geometry) -> Timing {
        Timing { kind: Kind::Model(Arc::new(Model::new(profile, geometry))), dilation: 1 }
    }

    /// The time model's state of an idle drive.
    pub fn rested(&self) -> TimingState {
        match &self.kind {
            Kind::Constant(_) => TimingState(None),
            Kind::Model(model) => TimingState(Some(Box::new(model.rested()))),
        }
    }

    /// True if every operation completes at once.
    pub fn is_instant(&self) -> bool {
        matches!(self.kind, Kind::Constant(Latency::NONE))
    }

    /// True if [`Timing::completion`] needs a state and zone facts.
    pub fn has_state(&self) -> bool {
        matches!(self.kind, Kind::Model(_))
    }

    /// Factor by which device times are stretched.
    pub fn dilation(&self) -> u64 {
        self.dilation
    }

    /// Completion time of `op`, submitted at `now`. `zone`: the facts of the operation's zone, if it has one. Calls
    /// must be in order of time, or nearly so. An operation that the drive refuses takes time too.
    pub fn completion(
        &self,
        state: &mut TimingState,
        now: Instant,
        op: &Op,
        zone: Option<ZoneFacts>,
    ) -> Instant {
        let device_now = now.0 / self.dilation;
        let end = match (&self.kind, &mut state.0) {
            (Kind::Model(model), Some(state)) => model.completion(state, device_now, op, zone),
            (Kind::Model(model), empty) => {
                model.completion(empty.insert(Box::new(model.rested())), device_now, op, zone)
            }
            (Kind::Constant(latency), _) => Instant(device_now).after(latency.of(op)).0,
        };
        Instant(now.0.saturating_add(end.saturating_sub(device_now).saturating_mul(self.dilation)))
    }
}
