//! Opening an array, without a drive that stops the mount.
//!
//! If an operation of one drive stops a mount and the array can do without that drive too, the mount begins again without
//! that drive. The failure is recorded on the other drives before anything else is done (`record_failures`), as for a
//! missing drive. The first try left the state of a mount that a power cut ended: the old epoch counts until the new
//! epoch is complete on all drives, resynced parity stays valid, and the drive may be lost after the cut. No operation of
//! the first try is in flight when the second one begins.

use std::sync::Arc;

use zoned::{Result, ZonedDevice};

use crate::OpenOptions;
use crate::array::Array;
use crate::background::moves::{balance, evacuation, restore};
use crate::background::{rebuild, reclaim, spares};
use crate::core::Core;
use crate::degraded::errors::fails_the_drive;
use crate::joined::JoinedZones;
use crate::layout::joined::JoinedLayout;
use crate::member::log_reader;
use crate::member::member_drive::MemberDrive;
use crate::metrics::add;
use crate::mount::candidate::Candidate;
use crate::mount::errors::{MountError, is_drive_fault, is_zone_state, one_failure_too_many};
use crate::mount::gather::Mount;
use crate::mount::zone_rewrite;

impl Array {
    /// Assembles the array that `devices` are members of, in any order. As many drives as there are parities may be missing, or
    /// fail during the mount: the array works without them from then on, and the other drives say so before the array relies on
    /// these alone.
    ///
    /// Errors: [`ErrorKind::NotFound`](zoned::ErrorKind::NotFound) if no drive is a member of an array,
    /// [`ErrorKind::Invalid`](zoned::ErrorKind::Invalid) if the drives are of several arrays,
    /// [`ErrorKind::Gone`](zoned::ErrorKind::Gone) if more drives are missing or failed than there are parities; the error of
    /// a drive that is one too many to fail; and an error of the host (no memory, for example), for which no drive is failed.
    pub async fn open(devices: Vec<Arc<dyn ZonedDevice>>, options: OpenOptions) -> Result<Arc<Array>> {
        let (resume, pace, rebuild_above) = (options.resume, options.rebuild, options.rebuild_above);
        let settings = options.clone();
        if let Some(device) = devices.first() {
            pace.pace.check(&device.geometry().name)?;
        }
        let (core, candidate) = mount(MemberDrive::all(&devices), options).await?;
        zone_rewrite::rewrite_zones(&core, rebuild_above).await?;
        let has_spares =
            candidate.is_some() || core.spares.any() || !core.members.config.lock().spares.is_empty();
        if resume && has_spares {
            // The event at the end of the moves to spare room has a spare taken.
            spares::watch(&core);
        }
        if let Some(candidate) = candidate.filter(|_| resume)
            && let Err(error) = rebuild::resume(&core, candidate, pace)
        {
            // The rebuild cannot be resumed: the array works without the new drive, as before.
            tracing::warn!(%error, "the rebuild does not go on");
        }
        if resume {
            restore::watch(&core, pace.pace);
            if has_spares && !restore::is_due(&core) {
                spares::take_spare(&core).await;
            }
            balance::watch(&core, pace.pace);
            evacuation::watch(&core, pace.pace, rebuild_above);
            reclaim::watch(&core, &settings);
        }
        let layout = {
            let superblock = core.members.config.lock();
            JoinedLayout::new(superblock.sections, superblock.interleaved, &core.ctx.layout)
        };
        let joined = match layout {
            Some(layout) => Some(JoinedZones::open(Arc::clone(&core), layout).await),
            None => None,
        };
        Ok(Arc::new(Array { core, joined }))
    }
}

/// Mounts the array that `devices` are members of, without a drive that stops the mount. Rewrites no zone of which much
/// content is relocated.
pub(crate) async fn mount(
    devices: Vec<MemberDrive>,
    options: OpenOptions,
) -> Result<(Arc<Core>, Option<Candidate>)> {
    let mut refused = Vec::new();
    // A drive that is gone does not answer the next try of the mount, and counts as missing then.
    let mut tries = devices.len();
    let mut read_again = false;
    loop {
        let claims = log_reader::claims(devices.clone()).await?;
        let mount = match Mount::gather(claims, options.clone(), &refused).await {
            Ok(mount) => mount,
            Err(MountError { slot: Some(_), error }) if fails_the_drive(error.kind()) && tries > 0 => {
                tracing::warn!(%error, "a drive failed while its log was read: the mount begins again");
                tries -= 1;
                continue;
            }
            Err(MountError { error, .. }) => return Err(error),
        };
        let (lacking, parities) = (mount.last_lacking_slot(), mount.layout.parities);
        let name = Arc::clone(&mount.name);
        let MountError { slot, error } = match mount.start().await {
            Ok((core, candidate)) => {
                add(&core.ctx.metrics.drive_failures, refused.len() as u64);
                return Ok((core, candidate));
            }
            Err(stopped) => stopped,
        };
        let Some(slot) = slot.filter(|_| is_drive_fault(error.kind())) else { return Err(error) };
        if is_zone_state(error.kind()) && !read_again {
            tracing::warn!(slot = slot.0, %error, "a zone takes no more writes: the drives are read again");
            read_again = true;
            continue;
        }
        if let Some(lacking) = lacking {
            return Err(one_failure_too_many(&name, parities, lacking, slot, &error));
        }
        tracing::error!(slot = slot.0, %error, "a drive failed while the array was opened: the array works without it");
        refused.push(slot);
    }
}
