//! The zone keeper: zones for logs, set aside and opened ahead, and generations for them that are durable ahead.
//!
//! ```text
//!   Free --open--> Reserved --a log needs a zone--> Log (leased) --written to its end--> Full --> Resetting --> Free
//!                     '--no other slot or zone is left--> Data
//! ```
//! A log that goes on in another zone takes one from here at once. Its record is committed behind its back: entries
//! in a segment whose record did not survive a power cut are lost as any unsynced ones, and `sync` waits for it.
//! What such a zone holds is never taken for anything else, since no generation is given twice: a [`Record::Counters`]
//! that says so is durable before the first of them is used.
//!
//! The keeper sleeps while there is nothing to do.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use units::sync::Event;
use units::{ZoneId, sleep_until};
use zoned::{Action, ZoneState};

use crate::error::{Error, Result};
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::shared::Shared;
use crate::zones::alloc::Left;
use crate::zones::cleaner::LOW;
use crate::zones::table::Phase;

/// Generations made durable at once; more are made when half of them are used.
const GENERATIONS: u64 = 256;
/// How long until the keeper looks again whether a zone that a log has left is full.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How often it does, before it waits to be woken. While a log waits for a zone it goes on, more rarely.
const LOOKS: u32 = 16;
const LOOK_RARELY: Duration = Duration::from_millis(5);

/// The keeper's life: works until the mount is gone.
pub(crate) async fn run(shared: Weak<Shared>, work: Event) {
    let (mut woken, mut looks) = (0, 0);
    loop {
        let seen = work.version();
        let Some(shared) = shared.upgrade() else { return };
        if shared.closed.load(Ordering::Acquire) {
            shared.close_reserved().await;
            return shared.end_background();
        }
        if seen != woken {
            (woken, looks) = (seen, 0);
        }
        let progress = shared.keep_once().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "keeping zones for logs failed");
            false
        });
        let look_again = {
            let state = shared.state.lock();
            let anyway = looks < LOOKS || state.places.waiting_logs > 0;
            !progress && anyway && state.waits_for_a_full_zone()
        };
        let driver = Arc::clone(&shared.driver);
        drop(shared);
        if look_again {
            looks += 1;
            let pause = if looks <= LOOKS { LOOK_AGAIN } else { LOOK_RARELY };
            sleep_until(&*driver, driver.now().after(pause)).await;
        } else if !progress {
            work.changed_since(seen).await;
        }
    }
}

/// The committer's life: makes durable at once what logs took, while the keeper may wait for a reset. Whoever syncs
/// such a log finds the commit under way; and a process that is killed loses no more than it has not committed.
pub(crate) async fn commit_soon(shared: Weak<Shared>, work: Event) {
    loop {
        let seen = work.version();
        let Some(shared) = shared.upgrade() else { return };
        if shared.closed.load(Ordering::Acquire) {
            return shared.end_background();
        }
        let upto = shared.state.lock().places.commit_soon;
        if let Err(error) = shared.commit_upto(upto).await {
            // Who syncs the log gets the error too.
            tracing::debug!(%error, "committing the segments of logs failed");
        }
        drop(shared);
        work.changed_since(seen).await;
    }
}

impl State {
    /// A generation for a zone's next use: durable, and given once.
    pub(crate) fn take_generation(&mut self) -> Option<u64> {
        self.places.generations.next()
    }

    /// Zones that logs hold open and that are not full yet, or are not known to be.
    pub(crate) fn log_slots_taken(&self) -> usize {
        let leased = self.places.leases.values().filter(|lease| lease.active).count();
        leased + self.places.leaving.len()
    }

    /// Zones reserved, or about to be.
    fn reserved(&self) -> usize {
        self.places.reserved.len() + usize::from(self.places.opening)
    }

    fn reserves_enough(&self) -> bool {
        self.missing() == 0
    }

    /// Whether one zone more may be open for logs. What data may have open is not touched.
    fn reserve_has_room(&self) -> bool {
        let Some(slots) = self.places.slots else { return false };
        let others = slots.metadata + self.log_slots_taken() + self.places.rests.len();
        let room = others + self.places.finishing.len() + self.reserved() + slots.data < slots.total;
        room && self.slot_free()
    }

    /// Zones that should be reserved and are not.
    fn missing(&self) -> usize {
        self.missing_with(0)
    }

    fn missing_with(&self, more: usize) -> usize {
        self.places.slots.map_or(0, |slots| slots.reserved + more).saturating_sub(self.reserved())
    }

    /// Whether there are so many empty zones that nobody wants for one more or less.
    pub(crate) fn has_plenty(&self) -> bool {
        self.zones.free_count() > 2 * (self.places.reserve + LOW)
    }

    /// Empty zones that data leaves alone, for the keeper to take: while there is a log, and something to reclaim.
    pub(crate) fn kept_for_logs(&self) -> usize {
        if self.places.leases.is_empty() || self.places.hopeless { 0 } else { self.missing() }
    }

