//! The metadata log of a mount: group commit of the records that the state queues. `roll` replaces the log by a snapshot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::Driver;
use units::sync::{Event, Turnstile};
use zoned::{Durability, ZonedDevice};

use crate::background::BackgroundTasks;
use crate::device;
use crate::error::{Error, ErrorKind, Result};
use crate::files::stat::Superblock;
use crate::metadata::chain::{Chain, SpareZones, zones_for_snapshot};
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::rules::Rules;

/// A metadata epoch longer than this, plus some snapshots, is rolled even if its zones have room: a mount
/// reads the whole epoch.
const LONG_EPOCH_BYTES: u64 = 64 << 20;
/// The factor by which a metadata epoch may be longer than its snapshot.
const MAX_EPOCH_PER_SNAPSHOT: u64 = 4;
/// Number of queued metadata records at which the cleaner commits them.
pub(crate) const MAX_PENDING_RECORDS: usize = 4096;
/// Number of queued metadata records at which a caller that adds one waits for a commit.
const HARD_MAX_PENDING_RECORDS: usize = 2 * MAX_PENDING_RECORDS;

/// The writing end of the metadata log.
#[derive(Debug)]
pub(crate) struct MetadataLog {
    pub(super) me: Weak<MetadataLog>,
    pub(super) device: Arc<dyn ZonedDevice>,
    pub(super) superblock: Superblock,
    pub(super) rules: Rules,
    /// True if the device allows too few open zones for two metadata zones.
    pub(super) one_open: bool,
    pub(super) state: Arc<Mutex<State>>,
    /// Wakes the mount's background tasks.
    pub(super) work: Event,
    pub(super) background: BackgroundTasks,
    closed: AtomicBool,
    /// Held while a metadata commit is written. Callers that wait for the turn then find their records
    /// durable.
    pub(super) turn: Turnstile,
    /// Held during a roll.
    pub(super) roll_turn: Turnstile,
    pub(super) rolling: AtomicBool,
    pub(super) position: Mutex<(Chain, SpareZones)>,
    /// The error that ended all writing of metadata.
    failed: Mutex<Option<Error>>,
    /// The highest metadata epoch seen or used.
    pub(super) max_epoch: Mutex<u64>,
}

/// The end of the metadata log, as a mount found it.
#[derive(Debug)]
pub(crate) struct MetadataLogEnd {
    pub chain: Chain,
    pub spare: SpareZones,
    pub max_epoch: u64,
}

impl MetadataLog {
    /// The metadata log on `device` that ends with `end`. `one_open`: at most one metadata zone may be open.
    pub(crate) fn new(
        device: Arc<dyn ZonedDevice>,
        superblock: Superblock,
        rules: Rules,
        one_open: bool,
        (state, work, background): (Arc<Mutex<State>>, Event, BackgroundTasks),
        end: MetadataLogEnd,
    ) -> Arc<MetadataLog> {
        Arc::new_cyclic(|me| MetadataLog {
            me: me.clone(),
            device,
            superblock,
            rules,
            one_open,
            state,
            work,
            background,
            closed: AtomicBool::new(false),
            turn: Turnstile::new(),
            roll_turn: Turnstile::new(),
            rolling: AtomicBool::new(false),
            position: Mutex::new((end.chain, end.spare)),
            failed: Mutex::new(None),
            max_epoch: Mutex::new(end.max_epoch),
        })
    }

