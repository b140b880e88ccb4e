//! The parts of a lost drive move to the spare room of the other drives, beside a rebuild of the same parts on one new drive, and
//! beside what the other drives can do of such reads and writes. Paper: RAIZN+, section 5.2.5, which leaves the rebuild open.

use std::collections::VecDeque;
use std::sync::Arc;

use ::array::{EventKind, Pace, Placement, RebuildOptions, Role, Slot};
use units::{Instant, block_on};
use zoned::{Blocks, Buf, BufMut, Bytes, Durability, Io, Result, ZoneId, ZonedDevice, join_all};

use super::{ArrayLoad, Bed, KIB, Line, MIB, Setup, fill_with_zeros};

/// The drive that fails.
const LOST: Slot = Slot(0);
/// Bytes of a command of the reference load: as of a move without clients.
const CHUNK: u64 = 512 * KIB;
/// Numbers of rows of the reference load that are read, and that are written, at a time. The best one counts.
const DEPTHS: [usize; 4] = [4, 8, 16, 32];
/// Bytes that the reference load writes.
const REFERENCE_BYTES: u64 = 256 * MIB;
/// Numbers of drives, and the least rate of the moves over that of a rebuild of one new drive.
const FASTER: [(u32, f64); 2] = [(6, 2.0), (12, 4.0)];
/// The least rate of the moves, over what the other drives do of the same reads and writes.
const LEAST_OF_MIX: f64 = 0.9;

/// An array that loses a drive.
#[derive(Clone, Copy, Debug)]
pub struct LostDrive {
    /// The array's drives. Their zones may be smaller than the profile's: a drive's speed is the same.
    pub setup: Setup,
}

/// How long the parts of a lost drive took to be on other drives.
#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    /// Bytes of the parts.
    pub bytes: u64,
    /// Seconds from the drive's failure to the end.
    pub seconds: f64,
}

impl Recovered {
    /// The rate in MiB a second.
    pub fn mib(&self) -> f64 {
        self.bytes as f64 / MIB as f64 / self.seconds
    }
}

impl LostDrive {
    /// Drives with stripes of four units of data and one of parity, `zones` zones of `zone_size`, and the capacity of one drive free.
    pub fn of(drives: u32, zones: u32, zone_size: Bytes) -> LostDrive {
        let setup = Setup {
            drives,
            width: Some(5),
            spare_drives: 1,
            zones,
            zone_size: Some(zone_size),
            placement: Placement::Stored,
            ..Setup::default()
        };
        LostDrive { setup }
    }

    /// An array with the content of one that has spare room, and the bytes on the drive that is to be lost.
    fn filled(&self, spare_drives: u32) -> Result<(Bed, u64)> {
        let with_spare_room = self.setup.build()?;
        let zones = with_spare_room.device.geometry().zones;
        let bed = match spare_drives == self.setup.spare_drives {
            true => with_spare_room,
            false => Setup { spare_drives, ..self.setup }.build()?,
        };
        let geometry = bed.device.geometry();
        let capacity = geometry.zone_capacity.bytes(geometry.block_size);
        fill_with_zeros(&bed.device, zones, capacity)?;
        block_on(&*bed.driver, bed.device.flush())?;
        let width = self.setup.data_drives() + self.setup.parities;
        let is_lost = |zone: &ZoneId| {
            (0..width).any(|role| bed.array.place(*zone, Role(role)).is_some_and(|(slot, _)| slot == LOST))
        };
        let parts = (0..zones).map(ZoneId).filter(is_lost).count() as u64;
        let bytes = parts * capacity.0 / u64::from(self.setup.data_drives());
        Ok((bed, bytes))
    }

    /// Moves the parts of the lost drive to the spare room of the others.
    pub fn to_spare_room(&self) -> Result<Recovered> {
        let (bed, bytes) = self.filled(self.setup.spare_drives)?;
        let events = bed.array.events();
        let start = bed.driver.now();
        let left = block_on(&*bed.driver, async {
            bed.array.fail(LOST).await?;
            loop {
                if let EventKind::RestoreEnded { left, .. } = events.next().await.kind {
                    return Ok::<u32, zoned::Error>(left);
                }
            }
        })?;
        assert_eq!(left, 0, "the other drives have room for the parts of one");
        Ok(Recovered { bytes, seconds: bed.driver.now().since(start).as_secs_f64() })
    }

    /// Rebuilds the same parts on one new drive.
    pub fn to_new_drive(&self) -> Result<Recovered> {
        let (bed, bytes) = self.filled(0)?;
        let spare = bed.spare();
        block_on(&*bed.driver, bed.array.fail(LOST))?;
        let start = bed.driver.now();
        block_on(&*bed.driver, async {
            let options = RebuildOptions { pace: Pace::UNBOUNDED };
            bed.array.start_replace(LOST, spare, options).await?.wait().await
        })?;
        Ok(Recovered { bytes, seconds: bed.driver.now().since(start).as_secs_f64() })
    }

