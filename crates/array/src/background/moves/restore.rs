//! Restoring lost parts: where an array has more drives than a stripe has units, the parts of a lost drive move to drives that have no
//! other part of their zones, at once and without a person (RAIZN+DP, section 5.2.5, names the layout and leaves the rebuild open).
//!
//! Parts of different zones move side by side, one at a time to each drive, so that all drives that work read and write
//! (`restore_choice`). At most one part of a zone moves at a time: each move continues the zone's map from its last version. The pace
//! is that of all moves together, and so is their memory ([`MAX_BYTES_IN_FLIGHT`]).
//!
//! Parts move as long as the drives that work keep enough free physical zones for every logical zone that is empty: the capacity that
//! `spare_drives` leaves free is used, never what clients were promised. At the end every log moves, so that each record that lost a
//! copy has its copies again. Then the superblocks call the drive *vacated*: the array lacks nothing of it, and one more may fail.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::Event;
use units::{Driver, sleep_until, spawn};
use zoned::{Error, Result, ZoneId, ZoneState};

use super::move_part::MovingPart;
use super::restore_choice::{Drive, LostPart, Rank, choose};
use super::{after_rebuild, must_end};
use crate::Pace;
use crate::array::Array;
use crate::background::job_runner::{CHUNK_BYTES_ALONE, Runner};
use crate::background::jobs::Job;
use crate::core::Core;
use crate::events::{EventKind, Events};
use crate::format::superblock::MemberInfo;
use crate::layout::{Role, Slot};

/// Bytes that all moves together read and write at a time, so that their memory is bounded. Eleven drives with stripes of five units
/// have six chunks of each move in flight, of which three reach 0.95 of their rate.
const MAX_BYTES_IN_FLIGHT: u64 = 192 << 20;
/// Moves of one part that may fail before the part stays lost: its target may wear out or fail, or a drive that is read.
const MAX_FAILED_MOVES: u32 = 3;

/// The time after which parts that could not be restored are tried again: a reset of zones may have freed room, or a part.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest time between two tries; each one takes twice as long as the last.
const LONGEST_RETRY: Duration = Duration::from_secs(256);

/// What a run of [`Array::restore_parts`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RestoredParts {
    /// Parts of lost drives that have a place on another drive now.
    pub moved: u32,
    /// Parts with content that are still lost: the other drives have no room, or the parts cannot be reconstructed.
    pub left: u32,
}

impl Array {
    /// Moves the parts of failed and missing drives to drives that have no other part of their zones, as far as these drives have
    /// spare room. The zones stay in use. The array does this by itself when a drive fails, and when it is opened without one.
    ///
    /// Errors: those of the logs. A part whose moves fail stays lost, and is counted. The moves go on if the future is dropped.
    pub async fn restore_parts(&self, pace: Pace) -> Result<RestoredParts> {
        pace.check(&self.core.ctx.geometry.name)?;
        let core = Arc::clone(&self.core);
        let run = async move { restore(&core, pace, false).await };
        spawn(&*self.core.ctx.driver, "restore parts", run).await
    }
}

/// True if lost parts may move to other drives: the array has spare room there.
pub(crate) fn has_room(core: &Core) -> bool {
    core.ctx.places.stored().is_some_and(|maps| maps.drives() > core.ctx.layout.width)
        && core.members.config.lock().spare_drives > 0
}

/// True if lost parts move to other drives now, or will soon.
pub(crate) fn is_due(core: &Core) -> bool {
    let jobs = &core.jobs;
    jobs.restores.load(Ordering::Acquire)
        && !must_end(core)
        && (jobs.restoring.load(Ordering::Acquire) || Restoration::default().next_move(core).is_some())
}

/// Starts the task that restores the parts of each drive that fails. The task ends with the array, and keeps no drive open while it
/// waits. Nothing is started for an array without spare room on other drives.
pub(crate) fn watch(core: &Arc<Core>, pace: Pace) {
    if !has_room(core) {
        return;
    }
    core.jobs.restores.store(true, Ordering::Release);
    let (events, watched) = (core.ctx.events.subscribe(), Arc::downgrade(core));
    let driver = Arc::clone(&core.ctx.driver);
    let task = async move {
        let (mut retry, mut announces) = (FIRST_RETRY, true);
        loop {
            let Some(core) = after_rebuild(&watched).await else { return };
            // A drive whose failure is being recorded counts as failed only afterwards.
            if core.members.failures_persisted("move a part").await.is_ok()
                && !core.members.lacking().is_empty()
                && core.jobs.running_rebuild().is_none()
                && let Err(error) = restore(&core, pace, announces).await
            {
                tracing::warn!(%error, "the parts of lost drives are not restored");
            }
            let is_over =
                core.members.lacking().is_empty() || core.members.is_broken() || core.jobs.is_closed();
            drop(core);
            let due = (!is_over).then_some(retry);
            match wait_for_change(&events, &*driver, due).await {
                Woken::Closed => return,
                Woken::Change => (retry, announces) = (FIRST_RETRY, true),
                Woken::Due => (retry, announces) = (LONGEST_RETRY.min(retry * 2), false),
            }
        }
    };
    drop(spawn(&*core.ctx.driver, "restore parts", task));
}

