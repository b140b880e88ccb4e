//! The metadata log at run time: group commit, and the roll to a new snapshot.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use units::sync::Turnstile;
use zoned::{Action, Durability, Geometry};

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::chain::{Chain, Spare};
use crate::metadata::format::header::Header;
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::shared::Shared;

/// An epoch longer than this, and than some snapshots, is rolled though its zones have room: a mount reads it all.
const LONG_EPOCH: u64 = 64 << 20;
/// How many times as long as a snapshot an epoch may be.
const SNAPSHOTS: u64 = 4;

/// The writing end of the metadata log.
#[derive(Debug)]
pub(crate) struct Meta {
    /// Held while a commit is written: the others wait and find theirs done.
    turn: Turnstile,
    /// Held during a roll.
    roll_turn: Turnstile,
    rolling: AtomicBool,
    position: Mutex<(Chain, Spare)>,
    /// Why nothing can be written any more.
    failed: Mutex<Option<Error>>,
    /// The highest epoch seen or used.
    max_epoch: Mutex<u64>,
}

impl Meta {
    /// A log that ends with `chain`.
    pub(crate) fn new(chain: Chain, spare: Spare, max_epoch: u64) -> Meta {
        Meta {
            turn: Turnstile::new(),
            roll_turn: Turnstile::new(),
            rolling: AtomicBool::new(false),
            position: Mutex::new((chain, spare)),
            failed: Mutex::new(None),
            max_epoch: Mutex::new(max_epoch),
        }
    }

    /// Fails once a metadata write has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failed.lock() {
            None => Ok(()),
            Some(cause) => Err(Error::new(ErrorKind::ReadOnly, "changing the file system")
                .because("a metadata write failed; unmount, check the device, mount again")
                .caused_by(cause.clone())),
        }
    }

    fn fail(&self, error: Error) -> Error {
        tracing::error!(%error, "a metadata write failed: the file system is read-only now");
        self.failed.lock().get_or_insert(error).clone()
    }

    /// The zones of the chain, for the zone map.
    pub(crate) fn chain(&self) -> Chain {
        self.position.lock().0.clone()
    }
}

impl Shared {
    /// Makes every record applied so far durable. Concurrent callers share one write.
    pub(crate) async fn commit_all(&self) -> Result<()> {
        let upto = self.state.lock().journal.applied;
        self.commit_upto(upto).await
    }

    /// Makes the first `upto` records durable.
    pub(crate) async fn commit_upto(&self, upto: u64) -> Result<()> {
        while self.state.lock().journal.durable < upto {
            self.meta.check()?;
            let turn = self.meta.turn.acquire().await;
            if self.state.lock().journal.durable >= upto {
                return Ok(());
            }
            self.meta.check()?;
            let written = self.commit_pending().await.map_err(|e| self.meta.fail(e))?;
            drop(turn);
            if !written {
                self.check_open()?;
                let epoch = self.meta.position.lock().0.epoch();
                self.roll(epoch).await?;
            }
        }
        Ok(())
    }

