//! A drive that fails: the array goes on without it, once the others' superblocks say so.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use units::sleep_until;
use zoned::{Done, Driver, Durability, Error, ErrorKind, Io, Result, ZoneId, ZoneState};

use crate::Array;
use crate::core::{After, Core};
use crate::events::EventKind;
use crate::format::record::Body;
use crate::io::flush::Slots;
use crate::io::write::Children;
use crate::layout::Slot;
use crate::member::METADATA_ZONES;
use crate::metrics::add;

/// Whether an error of a read says that the drive is lost, not a block of it.
pub(crate) fn fails_the_drive(kind: ErrorKind) -> bool {
    kind == ErrorKind::Gone
}

/// Whether an error of a read says nothing of the drive: the machine had no memory for it, say. The next may do.
pub(crate) fn may_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Host | ErrorKind::Unknown)
}

/// How often what fails with an error that may pass is tried again: after a millisecond, then after twice as long each
/// time, half a second in all.
#[derive(Default)]
pub(crate) struct Patience {
    tries: u32,
}

impl Patience {
    const TRIES: u32 = 9;

    /// Waits before the next try. False, at once, where the error will not pass, or did not in all that time.
    pub(crate) async fn outlasts(&mut self, driver: &dyn Driver, error: &Error) -> bool {
        if !may_pass(error.kind()) || self.tries == Patience::TRIES {
            return false;
        }
        let wait = Duration::from_millis(1 << self.tries);
        self.tries += 1;
        tracing::warn!(%error, ?wait, "tried again");
        sleep_until(driver, driver.now().after(wait)).await;
        true
    }
}

/// Whether an error says that the array asked for what it must not: no fault of the drive.
fn blames_the_array(kind: ErrorKind) -> bool {
    use ErrorKind::{
        BadLength, Conventional, CrossesZone, IllegalMove, Invalid, NotAtWritePointer, OutOfRange, TooLarge,
        TooManyActive, TooManyOpen, Unsupported,
    };
    matches!(
        kind,
        BadLength
            | Conventional
            | CrossesZone
            | IllegalMove
            | Invalid
            | NotAtWritePointer
            | OutOfRange
            | TooLarge
            | TooManyActive
            | TooManyOpen
            | Unsupported
    )
}

/// What became of a physical zone of data, where an error says that it takes no more writes. A drive may finish a
/// zone on its own (the NVMe ZNS command set's "zone finished by controller"). A zone of the log is another matter: the
/// drive cannot do without.
fn wears(error: &Error) -> Option<ZoneState> {
    let state = match error.kind() {
        ErrorKind::ZoneReadOnly => ZoneState::ReadOnly,
        ErrorKind::ZoneOffline => ZoneState::Offline,
        ErrorKind::ZoneFull => ZoneState::Full,
        _ => return None,
    };
    let metadata = error.zone().is_some_and(|zone| zone.0 < METADATA_ZONES);
    (!metadata).then_some(state)
}

impl Array {
    /// Does without the drive in `slot` from now on, as if it had failed: to take it out, say. When this returns the
    /// others' superblocks say so. What the drive holds is out of date from here on.
    ///
    /// Errors: [`ErrorKind::Invalid`] where there is no such slot, its drive is lacking already, or another one is: the
    /// array would stop.
    pub async fn fail(&self, slot: Slot) -> Result<()> {
        let core = &self.core;
        let refuse = |why: String| Err(core.error(ErrorKind::Invalid, "fail").because(why));
        if slot.0 >= core.layout.drives {
            return refuse(format!(
                "the array has {} slots, from 0 on: there is no {}",
                core.layout.drives, slot.0
            ));
        }
        if !core.member(slot).is_good() {
            return refuse(format!("drive {} is failed or missing already", slot.0));
        }
        if let Some(other) = core.members.iter().find(|member| !member.is_good()) {
            return refuse(format!(
                "drive {} is lacking, and the array does without one only: replace that one first",
                other.slot.0
            ));
        }
        let why = core.error(ErrorKind::Gone, "fail").because("somebody asked for it");
        core.fail(slot, &why).await
    }
}

impl Core {
    /// The error of a write to an array that lost two drives.
    pub(crate) fn broken_error(&self, name: &'static str) -> Error {
        self.error(ErrorKind::Gone, name).because(
            "two drives of the array failed: nothing more is written, and what the others hold can be read",
        )
    }

    /// Judges the failures of a write's children, all of them. Ok: the write can do without them.
    pub(crate) async fn judge(self: &Arc<Core>, id: ZoneId, failures: Vec<(Slot, Error)>) -> Result<()> {
        let mut refused = Ok(());
        let mut worn = Slots::default();
        for (slot, error) in failures {
            if let Some(state) = wears(&error).filter(|_| self.member(slot).is_good()) {
                // A zone wore out, not the drive: one that the array does without wears nothing out. What was acknowledged stays readable.
                self.wear(id, slot, state, &error);
                worn.add(slot);
                refused = refused.and(Err(error));
                continue;
            }
            if blames_the_array(error.kind()) {
                // Behind a failed write of the same drive it is a matter of course: that one is judged first.
                drop(self.persisting.acquire().await);
                if self.member(slot).is_good() {
                    if !worn.has(slot) {
                        tracing::error!(slot = slot.0, zone = id.0, %error, "a drive refused what the array asked for");
                    }
                    refused = refused.and(Err(error));
                    continue;
                }
            }
            // The array may be broken: the rest is judged all the same.
            refused = self.fail(slot, &error).await.and(refused);
        }
        self.settled("write").await.and(refused)
    }