/// Why a wait ended.
enum Woken {
    /// The array is gone.
    Closed,
    /// A drive failed, or a rebuild ended: without a new drive, or with one that has room.
    Change,
    /// The time is over.
    Due,
}

/// Waits until a drive fails or a rebuild ends, for at most `time`.
async fn wait_for_change(events: &Events, driver: &dyn Driver, time: Option<Duration>) -> Woken {
    let mut change = pin!(async {
        loop {
            let Some(event) = events.next_until_closed().await else { return Woken::Closed };
            if matches!(
                event.kind,
                EventKind::DriveFailed { .. } | EventKind::RebuildEnded { .. } | EventKind::Dropped(_)
            ) {
                return Woken::Change;
            }
        }
    });
    let mut due = pin!(async {
        match time {
            Some(time) => sleep_until(driver, driver.now().after(time)).await,
            None => std::future::pending().await,
        }
    });
    std::future::poll_fn(|context| match change.as_mut().poll(context) {
        Poll::Ready(woken) => Poll::Ready(woken),
        Poll::Pending => due.as_mut().poll(context).map(|()| Woken::Due),
    })
    .await
}

/// Moves lost parts, as far as there is room, and vacates drives. `announces`: an event says when this is over, moves or not, so that an
/// idle spare is taken.
async fn restore(core: &Arc<Core>, pace: Pace, announces: bool) -> Result<RestoredParts> {
    let _one_run_at_a_time = core.jobs.restore_turn.acquire().await;
    let mut restoration = Restoration::default();
    let parts = count_lost_parts(core);
    let moves = restoration.next_move(core).is_some();
    if moves {
        core.jobs.restoring.store(true, Ordering::Release);
        core.ctx.publish(EventKind::RestoreStarted { parts });
        while restoration.moves_until_others_wait(core, pace).await {}
    }
    let moved = restoration.moved;
    let vacated = match core.members.is_broken() || core.jobs.is_closed() {
        true => Ok(()),
        false => vacate(core, moved > 0).await,
    };
    let left = count_lost_parts(core);
    core.jobs.restoring.store(false, Ordering::Release);
    if moves || announces {
        core.ctx.publish(EventKind::RestoreEnded { moved, left });
    }
    vacated.map(|()| RestoredParts { moved, left })
}

/// Moves all logs, so that each record that lost a copy has its copies again, and then records which failed drives the array needs
/// nothing of any more: no map of a zone names them. `moved`: parts have moved, so that the logs move in any case.
async fn vacate(core: &Arc<Core>, moved: bool) -> Result<()> {
    let works = |core: &Core| core.members.working_members().map(|member| member.slot).collect::<Vec<_>>();
    let before = works(core);
    // Zones that begin need as many drives that work as a stripe has units: none of them takes a part of a vacated drive.
    let mut vacant: Vec<Slot> = match has_room(core) && before.len() >= core.ctx.layout.width as usize {
        true => core.members.lacking().into_iter().map(|member| member.slot).collect(),
        false => Vec::new(),
    };
    let named = named_slots(core);
    vacant.retain(|slot| !named.contains(slot));
    vacant.iter().for_each(|slot| core.members.member(*slot).set_vacant(true));
    release_needed(core, &mut vacant);
    let renewed = match moved || !vacant.is_empty() {
        true => core.members.renew_logs(|| core.jobs.is_closed()).await,
        false => Ok(()),
    };
    // A zone that began before the slots were marked has its map by now.
    release_needed(core, &mut vacant);
    let mut recorded: Vec<Slot> = Vec::new();
    let published = match renewed {
        Ok(()) if !vacant.is_empty() && !core.jobs.is_closed() => {
            let publish = core.members.publish(|superblock| {
                // A drive that failed meanwhile took copies of records along. Failures and this record are written one after the other.
                for slot in vacant.iter().filter(|_| works(core) == before) {
                    // A slot whose new drive becomes a member takes parts of zones soon. A new drive that the superblocks name, and
                    // whose rebuild does not run, did not come back: if it does, its rebuild is one of a vacated slot.
                    let may_be = |info: &&mut MemberInfo| info.failed && !core.jobs.is_rebuilding(*slot);
                    if let Some(info) = superblock.members.get_mut(slot.index()).filter(may_be) {
                        info.vacated = true;
                        recorded.push(*slot);
                    }
                }
            });
            publish.await
        }
        result => result,
    };
    for slot in vacant {
        match recorded.contains(&slot) {
            true => tracing::info!(slot = slot.0, "the array lacks nothing of the failed drive any more"),
            false => core.members.member(slot).set_vacant(false),
        }
    }
    published
}

