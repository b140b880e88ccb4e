//! Room in the metadata logs: records, reservations, and the move of a log to a fresh zone (a log roll).
//!
//! New records go to the new zone at once, so that no writer waits while the zone has room. Then the zones write a
//! checkpoint to the new zone, from memory. The old zone is reset when the checkpoint is complete, everything that was in
//! flight at its beginning is acknowledged, and all drives are flushed. Partial parity that only the old zone holds
//! is then of stripes that are durable with their parity, or is in the checkpoint with the data that it covers durable.

use std::sync::Arc;

use zoned::{Action, Durability, Error, ErrorKind, Io, Result, ZoneId};

use super::{CheckpointWrites, LogClient, Membership, ParityCommit};
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::layout::placement::next_metadata_zone;
use crate::layout::{Slot, Stripe};
use crate::member::NoRoom;
use crate::member::drive_ios::DriveIos;
use crate::member::member_drive::MemberDrive;

/// A log roll under way.
struct LogRoll {
    /// The incarnation of the drive that holds the log.
    incarnation: u64,
    /// The metadata zone that the log leaves.
    old: ZoneId,
    device: Option<MemberDrive>,
    /// The write of the superblock, the first record of the log's new zone.
    first: Result<Option<Io<()>>, NoRoom>,
}

/// A log moves early when less than one in this many blocks of its zone is left.
const EARLY_ROLL: u64 = 4;

impl Membership {
    /// Moves the log of `slot` to the next metadata zone, unless a log roll is under way. When this returns,
    /// the log has room.
    pub(crate) fn roll(self: &Arc<Self>, slot: Slot, deferred: &mut Deferred) {
        let Some(client) = self.client.get().and_then(std::sync::Weak::upgrade) else { return };
        let Some(roll) = self.begin_roll(slot) else { return };
        let (this, incarnation) = (Arc::clone(self), roll.incarnation);
        deferred.run(async move {
            let mut commits = Vec::new();
            let moved = this.move_log(&*client, slot, roll, &mut commits).await;
            let failed = match &moved {
                // If the log's drive fails, its parity is not needed. If the array breaks, nothing is
                // acknowledged any more.
                Err(error) if this.member(slot).is_incarnation(incarnation) => this.fail(slot, error).await,
                // The error of an earlier drive does not fail the drive that is in the slot now.
                _ => Ok(()),
            };
            for commit in commits {
                client.commit_ended(commit, &failed);
            }
            this.end_roll(slot, incarnation);
        });
    }

    /// Sends new records of a log to the next metadata zone, a superblock first. `None` if a log roll is
    /// under way.
    fn begin_roll(&self, slot: Slot) -> Option<LogRoll> {
        let member = self.member(slot);
        let mut log = member.log.lock();
        if !log.begin_roll() {
            return None;
        }
        let old = log.zone;
        // The superblock is written under the log's lock, so that a newer one is written after it, to the
        // same zone.
        let superblock = Body::Superblock(self.config.lock().clone());
        (log.zone, log.pointer) = (next_metadata_zone(old), 0);
        let first = member.append_to(&mut log, &superblock, true, Durability::Cached);
        Some(LogRoll { incarnation: log.incarnation, old, device: member.device(), first })
    }

    /// Moves the log of `slot` early, if little room is left in its metadata zone.
    pub(crate) fn roll_early(self: &Arc<Self>, slot: Slot, deferred: &mut Deferred) {
        let early = {
            let log = self.member(slot).log.lock();
            !log.rolling && log.blocks_left() < log.capacity / EARLY_ROLL
        };
        if early {
            self.roll(slot, deferred);
        }
    }

    /// Writes the checkpoint of a log roll to the new zone and resets the old one. `commits`: those that the
    /// checkpoint did not bring to an end. Nothing is written to a new drive that takes the slot meanwhile.
    async fn move_log(
        self: &Arc<Self>,
        client: &dyn LogClient,
        slot: Slot,
        roll: LogRoll,
        commits: &mut Vec<ParityCommit>,
    ) -> Result<()> {
        let member = self.member(slot);
        let LogRoll { incarnation, old, device, first } = roll;
        let full = |NoRoom| self.full_error("checkpoint");
        let mut ios = DriveIos::default();
        ios.push(slot, first.map_err(full)?);
        let mut writes = CheckpointWrites::default();
        let written = client.write_checkpoint(slot, incarnation, &mut writes);
        *commits = writes.commits;
        written.map_err(full)?;
        // The checkpoint waits for every block in flight. A zone that waits for room with such blocks would wait for the checkpoint.
        self.resume_waiting_zones(slot, client);
        writes.ios.into_iter().for_each(|io| ios.push(slot, Some(io)));
        ios.join().await.into_iter().next().map_or(Ok(()), |(_, e)| Err::<(), Error>(e))?;
        // If the log's drive failed meanwhile, its parity is gone: the commits end once the failure is
        // persistent.
        self.failures_persisted("write").await?;
        for commit in commits.drain(..) {
            client.commit_ended(commit, &Ok(()));
        }
        for barrier in writes.barriers {
            barrier.await?;
        }
        client.log_poisoned_zones(slot, incarnation).await?;
        if let Some(io) = member.append_end(incarnation, Durability::Cached).map_err(full)? {
            io.await?;
        }
        self.flush_members().await?;
        let same = |_: &MemberDrive| member.is_good() && member.is_incarnation(incarnation);
        let Some(device) = device.filter(same) else { return Ok(()) };
        device.zone(old, Action::Reset).await?;
        // The log may move to the old zone next: the zone's old records must not come back then.
        match member.flush() {
            Some(io) => io.await,
            None => Ok(()),
        }
    }