    /// Sets a zone aside that is to be opened, if there should be one more.
    fn begin_reserve(&mut self) -> Option<ZoneId> {
        let wide = self.has_plenty() && self.missing_with(self.places.wide) > 0;
        if self.reserves_enough() && !wide || !self.reserve_has_room() || self.places.hopeless {
            return None;
        }
        // Where empty zones are few, they are kept for logs only if there is one.
        let least =
            if self.places.leases.is_empty() { self.places.reserve + LOW } else { self.places.reserve };
        let zone = self.zones.first_free().filter(|_| self.zones.free_count() > least)?;
        self.zones.set(zone, Phase::Reserved, ZoneRole::Free);
        self.places.opening = true;
        Some(zone)
    }

    fn end_reserve(&mut self, zone: ZoneId, opened: bool) {
        self.places.opening = false;
        if opened {
            self.give_to_reserve(zone);
            return;
        }
        self.zones.set_phase(zone, Phase::Free);
        if let Some(slots) = &mut self.places.slots {
            slots.reserved = 0;
        }
    }

    /// Puts an empty, opened zone into the reserve.
    pub(crate) fn give_to_reserve(&mut self, zone: ZoneId) {
        self.zones.set(zone, Phase::Reserved, ZoneRole::Free);
        self.zones.note(zone, ZoneState::ExplicitOpen, 0);
        self.places.reserved.push_back(zone);
    }

    /// Whether a zone that a log has left, and that is not known to be full, keeps others from a slot.
    fn waits_for_a_full_zone(&self) -> bool {
        let short = !self.reserves_enough() && !self.reserve_has_room();
        let short = short || !self.lease_allowed() || !self.slot_free();
        !self.places.leaving.is_empty() && short
    }
}

impl Shared {
    /// One round; true if there may be more to do at once.
    async fn keep_once(&self) -> Result<bool> {
        if self.meta.check().is_err() {
            return Ok(false);
        }
        Ok(self.make_generations().await?
            || self.note_full_zones().await
            || self.open_ahead().await
            || self.reset_zones().await?)
    }

    /// Makes generations durable, when few are left.
    async fn make_generations(&self) -> Result<bool> {
        let (next, upto) = {
            let mut state = self.state.lock();
            let left = &state.places.generations;
            if left.end.saturating_sub(left.start) > GENERATIONS / 2 {
                return Ok(false);
            }
            let next = state.next_generation.max(left.end);
            if !self.options.rules().reuses_generations() {
                let next_ino = state.next_ino;
                state.commit(Record::Counters { next_ino, next_generation: next + GENERATIONS })?;
            }
            (next, state.journal.applied)
        };
        if !self.options.rules().reuses_generations() {
            self.commit_upto(upto).await?;
        }
        self.state.lock().places.generations = next..next + GENERATIONS;
        self.space.notify();
        Ok(true)
    }

    /// Asks the device about the zones that logs have left: one that is full holds no slot any more. The log itself
    /// does not say, for its last entries may still be in its buffer.
    async fn note_full_zones(&self) -> bool {
        let left = {
            let state = self.state.lock();
            if state.waits_for_a_full_zone() { state.places.leaving.clone() } else { Vec::new() }
        };
        let mut progress = false;
        for Left { zone, .. } in left {
            let report = self.dev.report(zone.0..zone.0.saturating_add(1)).await;
            let full = report.is_ok_and(|r| r.first().is_some_and(|info| !info.state.is_active()));
            if full {
                self.state.lock().places.leaving.retain(|left| left.zone != zone);
                progress = true;
            }
        }
        if progress {
            self.space.notify();
        }
        progress
    }

    /// Opens a zone for the next log that needs one.
    async fn open_ahead(&self) -> bool {
        let Some(zone) = self.state.lock().begin_reserve() else { return false };
        let opened = self.dev.zone(zone, Action::Open).await;
        if let Err(error) = &opened {
            tracing::warn!(%zone, %error, "a zone cannot be opened ahead; logs open theirs by writing");
        }
        self.state.lock().end_reserve(zone, opened.is_ok());
        self.space.notify();
        true
    }

    /// Gives back what was opened ahead: the device counts it as active otherwise. By a reset: after a close some
    /// drives say closed of a zone that holds nothing, and count it still.
    async fn close_reserved(&self) {
        let zones = std::mem::take(&mut self.state.lock().places.reserved);
        for zone in zones {
            if let Err(error) = self.dev.zone(zone, Action::Reset).await {
                tracing::warn!(%zone, %error, "giving back an unused zone failed");
            }
            self.state.lock().zones.set_phase(zone, Phase::Free);
        }
    }

    /// Gives back zones that hold nothing and count as active: opened ahead by a mount that did not end well, or by
    /// another program.
    pub(crate) async fn close_opened(&self, report: &[zoned::ZoneInfo]) -> Result<()> {
        for info in report.iter().filter(|z| z.state.is_active() && z.pointer == units::Blocks::ZERO) {
            let reset = self.dev.zone(info.zone, Action::Reset).await;
            reset.map_err(|e| Error::device("giving back an unused zone", e))?;
        }
        Ok(())
    }
}
