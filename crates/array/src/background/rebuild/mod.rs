//! A new drive in the place of one that failed, while the array is in use (section 4.2.2).
//!
//! 1. The new drive is emptied. The others' superblocks say that the slot is to be its, and its notes begin.
//! 2. Zone by zone, those first that are written to, its part is put together from the other drives and written:
//!    only what is valid, several chunks in flight, with regard for the clients' tail (`copy`, `crate::background::pace`). From
//!    then on the zone's writes go to the new drive too. What is durable there is noted (`notes`).
//! 3. When all zones are there the new drive's log is begun with everything that counts, and everything in flight is
//!    waited for and flushed; the others' superblocks name it as a good member; last, its checkpoint gets its
//!    end (`admit`).
//!
//! Without that end a drive is no member. After a crash before it the array is without a drive, as it was; opened
//! with the new drive among the others, it goes on with the zones that are not noted, or were changed since.

mod admit;
mod copy;
mod notes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{ErrorKind, Result, ZoneId, ZonedDevice};

use crate::admin::create::{empty, may_hold};
use crate::background::jobs::{Job, Rebuild};
use crate::background::rebuild::copy::{Copied, Target, Tries};
use crate::background::rebuild::notes::{Known, Notes};
use crate::background::runner::Runner;
use crate::core::Core;
use crate::events::EventKind;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::member::METADATA_ZONES;
use crate::mount::gather::fits;
use crate::mount::log_contents::Tale;
use crate::{Array, RebuildOptions};

/// A new drive whose rebuild a restart ended.
pub(crate) struct Candidate {
    pub slot: Slot,
    pub device: Arc<dyn ZonedDevice>,
    pub tale: Tale,
}

impl Array {
    /// Puts `device` in the place of the drive in `slot`, which failed or is missing, and rebuilds what it held.
    /// **Everything that `device` holds is lost.** The array is in use meanwhile. When this returns it has all its
    /// drives again. Dropped, the rebuild runs on: [`Array::rebuild`] gives its handle.
    ///
    /// Errors: those of [`Array::start_replace`]; any other ends the rebuild and leaves the array as it was, without
    /// the drive.
    pub async fn replace(&self, slot: Slot, device: Arc<dyn ZonedDevice>) -> Result<()> {
        self.start_replace(slot, device, RebuildOptions::default()).await?.wait().await
    }

    /// Whether the drive in `slot` may be replaced now.
    ///
    /// Errors: [`ErrorKind::Invalid`] where there is no such slot, its drive is good, or a rebuild runs.
    pub fn may_replace(&self, slot: Slot) -> Result<()> {
        let core = &self.core;
        let refuse = |why: String| Err(core.error(ErrorKind::Invalid, "replace").because(why));
        let count = core.layout.drives;
        if slot.0 >= count {
            return refuse(format!("the array has {count} slots, from 0 on: there is no {}", slot.0));
        }
        if core.member(slot).is_good() || core.is_broken() {
            return refuse("only a failed or missing drive of an array that works is replaced".to_owned());
        }
        if core.jobs.rebuilding().is_some() {
            return refuse("a rebuild runs already: wait for it, or cancel it".to_owned());
        }
        Ok(())
    }

    /// Begins to put `device` in the place of the drive in `slot`, which failed or is missing. **Everything that
    /// `device` holds is lost.** Returns when it is emptied; the rebuild runs on beside the clients (section 4.2.2),
    /// and goes on after a restart if the drive is among those that the array is opened with.
    ///
    /// Errors: [`ErrorKind::Invalid`] where the slot's drive is good, a rebuild runs, or the new drive does not fit;
    /// [`ErrorKind::ZoneReadOnly`] or [`ErrorKind::ZoneOffline`] where a zone of it takes no writes: nothing of it is lost then.
    pub async fn start_replace(
        &self,
        slot: Slot,
        device: Arc<dyn ZonedDevice>,
        options: RebuildOptions,
    ) -> Result<Rebuild> {
        let core = &self.core;
        self.may_replace(slot)?;
        let superblock = self.superblock();
        fits(&device, &superblock, slot)?;
        core.has_the_limits(&device)?;
        let handle = core.begin_job(slot)?;
        if let Err(e) = core.prepare(slot, &device).await {
            handle.end(Err(e.duplicate()));
            return Err(e);
        }
        core.run_rebuild(slot, device, options, None, &handle);
        Ok(handle)
    }

    /// The rebuild that runs, or the last one.
    pub fn rebuild(&self) -> Option<Rebuild> {
        self.core.jobs.rebuild.lock().clone()
    }
}

