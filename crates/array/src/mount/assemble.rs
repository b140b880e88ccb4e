//! Assembling an array: from what a mount finds (`mount`), every zone decided and repaired, and a checkpoint of the new
//! epoch on every drive before the first operation is taken.
//!
//! What a crash of this does: the old epoch's records stay until the new epoch is whole on all drives, and count
//! until then. Repairs only ever state what lies on the drives, so that doing them again does no harm.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use parking_lot::Mutex;
use units::sync::Turnstile;
use zoned::{
    Action, Blocks, BufMut, Driver, Durability, Error, ErrorKind, Geometry, Io, Op, Resources, Result,
    ZoneId, ZoneState, ZonedDevice,
};

use crate::OpenOptions;
use crate::background::jobs::Jobs;
use crate::background::rebuild::Candidate;
use crate::background::runner::Watch;
use crate::core::{Core, Place};
use crate::events::Bus;
use crate::format::record::Body;
use crate::format::superblock::{self, LOST_ROWS, Limits, Superblock};
use crate::format::zone_entries::ZoneEntry;
use crate::io::action::HIGH_GENERATION;
use crate::io::write::Children;
use crate::layout::Slot;
use crate::member::{Log, METADATA_ZONES, Member};
use crate::metrics::Tally;
use crate::mount::decide::{Child, Decision, Verdict};
use crate::mount::gather::{Mount, Present};
use crate::mount::resync::{Repair, Repaired};
use crate::mount::unusable::{self, OfDrive, Stopped, all_of};
use crate::mount::zone_rewrite;
use crate::zone::Zone;

/// The longest read or write of an array, in bytes.
pub(crate) const MAX_TRANSFER: u64 = 8 << 20;
/// The longest append of an array, in bytes; a stripe where that is longer.
const MAX_APPEND: u64 = 1 << 20;

/// An array of zoned drives.
#[derive(Debug)]
pub struct Array {
    pub(crate) core: Arc<Core>,
}

impl ZonedDevice for Array {
    fn geometry(&self) -> &Geometry {
        &self.core.geometry
    }

    fn submit(&self, op: Op) -> Io {
        self.core.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.core.driver
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let superblock = self.superblock();
        let failed = superblock.members.iter().filter(|member| member.failed).count();
        vec![
            ("array", superblock.uuid.to_string()),
            ("label", superblock.label),
            ("drives", format!("{} ({failed} failed)", superblock.members.len())),
            ("stripe unit", format!("{} blocks", superblock.unit)),
        ]
    }
}

impl Array {
    /// Assembles the array that `devices` are members of, in any order. One drive may be missing, or fail what is asked
    /// of it here: it counts as failed from then on, which is durable on the others before anything is done without it.
    ///
    /// Errors: [`ErrorKind::NotFound`] where no drive is a member of an array, [`ErrorKind::Invalid`] where they are
    /// of several, [`ErrorKind::Gone`] where more than one is missing or failed; that of a drive where it is the second
    /// one; and one of the machine (no memory, say), for which no drive is failed.
    pub async fn open(devices: Vec<Arc<dyn ZonedDevice>>, options: OpenOptions) -> Result<Arc<Array>> {
        let (resume, rebuild) = (options.resume, options.rebuild);
        let (core, candidate) = unusable::assemble(devices, options).await?;
        if let Some(candidate) = candidate.filter(|_| resume)
            && let Err(error) = core.resume(candidate, rebuild)
        {
            // The array does without it, as it did.
            tracing::warn!(%error, "the rebuild does not go on");
        }
        Ok(Arc::new(Array { core }))
    }

    /// The newest superblock: what the array is like, and which drives failed.
    pub fn superblock(&self) -> Superblock {
        self.core.config.lock().clone()
    }

    /// Whether a second drive failed: nothing is written any more.
    pub fn is_broken(&self) -> bool {
        self.core.is_broken()
    }
}

impl Drop for Array {
    /// A rebuild or a scrub ends soon. A rebuild goes on when the array is opened again.
    fn drop(&mut self) {
        self.core.jobs.stop();
    }
}

impl Mount {
    /// Gives the new drive too whose rebuild is to go on.
    pub(crate) async fn start(mut self) -> Result<(Arc<Core>, Option<Candidate>), Stopped> {
        self.persist_loss().await?;
        let candidate = self.candidate.take();
        Ok((self.assemble().await?, candidate))
    }

