//! How an array is: an assembled one, or what the drives say of it without assembling it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Bytes, Error, ErrorKind, Result, ZoneId, ZoneState, ZonedDevice};

use crate::background::jobs::Progress;
use crate::events::Events;
use crate::layout::Slot;
use crate::member::Member;
use crate::metrics::Counters;
use crate::mount::gather::Mount;
use crate::mount::log_contents;
use crate::{Array, MemberInfo, OpenOptions, Superblock};

/// How an array is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// Every drive is there.
    Clean,
    /// One is not: nothing is lost, and nothing more may be.
    Degraded,
    /// More than one is not.
    Failed,
}

/// How a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It is there.
    Good,
    /// The array does without it; what it holds, if it is there, is out of date.
    Failed,
    /// It is not among the drives.
    Missing,
    /// The array does without it, and it is a new drive that is being filled.
    Rebuilding,
}

/// Errors of the medium after which a drive should be replaced: one or two are a drive's daily bread.
pub const MANY_ERRORS: u64 = 16;

/// Lost zones that the advice names.
const NAMED: usize = 8;

/// A member and its drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its place.
    pub slot: Slot,
    /// Its identity.
    pub info: MemberInfo,
    /// How it is.
    pub state: MemberState,
    /// The drive's name, where it is there.
    pub device: Option<Arc<str>>,
    /// Reads that gave errors of the medium since the array was opened.
    pub media_errors: u64,
}

/// A physical zone that takes no writes any more, or gives nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WornZone {
    /// The drive.
    pub slot: Slot,
    /// The logical zone that it is a part of.
    pub zone: ZoneId,
    /// Read-only or offline.
    pub state: ZoneState,
}

/// Blocks that a drive was rebuilt without. Reads of them are errors until the zone is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostBlocks {
    /// The drive.
    pub slot: Slot,
    /// The logical zone.
    pub zone: ZoneId,
    /// How many, of data or parity.
    pub blocks: u64,
}

/// An array and its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The newest superblock.
    pub superblock: Superblock,
    /// By slot.
    pub members: Vec<MemberStatus>,
    /// A rebuild that runs. Of an array that is not assembled this is not known.
    pub rebuild: Option<Progress>,
    /// A scrub that runs.
    pub scrub: Option<Progress>,
    /// Physical zones that wore out.
    pub worn: Vec<WornZone>,
    /// What is lost. Of an array that is not assembled this is not known.
    pub lost: Vec<LostBlocks>,
    /// Logical zones that two drives lacked their part of: offline until they are reset.
    pub lost_zones: Vec<ZoneId>,
    /// A second drive failed while the array was in use: nothing is written any more.
    pub broken: bool,
}

impl Status {
    /// How the array is.
    pub fn health(&self) -> Health {
        match self.members.iter().filter(|member| member.state != MemberState::Good).count() {
            _ if self.broken => Health::Failed,
            0 => Health::Clean,
            1 => Health::Degraded,
            _ => Health::Failed,
        }
    }