    /// The rate in MiB a second at which the other drives together can write parts, if each drive reads `data_drives` rows for each
    /// that it writes.
    pub fn rate_of_mix(&self) -> Result<f64> {
        let reads = self.setup.data_drives();
        let mut best = 0.0_f64;
        for depth in DEPTHS {
            best = best.max(Mix { reads, depth }.rate()?);
        }
        Ok(best * f64::from(self.setup.drives - 1))
    }
}

/// Reads of several zones of a drive, and writes of one more zone: a row is written once the same rows of all others are read.
struct Mix {
    reads: u32,
    depth: usize,
}

impl Mix {
    /// MiB that one drive writes in a second.
    fn rate(&self) -> Result<f64> {
        let setup = Setup { zones: self.reads + 1, ..Setup::default() };
        let device: Arc<dyn ZonedDevice> = setup.alone();
        fill_with_zeros(&device, self.reads, Bytes(REFERENCE_BYTES))?;
        let driver = Arc::clone(device.driver());
        let geometry = device.geometry().clone();
        let blocks = CHUNK / u64::from(geometry.block_size);
        let written = ZoneId(self.reads);
        let data = Buf::zeroed(CHUNK as usize);
        let start = driver.now();
        block_on(&*driver, async {
            let (mut reads, mut writes) = (VecDeque::new(), VecDeque::new());
            let count = REFERENCE_BYTES / CHUNK;
            let mut next = 0;
            for chunk in 0..count {
                while next < count && reads.len() < self.depth {
                    let at = |zone| geometry.start(ZoneId(zone)).plus(Blocks(next * blocks));
                    let ios: Vec<Io<BufMut>> = (0..self.reads)
                        .map(|zone| device.read(at(zone), BufMut::zeroed(CHUNK as usize)))
                        .collect();
                    reads.push_back(ios);
                    next += 1;
                }
                for read in join_all(reads.pop_front().unwrap_or_default()).await {
                    read?;
                }
                if writes.len() >= self.depth {
                    await_oldest(&mut writes).await?;
                }
                let at = geometry.start(written).plus(Blocks(chunk * blocks));
                writes.push_back(device.write(at, data.clone(), Durability::Cached));
            }
            while !writes.is_empty() {
                await_oldest(&mut writes).await?;
            }
            Ok::<(), zoned::Error>(())
        })?;
        let seconds = Instant::since(driver.now(), start).as_secs_f64();
        Ok(REFERENCE_BYTES as f64 / MIB as f64 / seconds)
    }
}

async fn await_oldest(writes: &mut VecDeque<Io<()>>) -> Result<()> {
    match writes.pop_front() {
        Some(write) => write.await,
        None => Ok(()),
    }
}

impl ArrayLoad {
    /// The parts of a lost drive move to the spare room of six and of twelve drives. `zones`: zones of each of the six drives, and of
    /// the twelve, of `zone_size`.
    pub(super) fn spares(&self, zones: [u32; 2], zone_size: Bytes) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for ((drives, faster), zones) in FASTER.into_iter().zip(zones) {
            let lost = LostDrive::of(drives, zones, zone_size);
            let ours = lost.to_spare_room()?;
            let what = format!(
                "{:.2} GiB of a lost drive to the room of {}: {:.3} s",
                ours.bytes as f64 / (1 << 30) as f64,
                drives - 1,
                ours.seconds
            );
            let which = format!("{} drives, 4 reads for each write", drives - 1);
            let line = Line::rate(what, ours.mib(), lost.rate_of_mix()?, which);
            lines.push(Line { wanted: LEAST_OF_MIX, ..line });
            let what = format!("the same, {drives} drives");
            let line = Line::rate(what, ours.mib(), lost.to_new_drive()?.mib(), "rebuild of one new drive");
            lines.push(Line { wanted: faster, ..line });
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A move costs a few milliseconds beside its copy, and the last moves leave drives idle: few small zones move at less than the
    /// rate that `docs/benchmarks.md` has.
    const LEAST_OF_MIX_IN_SMALL: [f64; 2] = [0.8, 0.6];

    #[test]
    fn lost_parts_move_to_spare_room_as_fast_as_the_other_drives_allow() {
        let mut lines = ArrayLoad::default().spares([24, 48], Bytes(24 * MIB)).expect("measured");
        lines.iter().for_each(|line| println!("{}", line.words()));
        lines.iter_mut().step_by(2).zip(LEAST_OF_MIX_IN_SMALL).for_each(|(line, least)| line.wanted = least);
        let missed: Vec<&Line> = lines.iter().filter(|line| !line.holds()).collect();
        assert!(missed.is_empty() && lines.len() == 4, "{missed:#?}");
    }
}