    async fn assemble(mut self) -> Result<Arc<Core>, Stopped> {
        self.finish_swaps().await?;
        let mut zones = Vec::with_capacity(self.superblock.zones as usize);
        // What a new drive holds already is known by generations.
        let restart = !self.superblock.members.iter().any(|member| member.rebuilding);
        let mut finish = BTreeSet::new();
        let (mut lost, mut lost_zones) = (Vec::new(), Vec::new());
        for id in (0..self.superblock.zones).map(ZoneId) {
            let (entry, decision) = self.decide(id);
            let worn = self.worn(id);
            // An empty zone's next life differs from every one that a stale record may be of.
            let fresh = entry.generation.saturating_add(1);
            let mut zone = match decision.verdict {
                _ if self.loses(id, &entry, &decision) => {
                    tracing::error!(zone = id.0, "two drives lack their part of the zone: it is lost");
                    // Also when both are replaced, until it is reset: new drives have nothing of it.
                    lost_zones.push(id);
                    Zone::new(ZoneState::Offline, entry.generation, Blocks::ZERO, BufMut::default())
                }
                Verdict::Empty if !worn => {
                    Zone::new(ZoneState::Empty, fresh, Blocks::ZERO, BufMut::default())
                }
                Verdict::Reset if !worn => {
                    self.reset(id).await?;
                    Zone::new(ZoneState::Empty, fresh.saturating_add(1), Blocks::ZERO, BufMut::default())
                }
                _ => {
                    let (mut zone, rows) = self.restore(id, entry, decision, worn).await?;
                    // It holds nothing, and the worn part keeps it from being reset: what else lies there must not come back
                    // when that part's drive is lost, or replaced.
                    zone.resetting = decision.verdict == Verdict::Reset;
                    lost.push((id, rows));
                    zone
                }
            };
            if zone.generation >= HIGH_GENERATION && restart {
                // Records of the epoch that begins are compared with each other only: nothing older counts.
                zone.generation = 1;
            }
            if zone.state == ZoneState::Full {
                finish.insert(id);
            }
            zones.push(zone);
        }
        self.flush().await?;
        let targets = self.targets().await?;
        let core = Arc::new(self.core(zones, &targets).of_none()?);
        for (id, rows) in lost {
            core.members.iter().zip(rows).for_each(|(member, rows)| member.lost.set(id, rows));
        }
        zone_rewrite::end_torn_zones(&core);
        checkpoint(&core).await?;
        // The new epoch is whole everywhere: what the old one left goes.
        for (slot, (present, target)) in (0..).map(Slot).zip(self.present.iter().zip(&targets)) {
            let (Some(present), Some(target)) = (present, target) else { continue };
            for info in present.zones.iter().filter(|info| info.zone != *target) {
                // What a worn zone holds stays, and is of an older epoch.
                let worn = matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
                if info.state != ZoneState::Empty && !worn {
                    present.device.zone(info.zone, Action::Reset).await.of(slot)?;
                }
            }
            for id in &finish {
                let info = present.report.get(id.index());
                if info.is_some_and(|info| info.state != ZoneState::Full) {
                    present.device.zone(ZoneId(id.0 + METADATA_ZONES), Action::Finish).await.of(slot)?;
                }
            }
        }
        self.finish_lost(&lost_zones).await?;
        self.flush().await?;
        zone_rewrite::rebuild_zones(&core, self.options.rebuild_above).await.of_none()?;
        Ok(core)
    }

    /// Brings rebuilds of physical zones to an end that a crash cut short: their content is in the copy.
    async fn finish_swaps(&mut self) -> Result<(), Stopped> {
        let (epoch, block) = (self.epoch, self.superblock.block_size);
        for (slot, present) in (0..).map(Slot).zip(&mut self.present) {
            let Some(present) = present else { continue };
            let Some(told) = present.tale.epochs.get_mut(&epoch) else { continue };
            for (id, copy) in told.swaps.clone() {
                zone_rewrite::copy_back(&present.device, block, id, copy.rows, copy.swap, copy.mask)
                    .await
                    .of(slot)?;
                told.rebuilt(id, copy);
                // The copy counts until the new epoch does.
                told.zones.insert(copy.swap);
                let number = METADATA_ZONES + id.0;
                let info = present.device.report(number..number + 1).await.of(slot)?;
                if let (Some(place), Some(info)) = (present.report.get_mut(id.index()), info.first()) {
                    *place = *info;
                }
            }
        }
        Ok(())
    }

    /// Finishes a reset: all physical zones.
    async fn reset(&self, id: ZoneId) -> Result<(), Stopped> {
        for (slot, present) in self.members() {
            let info = present.report.get(id.index());
            if info.is_some_and(|info| info.state != ZoneState::Empty) {
                present.device.zone(ZoneId(id.0 + METADATA_ZONES), Action::Reset).await.of(slot)?;
            }
        }
        Ok(())
    }

