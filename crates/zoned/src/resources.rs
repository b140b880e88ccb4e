//! Counts a device's open and active zones, for implementations of a device.

use std::collections::VecDeque;

use crate::{ErrorKind, ZoneId, ZoneState};

/// A device's numbers of open and active zones. Must be locked during a change of any zone's state.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    open: u32,
    active: u32,
    /// Implicitly open zones in the order of opening, which is the order in which the drive closes them.
    implicit: VecDeque<ZoneId>,
}

/// Answer to a request to open a zone.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// The zone may open.
    Granted,
    /// The device has to close the given implicitly open zone first.
    Close(ZoneId),
}

impl Resources {
    /// Decides whether the limits let a zone in state `from` open.
    pub fn admit(
        &self,
        from: ZoneState,
        max_open: Option<u32>,
        max_active: Option<u32>,
    ) -> Result<Admission, ErrorKind> {
        if !from.is_active() && max_active.is_some_and(|max| self.active >= max) {
            return Err(ErrorKind::TooManyActive);
        }
        if !from.is_open() && max_open.is_some_and(|max| self.open >= max) {
            return self.implicit.front().map(|zone| Admission::Close(*zone)).ok_or(ErrorKind::TooManyOpen);
        }
        Ok(Admission::Granted)
    }

    /// Counts a zone's change of state.
    pub fn moved(&mut self, zone: ZoneId, from: ZoneState, to: ZoneState) {
        let step = |count: &mut u32, was: bool, is: bool| match (was, is) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        };
        step(&mut self.open, from.is_open(), to.is_open());
        step(&mut self.active, from.is_active(), to.is_active());
        match (from == ZoneState::ImplicitOpen, to == ZoneState::ImplicitOpen) {
            (false, true) => self.implicit.push_back(zone),
            (true, false) => self.implicit.retain(|z| *z != zone),
            _ => {}
        }
    }

    /// Number of open zones.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Number of active zones.
    pub fn active(&self) -> u32 {
        self.active
    }
}
