//! Zones opened ahead for logs, and generations for those zones that are durably set aside.
//!
//! ```text
//!   Free --open--> Ahead --a log needs a zone--> Log (leased) --written to its end--> Full --> Resetting --> Free
//!                    '--no other slot or zone is left--> Data
//! ```
//! A log that needs a zone takes one opened ahead without waiting. The record of its segment is committed in the background:
//! a power cut before the commit loses the segment's entries like any unsynced entry, and `sync` waits for the commit.
//! The entries in such a zone are never taken for another log's, because no generation is used twice: a
//! [`Record::Counters`] that excludes a range of generations is durable before the first generation of the range is used.

use std::sync::{Arc, Weak};
use std::time::Duration;

use units::sync::Event;
use units::{ZoneId, sleep_until};
use zoned::{Action, ZoneState};

use crate::background::BackgroundTask;
use crate::device::Purpose;
use crate::error::{Error, Result};
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::Record;
use crate::shared::Shared;
use crate::zones::allocator::{Allocator, LeftZone};
use crate::zones::table::{LOW_FREE_ZONES, Phase, Stream};

/// Number of generations set aside by one metadata record. The next range is set aside when half of them are
/// used.
const GENERATIONS_PER_RECORD: u64 = 256;
/// Pause before the device is asked again whether a zone that a log has left is full.
const FULL_ZONE_QUERY_PAUSE: Duration = Duration::from_micros(200);
/// Number of queries for full zones before the task sleeps until it is woken. While a log waits for a zone,
/// the task continues with longer pauses.
const MAX_FULL_ZONE_QUERIES: u32 = 16;
const LONG_FULL_ZONE_QUERY_PAUSE: Duration = Duration::from_millis(5);

/// The task that opens zones ahead for logs: runs until the mount is gone.
pub(crate) async fn run(_task: BackgroundTask, shared: Weak<Shared>, work: Event) {
    let (mut woken, mut looks) = (0, 0);
    loop {
        let seen = work.version();
        let Some(shared) = shared.upgrade() else { return };
        if shared.metadata.is_closed() {
            shared.close_ahead().await;
            return;
        }
        if seen != woken {
            (woken, looks) = (seen, 0);
        }
        let progress = shared.open_once().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "opening zones ahead for logs failed");
            false
        });
        let look_again = {
            let state = shared.state.lock();
            let anyway = looks < MAX_FULL_ZONE_QUERIES || state.allocator.waiting_logs > 0;
            !progress && anyway && state.allocator.waits_for_a_full_zone()
        };
        let driver = Arc::clone(&shared.driver);
        drop(shared);
        if look_again {
            looks += 1;
            let pause = if looks <= MAX_FULL_ZONE_QUERIES {
                FULL_ZONE_QUERY_PAUSE
            } else {
                LONG_FULL_ZONE_QUERY_PAUSE
            };
            sleep_until(&*driver, driver.now().after(pause)).await;
        } else if !progress {
            work.changed_since(seen).await;
        }
    }
}

/// The committer task: commits the metadata of logs' new segments at once, also while [`run`] waits for a
/// reset, until the mount is gone. A `sync` of the log finds the commit under way, and a killed process loses
/// only the segments not yet committed.
pub(crate) async fn commit_soon(_task: BackgroundTask, shared: Weak<Shared>, work: Event) {
    loop {
        let seen = work.version();
        let Some(shared) = shared.upgrade() else { return };
        if shared.metadata.is_closed() {
            return;
        }
        let upto = shared.state.lock().allocator.commit_soon;
        if let Err(error) = shared.metadata.commit_upto(upto).await {
            // The committer only logs the error: the log's next `sync` returns it too.
            tracing::debug!(%error, "committing the segments of logs failed");
        }
        drop(shared);
        work.changed_since(seen).await;
    }
}

impl Allocator {
    /// A generation for the next use of a zone: durably set aside, and never returned again.
    pub(crate) fn take_generation(&mut self) -> Option<u64> {
        self.generations.next()
    }

    /// Number of zones that logs hold open: every log zone that is not known to be full.
    pub(crate) fn log_slots_taken(&self) -> usize {
        let leased = self.leases.values().filter(|lease| lease.holds_slot).count();
        leased + self.leaving.len()
    }

    /// Number of zones opened ahead for logs, the one being opened included.
    pub(crate) fn zones_ahead(&self) -> usize {
        self.ahead.len() + usize::from(self.opening)
    }

    /// True if one more zone may be opened ahead for logs. The open-zone slots of data are not touched.
    fn may_open_ahead(&self) -> bool {
        let Some(slots) = self.slots else { return false };
        let others = slots.metadata + self.log_slots_taken() + self.rests.len();
        let room = others + self.finishing.len() + self.zones_ahead() + slots.data < slots.total;
        room && self.slot_free()
    }

    /// Number of zones still to be opened ahead for logs.
    fn zones_still_to_open(&self) -> usize {
        self.zones_still_to_open_with(0)
    }

    fn zones_still_to_open_with(&self, more: usize) -> usize {
        self.slots.map_or(0, |slots| slots.ahead + more).saturating_sub(self.zones_ahead())
    }

    /// True if empty zones are plentiful.
    pub(crate) fn has_plenty(&self) -> bool {
        self.table.free_zone_count() > 2 * (self.kept + LOW_FREE_ZONES)
    }

    /// True if a log has a segment in a sequential zone.
    fn logs_need_zones(&self) -> bool {
        self.leases.values().any(|lease| lease.holds_slot)
    }

