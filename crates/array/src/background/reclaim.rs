//! Reclaim: frees physical zones of which only a part holds content, where several logical zones share them (RAIZN+, section 5.2.4).
//!
//! The parts with content move to other physical zones of the drive ([`moves`](crate::background::moves)), those of the physical zone
//! with the fewest first; with the last one, the physical zone is reset. A reclaim runs on each drive with fewer empty physical zones than
//! [`OpenOptions::reclaim_below`](crate::OpenOptions), at the pace of a rebuild, on all such drives side by side, and leaves physical
//! zones alone that a part left not long ago; and for each first write that finds no room, which waits, without regard to the latency of
//! clients. A physical zone without any part needs no reclaim: it is reset with the last of its logical zones.
//!
//! Where an array has more drives than a stripe has units, a drive may be full of content while others are not. For a first write that
//! waits, a part of that drive moves to a drive with fewer parts first (`zone::shared_zones::drives`).
//!
//! The last empty physical zone of a drive is kept for parts that move. As two physical zones more than zones may be active are in
//! reserve, some physical zone has garbage and takes no writes whenever a first write waits, and each reclaim frees at least one slot
//! more than it takes: the first write finds room after finitely many moves.

use std::collections::BTreeSet;
use std::sync::Arc;

use units::spawn;
use zoned::{Error, ErrorKind, Result, ZoneId};

use crate::array::Array;
use crate::background::job_runner::Runner;
use crate::background::jobs::Job;
use crate::background::moves::move_part::MovingPart;
use crate::background::stuck_zones::StuckZones;
use crate::core::Core;
use crate::layout::Slot;
use crate::layout::placement::Place;
use crate::metrics::add;
use crate::zone::shared_zones::drives::Surplus;
use crate::zone::shared_zones::{SharedZones, Victim};
use crate::{OpenOptions, Pace};

/// The parts that have begun on a drive since the last one left a physical zone, at least, before a reclaim below the low mark frees it:
/// streams that overwrite their zones in order have reset the whole physical zone by then, and nothing is copied.
const AGE: u64 = 32;

/// Parts that leave a physical zone.
struct Departure {
    /// The drive with the physical zone.
    slot: Slot,
    victim: Victim,
    /// The drive that the parts go to.
    to: Slot,
}

impl Departure {
    /// The parts go to other physical zones of the drive.
    fn on_drive((slot, victim): (Slot, Victim)) -> Departure {
        Departure { slot, victim, to: slot }
    }
}

/// What a run of [`Array::reclaim`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reclaimed {
    /// Physical zones that were freed, on all drives together.
    pub freed: u32,
    /// Physical zones with garbage whose parts could not be moved.
    pub left: u32,
}

impl Array {
    /// Frees physical zones that hold garbage, on all drives, until each drive has `empty` empty ones or none with garbage is left. Does
    /// nothing where each part has a physical zone for itself.
    ///
    /// Errors: [`ErrorKind::Invalid`] beside a rebuild, [`ErrorKind::Cancelled`] if the array is being closed. A physical zone whose parts
    /// cannot be moved stays as it is, and is counted. A reclaim goes on if the future is dropped.
    pub async fn reclaim(&self, empty: u32, pace: Pace) -> Result<Reclaimed> {
        pace.check(&self.core.ctx.geometry.name)?;
        let core = Arc::clone(&self.core);
        let run = async move {
            let (mut stuck, mut freed) = (StuckZones::default(), 0);
            let Some(shared) = core.zones.shared() else { return Ok(Reclaimed::default()) };
            loop {
                let victims = victims_below(&core, shared, empty, 0, &stuck);
                if victims.is_empty() {
                    let left = u32::try_from(stuck.len()).unwrap_or(u32::MAX);
                    return Ok(Reclaimed { freed, left });
                }
                let departures = victims.into_iter().map(Departure::on_drive).collect();
                freed += free_victims(&core, departures, pace, &mut stuck).await?;
            }
        };
        spawn(&*self.core.ctx.driver, "reclaim", run).await
    }
}

impl Array {
    /// Orders the reclaim that runs for the array to free physical zones until each drive has `empty` empty ones, or none with garbage is
    /// left. [`Space::moving`](crate::Space) says when it has ended. False where each part has a physical zone for itself, beside a rebuild,
    /// and of an array that was opened without [`resume`](crate::OpenOptions::resume).
    pub fn order_reclaim(&self, empty: u32) -> bool {
        self.core.zones.shared().is_some_and(|shared| shared.requests.order(empty))
    }
}

