//! The members of an assembled array: the drives that work, and the superblock that all of them hold.
//!
//! [`Membership`] owns the slots, the newest superblock and the state of failures. Its parts:
//!
//! ```text
//!   fail      a drive fails: recorded on the other drives before anything relies on the others alone
//!   flush     flushes of all drives, or of those that a durable write needs
//!   log_room  records in the metadata logs, room for records, the move of a log to a fresh zone
//! ```

mod fail;
mod flush;
mod log_room;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use units::sync::Turnstile;
use zoned::{Action, Blocks, Error, ErrorKind, Io, Result, ZoneId};

use crate::context::Context;
use crate::format::superblock::Superblock;
use crate::layout::placement::Place;
use crate::layout::{Parity, Role, Slot};
use crate::member::part::Part;
use crate::member::{Member, NoRoom};

/// The records of a checkpoint that were submitted, and what they wait for.
#[derive(Default)]
pub(crate) struct CheckpointWrites {
    /// The writes of the checkpoint's records.
    pub ios: Vec<Io<()>>,
    /// Operations that complete when all writes in flight at the checkpoint's beginning are acknowledged.
    pub barriers: Vec<Io<()>>,
    /// Commits that the checkpoint's records bring to an end.
    pub commits: Vec<ParityCommit>,
}

/// A commit of a zone's parity: once it has landed, blocks below its end are covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParityCommit {
    pub zone: ZoneId,
    /// The zone's life: in the next one the commit counts for nothing.
    pub generation: u64,
    pub parity: Parity,
    pub end: Blocks,
}

/// The interface by which the metadata logs use the zones: content for a checkpoint, and notice of free room for waiting
/// writers.
pub(crate) trait LogClient: Send + Sync {
    /// Writes everything that a mount needs to the log of `slot`, but for the superblock and the end record.
    /// `incarnation`: that of the drive that the checkpoint is for.
    fn write_checkpoint(
        &self,
        slot: Slot,
        incarnation: u64,
        writes: &mut CheckpointWrites,
    ) -> Result<(), NoRoom>;

    /// Logs the partial parity of poisoned zones again, after their unacknowledged blocks were dropped.
    fn log_poisoned_zones(
        &self,
        slot: Slot,
        incarnation: u64,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>>;

    /// A commit ended with `result`.
    fn commit_ended(&self, commit: ParityCommit, result: &Result<()>);

    /// The log that a parity of `zone` waited for has room, or its drive failed.
    fn room_freed(&self, zone: (ZoneId, Option<Parity>));
}

/// The members of an array.
pub(crate) struct Membership {
    ctx: Arc<Context>,
    members: Box<[Member]>,
    /// The array's newest superblock.
    pub config: Mutex<Superblock>,
    /// The lock that is held while a change is written to the superblocks.
    pub persisting: Turnstile,
    /// Number of failures that the superblocks do not contain yet.
    unpersisted: AtomicU32,
    /// True after more drives failed than there are parities: the array takes no more writes.
    broken: AtomicBool,
    /// The zones that the logs serve: set once, when the array is assembled.
    client: OnceLock<Weak<dyn LogClient>>,
}

impl Membership {
    pub(crate) fn new(ctx: &Arc<Context>, members: Box<[Member]>, superblock: Superblock) -> Membership {
        Membership {
            ctx: Arc::clone(ctx),
            members,
            config: Mutex::new(superblock),
            persisting: Turnstile::new(),
            unpersisted: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            client: OnceLock::new(),
        }
    }

    /// Sets the zones that the logs serve.
    pub(crate) fn set_log_client(&self, client: Weak<dyn LogClient>) {
        assert!(self.client.set(client).is_ok(), "an array is assembled once");
    }

    /// The member in `slot`.
    pub(crate) fn member(&self, slot: Slot) -> &Member {
        self.members.get(slot.index()).expect("the layout knows the number of drives")
    }

    /// The part `role` of zone `id`; `None` if no drive holds the part.
    pub(crate) fn part(&self, id: ZoneId, role: Role) -> Option<Part<'_>> {
        let place = self.ctx.places.place(id, role)?;
        Some(Part::new(id, self.member(place.slot), place))
    }

    /// Finishes a physical zone with the parts of `tenants`, which takes no other part. `None` if its drive is missing, or if a rebuild
    /// has yet to copy one of these parts to the new drive: the copy of the last one finishes the physical zone.
    pub(crate) fn finish(&self, place: Place, tenants: &[ZoneId]) -> Option<Io<()>> {
        let member = self.member(place.slot);
        let is_whole = member.is_good() || tenants.iter().all(|id| member.has_zone(*id));
        if is_whole { member.act_on(place.zone, Action::Finish) } else { None }
    }

