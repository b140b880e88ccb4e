//! The status of an array: assembled, or from the superblocks and logs of its drives alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;
use zoned::{Blocks, Bytes, Error, ErrorKind, Result, ZoneId, ZonedDevice};

use crate::array::Array;
use crate::background::jobs::Progress;
use crate::background::moves::restore::count_lost_parts;
use crate::core::Core;
use crate::degraded::errors::is_transient;
use crate::degraded::failures::MANY_ERRORS;
use crate::events::Events;
use crate::layout::Slot;
use crate::member::Member;
use crate::member::log_reader::{self, Claim};
use crate::member::member_drive::MemberDrive;
use crate::metrics::Counters;
use crate::mount::dry_run::mount_without_writes;
use crate::zone::memory::Memory;
use crate::zone::space::Space;
use crate::zone::worn_zones::WornZone;
use crate::{MemberInfo, Superblock};

/// The health of an array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// Every drive works.
    Clean,
    /// Drives have failed or are missing, no more than there are parities: all data is available.
    Degraded,
    /// More drives have failed or are missing than there are parities, or no mount takes the array.
    Failed,
}

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// The drive works.
    Good,
    /// The array works without the drive; the content of the drive is out of date.
    Failed,
    /// The drive failed, and all its parts of zones lie on other drives: the array lacks nothing of the drive.
    Vacated,
    /// The member's drive is not among the drives that were opened.
    Missing,
    /// A new drive whose rebuild is not complete.
    Rebuilding,
}

/// Most failed zones that the operator's advice names.
const MAX_NAMED_ZONES: usize = 8;

/// A member and its drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The slot.
    pub slot: Slot,
    /// The identity.
    pub info: MemberInfo,
    /// The state.
    pub state: MemberState,
    /// The drive's name, if the drive is present.
    pub device: Option<Arc<str>>,
    /// Reads that failed with a media error since the array was opened.
    pub media_errors: u64,
}

/// An idle spare: a drive that takes the place of a failed one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpareStatus {
    /// The identity.
    pub uuid: Uuid,
    /// The drive's name; `None` if the drive is missing.
    pub device: Option<Arc<str>>,
}

/// Blocks that a rebuild could not reconstruct. Reads of them fail until the zone is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadBlocks {
    /// The drive.
    pub slot: Slot,
    /// The logical zone.
    pub zone: ZoneId,
    /// The number of blocks of data or parity that the rebuild could not reconstruct.
    pub blocks: u64,
}

/// An array and its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The array's newest superblock.
    pub superblock: Superblock,
    /// By slot.
    pub members: Vec<MemberStatus>,
    /// The idle spares.
    pub spares: Vec<SpareStatus>,
    /// The rebuild that runs; unknown if the array is not assembled.
    pub rebuild: Option<Progress>,
    /// The scrub that runs; unknown if the array is not assembled.
    pub scrub: Option<Progress>,
    /// Physical zones that wore out.
    pub worn: Vec<WornZone>,
    /// Bad blocks; unknown if the array is not assembled.
    pub lost: Vec<BadBlocks>,
    /// Parts of zones with content that lie on drives which failed or are missing; unknown (0) if the array is not assembled.
    pub lost_parts: u32,
    /// Logical zones of which more drives lacked their part than there are parities: offline until they are reset.
    pub failed_zones: Vec<ZoneId>,
    /// More drives than there are parities failed while the array was in use: the array takes no more writes.
    pub broken: bool,
    /// The array's memory, or that of a process that would open the array; `None` if no mount takes the array.
    pub memory: Option<Memory>,
    /// The space of the drives; `None` with the fixed placement, where it is that of the logical zones, and if no mount takes the array.
    pub space: Option<Space>,
    /// Why no mount takes the array: the error of a dry run. `None` if a mount takes the array as far as the content and the
    /// zone reports of the drives tell, and of an array that is assembled.
    pub mount_error: Option<String>,
}

impl Status {
    /// The health of the array.
    pub fn health(&self) -> Health {
        match self.lacking() {
            _ if self.broken || self.mount_error.is_some() => Health::Failed,
            0 => Health::Clean,
            lacking if lacking <= self.superblock.parities => Health::Degraded,
            _ => Health::Failed,
        }
    }