/// Starts the task that frees physical zones for first writes that wait, and before drives run out of them. The task ends soon after the
/// array is closed, and the drives stay open until then. Nothing is started where each part has a physical zone for itself.
pub(crate) fn watch(core: &Arc<Core>, options: &OpenOptions) {
    let Some(shared) = core.zones.shared() else { return };
    core.jobs.set_reclaims();
    // A rebuild that runs already opens the requests at its end.
    if core.jobs.running_rebuild().is_none() {
        shared.requests.open();
    }
    let (changed, watched) = (shared.requests.changed.clone(), Arc::downgrade(core));
    let (zones, closed) = (Arc::clone(&core.zones), core.ctx.error(ErrorKind::Cancelled, "write"));
    let (below, pace) = (options.reclaim_below, options.rebuild.pace);
    let task = async move {
        let mut stuck = StuckZones::default();
        loop {
            let seen = changed.version();
            let core = watched.upgrade().filter(|core| !core.jobs.is_closed());
            let Some(core) = core else { break };
            let goes_on = round(&core, below, pace, &mut stuck).await;
            drop(core);
            if !goes_on {
                changed.changed_since(seen).await;
            }
        }
        if let Some(shared) = zones.shared() {
            shared.requests.close(&closed);
        }
    };
    drop(spawn(&*core.ctx.driver, "reclaim", task));
}

/// Frees one physical zone of each drive that needs it. False if no drive does.
async fn round(core: &Arc<Core>, below: u32, pace: Pace, stuck: &mut StuckZones) -> bool {
    let Some(shared) = core.zones.shared() else { return false };
    let ordered = shared.requests.ordered();
    let mut victims = victims_below(core, shared, ordered, 0, stuck);
    if victims.is_empty() {
        shared.requests.order_done(ordered);
        victims = victims_below(core, shared, below, AGE, stuck);
    }
    let mut departures: Vec<Departure> = victims.into_iter().map(Departure::on_drive).collect();
    for slot in shared.requests.slots().into_iter().collect::<BTreeSet<Slot>>() {
        if departures.iter().any(|one| one.slot == slot) {
            continue;
        }
        // Resets are looked up before room is: one that ends in between has made the room that is found.
        let awaits_reset = shared.resets.any_on(slot);
        let mut next = departure(core, shared, slot, stuck);
        // The request keeps waiting for the reset, whose end wakes the task that runs these rounds.
        if next.is_none() && awaits_reset {
            continue;
        }
        if next.is_none() && stuck.try_again(slot) {
            next = departure(core, shared, slot, stuck);
        }
        match next {
            // One part at a time comes to a drive, where a zone that moves parts is active.
            Some(one) if departures.iter().any(|other| other.to == one.to) => {}
            Some(one) => departures.push(one),
            None => shared.requests.answer(slot, Some(&core.ctx.error(ErrorKind::NoSpace, "write"))),
        }
    }
    if departures.is_empty() {
        return false;
    }
    let moved: Vec<(Slot, ZoneId, bool)> =
        departures.iter().map(|one| (one.slot, one.victim.zone, one.to == one.slot)).collect();
    let freed = free_victims(core, departures, pace, stuck).await;
    for (slot, zone, frees) in moved {
        let refused = freed.is_err().then(|| core.ctx.error(ErrorKind::NoSpace, "write"));
        // A part that goes to another drive, or stays, frees nothing yet.
        if refused.is_some() || frees && !stuck.contains(slot, zone) {
            shared.requests.answer(slot, refused.as_ref());
        }
    }
    if freed.is_err() {
        shared.requests.order_done(ordered);
    }
    freed.is_ok()
}

/// The next parts that leave a drive on which a first write waits for room: those of a physical zone with garbage; else one part that goes
/// to another drive, or the parts whose departure makes room for such a part on another drive. `None` if no room can be made.
fn departure(core: &Core, shared: &SharedZones, slot: Slot, stuck: &StuckZones) -> Option<Departure> {
    if let Some(victim) = victim(core, shared, slot, 0, stuck) {
        return Some(Departure::on_drive((slot, victim)));
    }
    let works = |slot: Slot| core.members.member(slot).is_good() && !core.members.is_broken();
    let Surplus { part, to } = shared.surplus(slot, |zone| !stuck.contains(slot, zone), works)?;
    let has_room = |id: &ZoneId| {
        let rooms = shared.drive_rooms(*id, |_, _| true);
        rooms.get(to.index()).is_some_and(|drive| drive.room.is_some())
    };
    match part.tenants.iter().all(has_room) {
        true => Some(Departure { slot, victim: part, to }),
        false => victim(core, shared, to, 0, stuck).map(|victim| Departure::on_drive((to, victim))),
    }
}