    /// Ends a log roll: the log has room again, or its drive failed. Zones that waited for room go on.
    pub(crate) fn end_roll(&self, slot: Slot, incarnation: u64) {
        let member = self.member(slot);
        {
            let mut log = member.log.lock();
            if log.incarnation == incarnation {
                log.end_roll();
            }
        }
        if let Some(client) = self.client.get().and_then(std::sync::Weak::upgrade) {
            self.resume_waiting_zones(slot, &*client);
        }
        member.rolled.notify();
    }

    /// Lets the zones that wait for room in the log of `slot` log their parity, or wait again.
    fn resume_waiting_zones(&self, slot: Slot, client: &dyn LogClient) {
        let waiting = std::mem::take(&mut self.member(slot).log.lock().waiting);
        waiting.into_iter().for_each(|id| client.room_freed(id));
    }

    /// The error of a checkpoint that is larger than a metadata zone.
    pub(crate) fn full_error(&self, name: &'static str) -> Error {
        self.ctx.error(ErrorKind::ZoneFull, name).because("the metadata that counts does not fit a zone")
    }

    /// Moves the log of `slot`, and waits until any log roll has ended after version `seen` of the event
    /// `rolled`.
    async fn roll_and_wait(self: &Arc<Self>, slot: Slot, seen: u64) {
        let mut deferred = Deferred::default();
        self.roll(slot, &mut deferred);
        deferred.finish(&self.ctx);
        self.member(slot).rolled.changed_since(seen).await;
    }

    /// Moves all logs to fresh zones: each record that lost a copy with a drive has all its copies again, in the checkpoints.
    /// `must_end`: no further log is to be moved.
    ///
    /// Errors: [`ErrorKind::Cancelled`] if not all logs were moved.
    pub(crate) async fn renew_logs(
        self: &Arc<Self>,
        must_end: impl Fn() -> bool + Send + Sync,
    ) -> Result<()> {
        let slots: Vec<Slot> = self.working_members().map(|member| member.slot).collect();
        for slot in slots {
            if must_end() {
                return Err(self
                    .ctx
                    .error(ErrorKind::Cancelled, "move a log")
                    .because("the array is being closed"));
            }
            let member = self.member(slot);
            let seen = member.rolled.version();
            if member.log.lock().rolling {
                // The checkpoint of a log roll under way may have begun too early.
                member.rolled.changed_since(seen).await;
            }
            if member.is_good() {
                self.roll_and_wait(slot, member.rolled.version()).await;
            }
        }
        self.failures_persisted("write").await
    }

    /// Adds a record to the log of `slot`; waits for room if the log has none.
    pub(crate) async fn append_rolling(
        self: &Arc<Self>,
        slot: Slot,
        body: &Body,
        how: Durability,
    ) -> Result<Option<Io<()>>> {
        let member = self.member(slot);
        loop {
            let seen = member.rolled.version();
            match member.append(body, false, how) {
                Ok(io) => return Ok(io),
                Err(NoRoom) => self.roll_and_wait(slot, seen).await,
            }
        }
    }

    /// The drives that hold the records of a zone, one more than there are parities: those of its first data unit and the parities
    /// of its first stripe, or the next drives in order where these are missing.
    pub(crate) fn record_slots(&self, id: ZoneId) -> Vec<Slot> {
        let layout = &self.ctx.layout;
        let mut roles = vec![layout.data(Stripe(0), 0)];
        roles.extend(layout.parities().map(|parity| layout.parity(Stripe(0), parity)));
        let slots: Vec<Slot> = roles.iter().filter_map(|role| self.ctx.places.slot(id, *role)).collect();
        let rest = self.ctx.places.slots().filter(|slot| !slots.contains(slot));
        let all = slots.iter().copied().chain(rest);
        all.filter(|slot| self.member(*slot).is_good()).take(roles.len()).collect()
    }

    /// Writes a record about a zone to the logs of the drives that hold its records. If one of them fails meanwhile,
    /// the next drive takes its place.
    pub(crate) async fn write_zone_record(
        self: &Arc<Self>,
        id: ZoneId,
        body: &Body,
        how: Durability,
    ) -> Result<()> {
        let mut wrote: Vec<Slot> = Vec::new();
        loop {
            let left: Vec<Slot> =
                self.record_slots(id).into_iter().filter(|slot| !wrote.contains(slot)).collect();
            if left.is_empty() {
                return self.failures_persisted("write").await;
            }
            let mut ios = DriveIos::default();
            for slot in &left {
                let io = self.append_rolling(*slot, body, how).await?;
                ios.push(*slot, io);
            }
            for (slot, error) in ios.join().await {
                self.fail(slot, &error).await?;
            }
            wrote.extend(left);
        }
    }

    /// Reserves the given numbers of blocks in the logs. False if one of the logs has no room: nothing is
    /// reserved then.
    pub(crate) fn reserve_now(&self, needs: &[(Slot, u64)]) -> bool {
        for (n, (slot, blocks)) in needs.iter().enumerate() {
            if !self.member(*slot).reserve(*blocks) {
                self.unreserve(needs.get(..n).unwrap_or_default());
                return false;
            }
        }
        true
    }

    /// Reserves the given numbers of blocks in the logs; moves a log that has no room.
    pub(crate) async fn reserve(self: &Arc<Self>, needs: &[(Slot, u64)]) {
        for (slot, blocks) in needs {
            let member = self.member(*slot);
            loop {
                let seen = member.rolled.version();
                if member.reserve(*blocks) {
                    break;
                }
                self.roll_and_wait(*slot, seen).await;
            }
        }
    }

    /// Gives back reserved blocks of the logs.
    pub(crate) fn unreserve(&self, needs: &[(Slot, u64)]) {
        needs.iter().for_each(|(slot, blocks)| self.member(*slot).unreserve(*blocks));
    }
}