    /// Looks at the stripes of a zone that may have been in flight, and makes their parity fit.
    /// Gives the lost rows of each drive's part too.
    async fn restore(
        &self,
        id: ZoneId,
        entry: ZoneEntry,
        decision: Decision,
        worn: bool,
    ) -> Result<(Zone, Vec<Vec<Range<u64>>>), Stopped> {
        let devices = self.present.iter().map(|p| p.as_ref().map(|p| Arc::clone(&p.device))).collect();
        let children = (0..self.layout.drives).map(|slot| self.child(Slot(slot), id)).collect();
        let (patches, relocated) = self.relocations(id, entry.generation);
        let repair = Repair {
            layout: self.layout,
            block_size: self.superblock.block_size,
            zone: id,
            devices,
            children,
            relocated,
            patches,
            partials: self.partials(id, entry.generation),
            lost: self.lost_rows(id, entry.generation),
            sabotage: self.options.sabotage,
        };
        let old = self.superblock.incompat & superblock::RELOCATION == 0;
        let verdict = match decision.verdict {
            _ if worn => Verdict::Full,
            Verdict::Hide if old => Verdict::Full,
            verdict => verdict,
        };
        let repaired = repair.run(&decision, verdict).await?;
        let Repaired { parity, relocated, mut patches, children, lost, verdict, torn } = repaired;
        let pointer = decision.pointer;
        for (slot, child) in (0..).map(Slot).zip(&children) {
            let used = self.layout.used(id, slot, pointer);
            match child {
                Child::Missing => patches.forget(slot),
                Child::At(row) if matches!(verdict, Verdict::Open | Verdict::Hide) => {
                    patches.cut(self.superblock.block_size as usize, slot, used, *row);
                }
                // Nothing is written there any more.
                Child::At(_) | Child::Full => {
                    patches.cut(self.superblock.block_size as usize, slot, used, used);
                }
            }
        }
        let state = match verdict {
            _ if worn => ZoneState::ReadOnly,
            Verdict::Full | Verdict::Known => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        let full = state == ZoneState::Full;
        let mut zone = Zone::new(state, entry.generation, pointer, parity);
        if full || worn {
            zone.end = Some(pointer);
        }
        if full {
            zone.pointer = self.layout.capacity();
        }
        zone.relocated = relocated;
        // All below a recorded end was durable when it was recorded.
        zone.torn = torn.filter(|_| (full || worn) && decision.verdict != Verdict::Known);
        zone.patches = patches;
        Ok((zone, lost))
    }

    /// The drives that are there.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Slot, &Present)> {
        (0..).map(Slot).zip(&self.present).filter_map(|(slot, present)| Some((slot, present.as_ref()?)))
    }

    async fn flush(&self) -> Result<(), Stopped> {
        let mut flushes = Children::default();
        self.members().for_each(|(slot, present)| flushes.push(slot, Some(present.device.flush())));
        all_of(flushes.join().await)
    }

    /// The metadata zone of each drive that takes the next checkpoint: one without records that count.
    async fn targets(&self) -> Result<Vec<Option<ZoneId>>, Stopped> {
        let mut targets = Vec::new();
        for (slot, present) in (0..).map(Slot).zip(&self.present) {
            let Some(present) = present else {
                targets.push(None);
                continue;
            };
            if let Some((zone, _)) = present.begun {
                targets.push(Some(zone));
                continue;
            }
            let Some(info) = present.free(self.epoch) else {
                let error = Error::new(ErrorKind::Damaged, &self.name, "open");
                return Err(error.because(format!("drive {} has no free metadata zone", slot.0))).of(slot);
            };
            if info.state != ZoneState::Empty {
                present.device.zone(info.zone, Action::Reset).await.of(slot)?;
                present.device.flush().await.of(slot)?;
            }
            targets.push(Some(info.zone));
        }
        Ok(targets)
    }