    /// The number of drives that have failed or are missing and of which the array lacks something.
    fn lacking(&self) -> u32 {
        let is_lacking = |member: &&MemberStatus| member.state != MemberState::Good && !member.info.vacated;
        u32::try_from(self.members.iter().filter(is_lacking).count()).unwrap_or(u32::MAX)
    }

    /// The number of drives that may still fail without loss of data: one for each parity, less the drives that the array lacks.
    pub fn failures_left(&self) -> u32 {
        match self.health() {
            Health::Failed => 0,
            Health::Clean | Health::Degraded => self.superblock.parities.saturating_sub(self.lacking()),
        }
    }

    /// Advice for the operator, in sentences; empty if nothing is needed.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        advice.extend(self.mount_error.iter().map(|error| format!("The array cannot be mounted: {error}.")));
        let lacking: Vec<&MemberStatus> =
            self.members.iter().filter(|member| member.state != MemberState::Good).collect();
        if self.broken || self.lacking() > self.superblock.parities {
            let most = if self.superblock.parities == 1 { "one" } else { "two" };
            let count = if self.superblock.parities == 1 { "drive is" } else { "drives are" };
            advice.push(format!(
                "More than {most} {count} lost: nothing more is written. Copy what can still be read, or bring all \
                 but {most} of the drives back and open the array anew."
            ));
        }
        let left = self.failures_left();
        if self.superblock.spare_drives > 0 && self.lost_parts > 0 {
            let parts = if self.lost_parts == 1 { "1 part" } else { "parts" };
            let count = if self.lost_parts == 1 { String::new() } else { format!("{} ", self.lost_parts) };
            advice.push(format!("{count}{parts} of zones with content lack their drive."));
        }
        for member in lacking {
            let slot = member.slot.0;
            advice.push(match member.state {
                MemberState::Vacated => {
                    format!(
                        "Drive {slot} failed, and its parts lie on other drives: replace it, so that there is room for those of the next one."
                    )
                }
                MemberState::Rebuilding if member.info.vacated => {
                    format!("Drive {slot} is new, and becomes a member.")
                }
                MemberState::Rebuilding if self.rebuild.is_some() && left > 0 => {
                    format!("Drive {slot} is being rebuilt: until then no more than {left} other drive may fail.")
                }
                MemberState::Rebuilding if self.rebuild.is_some() => {
                    format!("Drive {slot} is being rebuilt: until then no other drive may fail.")
                }
                MemberState::Rebuilding => {
                    format!(
                        "The rebuild of drive {slot} is not done: open the array with the new drive to go on, or replace it again."
                    )
                }
                MemberState::Missing => {
                    format!("Drive {slot} is missing: if it is opened without it, the array does without it for good.")
                }
                _ if left > 0 => {
                    format!("Drive {slot} failed: replace it. Until then no more than {left} other drive may fail.")
                }
                _ => format!("Drive {slot} failed: replace it before another one does."),
            });
        }
        for spare in self.spares.iter().filter(|spare| spare.device.is_none()) {
            advice.push(format!(
                "Spare {} is missing: name its drive among the members, or give the spare up with array spare remove.",
                spare.uuid
            ));
        }
        for member in self.members.iter().filter(|member| member.media_errors >= MANY_ERRORS) {
            advice.push(format!(
                "Drive {} gave {} errors of the medium: replace it soon.",
                member.slot.0, member.media_errors
            ));
        }
        if let Some(worn) = self.worn.first() {
            advice.push(format!(
                "{} zones of drives wore out (zone {} of drive {} is {:?}): these take no more writes. Replacing \
                 the drive gives them back.",
                self.worn.len(),
                worn.zone,
                worn.slot.0,
                worn.state
            ));
        }
        if !self.failed_zones.is_empty() {
            let named: Vec<String> =
                self.failed_zones.iter().take(MAX_NAMED_ZONES).map(ToString::to_string).collect();
            let more = if self.failed_zones.len() > MAX_NAMED_ZONES { ", ..." } else { "" };
            advice.push(format!(
                "{} zones are lost, as two drives lacked their parts ({}{more}): with no drive lacking and none of \
                 their parts worn, reset them to have them back.",
                self.failed_zones.len(),
                named.join(", ")
            ));
        }
        for lost in &self.lost {
            advice.push(format!(
                "{} blocks of zone {} were lost when drive {} was rebuilt: copy what can be read of the zone, and reset it.",
                lost.blocks, lost.zone, lost.slot.0
            ));
        }
        advice
    }
}