/// The next physical zone to free of each drive with fewer than `below` empty ones.
fn victims_below(
    core: &Core,
    shared: &SharedZones,
    below: u32,
    age: u64,
    stuck: &StuckZones,
) -> Vec<(Slot, Victim)> {
    let slots = core.ctx.places.slots().filter(|slot| shared.empty_zones(*slot) < below as usize);
    slots.filter_map(|slot| Some((slot, victim(core, shared, slot, age, stuck)?))).collect()
}

/// The next physical zone of a drive to free; `None` if the drive is missing, or holds no garbage that can be freed.
fn victim(core: &Core, shared: &SharedZones, slot: Slot, age: u64, stuck: &StuckZones) -> Option<Victim> {
    let is_good = core.members.member(slot).is_good() && !core.members.is_broken();
    shared.victim(slot, age, |zone| !stuck.contains(slot, zone)).filter(|_| is_good)
}

/// Moves parts out of physical zones, one of each drive, side by side. Returns how many physical zones were freed.
async fn free_victims(
    core: &Arc<Core>,
    departures: Vec<Departure>,
    pace: Pace,
    stuck: &mut StuckZones,
) -> Result<u32> {
    let refuse = |kind, why: &str| Err(core.ctx.error(kind, "reclaim").because(why));
    let beside_rebuild = "a rebuild runs: wait for it";
    if core.jobs.running_rebuild().is_some() {
        return refuse(ErrorKind::Invalid, beside_rebuild);
    }
    let _places_change = core.jobs.places.acquire().await;
    if core.jobs.running_rebuild().is_some() {
        return refuse(ErrorKind::Invalid, beside_rebuild);
    }
    let job = Job::new(None, &core.ctx.driver);
    if !core.jobs.begin_move(&job) {
        return refuse(ErrorKind::Cancelled, "the array is being closed");
    }
    let task = |one: Departure| {
        let (core, job) = (Arc::clone(core), Arc::clone(&job));
        let driver = Arc::clone(&core.ctx.driver);
        let task = async move {
            let moved = move_parts(&core, &job, &one, pace).await;
            (one, moved)
        };
        spawn(&*driver, "reclaim", task)
    };
    let (tasks, mut count) = (departures.into_iter().map(task).collect::<Vec<_>>(), 0);
    for task in tasks {
        let (Departure { slot, victim: Victim { zone, .. }, to }, moved) = task.await;
        match moved {
            Ok(true) => {
                count += u32::from(to == slot);
                stuck.moved(slot);
            }
            Ok(false) => stuck.add(slot, zone),
            Err(error) => {
                tracing::warn!(slot = slot.0, physical = zone.0, %error, "a physical zone is not freed");
                stuck.add(slot, zone);
            }
        }
    }
    core.jobs.end_move();
    add(&core.ctx.metrics.reclaimed_zones, count.into());
    Ok(count)
}

/// Moves parts out of a physical zone. False if a part stayed.
async fn move_parts(core: &Arc<Core>, job: &Arc<Job>, departure: &Departure, pace: Pace) -> Result<bool> {
    let Departure { slot, victim, to } = departure;
    let slot = *slot;
    let mut runner = Runner::new(core, job, pace).makes_room_on(slot);
    let is_here = |place: &Place| (place.slot, place.zone) == (slot, victim.zone);
    let Some(shared) = core.zones.shared() else { return Ok(false) };
    for id in &victim.tenants {
        let places = &core.ctx.places;
        let role =
            places.role(*id, slot).filter(|role| places.place(*id, *role).as_ref().is_some_and(is_here));
        let has_moved = match role {
            None => false,
            Some(role) => match MovingPart::begin(core, *id, role, *to).await {
                Ok(moving) => moving.run(&mut runner).await?,
                Err(error) if is_gone(core, *id, &error) => false,
                Err(error) => return Err(error),
            },
        };
        if !has_moved {
            // The reset of the zone gives the part up.
            shared.resets.ended(*id).await;
        }
    }
    // A reset that failed before its record was durable gave no part up.
    let tenants = shared.tenants(Place { slot, zone: victim.zone, row: 0 });
    Ok(!victim.tenants.iter().any(|id| tenants.contains(id)))
}

/// True if a part was not moved because its zone was reset meanwhile.
fn is_gone(core: &Core, id: ZoneId, error: &Error) -> bool {
    error.kind() == ErrorKind::Invalid && core.zones.zone(id).pointer.0 == 0
}