impl Core {
    /// Whether a new drive can have as many zones open as the array promised.
    fn has_the_limits(&self, device: &Arc<dyn ZonedDevice>) -> Result<()> {
        let own = device.geometry();
        let lacks = |promised: Option<u32>, has: Option<u32>| {
            has.is_some_and(|has| promised.is_none_or(|n| n.saturating_add(METADATA_ZONES) > has.max(4)))
        };
        if lacks(self.geometry.max_open, own.max_open) || lacks(self.geometry.max_active, own.max_active) {
            let error = self.error(ErrorKind::Invalid, "replace");
            return Err(error.because(format!(
                "{} can have {:?} zones open and {:?} active, which is less than the other drives: the array would \
                 have to take back what it told its users",
                own.name, own.max_open, own.max_active
            )));
        }
        if own.volatile_cache && !self.geometry.volatile_cache {
            let error = self.error(ErrorKind::Invalid, "replace");
            return Err(error.because(format!(
                "the cache of {} is volatile, and the array told its users that nothing is: they flush nothing",
                own.name
            )));
        }
        Ok(())
    }

    fn begin_job(self: &Arc<Core>, slot: Slot) -> Result<Rebuild> {
        let mut rebuild = self.jobs.rebuild.lock();
        if rebuild.as_ref().is_some_and(|job| !job.is_over()) {
            let error = self.error(ErrorKind::Invalid, "replace");
            return Err(error.because("a rebuild runs already: wait for it, or cancel it"));
        }
        let handle = Rebuild::new(Job::new(Some(slot), &self.driver));
        *rebuild = Some(handle.clone());
        Ok(handle)
    }

    /// Empties a new drive, and makes it the slot's.
    async fn prepare(self: &Arc<Core>, slot: Slot, device: &Arc<dyn ZonedDevice>) -> Result<()> {
        let zones = device.report(0..device.geometry().zones).await?;
        // What the array holds has a place in each of them, or will have.
        let needed = METADATA_ZONES.saturating_add(self.geometry.zones) as usize;
        may_hold(device, "replace", zones.iter().take(needed))?;
        empty(device, &zones).await?;
        let uuid = notes::new_uuid(self);
        self.publish(|superblock| {
            if let Some(info) = superblock.members.get_mut(slot.index()) {
                (info.uuid, info.failed, info.rebuilding) = (uuid, true, true);
            }
        })
        .await
    }

    /// Runs a rebuild beside everything else. `from`: where it goes on.
    fn run_rebuild(
        self: &Arc<Core>,
        slot: Slot,
        device: Arc<dyn ZonedDevice>,
        options: RebuildOptions,
        from: Option<Tale>,
        handle: &Rebuild,
    ) {
        self.member(slot).begin_replacement(Arc::clone(&device), self.zones.len());
        self.tell(EventKind::RebuildStarted { slot, resumed: from.is_some() });
        let (core, handle) = (Arc::clone(self), handle.clone());
        let task = async move {
            let mut runner = Runner::new(&core, &handle.job, options.pace);
            let target = Target::new(slot, device);
            let result = core.rebuild_member(&mut runner, (slot, &target), from).await;
            if let Err(error) = &result {
                core.give_up(slot, handle.job.is_stopped(), error).await;
            }
            core.member(slot).end_replacement();
            drop((runner, target));
            let error = result.as_ref().err().map(ToString::to_string);
            if !handle.job.is_stopped() {
                core.tell(EventKind::RebuildEnded { slot, error });
            }
            handle.end(result);
        };
        drop(units::spawn(&*self.driver, "rebuild", task));
    }

    /// A rebuild failed: the array is without the drive. `stopped`: it is to go on when the array is opened again.
    async fn give_up(self: &Arc<Core>, slot: Slot, stopped: bool, error: &zoned::Error) {
        let member = self.member(slot);
        member.abort_replacement();
        if stopped {
            return;
        }
        tracing::error!(slot = slot.0, %error, "the rebuild ended");
        if member.is_good() {
            // It was used already. What this says of a second failure everybody learns from the array itself.
            let _broken = self.fail(slot, error).await;
        } else {
            let forget = self.publish(|superblock| {
                if let Some(info) = superblock.members.get_mut(slot.index()) {
                    info.rebuilding = false;
                }
            });
            let _broken = forget.await;
        }
    }