    fn core(&mut self, mut zones: Vec<Zone>, targets: &[Option<ZoneId>]) -> Result<Core> {
        let geometry = self.geometry()?;
        if self.superblock.limits.is_none() && self.present.iter().all(Option::is_some) {
            let Geometry { max_open, max_active, .. } = geometry;
            self.superblock.limits = Some(Limits { max_open, max_active });
            self.superblock.config += 1;
        }
        if self.superblock.incompat & LOST_ROWS == 0 {
            // From now on what is lost may be recorded: older builds would take it for what is there.
            self.superblock.incompat |= LOST_ROWS;
            self.superblock.config += 1;
        }
        let tally: Arc<Tally> = Arc::default();
        let mut limits = Resources::default();
        for (id, zone) in (0..).map(ZoneId).zip(&mut zones) {
            // Nobody writes to a worn zone, or closes it: its parts on other drives stay active. Those of a lost one do not.
            zone.worn_active = zone.state == ZoneState::ReadOnly && self.is_active(id);
            limits.moved(id, ZoneState::Empty, if zone.worn_active { ZoneState::Closed } else { zone.state });
        }
        let member = |(slot, (present, target)): (Slot, (&Option<Present>, &Option<ZoneId>))| {
            let capacity = present.as_ref().map_or(0, |p| p.device.geometry().zone_capacity.0);
            let log = Log {
                array: self.superblock.uuid,
                epoch: self.next,
                sequence: present.as_ref().map_or(0, |p| p.tale.sequence + 1),
                zone: target.unwrap_or_default(),
                pointer: present.as_ref().and_then(|p| p.begun).map_or(0, |(_, blocks)| blocks),
                capacity,
                reserved: 0,
                rolling: false,
                waiting: Vec::new(),
                life: 0,
            };
            Member::new(slot, present.as_ref().map(|p| Arc::clone(&p.device)), log, Arc::clone(&tally))
        };
        let driver = self.present.iter().flatten().next().expect("at least two").device.driver();
        Ok(Core {
            geometry,
            layout: self.layout,
            driver: Arc::clone(driver),
            members: (0..).map(Slot).zip(self.present.iter().zip(targets)).map(member).collect(),
            zones: zones.into_iter().map(|zone| Place(Mutex::new(zone))).collect(),
            limits: Mutex::new(limits),
            config: Mutex::new(self.superblock.clone()),
            persisting: Turnstile::new(),
            unpersisted: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            filled: Mutex::default(),
            sabotage: self.options.sabotage,
            tally,
            events: Bus::default(),
            jobs: Jobs::default(),
            watch: Watch::default(),
            mending: Turnstile::new(),
            worn: Mutex::new(self.worn_zones()),
        })
    }

    fn geometry(&self) -> Result<Geometry> {
        let block = u64::from(self.superblock.block_size);
        let all = || self.present.iter().flatten().map(|p| p.device.geometry());
        // The same with any drive missing.
        let limits = self.superblock.limits.unwrap_or_else(|| Limits::of(all(), METADATA_ZONES));
        let stripe = self.layout.unit * self.layout.data_units();
        let capacity = self.layout.capacity();
        let most = |bytes: u64| Blocks((bytes / block).max(stripe)).min(capacity);
        Ok(Geometry {
            name: Arc::clone(&self.name),
            block_size: self.superblock.block_size,
            zones: self.superblock.zones,
            conventional: 0,
            zone_size: Blocks(self.superblock.zone_size.0 * self.layout.data_units()),
            zone_capacity: capacity,
            max_open: limits.max_open,
            max_active: limits.max_active,
            max_append: most(MAX_APPEND),
            max_transfer: most(MAX_TRANSFER),
            atomic_write: Blocks(1),
            optimal_write: Blocks(stripe).min(capacity),
            volatile_cache: all().any(|g| g.volatile_cache),
            ordered_cache: false,
            read_past_pointer: true,
        })
    }
}

/// Writes the first records of the epoch to every drive. The end of each comes when all the rest is durable on all.
async fn checkpoint(core: &Arc<Core>) -> Result<(), Stopped> {
    let superblock = Body::Superblock(core.config.lock().clone());
    let mut ios = Children::default();
    let (mut barriers, mut commits) = (Vec::new(), Vec::new());
    let full = |_| {
        let error =
            core.error(ErrorKind::ZoneFull, "open").because("the checkpoint does not fit a metadata zone");
        Stopped { slot: None, error }
    };
    for member in core.good() {
        ios.push(member.slot, member.append(&superblock, true, Durability::Cached).map_err(full)?);
        let (slot, life, mut records) = (member.slot, member.log.lock().life, Vec::new());
        core.write_checkpoint(slot, life, &mut records, &mut barriers, &mut commits).map_err(full)?;
        records.into_iter().for_each(|io| ios.push(slot, Some(io)));
    }
    debug_assert!(barriers.is_empty() && commits.is_empty(), "nothing is in flight yet");
    all_of(ios.join().await)?;
    let mut flushes = Children::default();
    core.good().for_each(|member| flushes.push(member.slot, member.flush()));
    all_of(flushes.join().await)?;
    let mut ends = Children::default();
    for member in core.good() {
        let end = member.append(&Body::CheckpointEnd, true, Durability::Durable).map_err(full)?;
        ends.push(member.slot, end);
    }
    all_of(ends.join().await)
}
