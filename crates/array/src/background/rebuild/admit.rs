//! A new drive that has all zones becomes a member.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Durability, ErrorKind, Result, join_all};

use super::notes::Notes;
use crate::core::Core;
use crate::events::EventKind;
use crate::format::record::Body;
use crate::format::superblock::Superblock;
use crate::layout::Slot;

impl Core {
    /// Writes a change of the superblock to all drives that work: durable when this returns.
    pub(crate) async fn publish(self: &Arc<Core>, change: impl FnOnce(&mut Superblock) + Send) -> Result<()> {
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

    /// The new drive has all zones: it becomes a member. Its log begins with everything that counts, everything in
    /// flight is waited for and flushed, the others' superblocks name it, and last its checkpoint gets its end.
    pub(super) async fn admit_member(self: &Arc<Core>, slot: Slot, notes: &Notes) -> Result<()> {
        let member = self.member(slot);
        let superblock = {
            let mut config = self.config.lock();
            let mut superblock = config.clone();
            superblock.config += 1;
            admitted(&mut superblock, slot);
            // No other superblock has this one's number.
            config.config += 2;
            superblock
        };
        let mut barriers = Vec::new();
        let mut ios = Vec::new();
        let full =
            |_| self.error(ErrorKind::ZoneFull, "replace").because("the checkpoint does not fit a zone");
        let body = Body::Superblock(superblock);
        // From here on it is written like any other, partial parity included.
        let begun = member.take_over(self.epoch(), notes.log_zone(), notes.sequence(), &body);
        ios.extend(begun.map_err(full)?);
        let mut commits = Vec::new();
        let life = member.log.lock().life;
        let written = self.write_checkpoint(slot, life, &mut ios, &mut barriers, &mut commits).map_err(full);
        let joined: Result<Vec<()>> = join_all(ios).await.into_iter().collect();
        if written.is_err() || joined.is_err() {
            // Before anything is acknowledged by these commits: the array does without the drive, as it did.
            self.give_up_again(slot).await;
        }
        let done = if self.is_broken() { Err(self.broken_error("write")) } else { Ok(()) };
        for (id, end) in commits {
            self.logged_by_checkpoint(id, end, &done);
        }
        written.and(joined)?;
        for barrier in barriers {
            barrier.await?;
        }
        self.log_taken_back(slot, life).await?;
        // The data of every record on the new drive is durable before any of them counts.
        self.flush_members().await?;
        let end = {
            let _turn = self.persisting.acquire().await;
            if self.is_broken() || !member.is_good() || member.is_aborted() {
                return Err(self.error(ErrorKind::Gone, "replace").because("a drive failed meanwhile"));
            }
            {
                // Another drive may have failed meanwhile: this one has what it takes to do without.
                let mut config = self.config.lock();
                config.config += 1;
                admitted(&mut config, slot);
            }
            let failures = self.write_superblock().await;
            if let Some((failed, error)) = failures.into_iter().next() {
                tracing::error!(slot = failed.0, %error, "a drive failed while a new one became a member");
                return Err(error);
            }
            member.append_end(life, Durability::Durable).map_err(full)?
        };
        match end {
            Some(io) => io.await,
            None => Err(self.broken_error("replace")),
        }
    }
}

impl Core {
    /// A new drive that wrote as a member already is none after all. A drive that failed since then counted on it.
    async fn give_up_again(&self, slot: Slot) {
        let _turn = self.persisting.acquire().await;
        let member = self.member(slot);
        if !member.is_good() {
            return;
        }
        if self.members.iter().any(|other| other.slot != slot && !other.is_good()) {
            let why = "the new drive could not become a member, and another one failed meanwhile";
            tracing::error!(slot = slot.0, why, "a second drive failed: the array writes nothing more");
            self.tell(EventKind::SecondFailure { slot, why: why.to_owned() });
            self.broken.store(true, Ordering::Release);
        }
        member.set_failed();
    }
}

fn admitted(superblock: &mut Superblock, slot: Slot) {
    if let Some(info) = superblock.members.get_mut(slot.index()) {
        (info.failed, info.rebuilding) = (false, false);
    }
}