impl Array {
    /// The status of the array and its jobs. Reads no drive.
    pub fn status(&self) -> Status {
        let core = &self.core;
        // The rebuild's progress is read before the superblock: a rebuild that ends in between counts as
        // running.
        let rebuild = core.jobs.running_rebuild();
        let superblock = self.superblock();
        let member = |(slot, info): (Slot, &MemberInfo)| {
            let member = core.members.member(slot);
            let filling = member.new_drive().filter(|_| info.rebuilding);
            let device = member.device();
            let state = match (&device, info.failed, info.rebuilding) {
                (Some(_), false, _) => MemberState::Good,
                (_, _, true) => MemberState::Rebuilding,
                _ if info.vacated => MemberState::Vacated,
                _ => MemberState::Failed,
            };
            let device = device.or(filling).map(|device| Arc::clone(&device.geometry().name));
            let media_errors = member.media_errors.load(Ordering::Relaxed);
            MemberStatus { slot, info: *info, state, device, media_errors }
        };
        let members = (0..).map(Slot).zip(&superblock.members).map(member).collect();
        let spare = |uuid: &Uuid| SpareStatus { uuid: *uuid, device: core.spares.device_name(*uuid) };
        let spares = superblock.spares.iter().map(spare).collect();
        let worn = core.zones.worn.all();
        let (scrub, broken) = (core.jobs.scrubbing(), core.members.is_broken());
        let of = |member: &Member| {
            let slot = member.slot;
            member.bad_rows.rows_by_zone().into_iter().map(move |(zone, blocks)| BadBlocks {
                slot,
                zone,
                blocks,
            })
        };
        let lost = core.members.working_members().flat_map(of).collect();
        let failed_zones = core.zones.failed_zones();
        Status {
            superblock,
            members,
            spares,
            rebuild,
            scrub,
            worn,
            lost,
            lost_parts: count_lost_parts(core),
            failed_zones,
            broken,
            memory: Some(core.zones.memory()),
            space: space(core),
            mount_error: None,
        }
    }

    /// Counters since the array was opened.
    pub fn counters(&self) -> Counters {
        self.core.ctx.metrics.read()
    }

    /// The space of the drives, of an array with stored maps.
    pub fn space(&self) -> Option<Space> {
        space(&self.core)
    }

    /// Bytes of parity in memory: for each zone with a partly written stripe, at most one stripe unit for each parity.
    pub fn stripe_buffers(&self) -> Bytes {
        let zones = (0..self.core.ctx.geometry.zones).map(ZoneId);
        Bytes(zones.map(|id| self.core.zones.zone(id).parity.len() as u64).sum())
    }

    /// A subscription to all events of the array from now on.
    pub fn events(&self) -> Events {
        self.core.ctx.events.subscribe()
    }
}

/// The space of the drives of an array with stored maps.
fn space(core: &Core) -> Option<Space> {
    let counts = core.zones.zone_counts()?;
    let superblock = core.members.config.lock();
    let bytes = |rows: Blocks, count: usize| Bytes(rows.bytes(superblock.block_size).0 * count as u64);
    let sum = |of: fn(&(usize, usize, usize)) -> usize| counts.iter().map(of).sum::<usize>();
    let filled = u64::from(superblock.zones) * u64::from(superblock.width);
    let filled = filled.div_ceil(u64::from(superblock.shares) * counts.len() as u64);
    let ordered = || core.zones.shared().is_some_and(|shared| shared.requests.ordered() > 0);
    Some(Space {
        live: bytes(superblock.part_rows(), sum(|(parts, _, _)| *parts)),
        committed: bytes(superblock.zone_capacity, sum(|(_, used, _)| *used)),
        usable: bytes(superblock.zone_capacity, sum(|(_, used, empty)| used + empty)),
        empty_zones: counts.iter().map(|(_, _, empty)| *empty).min().unwrap_or(0) as u32,
        reserve_zones: superblock.part_zones.saturating_sub(u32::try_from(filled).unwrap_or(u32::MAX)),
        moving: core.jobs.moving.lock().is_some() || ordered(),
    })
}

