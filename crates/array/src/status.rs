//! What the drives say of their array, without assembling it.

use std::sync::Arc;

use zoned::{Error, ErrorKind, Result, ZonedDevice};

use crate::layout::Slot;
use crate::log_read;
use crate::{MemberInfo, Superblock};

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
}

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
}

/// An array and its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The newest superblock.
    pub superblock: Superblock,
    /// By slot.
    pub members: Vec<MemberStatus>,
}

impl Status {
    /// How the array is.
    pub fn health(&self) -> Health {
        match self.members.iter().filter(|member| member.state != MemberState::Good).count() {
            0 => Health::Clean,
            1 => Health::Degraded,
            _ => Health::Failed,
        }
    }
}

/// What `devices` say of the array that they are members of. Reads only.
///
/// Errors: [`ErrorKind::NotFound`] where none is a member, [`ErrorKind::Invalid`] where they are of several arrays.
pub async fn status(devices: &[Arc<dyn ZonedDevice>]) -> Result<Status> {
    let mut claims = Vec::new();
    for device in devices {
        if let Some(claim) = log_read::claim(device).await? {
            claims.push((device, claim));
        }
    }
    let refuse = |kind, why: &str| Err(Error::new(kind, &Arc::from("array"), "status").because(why));
    let newest = claims.iter().map(|(_, claim)| &claim.superblock).max_by_key(|sb| sb.config);
    let Some(superblock) = newest.cloned() else {
        return refuse(ErrorKind::NotFound, "none of the drives is a member of an array: create one first");
    };
    if claims.iter().any(|(_, claim)| claim.superblock.uuid != superblock.uuid) {
        return refuse(ErrorKind::Invalid, "the drives are of several arrays: name those of one only");
    }
    let member = |(slot, info): (Slot, &MemberInfo)| {
        let drive = claims.iter().find(|(_, claim)| {
            claim.slot == slot && claim.superblock.member(slot).is_some_and(|own| own.uuid == info.uuid)
        });
        let state = match drive {
            _ if info.failed => MemberState::Failed,
            Some(_) => MemberState::Good,
            None => MemberState::Missing,
        };
        let device = drive.map(|(device, _)| Arc::clone(&device.geometry().name));
        MemberStatus { slot, info: *info, state, device }
    };
    let members = (0..).map(Slot).zip(&superblock.members).map(member).collect();
    Ok(Status { superblock, members })
}
