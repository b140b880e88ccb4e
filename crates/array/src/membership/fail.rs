//! The failure of a drive: the superblocks of the other drives record the failure before the array relies on
//! these drives alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Durability, Error, ErrorKind, Result};

use super::Membership;
use crate::deferred::Deferred;
use crate::events::EventKind;
use crate::format::record::Body;
use crate::format::superblock::Superblock;
use crate::layout::Slot;
use crate::member::drive_ios::DriveIos;
use crate::metrics::add;

impl Membership {
    /// Fails the drive in `slot`: the array works without it from now on. When this returns, the superblocks
    /// record the failure. `why`: the drive's error, or nothing if an operator ordered the failure.
    ///
    /// Errors: [`ErrorKind::Gone`] if as many drives have failed already as there are parities. The array is broken then.
    pub(crate) async fn fail<'a>(
        self: &Arc<Self>,
        slot: Slot,
        why: impl Into<Option<&'a Error>> + Send,
    ) -> Result<()> {
        let why = why.into();
        let mut device = why.map(|error| error.device().to_owned());
        let mut ordered = why.is_none();
        let mut why = why.map_or_else(|| "an operator ordered it".to_owned(), ToString::to_string);
        let _turn = self.persisting.acquire().await;
        let mut slot = slot;
        loop {
            if self.is_broken() {
                return Err(self.broken_error("write"));
            }
            if device.as_ref().is_some_and(|device| self.member(slot).had_drive(device)) {
                // The failure of that drive is recorded since the turn. An operation that it refused late says nothing of the drive that took its place.
                return Ok(());
            }
            if !self.member(slot).is_good() {
                // The error may be that of the slot's new drive, whose rebuild is aborted then.
                if self.member(slot).abort_replacement() {
                    tracing::warn!(slot = slot.0, why, "a new drive failed while it was filled");
                }
                return Ok(());
            }
            if self.last_failure_beside(None).is_some() {
                tracing::error!(
                    slot = slot.0,
                    why,
                    "one drive too many failed: the array writes nothing more"
                );
                self.break_array(slot, why);
                return Err(self.broken_error("write"));
            }
            self.unpersisted.fetch_add(1, Ordering::AcqRel);
            self.ctx.publish(EventKind::DriveFailed { slot, why: why.clone() });
            self.member(slot).set_failed();
            add(&self.ctx.metrics.drive_failures, 1);
            if ordered {
                tracing::warn!(slot = slot.0, "an operator failed a drive: the array goes on without it");
            } else {
                tracing::error!(slot = slot.0, why, "a drive failed: the array goes on without it");
            }
            let failures = self.persist_failure(slot).await;
            self.unpersisted.fetch_sub(1, Ordering::AcqRel);
            match failures.into_iter().next() {
                None => return Ok(()),
                Some((second, error)) => {
                    (slot, ordered, why) = (second, false, error.to_string());
                    device = Some(error.device().to_owned());
                }
            }
        }
    }

    /// Breaks the array: one drive more failed than there are parities. The event comes first, so that a caller who sees the broken
    /// array can find the reason.
    fn break_array(&self, slot: Slot, why: String) {
        self.ctx.publish(EventKind::SecondFailure { slot, why });
        self.broken.store(true, Ordering::Release);
    }

    /// Fails a new drive that has written as a member already, before its checkpoint is complete. If another
    /// drive failed meanwhile, the array is broken: the other failure was survivable with the new drive only.
    pub(crate) async fn fail_new_member(&self, slot: Slot) {
        let _turn = self.persisting.acquire().await;
        let member = self.member(slot);
        if !member.is_good() {
            return;
        }
        if self.last_failure_beside(Some(slot)).is_some() {
            let why = "the new drive could not become a member, and another one failed meanwhile";
            tracing::error!(slot = slot.0, why, "one drive too many failed: the array writes nothing more");
            self.break_array(slot, why.to_owned());
        }
        member.set_failed();
    }

    /// Waits until the superblocks contain every failure that was noticed. A block that is acknowledged without a drive
    /// must not be read from that drive after a restart.
    pub(crate) async fn failures_persisted(&self, name: &'static str) -> Result<()> {
        if self.is_persisting() {
            let _turn = self.persisting.acquire().await;
        }
        if self.is_broken() { Err(self.broken_error(name)) } else { Ok(()) }
    }

    /// Writes to all superblocks that the drive in `slot` failed; returns the drives whose superblock could
    /// not be written.
    async fn persist_failure(self: &Arc<Self>, slot: Slot) -> Vec<(Slot, Error)> {
        {
            let mut config = self.config.lock();
            config.config += 1;
            config.set_member(slot, true, false);
        }
        self.write_superblock().await
    }

    /// Changes the superblock on all drives that work: durable when this returns.
    pub(crate) async fn publish(self: &Arc<Self>, change: impl FnOnce(&mut Superblock) + Send) -> Result<()> {
        let failures = {
            let _turn = self.persisting.acquire().await;
            if self.is_broken() {
                return Err(self.broken_error("write the superblock"));
            }
            {
                let mut config = self.config.lock();
                config.config += 1;
                change(&mut config);
            }
            self.write_superblock().await
        };
        for (slot, error) in failures {
            self.fail(slot, &error).await?;
        }
        Ok(())
    }

    /// Writes the superblock to all drives that work, durable; returns the drives on which the write failed.
    /// The caller holds `persisting`. A log without room moves to a fresh zone.
    pub(crate) async fn write_superblock(self: &Arc<Self>) -> Vec<(Slot, Error)> {
        let superblock = self.config.lock().clone();
        let body = Body::Superblock(superblock);
        let mut ios = DriveIos::default();
        let mut full = Vec::new();
        let mut deferred = Deferred::default();
        for member in self.working_members() {
            let written = member.append(&body, false, Durability::Durable).or_else(|_| {
                // The superblock's writer does not wait for the whole log roll, because the roll may need
                // `persisting`.
                self.roll(member.slot, &mut deferred);
                member.append(&body, false, Durability::Durable)
            });
            match written {
                Ok(io) => ios.push(member.slot, io),
                Err(_) => full.push((
                    member.slot,
                    self.ctx.error(ErrorKind::ZoneFull, "write").because("no room for a superblock"),
                )),
            }
        }
        deferred.finish(&self.ctx);
        let mut failures = ios.join().await;
        failures.append(&mut full);
        failures
    }
}
