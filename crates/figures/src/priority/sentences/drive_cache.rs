//! Emulated drives with a volatile cache: how long a log's sync takes where bulk lies in the cache, and acknowledged blocks that a power cut loses.

use std::sync::Arc;
use std::time::Duration;

use units::{Blocks, VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency, Profile, Seeded};
use zoned::{Buf, BufMut, Driver, Durability, Lba, ZoneId, ZonedDevice};

use crate::{Error, Result};

/// Bytes of a block, and of a write of the log.
const BLOCK_BYTES: usize = 4 << 10;
/// Bytes of a bulk write.
const PIECE_BYTES: u64 = 256 << 10;
/// Bytes of a zone of the drives.
const ZONE_BYTES: u64 = 64 << 20;

/// Bulk that its drive acknowledged and that lies in the drive's cache. The log has zone 0, bulk the zones behind that.
pub(super) struct BulkInCache {
    profile: &'static str,
    zones: u32,
    /// Bytes of bulk in each of the zones.
    bytes: u64,
}

impl BulkInCache {
    /// A disk with bulk that fills `zones` zones of 64 MiB.
    pub(super) fn smr(zones: u32) -> BulkInCache {
        BulkInCache { profile: "smr", zones, bytes: ZONE_BYTES }
    }

    /// A drive whose zones lie on a die each, with bulk in `zones` of them.
    pub(super) fn smallzone(zones: u32) -> BulkInCache {
        BulkInCache { profile: "smallzone", zones, bytes: 512 << 10 }
    }

    /// The drive, and what `sync` waits for there, for notes.
    pub(super) fn note(&self, sync: SyncWay) -> &'static str {
        match (self.profile, sync) {
            ("smr", SyncWay::Flush) => {
                "smr; 4 KiB written and flushed: a flush waits for all data in the cache"
            }
            ("smr", SyncWay::DurableWrite) => {
                "smr; 4 KiB written durably (FUA): the model of a disk writes its cache in the order of arrival"
            }
            (_, SyncWay::Flush) => {
                "smallzone as if its buffer were volatile; 4 KiB written and flushed: a flush waits for all dies"
            }
            (_, SyncWay::DurableWrite) => {
                "smallzone as if its buffer were volatile; 4 KiB written durably (FUA): the write waits for its own die"
            }
        }
    }
}

/// How a log makes a write durable.
#[derive(Clone, Copy)]
pub(super) enum SyncWay {
    /// A write and a flush of the drive.
    Flush,
    /// A durable write (FUA).
    DurableWrite,
}

/// How long a synced write of the log takes once all of `bulk` was acknowledged.
pub(super) fn time_of_sync(bulk: &BulkInCache, sync: SyncWay) -> Result<Duration> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let profile = Profile::load(bulk.profile).map_err(|why| Error::new(bulk.profile, why))?;
    let mut options = EmuOptions::of_profile(profile);
    options.zones = bulk.zones + 1;
    options.conventional = 0;
    options.zone_size = Blocks(ZONE_BYTES / u64::from(options.block_size));
    options.zone_capacity = options.zone_size;
    options.volatile_cache = true;
    let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
    block_on(&*driver, async {
        write_block(&device, 0, Durability::Durable).await?;
        let piece: Buf = BufMut::zeroed(PIECE_BYTES as usize).freeze();
        let blocks = PIECE_BYTES / u64::from(device.geometry().block_size);
        for zone in 1..=bulk.zones {
            for piece_number in 0..bulk.bytes / PIECE_BYTES {
                let at = device.geometry().start(ZoneId(zone)).plus(Blocks(piece_number * blocks));
                device.write(at, piece.clone(), Durability::Cached).await?;
            }
        }
        let begun = driver.now();
        match sync {
            SyncWay::Flush => {
                write_block(&device, 1, Durability::Cached).await?;
                device.flush().await?;
            }
            SyncWay::DurableWrite => write_block(&device, 1, Durability::Durable).await?,
        }
        Ok(driver.now().since(begun))
    })
    .map_err(|e: zoned::Error| Error::new(bulk.profile, e))
}

/// Writes block `number` of zone 0, whose bytes are its number.
async fn write_block(device: &Arc<dyn ZonedDevice>, number: u8, how: Durability) -> zoned::Result<()> {
    device.write(Lba(u64::from(number)), content(number), how).await
}

fn content(number: u8) -> Buf {
    let mut block = BufMut::zeroed(BLOCK_BYTES);
    block.fill(number + 1);
    block.freeze()
}

/// Blocks that are written before each power cut.
pub(super) const BLOCKS: u8 = 64;
/// Power cuts, each with an outcome of its own.
pub(super) const POWER_CUTS: u64 = 100;

/// Acknowledged blocks that do not read as written after a power cut: the most of all outcomes.
pub(super) fn most_lost_blocks(how: Durability) -> Result<usize> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let options = EmuOptions { zones: 1, track_power_cuts: true, ..EmuOptions::default() };
    let emu = Emu::memory(options, Arc::clone(&driver));
    let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
    block_on(&*driver, async {
        for number in 0..BLOCKS {
            write_block(&device, number, how).await?;
        }
        let mut most = 0;
        for seed in 0..POWER_CUTS {
            let media = emu.power_cut(&mut Seeded::new(seed));
            let device: Arc<dyn ZonedDevice> =
                Emu::from_media(media, "after the cut", Latency::NONE, Arc::clone(&driver));
            let mut lost = 0;
            for number in 0..BLOCKS {
                let read = device.read(Lba(u64::from(number)), BufMut::zeroed(BLOCK_BYTES)).await?;
                lost += usize::from(*read != *content(number));
            }
            most = most.max(lost);
        }
        Ok(most)
    })
    .map_err(|e: zoned::Error| Error::new("power cuts", e))
}