    /// Number of empty zones that data leaves to be opened ahead for logs: only while a log has a segment in a sequential zone and space
    /// can be reclaimed.
    pub(crate) fn kept_for_logs(&self) -> usize {
        if self.logs_need_zones() && !self.exhausted { self.zones_still_to_open() } else { 0 }
    }

    /// Takes an empty zone to open ahead, if one more is to be opened.
    fn begin_open_ahead(&mut self) -> Option<ZoneId> {
        let wide = self.has_plenty() && self.zones_still_to_open_with(self.wide) > 0;
        if self.zones_still_to_open() == 0 && !wide || !self.may_open_ahead() || self.exhausted {
            return None;
        }
        // Where no log needs zones, the last empty ones are left to data.
        let least = if self.logs_need_zones() { self.kept } else { self.kept + LOW_FREE_ZONES };
        let zone = self.table.next_free_zone(Stream::Log).filter(|_| self.table.free_zone_count() > least)?;
        if !self.log_leaves_reserved_blocks() {
            return None;
        }
        self.table.note_last_zone(Stream::Log, zone);
        self.table.set(zone, Phase::Ahead, ZoneRole::Free);
        self.opening = true;
        Some(zone)
    }

    fn end_open_ahead(&mut self, zone: ZoneId, opened: bool) {
        self.opening = false;
        if opened {
            self.add_ahead(zone);
            return;
        }
        self.table.set_phase(zone, Phase::Free);
        if let Some(slots) = &mut self.slots {
            slots.ahead = 0;
        }
    }

    /// Adds an empty, opened zone to those opened ahead.
    pub(crate) fn add_ahead(&mut self, zone: ZoneId) {
        self.table.set(zone, Phase::Ahead, ZoneRole::Free);
        self.table.note_state(zone, ZoneState::ExplicitOpen, 0);
        self.ahead.push_back(zone);
    }

    /// True if open-zone slots are short while one is held by a zone that a log has left and that is not
    /// known to be full.
    fn waits_for_a_full_zone(&self) -> bool {
        let short = self.zones_still_to_open() > 0 && !self.may_open_ahead();
        let short = short || !self.lease_allowed() || !self.slot_free();
        !self.leaving.is_empty() && short
    }
}

impl Shared {
    /// One round of opening zones ahead. Returns true if there may be more to do at once.
    async fn open_once(&self) -> Result<bool> {
        if self.metadata.check().is_err() {
            return Ok(false);
        }
        Ok(self.make_generations().await?
            || self.note_full_zones().await
            || self.open_ahead().await
            || self.reset_zones().await?)
    }

    /// Sets zone generations aside durably, when few are left.
    async fn make_generations(&self) -> Result<bool> {
        let (next, upto) = {
            let mut state = self.state.lock();
            let left = &state.allocator.generations;
            if left.end.saturating_sub(left.start) > GENERATIONS_PER_RECORD / 2 {
                return Ok(false);
            }
            let next = state.next_generation.max(left.end);
            if !self.options.rules().reuses_generations() {
                let next_ino = state.next_ino;
                state
                    .commit(Record::Counters { next_ino, next_generation: next + GENERATIONS_PER_RECORD })?;
            }
            (next, state.journal.applied)
        };
        if !self.options.rules().reuses_generations() {
            self.metadata.commit_upto(upto).await?;
        }
        self.state.lock().allocator.generations = next..next + GENERATIONS_PER_RECORD;
        self.space.notify();
        Ok(true)
    }

    /// Asks the device which of the zones that logs have left are full: a full zone holds no open-zone slot.
    /// The log does not know: its last entries for the zone may still be in its buffer.
    async fn note_full_zones(&self) -> bool {
        let left = {
            let state = self.state.lock();
            if state.allocator.waits_for_a_full_zone() { state.allocator.leaving.clone() } else { Vec::new() }
        };
        let mut progress = false;
        for LeftZone { zone, .. } in left {
            let report = self.device.purpose(Purpose::Log).report(zone.0..zone.0.saturating_add(1)).await;
            let full = report.is_ok_and(|r| r.first().is_some_and(|info| !info.state.is_active()));
            if full {
                self.state.lock().allocator.leaving.retain(|left| left.zone != zone);
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
        let Some(zone) = self.state.lock().allocator.begin_open_ahead() else { return false };
        let opened = self.device.purpose(Purpose::Log).zone(zone, Action::Open).await;
        if let Err(error) = &opened {
            tracing::warn!(%zone, %error, "a zone cannot be opened ahead; logs open theirs by writing");
        }
        self.state.lock().allocator.end_open_ahead(zone, opened.is_ok());
        self.space.notify();
        true
    }

    /// Resets the zones opened ahead at an unmount, because the device counts them as active. A close is not
    /// enough: some drives report an empty zone as closed after it, and continue to count the zone as active.
    async fn close_ahead(&self) {
        let zones = std::mem::take(&mut self.state.lock().allocator.ahead);
        for zone in zones {
            if let Err(error) = self.device.purpose(Purpose::Log).zone(zone, Action::Reset).await {
                tracing::warn!(%zone, %error, "resetting a zone opened ahead failed");
            }
            self.state.lock().allocator.table.set_phase(zone, Phase::Free);
        }
    }

    /// Resets zones that are empty and count as active at a mount: another mount that did not unmount, or
    /// another program, opened them.
    pub(crate) async fn close_opened(&self, report: &[zoned::ZoneInfo]) -> Result<()> {
        for info in report.iter().filter(|z| z.state.is_active() && z.pointer == units::Blocks::ZERO) {
            let reset = self.device.purpose(Purpose::Log).zone(info.zone, Action::Reset).await;
            reset.map_err(|e| Error::device("resetting an unused open zone", e))?;
        }
        Ok(())
    }
}