    /// Tells the watchers.
    pub(crate) fn tell(&self, kind: EventKind) {
        self.events.tell(&*self.driver, kind);
    }

    /// Waits until every failure that was noticed is in the superblocks: what is acknowledged without a drive must
    /// not be read from it after a restart.
    pub(crate) async fn settled(&self, name: &'static str) -> Result<()> {
        if self.unpersisted.load(Ordering::Acquire) > 0 {
            let _turn = self.persisting.acquire().await;
        }
        if self.is_broken() { Err(self.broken_error(name)) } else { Ok(()) }
    }

    /// The array does without `slot` from now on. Fails where it already lacks another drive.
    pub(crate) async fn fail(self: &Arc<Core>, slot: Slot, why: &Error) -> Result<()> {
        let _turn = self.persisting.acquire().await;
        let mut slot = slot;
        loop {
            if self.is_broken() {
                return Err(self.broken_error("write"));
            }
            if !self.member(slot).is_good() {
                // Of a new drive that is being filled: it will not do.
                self.member(slot).abort_replacement();
                return Ok(());
            }
            let lacking = self.members.iter().any(|member| !member.is_good());
            if lacking {
                tracing::error!(slot = slot.0, %why, "a second drive failed: the array writes nothing more");
                // Before it shows: whoever sees the state can have heard why.
                self.tell(EventKind::SecondFailure { slot, why: why.to_string() });
                self.broken.store(true, Ordering::Release);
                return Err(self.broken_error("write"));
            }
            self.unpersisted.fetch_add(1, Ordering::AcqRel);
            self.tell(EventKind::DriveFailed { slot, why: why.to_string() });
            self.member(slot).set_failed();
            add(&self.tally.drive_failures, 1);
            tracing::error!(slot = slot.0, %why, "a drive failed: the array goes on without it");
            let failures = self.persist(slot).await;
            self.unpersisted.fetch_sub(1, Ordering::AcqRel);
            match failures.into_iter().next() {
                None => return Ok(()),
                Some((second, _)) => slot = second,
            }
        }
    }

    /// Writes to all superblocks that `slot` failed.
    async fn persist(self: &Arc<Core>, slot: Slot) -> Vec<(Slot, Error)> {
        {
            let mut config = self.config.lock();
            config.config += 1;
            if let Some(member) = config.members.get_mut(slot.index()) {
                (member.failed, member.rebuilding) = (true, false);
            }
        }
        self.write_superblock().await
    }

    /// Writes the superblock to all drives that work, durable; gives those that failed. The caller holds the turn.
    /// A log without room moves on: that is no fault of its drive.
    pub(crate) async fn write_superblock(self: &Arc<Core>) -> Vec<(Slot, Error)> {
        let superblock = self.config.lock().clone();
        let body = Body::Superblock(superblock);
        let mut children = Children::default();
        let mut full = Vec::new();
        let mut after = After::default();
        for member in self.good() {
            let written = member.append(&body, false, Durability::Durable).or_else(|_| {
                // Nobody waits for the move itself: it may need the turn.
                self.roll(member.slot, &mut after);
                member.append(&body, false, Durability::Durable)
            });
            match written {
                Ok(io) => children.push(member.slot, io),
                Err(_) => full.push((
                    member.slot,
                    self.error(ErrorKind::ZoneFull, "write").because("no room for a superblock"),
                )),
            }
        }
        after.finish(self);
        let mut failures = children.join().await;
        failures.append(&mut full);
        failures
    }

    /// A physical zone takes no more: neither does the logical one. Its parts on the other drives stay active, and
    /// count as such. One that is full before its time has not worn out: the next mount finds the zone full, and a
    /// reset gives it back.
    fn wear(&self, id: ZoneId, slot: Slot, state: ZoneState, error: &Error) {
        match state {
            ZoneState::Full => {
                tracing::warn!(slot = slot.0, zone = id.0, %error, "a zone is full before its time: it takes no more");
                self.tell(EventKind::ZoneWorn { slot, zone: id, state });
            }
            _ => self.worn_out(id, slot, state),
        }
        let mut limits = self.limits.lock();
        let mut zone = self.zone(id);
        if zone.state.is_active() {
            limits.moved(id, zone.state, ZoneState::Closed);
            zone.worn_active = true;
        }
        // A lost one stays so.
        if zone.state != ZoneState::Offline {
            zone.state = ZoneState::ReadOnly;
        }
    }

    /// Makes everything acknowledged so far durable.
    pub(crate) fn flush(self: &Arc<Core>) -> Io {
        let core = Arc::clone(self);
        let filled = std::mem::take(&mut *self.filled.lock());
        Io::spawn(&self.driver, &self.geometry.name, async move {
            core.flush_members().await?;
            core.record_ends(filled).await?;
            Ok(Done::Unit)
        })
    }

    /// Flushes every drive that works; one that cannot is failed.
    pub(crate) async fn flush_members(self: &Arc<Core>) -> Result<()> {
        self.flush_slots(Slots::ALL).await
    }
}