    /// What to do, in sentences; nothing where all is well.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let lacking: Vec<&MemberStatus> =
            self.members.iter().filter(|member| member.state != MemberState::Good).collect();
        if self.broken || lacking.len() > 1 {
            advice.push(
                "More than one drive is lost: nothing more is written. Copy what can still be read, or bring all \
                 but one of the drives back and open the array anew."
                    .to_owned(),
            );
        }
        for member in lacking {
            let slot = member.slot.0;
            advice.push(match member.state {
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
                _ => format!("Drive {slot} failed: replace it before another one does."),
            });
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
        if !self.lost_zones.is_empty() {
            let named: Vec<String> = self.lost_zones.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if self.lost_zones.len() > NAMED { ", ..." } else { "" };
            advice.push(format!(
                "{} zones are lost, as two drives lacked their parts ({}{more}): with every drive there and none of \
                 their parts worn, reset them to have them back.",
                self.lost_zones.len(),
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
    /// How the array is now, with the jobs that run. Touches no drive.
    pub fn status(&self) -> Status {
        let core = &self.core;
        // Before the superblock: a rebuild that ends in between shows as one that runs.
        let rebuild = core.jobs.rebuilding();
        let superblock = self.superblock();
        let member = |(slot, info): (Slot, &MemberInfo)| {
            let member = core.member(slot);
            let filling = member.filling().filter(|_| info.rebuilding);
            let device = member.device();
            let state = match (&device, info.failed, info.rebuilding) {
                (Some(_), false, _) => MemberState::Good,
                (_, _, true) => MemberState::Rebuilding,
                _ => MemberState::Failed,
            };
            let device = device.or(filling).map(|device| Arc::clone(&device.geometry().name));
            let media_errors = member.media_errors.load(Ordering::Relaxed);
            MemberStatus { slot, info: *info, state, device, media_errors }
        };
        let members = (0..).map(Slot).zip(&superblock.members).map(member).collect();
        let mut worn = core.worn.lock().clone();
        worn.sort_by_key(|worn| (worn.zone, worn.slot));
        let (scrub, broken) = (core.jobs.scrubbing(), core.is_broken());
        let of = |member: &Member| {
            let slot = member.slot;
            member.lost.all().into_iter().map(move |(zone, blocks)| LostBlocks { slot, zone, blocks })
        };
        let lost = core.good().flat_map(of).collect();
        let lost_zones = core.lost_zones();
        Status { superblock, members, rebuild, scrub, worn, lost, lost_zones, broken }
    }

    /// What is counted since the array was opened.
    pub fn counters(&self) -> Counters {
        self.core.tally.read()
    }

    /// Bytes held in memory for stripes that are not full: for each such zone its running parity, at most a stripe unit.
    pub fn stripe_buffers(&self) -> Bytes {
        let zones = (0..self.core.geometry.zones).map(ZoneId);
        Bytes(zones.map(|id| self.core.zone(id).parity.len() as u64).sum())
    }

    /// What happens to the array from now on.
    pub fn events(&self) -> Events {
        self.core.events.watch()
    }
}

/// What `devices` say of the array that they are members of, and what a mount would make of that: a drive whose metadata
/// cannot be read, or that was never told of the last checkpoint, has failed then. Reads only.
///
/// Errors: [`ErrorKind::NotFound`] where none is a member, [`ErrorKind::Invalid`] where they are of several arrays.
pub async fn status(devices: &[Arc<dyn ZonedDevice>]) -> Result<Status> {
    let mut status = of_members(devices).await?;
    // Where it cannot be mounted, what the drives say is all there is.
    if let Ok(mount) =
        Mount::gather(log_contents::claims(devices.to_vec()).await?, OpenOptions::default(), None).await
    {
        for (member, present) in status.members.iter_mut().zip(&mount.present) {
            if member.state == MemberState::Good && present.is_none() {
                member.state = MemberState::Failed;
            }
        }
        status.worn = mount.worn_zones();
        status.lost_zones = mount.lost_zones();
    }
    Ok(status)
}

/// What `devices` say, one by one.
pub(crate) async fn of_members(devices: &[Arc<dyn ZonedDevice>]) -> Result<Status> {
    let claims = log_contents::claims(devices.to_vec()).await?;
    let refuse = |kind, why: &str| Err(Error::new(kind, &Arc::from("array"), "status").because(why));
    let newest = claims.iter().map(|(_, claim)| &claim.superblock).max_by_key(|sb| sb.config);
    let Some(mut superblock) = newest.cloned() else {
        return refuse(ErrorKind::NotFound, "none of the drives is a member of an array: create one first");
    };
    if claims.iter().any(|(_, claim)| claim.superblock.uuid != superblock.uuid) {
        return refuse(ErrorKind::Invalid, "the drives are of several arrays: name those of one only");
    }
    for (device, claim) in &claims {
        let known = log_contents::newest(device, claim).await?;
        if known.config > superblock.config {
            superblock = known;
        }
    }
    let member = |(slot, info): (Slot, &MemberInfo)| {
        let drive = claims.iter().find(|(_, claim)| {
            claim.slot == slot && claim.superblock.member(slot).is_some_and(|own| own.uuid == info.uuid)
        });
        let state = match drive {
            Some(_) if info.rebuilding => MemberState::Rebuilding,
            _ if info.failed => MemberState::Failed,
            Some(_) => MemberState::Good,
            None => MemberState::Missing,
        };
        let device = drive.map(|(device, _)| Arc::clone(&device.geometry().name));
        MemberStatus { slot, info: *info, state, device, media_errors: 0 }
    };
    let members = (0..).map(Slot).zip(&superblock.members).map(member).collect();
    Ok(Status {
        superblock,
        members,
        rebuild: None,
        scrub: None,
        worn: Vec::new(),
        lost: Vec::new(),
        lost_zones: Vec::new(),
        broken: false,
    })
}
