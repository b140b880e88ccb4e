//! Moves of parts: a part of a logical zone with a stored map gets another physical zone, of the same drive or of another one, while the
//! zone is in use ([ADR 0024](../../../../docs/adr/0024-moving-a-part.md)).
//!
//! 1. Whole stripes are copied to a free physical zone while clients use the logical zone (`background::part_copy`).
//! 2. The zone's I/O waits. The last rows are copied, with stale, relocated and repaired rows in place, and the copy is made durable.
//! 3. The map in memory names the new place, and then a record of the map's next version is durable on one drive more than there are
//!    parities. The zone's I/O goes on.
//! 4. Once the reads that began before step 3 have ended, the old physical zone is reset, durably, and is free.
//!
//! Crash safety: a version of a map is written after all that it names is durable. So a mount believes the newest version, of which one
//! copy is enough. Before step 3 the new physical zone is garbage, and afterwards the old one is: no map names it, and the mount resets
//! it. No write of the zone is in flight while a power cut leaves open which map counts.

pub(crate) mod balance;
pub(crate) mod evacuation;
pub(crate) mod move_part;
pub(crate) mod restore;
mod restore_choice;

use std::sync::{Arc, Weak};

use units::spawn;
use zoned::{ErrorKind, Result, ZoneId};

use crate::Pace;
use crate::array::Array;
use crate::background::job_runner::Runner;
use crate::background::jobs::Job;
use crate::background::moves::move_part::MovingPart;
use crate::core::Core;
use crate::layout::{Role, Slot};

impl Array {
    /// Moves the part `role` of a logical zone to a free physical zone of the drive in `slot`, which may be the drive that has the part.
    /// The zone stays in use. False if the zone was reset meanwhile, so that nothing was moved. When this returns, the new place is
    /// durable, and the old physical zone is reset. A zone that takes no more writes because the old physical zone wore out takes writes
    /// again from the next open on, or is full then if a mount found the wear.
    ///
    /// Errors: [`ErrorKind::Invalid`] if the array's placement is fixed, the zone is empty or failed, there is no such part or drive, the
    /// drive has another part of the zone, or a rebuild runs; [`ErrorKind::NoSpace`] if the drive has no free physical zone;
    /// [`ErrorKind::Unsupported`] if the drive may have no zone active beside those that the array promises, or after 65,534 moves in the zone's generation; [`ErrorKind::ZoneOffline`] if the zone fails meanwhile; those of the
    /// drives. After an error the part is where it was, unless the array is broken. A move goes on if the future is dropped.
    pub async fn move_part(&self, zone: ZoneId, role: Role, slot: Slot, pace: Pace) -> Result<bool> {
        pace.check(&self.core.ctx.geometry.name)?;
        let core = Arc::clone(&self.core);
        let run = async move { move_one(&core, zone, role, slot, pace).await };
        spawn(&*self.core.ctx.driver, "move a part", run).await
    }

    /// The drive and the physical zone of a part of a logical zone; `None` if the zone has no map. For tests.
    #[doc(hidden)]
    pub fn place(&self, zone: ZoneId, role: Role) -> Option<(Slot, ZoneId)> {
        self.core.ctx.places.place(zone, role).map(|place| (place.slot, place.zone))
    }

    /// The first row of a part of a logical zone in its physical zone: 0 unless logical zones share physical zones. For tests.
    #[doc(hidden)]
    pub fn first_row(&self, zone: ZoneId, role: Role) -> u64 {
        self.core.ctx.places.place(zone, role).map_or(0, |place| place.row)
    }
}

/// Moves one part, after the job that runs already.
pub(crate) async fn move_one(
    core: &Arc<Core>,
    zone: ZoneId,
    role: Role,
    slot: Slot,
    pace: Pace,
) -> Result<bool> {
    let refuse_beside_rebuild = || match core.jobs.running_rebuild() {
        Some(_) => {
            let error = core.ctx.error(ErrorKind::Invalid, "move a part");
            Err(error.because("a rebuild runs: wait for it"))
        }
        None => Ok(()),
    };
    refuse_beside_rebuild()?;
    let _places_change = core.jobs.places.acquire().await;
    refuse_beside_rebuild()?;
    let job = Job::new(None, &core.ctx.driver);
    if !core.jobs.begin_move(&job) {
        return Err(core.ctx.error(ErrorKind::Cancelled, "move a part").because("the array is being closed"));
    }
    let mut runner = Runner::new(core, &job, pace);
    let result = match MovingPart::begin(core, zone, role, slot).await {
        Ok(moving) => moving.run(&mut runner).await,
        Err(e) => Err(e),
    };
    core.jobs.end_move();
    result
}

/// The array, once no rebuild runs: no part moves beside one, and the event of its end comes before it is over. `None` if the array is
/// gone.
async fn after_rebuild(array: &Weak<Core>) -> Option<Arc<Core>> {
    let rebuild = array.upgrade()?.jobs.rebuild.lock().clone();
    if let Some(rebuild) = rebuild {
        let _failed_or_not = rebuild.wait().await;
    }
    array.upgrade()
}

/// True if no more parts may be moved: the array is being closed or broken, or a rebuild runs.
fn must_end(core: &Core) -> bool {
    core.members.is_broken() || core.jobs.is_closed() || core.jobs.running_rebuild().is_some()
}