/// The status of the array that `devices` are members of, as a mount would find it: a drive that the mount would do without
/// counts as failed, and an array that no mount takes is failed, with the mount's error. Writes nothing: the mount is a dry
/// run, which does not find a drive that refuses writes although its zone reports name no fault.
///
/// Errors: [`ErrorKind::NotFound`] if no drive is a member of an array, [`ErrorKind::Invalid`] if the drives are of
/// several arrays, and errors of the host (no memory, for example), which say nothing of the array.
pub async fn status(devices: &[Arc<dyn ZonedDevice>]) -> Result<Status> {
    let drives = MemberDrive::all(devices);
    let mut status = status_of_members(&drives).await?;
    match mount_without_writes(&drives).await {
        Ok(core) => {
            for member in &mut status.members {
                if member.state == MemberState::Good && !core.members.member(member.slot).is_good() {
                    member.state = MemberState::Failed;
                }
            }
            status.worn = core.zones.worn.all();
            status.failed_zones = core.zones.failed_zones();
            status.memory = Some(core.zones.memory());
            status.space = space(&core);
            status.lost_parts = count_lost_parts(&core);
        }
        Err(error) if is_transient(error.kind()) => return Err(error),
        Err(error) => status.mount_error = Some(error.to_string()),
    }
    Ok(status)
}

/// The status that the superblocks of `devices` give.
pub(crate) async fn status_of_members(devices: &[MemberDrive]) -> Result<Status> {
    let claims = log_reader::claims(devices.to_vec()).await?;
    let refuse = |kind, why: &str| Err(Error::new(kind, &Arc::from("array"), "status").because(why));
    // As in a mount, the members' superblocks count. Only without a member a spare's mark says which array it belongs to.
    let (spares, members): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|(_, claim)| claim.spare().is_some());
    let claims = if members.is_empty() { &spares } else { &members };
    let newest = claims.iter().map(|(_, claim)| &claim.superblock).max_by_key(|sb| sb.config);
    let Some(mut superblock) = newest.cloned() else {
        return refuse(ErrorKind::NotFound, "none of the drives is a member of an array: create one first");
    };
    if claims.iter().any(|(_, claim)| claim.superblock.uuid != superblock.uuid) {
        return refuse(ErrorKind::Invalid, "the drives are of several arrays: name those of one only");
    }
    for (device, claim) in claims {
        let known = log_reader::newest(device, claim).await?;
        if known.config > superblock.config {
            superblock = known;
        }
    }
    let member = |(slot, info): (Slot, &MemberInfo)| {
        let is_of_slot = |claim: &Claim| {
            claim.slot == slot && claim.superblock.member(slot).is_some_and(|own| own.uuid == info.uuid)
        };
        // A spare that was taken has its mark until its rebuild begins.
        let is_taken = |claim: &Claim| info.rebuilding && is_spare(claim, superblock.uuid, info.uuid);
        let drive = members.iter().find(|(_, claim)| is_of_slot(claim));
        let drive = drive.or_else(|| spares.iter().find(|(_, claim)| is_taken(claim)));
        let state = match drive {
            Some(_) if info.rebuilding => MemberState::Rebuilding,
            _ if info.vacated => MemberState::Vacated,
            _ if info.failed => MemberState::Failed,
            Some(_) => MemberState::Good,
            None => MemberState::Missing,
        };
        let device = drive.map(|(device, _)| Arc::clone(&device.geometry().name));
        MemberStatus { slot, info: *info, state, device, media_errors: 0 }
    };
    let member_statuses = (0..).map(Slot).zip(&superblock.members).map(member).collect();
    let spare = |uuid: &Uuid| {
        let drive = spares.iter().find(|(_, claim)| is_spare(claim, superblock.uuid, *uuid));
        SpareStatus { uuid: *uuid, device: drive.map(|(device, _)| Arc::clone(&device.geometry().name)) }
    };
    let spare_statuses = superblock.spares.iter().map(spare).collect();
    Ok(Status {
        superblock,
        members: member_statuses,
        spares: spare_statuses,
        rebuild: None,
        scrub: None,
        worn: Vec::new(),
        lost: Vec::new(),
        lost_parts: 0,
        failed_zones: Vec::new(),
        broken: false,
        memory: None,
        space: None,
        mount_error: None,
    })
}

/// True if a drive is marked as the spare `spare` of the array `array`.
fn is_spare(claim: &Claim, array: Uuid, spare: Uuid) -> bool {
    claim.superblock.uuid == array && claim.spare() == Some(spare)
}