    /// Writes what is pending; the caller has the turn. False where a roll must make room first.
    async fn commit_pending(&self) -> Result<bool> {
        let (mut records, needs_flush) = {
            let mut state = self.state.lock();
            let records = std::mem::take(&mut state.journal.pending);
            let needs_flush = records.iter().any(Record::points_to_data);
            (records, needs_flush)
        };
        let broken = self.options.rules().skips_flushes();
        let (mut chain, mut spare) = self.meta.position.lock().clone();
        let result = async {
            if needs_flush && !broken {
                // Data before the metadata that points to it.
                self.flush_device("flushing data before metadata").await?;
            }
            let how = if broken { Durability::Cached } else { Durability::Durable };
            while !records.is_empty() {
                let written = chain.write(&self.dev, &mut records, how).await?;
                if written > 0 {
                    self.state.lock().journal.durable += written;
                } else if spare.zones.len() as u64 > self.zones_for_roll() {
                    let Some(zone) = spare.take(&self.dev).await? else { return Ok(false) };
                    chain.extend(zone);
                } else {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .await;
        {
            // What was not written goes back in front of what came meanwhile.
            let mut state = self.state.lock();
            records.append(&mut state.journal.pending);
            state.journal.pending = records;
        }
        let room = chain.room(&self.dev);
        let long = chain.blocks(&self.dev) * self.block()
            > LONG_EPOCH + SNAPSHOTS * self.state.lock().snapshot_bytes();
        let spare_left = spare.zones.len() as u64;
        *self.meta.position.lock() = (chain, spare);
        if matches!(result, Ok(true)) {
            if self.state.lock().zones.has_dead() {
                self.kick_cleaner();
            }
            let half = self.dev.geometry().zone_capacity.0 / 2;
            let nearly_full = room < half && spare_left <= self.zones_for_roll() && !self.tight;
            if nearly_full || long {
                self.roll_in_background();
            }
        }
        result
    }

    /// Zones that a roll may take now: the snapshot with a margin, and what is committed meanwhile.
    fn zones_for_roll(&self) -> u64 {
        let bytes = self.state.lock().snapshot_bytes();
        zones_for_roll(self.dev.geometry(), bytes)
    }

    /// Fails when the metadata zones could not hold two snapshots of `more` further bytes any more.
    pub(crate) fn check_metadata_room(&self, state: &State, more: u64) -> Result<()> {
        let need = zones_for_roll(self.dev.geometry(), state.snapshot_bytes() + more);
        if 2 * need <= u64::from(self.superblock.metadata_zones) {
            return Ok(());
        }
        Err(no_room())
    }

    fn roll_in_background(&self) {
        if self.meta.rolling.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(shared) = self.me.upgrade() else { return };
        let epoch = self.meta.position.lock().0.epoch();
        self.driver.spawn(
            "roll",
            Box::pin(async move {
                if let Err(error) = shared.roll(epoch).await {
                    tracing::error!(%error, "rolling the metadata log failed");
                }
                shared.meta.rolling.store(false, Ordering::Release);
            }),
        );
    }

    /// Writes a snapshot into fresh zones and goes on there; commits go on meanwhile. Does nothing if the log
    /// has left epoch `seen` already.
    pub(crate) async fn roll(&self, seen: u64) -> Result<()> {
        let _roll = self.meta.roll_turn.acquire().await;
        if self.meta.position.lock().0.epoch() != seen || self.check_open().is_err() {
            return Ok(());
        }
        self.meta.check()?;
        self.roll_now().await.map_err(|e| {
            self.state.lock().journal.since_snapshot = None;
            self.meta.fail(e)
        })
    }

    /// Waits for a roll that is under way: after that, and once the mount is closed, there is none.
    pub(crate) async fn wait_for_roll(&self) {
        drop(self.meta.roll_turn.acquire().await);
    }

    async fn roll_now(&self) -> Result<()> {
        let mut turn = Some(self.meta.turn.acquire().await);
        let mut spare = std::mem::take(&mut self.meta.position.lock().1);
        if self.tight {
            // Two open metadata zones are one too many here: commits wait, and the old zone is finished.
            let old = self.meta.position.lock().0.last_zone();
            let finished = self.dev.zone(old, Action::Finish).await;
            finished.map_err(|e| Error::device("finishing a metadata zone", e))?;
        } else {
            turn = None;
        }
        let Some(first) = spare.take(&self.dev).await? else { return Err(no_room()) };
        let epoch = {
            let mut max = self.meta.max_epoch.lock();
            *max += 1;
            *max
        };
        let header = Header {
            uuid: self.superblock.uuid,
            epoch,
            nonce: self.driver.random(),
            index: 0,
            first_sequence: 0,
        };
        let mut chain = Chain::begin(header, first);
        let snapshot = {
            let mut state = self.state.lock();
            state.journal.since_snapshot = Some(Vec::new());
            state.snapshot()
        };
        self.write_all(&mut chain, &mut spare, snapshot.into()).await?;
        // Both copies of the log get what was changed meanwhile; from here on commits wait.
        if turn.is_none() {
            turn = Some(self.meta.turn.acquire().await);
        }
        let (since, upto) = {
            let mut state = self.state.lock();
            state.journal.pending.clear();
            (state.journal.since_snapshot.take().unwrap_or_default(), state.journal.applied)
        };
        self.write_all(&mut chain, &mut spare, since.into()).await?;
        self.flush_device("flushing a snapshot").await?;
        chain.flushed();
        let end = VecDeque::from([Record::End { count: chain.sequence() }]);
        self.write_durable(&mut chain, &mut spare, end).await?;
        let (clean, mut dirty): (VecDeque<_>, VecDeque<_>) =
            spare.zones.into_iter().partition(|(_, dirty)| !dirty);
        let old = std::mem::replace(&mut *self.meta.position.lock(), (chain, Spare { zones: clean }));
        self.state.lock().journal.durable = upto;
        drop(turn);
        // Only now nothing needs the old zones any more.
        dirty.extend(old.0.zones().iter().map(|zone| (*zone, true)));
        let resets = dirty.iter().map(|(zone, _)| self.dev.zone(*zone, Action::Reset)).collect();
        for reset in zoned::join_all(resets).await {
            reset.map_err(|e| Error::device("resetting a metadata zone", e))?;
        }
        let _turn = self.meta.turn.acquire().await;
        let zones = &mut self.meta.position.lock().1.zones;
        zones.extend(dirty.into_iter().map(|(zone, _)| (zone, false)));
        self.kick_cleaner();
        Ok(())
    }

    async fn write_all(
        &self,
        chain: &mut Chain,
        spare: &mut Spare,
        mut records: VecDeque<Record>,
    ) -> Result<()> {
        while !records.is_empty() {
            if chain.write(&self.dev, &mut records, Durability::Cached).await? == 0 {
                let Some(zone) = spare.take(&self.dev).await? else { return Err(no_room()) };
                chain.extend(zone);
            }
        }
        Ok(())
    }

    async fn write_durable(
        &self,
        chain: &mut Chain,
        spare: &mut Spare,
        mut end: VecDeque<Record>,
    ) -> Result<()> {
        if chain.write(&self.dev, &mut end, Durability::Durable).await? == 0 {
            let Some(zone) = spare.take(&self.dev).await? else { return Err(no_room()) };
            chain.extend(zone);
            chain.write(&self.dev, &mut end, Durability::Durable).await?;
        }
        Ok(())
    }

    /// Flushes the device's cache, where it has one.
    pub(crate) async fn flush_device(&self, doing: &'static str) -> Result<()> {
        if !self.dev.geometry().volatile_cache {
            return Ok(());
        }
        self.dev.flush().await.map_err(|e| Error::device(doing, e))
    }
}

/// Zones that a snapshot of `bytes` takes with a margin, and one more for what is committed meanwhile.
pub(crate) fn zones_for_roll(geometry: &Geometry, bytes: u64) -> u64 {
    let zone = (geometry.zone_capacity.0.saturating_sub(1) * u64::from(geometry.block_size)).max(1);
    (bytes + bytes / 4).div_ceil(zone).max(1) + 1
}

fn no_room() -> Error {
    Error::new(ErrorKind::NoSpace, "writing a metadata snapshot")
        .because("the metadata zones are too few for this many files; format with more metadata zones")
}