/// Takes the drives out of `vacant` of which a zone has a part; zones may take parts there again.
fn release_needed(core: &Core, vacant: &mut Vec<Slot>) {
    let named = named_slots(core);
    vacant.retain(|slot| {
        let is_needed = named.contains(slot);
        if is_needed {
            core.members.member(*slot).set_vacant(false);
        }
        !is_needed
    });
}

/// The drives that a zone has a part of. A zone whose content is lost counts as one without parts. A reset takes the zone's map away
/// before the reset is durable; the checkpoints of the logs, which move afterwards, hold the zone's new generation.
fn named_slots(core: &Core) -> BTreeSet<Slot> {
    let mut named = BTreeSet::new();
    for id in core.zones.ids() {
        let is_lost = {
            let zone = core.zones.zone(id);
            zone.state == ZoneState::Offline && !zone.resetting
        };
        if !is_lost {
            named.extend(core.ctx.layout.roles().filter_map(|role| core.ctx.places.slot(id, role)));
        }
    }
    named
}

/// The moves of lost parts to the spare room of other drives.
#[derive(Default)]
struct Restoration {
    /// Moves under way.
    running: Vec<RunningMove>,
    ended: EndedMoves,
    /// How many moves of a part failed.
    failed: BTreeMap<(ZoneId, Role), u32>,
    moved: u32,
}

/// The move of a lost part under way.
struct RunningMove {
    zone: ZoneId,
    role: Role,
    to: Slot,
    /// The drives that the move reads.
    reads: Vec<Slot>,
}

/// The zone of a move that has ended, and the result.
type MoveResult = (ZoneId, Result<bool>);

/// The results of moves that have ended.
#[derive(Clone, Default)]
struct EndedMoves {
    results: Arc<Mutex<Vec<MoveResult>>>,
    changed: Event,
}

impl Restoration {
    /// Moves lost parts side by side, until no part is left that can be moved, or another job waits for the lock of the places. False
    /// if no more parts are to be moved. No move is under way when this returns.
    async fn moves_until_others_wait(&mut self, core: &Arc<Core>, pace: Pace) -> bool {
        let _places_change = core.jobs.places.acquire().await;
        let job = Job::new(None, &core.ctx.driver);
        if must_end(core) || !core.jobs.begin_move(&job) {
            return false;
        }
        let runner = Runner::new(core, &job, pace);
        self.begin_moves(&runner).await;
        let mut others_wait = false;
        while !self.running.is_empty() {
            let seen = self.ended.changed.version();
            self.take_results(core);
            others_wait = core.jobs.places.has_waiters();
            if !others_wait {
                self.begin_moves(&runner).await;
            }
            if !self.running.is_empty() {
                self.ended.changed.changed_since(seen).await;
            }
        }
        core.jobs.end_move();
        others_wait && !must_end(core)
    }

    /// Begins a move to each drive that can take a part.
    async fn begin_moves(&mut self, runner: &Runner) {
        let core = &runner.core;
        let (most, chunks) = moves_and_chunks(core);
        while self.running.len() < most
            && !must_end(core)
            && let Some((part, to)) = self.next_move(core)
        {
            let LostPart { zone, role, slots, .. } = part;
            let moving = match MovingPart::begin(core, zone, role, to).await {
                Ok(moving) => moving,
                Err(error) => {
                    self.count_failure(core, zone, role, &error);
                    continue;
                }
            };
            let reads = slots.into_iter().filter(|slot| core.members.member(*slot).is_good()).collect();
            self.running.push(RunningMove { zone, role, to, reads });
            let (mut runner, ended) = (runner.of_task(chunks), self.ended.clone());
            let task = async move {
                let moved = moving.run(&mut runner).await;
                drop(runner);
                ended.results.lock().push((zone, moved));
                ended.changed.notify();
            };
            drop(spawn(&*core.ctx.driver, "restore a part", task));
        }
    }

