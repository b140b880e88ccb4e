use units::VirtualDriver;
use zoned::emu::{Emu, EmuOptions};
use zoned::{Blocks, Driver, ZonedDevice};

use super::*;
use crate::format::superblock::MAX_SPARES;
use crate::{CreateOptions, plan};

const CAPACITY: u64 = 512;

/// A log takes a zone's records up to its reserve, and then the largest superblock that the array can have.
#[test]
fn a_full_log_has_room_for_the_largest_superblock() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    for (block_size, members, reserve) in
        [(512, 3, 4), (512, 44, 4), (512, 45, 5), (512, 64, 6), (4096, 3, 4), (4096, 64, 4)]
    {
        let drive = |n: usize| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                block_size,
                zones: 6,
                zone_size: Blocks(CAPACITY),
                zone_capacity: Blocks(CAPACITY),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
        };
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..members).map(drive).collect();
        let mut superblock =
            plan(&drives, &CreateOptions { stripe_unit: zoned::Bytes(8192), ..CreateOptions::default() })
                .expect("fits");
        assert_eq!(
            superblock_reserve(members, block_size),
            reserve,
            "{members} members, blocks of {block_size}"
        );
        let log = Log::new(&superblock, 1, 0, ZoneId(0), 0, CAPACITY);
        let device = MemberDrive::all(&drives).into_iter().next();
        let member = Member::new(Slot(0), device, log, Arc::default());
        let record = Body::ResetIntent { zone: ZoneId(0), generation: 1 };
        let mut ios = Vec::new();
        while let Ok(io) = member.append(&record, false, Durability::Cached) {
            ios.extend(io);
        }
        assert_eq!(ios.len() as u64, CAPACITY - reserve);
        superblock.spares = vec![Uuid::nil(); MAX_SPARES];
        ios.extend(member.append(&Body::Superblock(superblock), false, Durability::Durable).expect("room"));
        for io in ios {
            io.wait().expect("written");
        }
    }
}
