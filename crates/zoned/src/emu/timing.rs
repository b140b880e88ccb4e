//! The time that operations take.

use std::sync::Arc;
use std::time::Duration;

use crate::emu::model::{Model, ModelState};
use crate::emu::{EmuOptions, Profile};
use crate::{Action, Blocks, Geometry, Instant, Op, ZoneState};

/// A constant delay for each kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Latency {
    /// Reads.
    pub read: Duration,
    /// Writes and appends.
    pub write: Duration,
    /// Flushes.
    pub flush: Duration,
    /// Resets.
    pub reset: Duration,
    /// Finishes.
    pub finish: Duration,
    /// Everything else.
    pub other: Duration,
}

impl Latency {
    /// No delay at all.
    pub const NONE: Latency = Latency::all(Duration::ZERO);

    /// The same delay for every operation.
    pub const fn all(delay: Duration) -> Latency {
        Latency { read: delay, write: delay, flush: delay, reset: delay, finish: delay, other: delay }
    }

    fn of(&self, op: &Op) -> Duration {
        match op {
            Op::Read { .. } => self.read,
            Op::Write { .. } | Op::Append { .. } => self.write,
            Op::Flush => self.flush,
            Op::Zone { action: Action::Reset, .. } => self.reset,
            Op::Zone { action: Action::Finish, .. } => self.finish,
            Op::Zone { .. } | Op::Report { .. } => self.other,
        }
    }
}

/// When operations complete: constant delays, or the model of a drive. Knows no clock: the time is an input.
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

/// What the model of a drive remembers: when its parts are free again.
#[derive(Clone, Debug, Default)]
pub struct TimingState(Option<Box<ModelState>>);

/// What the time of an operation depends on beside itself: its zone, just before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneFacts {
    /// The zone's state.
    pub state: ZoneState,
    /// Blocks written since the last reset.
    pub written: Blocks,
}

impl Timing {
    /// A constant delay per kind.
    pub fn new(latency: Latency) -> Timing {
        Timing { kind: Kind::Constant(latency), dilation: 1 }
    }

    /// The times that `options` ask for, on a drive of `geometry`: the profile's, where it has any, else the
    /// constant ones.
    pub fn of(options: &EmuOptions, geometry: &Geometry) -> Timing {
        let kind = match &options.profile {
            Some(profile) if !profile.is_instant() => Kind::Model(Arc::new(Model::new(profile, geometry))),
            _ => Kind::Constant(options.latency),
        };
        Timing { kind, dilation: u64::from(options.dilation.max(1)) }
    }

    /// The times of a profile on a drive of `geometry`.
    pub fn model(profile: &Profile, geometry: &Geometry) -> Timing {
        Timing { kind: Kind::Model(Arc::new(Model::new(profile, geometry))), dilation: 1 }
    }

    /// The state of a drive that rests.
    pub fn rested(&self) -> TimingState {
        match &self.kind {
            Kind::Constant(_) => TimingState(None),
            Kind::Model(model) => TimingState(Some(Box::new(model.rested()))),
        }
    }

    /// Whether every operation completes at once.
    pub fn is_instant(&self) -> bool {
        matches!(self.kind, Kind::Constant(Latency::NONE))
    }

    /// Whether the past and the zone matter: [`Timing::completion`] needs state and facts.
    pub fn has_state(&self) -> bool {
        matches!(self.kind, Kind::Model(_))
    }

    /// Device times are stretched so many times.
    pub fn dilation(&self) -> u64 {
        self.dilation
    }

    /// When `op`, submitted at `now`, completes. `zone` is the operation's own, where it has one. Operations
    /// must come in the order of time, or nearly so; one that the drive will refuse takes its time too.
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
