//! The time of a mount with metadata logs that are nearly full, with stored maps beside computed places. Paper: RAIZN+, section 5.3.

use std::sync::Arc;
use std::time::Duration;

use ::array::Placement;
use units::block_on;
use zoned::{Action, Buf, Bytes, Durability, Lba, Result, ZoneId, ZonedDevice};

use super::{ArrayLoad, Bed, Line, Setup};

/// Zones of a drive: as many as a zn540 has.
const ZONES: u32 = 904;
/// Bytes of a zone: fewer than a zn540's, as the emulator keeps the logs in memory.
const ZONE_SIZE: Bytes = Bytes(64 << 20);
/// The share of a metadata zone that the fullest log takes: at three quarters a log moves to the next zone.
const FULL: f64 = 0.72;
/// Number of writes between two looks at the logs' lengths.
const WRITES_BETWEEN_REPORTS: u32 = 64;
/// Number of these looks by which the logs are full.
const MOST_ROUNDS: u32 = 1000;
/// The longest mount with stored maps, over one with computed places.
const LONGEST: f64 = 1.1;

impl ArrayLoad {
    /// The mount of an array with stored maps, beside the mount with computed places.
    pub(super) fn mounts(&self) -> Result<Line> {
        let of = |placement| {
            let setup = Setup { zones: ZONES, zone_size: Some(ZONE_SIZE), placement, ..self.setup };
            mount_with_full_logs(&setup, FULL).map(|took| took.as_secs_f64() * 1e6)
        };
        let (stored, fixed) = (of(Placement::Stored)?, of(Placement::Fixed)?);
        let what = format!("mount, {ZONES} zones of 64 MiB, logs nearly full, stored maps");
        let line = Line::latency(what, stored, fixed, "the same, fixed placement");
        Ok(Line { wanted: LONGEST, ..line })
    }
}

/// Writes to each zone, fills the metadata logs to the share `full` with partial parity, and measures the next mount.
pub fn mount_with_full_logs(setup: &Setup, full: f64) -> Result<Duration> {
    let bed = setup.build()?;
    let device: Arc<dyn ZonedDevice> = Arc::clone(&bed.device);
    let geometry = device.geometry().clone();
    let unit = Buf::copy_from(&vec![0; usize::try_from(setup.stripe_unit.0).expect("fits memory")]);
    let blocks = setup.stripe_unit.0 / u64::from(geometry.block_size);
    block_on(&*bed.driver, async {
        for zone in (1..geometry.zones).map(ZoneId) {
            device.write(geometry.start(zone), unit.clone(), Durability::Cached).await?;
            device.zone(zone, Action::Finish).await?;
        }
        device.flush().await?;
        let (mut at, mut rounds) = (0, 0);
        while share_of_fullest_log(&bed).await? < full {
            rounds += 1;
            assert!(rounds < MOST_ROUNDS, "the logs moved before they were full to {full}");
            for _ in 0..WRITES_BETWEEN_REPORTS {
                if at + blocks > geometry.zone_capacity.0 {
                    device.zone(ZoneId(0), Action::Reset).await?;
                    at = 0;
                }
                device.write(Lba(at), unit.clone(), Durability::Cached).await?;
                at += blocks;
            }
            // The emulator keeps what no flush covers in memory.
            device.flush().await?;
        }
        Ok::<(), zoned::Error>(())
    })?;
    drop(device);
    let begun = bed.driver.now();
    let bed = bed.again()?;
    Ok(bed.driver.now().since(begun))
}

/// The share of its zone that the longest metadata log takes.
async fn share_of_fullest_log(bed: &Bed) -> Result<f64> {
    let metadata = bed.array.status().superblock.metadata_zones;
    let mut fullest: f64 = 0.0;
    for drive in &bed.drives {
        let drive: &dyn ZonedDevice = &**drive;
        for zone in drive.report(0..metadata).await? {
            fullest = fullest.max(zone.pointer.0 as f64 / zone.capacity.0 as f64);
        }
    }
    Ok(fullest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_with_stored_maps_takes_as_long_as_with_computed_places() {
        let line = ArrayLoad::default().mounts().expect("measured");
        println!("{}", line.words());
        assert!(line.holds(), "{line:?}");
    }
}
