//! The log roll: the metadata log begins again with a snapshot of the state, in other zones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Action, Durability};

use crate::background::BackgroundTask;
use crate::device;
use crate::error::{Error, Result};
use crate::metadata::chain::{Chain, SpareZones};
use crate::metadata::format::header::Header;
use crate::metadata::format::record::Record;
use crate::metadata::log::{MetadataLog, no_room};

/// The task that rolls the metadata log beside its commits.
async fn roll_task(_task: BackgroundTask, log: Arc<MetadataLog>, epoch: u64) {
    if let Err(error) = log.roll(epoch).await {
        tracing::error!(%error, "rolling the metadata log failed");
    }
    log.rolling.store(false, Ordering::Release);
}

impl MetadataLog {
    pub(super) fn roll_in_background(&self) {
        if self.rolling.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(log) = self.me.upgrade() else { return };
        let epoch = self.position.lock().0.epoch();
        self.driver().spawn("roll", Box::pin(roll_task(self.background.begin(), log, epoch)));
    }

    /// Rolls the metadata log: writes a snapshot into empty zones and continues the log there. Commits
    /// continue meanwhile. Does nothing if the log has left epoch `seen` already.
    pub(crate) async fn roll(&self, seen: u64) -> Result<()> {
        let _roll = self.roll_turn.acquire().await;
        if self.position.lock().0.epoch() != seen || self.is_closed() {
            return Ok(());
        }
        self.check()?;
        self.roll_now().await.map_err(|e| {
            self.state.lock().journal.since_snapshot = None;
            self.fail(e)
        })
    }

    /// Waits for a metadata roll under way. Once this call has returned and the log is closed, no roll
    /// begins.
    pub(crate) async fn wait_for_roll(&self) {
        drop(self.roll_turn.acquire().await);
    }

    async fn roll_now(&self) -> Result<()> {
        let mut turn = Some(self.turn.acquire().await);
        let mut spare = std::mem::take(&mut self.position.lock().1);
        if self.one_open {
            // Only one metadata zone may be open: commits wait during the roll, and the old zone is finished.
            let old = self.position.lock().0.last_zone();
            let finished = self.device.zone(old, Action::Finish).await;
            finished.map_err(|e| Error::device("finishing a metadata zone", e))?;
        } else {
            turn = None;
        }
        let Some(first) = spare.take(&self.device).await? else { return Err(no_room()) };
        let epoch = {
            let mut max = self.max_epoch.lock();
            *max += 1;
            *max
        };
        let (uuid, nonce) = (self.superblock.uuid, self.driver().random());
        let mut chain = Chain::begin(Header { uuid, epoch, nonce, index: 0, first_sequence: 0 }, first);
        let snapshot = {
            let mut state = self.state.lock();
            state.journal.since_snapshot = Some(Vec::new());
            state.snapshot()
        };
        self.write_records(&mut chain, &mut spare, snapshot.into(), Durability::Cached).await?;
        // Records committed since the snapshot are in the old chain, and are written to the new chain too.
        // From here on commits wait for the roll.
        if turn.is_none() {
            turn = Some(self.turn.acquire().await);
        }
        let (since, upto) = {
            let mut state = self.state.lock();
            state.journal.pending.clear();
            (state.journal.since_snapshot.take().unwrap_or_default(), state.journal.applied)
        };
        self.write_records(&mut chain, &mut spare, since.into(), Durability::Cached).await?;
        device::flush(&self.device, "flushing a snapshot").await?;
        chain.flushed();
        let end = VecDeque::from([Record::End { count: chain.sequence() }]);
        self.write_records(&mut chain, &mut spare, end, Durability::Durable).await?;
        let (clean, mut dirty): (VecDeque<_>, VecDeque<_>) =
            spare.zones.into_iter().partition(|(_, dirty)| !dirty);
        let old = std::mem::replace(&mut *self.position.lock(), (chain, SpareZones { zones: clean }));
        self.state.lock().journal.durable = upto;
        drop(turn);
        // From here on nothing needs the metadata zones of the old chain.
        dirty.extend(old.0.zones().iter().map(|zone| (*zone, true)));
        let resets = dirty.iter().map(|(zone, _)| self.device.zone(*zone, Action::Reset)).collect();
        for reset in zoned::join_all(resets).await {
            reset.map_err(|e| Error::device("resetting a metadata zone", e))?;
        }
        let _turn = self.turn.acquire().await;
        let zones = &mut self.position.lock().1.zones;
        zones.extend(dirty.into_iter().map(|(zone, _)| (zone, false)));
        self.work.notify();
        Ok(())
    }

    async fn write_records(
        &self,
        chain: &mut Chain,
        spare: &mut SpareZones,
        mut records: VecDeque<Record>,
        how: Durability,
    ) -> Result<()> {
        while !records.is_empty() {
            if chain.write(&self.device, &mut records, how).await? == 0 {
                let Some(zone) = spare.take(&self.device).await? else { return Err(no_room()) };
                chain.extend(zone);
            }
        }
        Ok(())
    }
}