    async fn rebuild_member(
        self: &Arc<Core>,
        runner: &mut Runner,
        (slot, target): (Slot, &Target),
        from: Option<Tale>,
    ) -> Result<()> {
        let noted = from.as_ref().map(notes::known).unwrap_or_default();
        let kept = self.still_there(slot, &target.device, &noted).await?;
        for (id, ranges) in from.as_ref().map(|tale| notes::lost(tale, &kept)).unwrap_or_default() {
            self.member(slot).lost.set(id, ranges);
        }
        let mut notes = Notes::begin(self, slot, &target.device, &kept, from.as_ref()).await?;
        let mut order: Vec<ZoneId> = (0..self.geometry.zones).map(ZoneId).collect();
        self.count(runner, slot, &kept);
        // Those first that are written to: until then their writes lack redundancy. Those that are there cost nothing.
        order.sort_by_key(|id| (!kept.contains_key(id), !self.zone(*id).state.is_active()));
        let mut left: VecDeque<(ZoneId, u32)> = order.into_iter().map(|id| (id, 0)).collect();
        while let Some((id, tries)) = left.pop_front() {
            if runner.job.is_ended_early() || self.is_broken() || self.member(slot).is_aborted() {
                return Err(if self.is_broken() { self.broken_error("rebuild") } else { target.ended(self) });
            }
            let there = kept.get(&id).copied().filter(|_| tries == 0);
            // What is noted is not put off: begun anew, its note would stand while the zone is emptied.
            let how = match tries {
                LAST.. => Tries::Last,
                ..PATIENCE if there.is_none() && !left.is_empty() => Tries::Patient,
                _ => Tries::Follows,
            };
            match target.fill(runner, id, there, how).await {
                Ok(Copied::Done(entry)) => {
                    self.done(runner, &mut notes, id, entry, there == Some(entry)).await?;
                }
                Ok(Copied::Later) => left.push_back((id, tries + 1)),
                Ok(Copied::Again) => left.push_front((id, tries + 1)),
                // A drive that failed meanwhile says more than what came of it.
                Err(_) if self.is_broken() => return Err(self.broken_error("rebuild")),
                Err(e) => return Err(e),
            }
        }
        target.device.flush().await?;
        if runner.job.is_ended_early() {
            return Err(target.ended(self));
        }
        let result = match self.admit_member(slot, &notes).await {
            Ok(()) => {
                // What wore out was the other drive. Its zones can be reset again when the array is opened the next time.
                self.worn.lock().retain(|worn| worn.slot != slot);
                notes.end().await
            }
            Err(e) => {
                if self.member(slot).is_good() {
                    // Before its log may move: the end of a checkpoint would make it a member.
                    let _broken = self.fail(slot, &e).await;
                }
                Err(e)
            }
        };
        let life = self.member(slot).log.lock().life;
        self.rolled(slot, life);
        result
    }

    /// A zone is there.
    async fn done(
        self: &Arc<Core>,
        runner: &Runner,
        notes: &mut Notes,
        id: ZoneId,
        entry: ZoneEntry,
        noted: bool,
    ) -> Result<()> {
        if entry.end.is_none_or(|end| end.0 == 0) {
            return Ok(());
        }
        runner.job.zones_done.fetch_add(1, Ordering::Relaxed);
        let lost = runner.job.slot.map(|slot| (slot, self.member(slot).lost.of(id)));
        if let Some((slot, lost)) = lost.filter(|(_, lost)| !lost.is_empty()) {
            let blocks = lost.iter().map(|range| range.end - range.start).sum();
            self.tell(EventKind::BlocksLost { slot, zone: id, blocks });
        }
        if noted {
            return Ok(());
        }
        notes.note(self, &[(id, entry)]).await
    }

    /// What there is to do, for the progress.
    fn count(&self, runner: &Runner, slot: Slot, kept: &Known) {
        let job = &runner.job;
        let (mut zones, mut total, mut before) = (0, 0, 0);
        for id in (0..self.geometry.zones).map(ZoneId) {
            let rows = self.valid_rows(id, slot);
            if self.zone(id).readable().0 == 0 {
                continue;
            }
            zones += 1;
            total += self.bytes(rows) as u64;
            before += if kept.contains_key(&id) { self.bytes(rows) as u64 } else { 0 };
        }
        job.zones.store(zones, Ordering::Relaxed);
        job.total.store(total, Ordering::Relaxed);
        job.before.store(before, Ordering::Relaxed);
        job.bytes.store(before, Ordering::Relaxed);
    }

    /// Goes on with a rebuild that a restart ended.
    pub(crate) fn resume(self: &Arc<Core>, candidate: Candidate, options: RebuildOptions) -> Result<()> {
        let Candidate { slot, device, tale } = candidate;
        self.has_the_limits(&device)?;
        let handle = self.begin_job(slot)?;
        self.run_rebuild(slot, device, options, Some(tale), &handle);
        Ok(())
    }
}

/// How often a zone that clients are writing is put behind the others.
const PATIENCE: u32 = 3;
/// And how often one is begun anew that clients reset, before its I/O waits until it is copied.
const LAST: u32 = 16;
