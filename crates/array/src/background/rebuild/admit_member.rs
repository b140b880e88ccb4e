//! The end of a rebuild: a new drive that has all zones becomes a member.

use std::sync::Arc;

use zoned::{Durability, ErrorKind, Result, join_all};

use super::rebuild_notes::RebuildNotes;
use crate::core::Core;
use crate::format::record::Body;
use crate::layout::Slot;
use crate::membership::{CheckpointWrites, LogClient};

/// Makes the new drive of `slot` a member, in this order: its log begins with a checkpoint; everything in flight ends and
/// is flushed; the superblocks of all drives name the new member; the checkpoint gets its end record. Until then a crash
/// leaves the array without the drive.
pub(super) async fn admit_member(core: &Arc<Core>, slot: Slot, notes: &RebuildNotes) -> Result<()> {
    leave_vacated(core, slot).await?;
    let member = core.members.member(slot);
    let superblock = {
        let mut config = core.members.config.lock();
        let mut superblock = config.clone();
        superblock.config += 1;
        superblock.set_member(slot, false, false);
        // The new superblock's `config` number differs from that of every other superblock.
        config.config += 2;
        superblock
    };
    let full =
        |_| core.ctx.error(ErrorKind::ZoneFull, "replace").because("the checkpoint does not fit a zone");
    let body = Body::Superblock(superblock);
    // From here on the new drive is written like any other, partial parity included.
    let begun = member.take_over(
        core.members.epoch(),
        notes.zone_of_member_log(),
        notes.sequence_of_member_log(),
        &body,
    );
    let mut writes = CheckpointWrites::default();
    writes.ios.extend(begun.map_err(full)?);
    let incarnation = member.log.lock().incarnation;
    let written = core.checkpoints.write_checkpoint(slot, incarnation, &mut writes).map_err(full);
    let CheckpointWrites { ios, barriers, commits } = writes;
    let joined: Result<Vec<()>> = join_all(ios).await.into_iter().collect();
    if written.is_err() || joined.is_err() {
        // The new drive is failed before its commits acknowledge anything: the array works without the drive,
        // as before.
        core.members.fail_new_member(slot).await;
    }
    let done = if core.members.is_broken() { Err(core.members.broken_error("write")) } else { Ok(()) };
    for commit in commits {
        core.checkpoints.commit_ended(commit, &done);
    }
    written.and(joined)?;
    for barrier in barriers {
        barrier.await?;
    }
    core.checkpoints.log_poisoned_zones(slot, incarnation).await?;
    // The data of every record on the new drive is durable before any of the records counts.
    core.members.flush_members().await?;
    let end = {
        let _turn = core.members.persisting.acquire().await;
        if core.members.is_broken() || !member.is_good() || member.is_aborted() {
            return Err(core.ctx.error(ErrorKind::Gone, "replace").because("a drive failed meanwhile"));
        }
        {
            // If another drive failed meanwhile, the new drive holds the redundancy.
            let mut config = core.members.config.lock();
            config.config += 1;
            config.set_member(slot, false, false);
        }
        let failures = core.members.write_superblock().await;
        if let Some((failed, error)) = failures.into_iter().next() {
            tracing::error!(slot = failed.0, %error, "a drive failed while a new one became a member");
            return Err(error);
        }
        member.append_end(incarnation, Durability::Durable).map_err(full)?
    };
    match end {
        Some(io) => io.await,
        None => Err(core.members.broken_error("replace")),
    }
}

/// Records that the array lacks the drive in `slot` until its new drive is a member: zones take parts there from now on.
///
/// Errors: [`ErrorKind::Gone`] if the array can lack no drive more.
async fn leave_vacated(core: &Arc<Core>, slot: Slot) -> Result<()> {
    if !core.members.config.lock().member(slot).is_some_and(|info| info.vacated) {
        return Ok(());
    }
    let mut needed_before = None;
    let publish = core.members.publish(|superblock| {
        // Failures and this record are written one after the other: a drive that failed meanwhile is recorded by now.
        needed_before = core.members.needed_before_by(superblock, slot);
        if let Some(info) = superblock.members.get_mut(slot.index()).filter(|_| needed_before.is_none()) {
            info.vacated = false;
        }
    });
    publish.await?;
    if let Some(other) = needed_before {
        return Err(core.members.needed_before_error(other));
    }
    core.members.member(slot).set_vacant(false);
    Ok(())
}
