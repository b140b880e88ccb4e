//! Checks that a drive's geometry fits an array.

use zoned::{ErrorKind, Result};

use crate::format::superblock::Superblock;
use crate::layout::Slot;
use crate::layout::placement::{METADATA_ZONES, part_zones};
use crate::member::member_drive::MemberDrive;

/// Refuses a drive whose geometry the superblock does not allow in `slot`.
pub(crate) fn check_drive_fits(device: &MemberDrive, superblock: &Superblock, slot: Slot) -> Result<()> {
    let g = device.geometry();
    let same = g.block_size == superblock.block_size
        && g.zones >= part_zones(superblock.part_zones).end
        && g.zone_capacity >= superblock.zone_capacity
        // A stripe unit and the header of its record go to a drive in one write.
        && g.max_transfer.0 > u64::from(superblock.unit)
        && superblock.metadata_zones == METADATA_ZONES
        && slot.index() < superblock.members.len();
    if same {
        return Ok(());
    }
    let why = format!(
        "the drive is not what the array was made of: {} sequential zones of {} blocks of {} bytes, at most {} blocks at a \
         time; was it formatted anew?",
        g.zones, g.zone_capacity.0, g.block_size, g.max_transfer.0
    );
    Err(device.error(ErrorKind::Damaged, "open").because(why))
}