    pub(super) fn driver(&self) -> &Arc<dyn Driver> {
        self.device.driver()
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

    pub(super) fn fail(&self, error: Error) -> Error {
        tracing::error!(%error, "a metadata write failed: the file system is read-only now");
        self.failed.lock().get_or_insert(error).clone()
    }

    /// Ends the metadata log: the file system is unmounted.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Fails after an unmount.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "using a file system").because("it was unmounted"));
        }
        Ok(())
    }

    /// The zones of the metadata chain, for the zone map.
    pub(crate) fn chain(&self) -> Chain {
        self.position.lock().0.clone()
    }

    /// Makes every metadata record applied so far durable. Concurrent callers share one write.
    pub(crate) async fn commit_all(&self) -> Result<()> {
        let upto = self.state.lock().journal.applied;
        self.commit_upto(upto).await
    }

    /// Makes the first `upto` metadata records durable.
    pub(crate) async fn commit_upto(&self, upto: u64) -> Result<()> {
        while self.state.lock().journal.durable < upto {
            self.check()?;
            let turn = self.turn.acquire().await;
            if self.state.lock().journal.durable >= upto {
                return Ok(());
            }
            self.check()?;
            let written = self.commit_pending().await.map_err(|e| self.fail(e))?;
            drop(turn);
            if !written {
                self.check_open()?;
                let epoch = self.position.lock().0.epoch();
                self.roll(epoch).await?;
            }
        }
        Ok(())
    }

    /// Waits for a commit if too many metadata records are queued.
    pub(crate) async fn bound_pending(&self) -> Result<()> {
        let pending = self.state.lock().journal.pending.len();
        if pending > HARD_MAX_PENDING_RECORDS {
            return self.commit_all().await;
        }
        if pending > MAX_PENDING_RECORDS {
            self.work.notify();
        }
        Ok(())
    }

    /// Writes the queued metadata records. The caller holds the commit turn. Returns false where a roll must
    /// make room first.
    async fn commit_pending(&self) -> Result<bool> {
        let (mut records, needs_flush) = {
            let mut state = self.state.lock();
            let records = std::mem::take(&mut state.journal.pending);
            let needs_flush = records.iter().any(Record::points_to_data);
            (records, needs_flush)
        };
        let broken = self.rules.skips_flushes();
        let (mut chain, mut spare) = self.position.lock().clone();
        let result = async {
            if needs_flush && !broken {
                // File data is made durable before the metadata that points to the data.
                device::flush(&self.device, "flushing data before metadata").await?;
            }
            let how = if broken { Durability::Cached } else { Durability::Durable };
            while !records.is_empty() {
                let written = chain.write(&self.device, &mut records, how).await?;
                if written > 0 {
                    self.state.lock().journal.durable += written;
                } else if spare.zones.len() as u64 > self.zones_that_a_roll_may_take() {
                    let Some(zone) = spare.take(&self.device).await? else { return Ok(false) };
                    chain.extend(zone);
                } else {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .await;
        {
            // Metadata records that were not written go back to the front of the queue.
            let mut state = self.state.lock();
            records.append(&mut state.journal.pending);
            state.journal.pending = records;
        }
        let geometry = self.device.geometry();
        let room = chain.blocks_left(&self.device);
        let long = chain.blocks(&self.device) * u64::from(geometry.block_size)
            > LONG_EPOCH_BYTES + MAX_EPOCH_PER_SNAPSHOT * self.state.lock().snapshot_bytes();
        let spare_left = spare.zones.len() as u64;
        *self.position.lock() = (chain, spare);
        if matches!(result, Ok(true)) {
            if self.state.lock().allocator.table.has_dead() {
                self.work.notify();
            }
            let half = geometry.zone_capacity.0 / 2;
            let nearly_full =
                room < half && spare_left <= self.zones_that_a_roll_may_take() && !self.one_open;
            if nearly_full || long {
                self.roll_in_background();
            }
        }
        result
    }

    /// Metadata zones that a roll may take now.
    fn zones_that_a_roll_may_take(&self) -> u64 {
        let bytes = self.state.lock().snapshot_bytes();
        zones_for_snapshot(self.device.geometry(), bytes)
    }

    /// Fails if the metadata zones could no longer hold two snapshots of the state and `more` further bytes.
    pub(crate) fn check_room(&self, state: &State, more: u64) -> Result<()> {
        let need = zones_for_snapshot(self.device.geometry(), state.snapshot_bytes() + more);
        if 2 * need <= u64::from(self.superblock.metadata_zones) {
            return Ok(());
        }
        Err(no_room())
    }
}

pub(super) fn no_room() -> Error {
    Error::new(ErrorKind::NoSpace, "writing a metadata snapshot")
        .because("the metadata zones are too few for this many files; format with more metadata zones")
}