    /// All parts of zone `id`, in the order of their drives.
    pub(crate) fn parts(&self, id: ZoneId) -> impl Iterator<Item = Part<'_>> {
        let places = &self.ctx.places;
        places.slots().filter_map(move |slot| self.part(id, places.role(id, slot)?))
    }

    /// True if the drive with the part `role` of zone `id` works.
    pub(crate) fn has_part(&self, id: ZoneId, role: Role) -> bool {
        self.part(id, role).is_some_and(|part| part.member().is_good())
    }

    /// All members, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// Physical zones of each drive for parts of logical zones.
    pub(crate) fn part_zones(&self) -> u32 {
        self.config.lock().part_zones
    }

    /// The members that work.
    pub(crate) fn working_members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_good())
    }

    /// The first member, apart from `slot`, that has failed or is missing.
    pub(crate) fn failed_beside(&self, slot: Option<Slot>) -> Option<&Member> {
        self.members.iter().find(|member| !member.is_good() && Some(member.slot) != slot)
    }

    /// The members that have failed or are missing and of which the array lacks something: all but the vacated ones.
    pub(crate) fn lacking(&self) -> Vec<&Member> {
        self.lacking_by(&self.config.lock())
    }

    /// As [`lacking`](Membership::lacking), by the superblock `config`.
    fn lacking_by(&self, config: &Superblock) -> Vec<&Member> {
        let is_vacated = |slot: Slot| config.member(slot).is_some_and(|info| info.vacated);
        self.members.iter().filter(|member| !member.is_good() && !is_vacated(member.slot)).collect()
    }

    /// The last member that the array can lack, apart from `slot`: it lacks as many members as there are parities. `None` if another
    /// one may fail.
    pub(crate) fn last_failure_beside(&self, slot: Option<Slot>) -> Option<&Member> {
        let mut lacking = self.lacking().into_iter().filter(|member| Some(member.slot) != slot);
        lacking.nth(self.ctx.layout.parities as usize - 1)
    }

    /// The drive that has to be replaced before the one in `slot`: the array lacks nothing of that one, and could lose no drive while a
    /// new one becomes a member.
    pub(crate) fn needed_before(&self, slot: Slot) -> Option<Slot> {
        self.needed_before_by(&self.config.lock(), slot)
    }

    /// As [`needed_before`](Membership::needed_before), by the superblock `config`.
    pub(crate) fn needed_before_by(&self, config: &Superblock, slot: Slot) -> Option<Slot> {
        let is_vacated = config.member(slot).is_some_and(|info| info.vacated);
        let beside = self.lacking_by(config).into_iter().filter(|member| member.slot != slot);
        let last = beside.map(|member| member.slot).nth(self.ctx.layout.parities as usize - 1);
        last.filter(|_| is_vacated)
    }

    /// Fails with [`ErrorKind::Gone`] if another drive has to be replaced before the one in `slot`.
    pub(crate) fn refuse_needed_before(&self, slot: Slot) -> Result<()> {
        self.needed_before(slot).map_or(Ok(()), |other| Err(self.needed_before_error(other)))
    }

    /// The error of a rebuild whose slot the array lacks nothing of, while it lacks the drive `other`.
    pub(crate) fn needed_before_error(&self, other: Slot) -> Error {
        let error = self.ctx.error(ErrorKind::Gone, "replace");
        error.because(format!("drive {} failed meanwhile: replace that one first", other.0))
    }

    /// True if more drives failed than there are parities.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// True if a failure is being recorded on the other drives.
    pub(crate) fn is_persisting(&self) -> bool {
        self.unpersisted.load(Ordering::Acquire) > 0
    }

    /// The error of a write to an array of which more drives failed than there are parities.
    pub(crate) fn broken_error(&self, name: &'static str) -> Error {
        let count = if self.ctx.layout.parities == 1 { "two" } else { "three" };
        self.ctx.error(ErrorKind::Gone, name).because(format!(
            "{count} drives of the array failed: nothing more is written, and what the others hold can be read"
        ))
    }

    /// The epoch that the array's mount began.
    pub(crate) fn epoch(&self) -> u64 {
        self.working_members().map(|good| good.log.lock().epoch).next().unwrap_or(0)
    }
}