    /// Takes the results of the moves that have ended.
    fn take_results(&mut self, core: &Core) {
        let results = std::mem::take(&mut *self.ended.results.lock());
        for (zone, result) in results {
            let Some(at) = self.running.iter().position(|moving| moving.zone == zone) else { continue };
            let RunningMove { role, .. } = self.running.swap_remove(at);
            match result {
                Ok(true) => self.moved += 1,
                // The zone was reset meanwhile.
                Ok(false) => {}
                Err(error) => self.count_failure(core, zone, role, &error),
            }
        }
    }

    /// Counts a failed move, unless all moves have to end.
    fn count_failure(&mut self, core: &Core, zone: ZoneId, role: Role, error: &Error) {
        if must_end(core) {
            return;
        }
        tracing::error!(zone = zone.0, role = role.0, %error, "a lost part is not restored");
        *self.failed.entry((zone, role)).or_default() += 1;
    }

    /// The next part to restore, and the drive that gets it.
    fn next_move(&self, core: &Core) -> Option<(LostPart, Slot)> {
        let maps = core.ctx.places.stored().filter(|_| core.zones.shared().is_none())?;
        let parts: Vec<LostPart> = lost_parts(core).into_iter().filter(|part| self.may_move(part)).collect();
        let drive = |(slot, free)| Drive {
            slot,
            free,
            reads: self.running.iter().filter(|moving| moving.reads.contains(&slot)).count(),
            left: parts.iter().filter(|part| part.slots.contains(&slot)).count(),
            is_target: self.running.iter().any(|moving| moving.to == slot),
        };
        let free = (0..).map(Slot).zip(core.zones.free().counts());
        let drives: Vec<Drive> =
            free.filter(|(slot, _)| core.members.member(*slot).is_good()).map(drive).collect();
        let empty = core.zones.ids().filter(|id| !maps.has(*id)).count();
        let room: usize = drives.iter().map(|drive| drive.free).sum();
        if room <= empty * core.ctx.layout.width as usize {
            return None;
        }
        choose(&parts, &drives)
    }

    /// True unless a part of the zone moves at the moment, or the part's moves failed too often.
    fn may_move(&self, part: &LostPart) -> bool {
        let failed = self.failed.get(&(part.zone, part.role)).copied().unwrap_or_default();
        failed < MAX_FAILED_MOVES && !self.running.iter().any(|moving| moving.zone == part.zone)
    }
}

/// How many moves may run side by side, and the chunks that each of them has in flight: one move to each drive that works, as far as
/// one chunk of each does not exceed [`MAX_BYTES_IN_FLIGHT`].
fn moves_and_chunks(core: &Core) -> (usize, usize) {
    let drives = core.members.iter().filter(|member| member.is_good()).count().max(1);
    // A chunk is read from the other drives of a stripe, and written.
    let chunk = CHUNK_BYTES_ALONE * u64::from(core.ctx.layout.width);
    let chunks = usize::try_from(MAX_BYTES_IN_FLIGHT / chunk).unwrap_or(usize::MAX).max(1);
    let moves = drives.min(chunks);
    (moves, chunks / moves)
}

/// The lost parts of zones with content, in the order in which they are restored.
fn lost_parts(core: &Core) -> Vec<LostPart> {
    let mut all = Vec::new();
    for id in core.zones.ids() {
        let lost: Vec<Role> = core.ctx.layout.roles().filter(|role| is_lost(core, id, *role)).collect();
        let zone = core.zones.zone(id);
        if lost.is_empty() || zone.pointer.0 == 0 || zone.is_gone() {
            continue;
        }
        let rank = Rank { lost: Reverse(lost.len()), is_idle: !zone.state.is_active() };
        let slots: Vec<Slot> =
            core.ctx.layout.roles().filter_map(|role| core.ctx.places.slot(id, role)).collect();
        let part = |role: &Role| LostPart { rank, zone: id, role: *role, slots: slots.clone() };
        all.extend(lost.iter().map(part));
    }
    all.sort_unstable();
    all
}

/// True if the drive with a part of a zone failed or is missing.
fn is_lost(core: &Core, id: ZoneId, role: Role) -> bool {
    core.members.part(id, role).is_some_and(|part| !part.member().is_good())
}

/// The number of parts with content whose drive failed or is missing.
pub(crate) fn count_lost_parts(core: &Core) -> u32 {
    u32::try_from(lost_parts(core).len()).unwrap_or(u32::MAX)
}
