//! The handle of an assembled array.

use std::ops::Range;
use std::sync::Arc;

use zoned::{
    Blocks, Driver, ErrorKind, Geometry, Io, IoClass, Lba, Op, Result, ShareStatus, ZoneId, ZonedDevice,
};

use crate::core::Core;
use crate::degraded::failed_zones;
use crate::format::superblock::Superblock;
use crate::joined::JoinedZones;
use crate::layout::Slot;
use crate::member::Member;

/// An array of zoned drives.
///
/// Where zones are joined ([`CreateOptions::sections`](crate::CreateOptions::sections)), the device has the joined zones; all other
/// methods, events and reports number the sections: section S of zone Z is zone `Z * sections + S`.
#[derive(Debug)]
pub struct Array {
    pub(crate) core: Arc<Core>,
    /// The zones that clients see, where several zones of `core` make one.
    pub(crate) joined: Option<Arc<JoinedZones>>,
}

impl ZonedDevice for Array {
    fn geometry(&self) -> &Geometry {
        self.joined.as_ref().map_or(&self.core.ctx.geometry, |joined| joined.geometry())
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        match &self.joined {
            Some(joined) => joined.submit(class, op),
            None => self.core.submit(class, op),
        }
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        match &self.joined {
            Some(joined) => joined.raise(class, &blocks),
            None => self.core.raise(class, &blocks),
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.core.ctx.driver
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

    fn share_status(&self) -> Option<ShareStatus> {
        let devices = self.core.members.iter().filter_map(Member::device);
        devices.filter_map(|device| device.share_status()).reduce(ShareStatus::plus)
    }
}

impl Array {
    /// The newest superblock: the array's shape and its failed members.
    pub fn superblock(&self) -> Superblock {
        self.core.members.config.lock().clone()
    }

    /// Translates a block of a zone of the device to the numbers that all other methods and reports use: the zone, or the section of a
    /// joined zone, and the block's offset there. The offset is below the zone's capacity.
    pub fn locate(&self, zone: ZoneId, offset: Blocks) -> (ZoneId, Blocks) {
        self.joined.as_ref().map_or((zone, offset), |joined| joined.locate(zone, offset))
    }

    /// True if more drives failed than there are parities: the array takes no more writes.
    pub fn is_broken(&self) -> bool {
        self.core.members.is_broken()
    }

    /// Fails the drive in `slot`, as if the drive had answered with an error: to take a drive out, for example. When this
    /// returns, the superblocks of the other drives say so. The content of the failed drive is out of date from then on.
    ///
    /// Errors: [`ErrorKind::Invalid`] if there is no such slot, its drive has failed or is missing already, or as many
    /// drives have as there are parities: the array would stop.
    pub async fn fail(&self, slot: Slot) -> Result<()> {
        let core = &self.core;
        let refuse = |why: String| Err(core.ctx.error(ErrorKind::Invalid, "fail").because(why));
        if slot.0 >= core.ctx.places.drives() {
            return refuse(format!(
                "the array has {} slots, from 0 on: there is no {}",
                core.ctx.places.drives(),
                slot.0
            ));
        }
        if !core.members.member(slot).is_good() {
            return refuse(format!("drive {} is failed or missing already", slot.0));
        }
        if let Some(other) = core.members.last_failure_beside(None) {
            let most = if core.ctx.layout.parities == 1 { "one" } else { "two" };
            return refuse(format!(
                "drive {} is lacking, and the array does without {most} only: replace that one first",
                other.slot.0
            ));
        }
        core.members.fail(slot, None).await
    }

    /// Fails a zone, as if two drives lacked their parts: the content of the zone is lost. For tests.
    #[doc(hidden)]
    pub async fn fail_zone(&self, zone: ZoneId) -> Result<()> {
        failed_zones::fail_zone(&self.core, zone).await
    }
}

impl Drop for Array {
    /// Stops the array's rebuild and scrub soon. A rebuild goes on when the array is opened again.
    fn drop(&mut self) {
        self.core.jobs.stop();
        if let Some(shared) = self.core.zones.shared() {
            shared.requests.changed.notify();
        }
    }
}
