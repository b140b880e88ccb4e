//! A zone written in order, whose content says where each block belongs.

use anyhow::{Result, ensure};
use zoned::{Action, Buf, BufMut, Durability, Io, Lba, ZoneId, ZoneState, ZonedDevice};

use super::super::pattern;
use super::load::{Load, repeat};

/// Blocks of the reads that compare a zone's content.
const BLOCKS_OF_A_READ: u64 = 32;

/// A zone that one writer writes in order, while servers are killed.
///
/// A block's content follows from its address and the number of the zone's resets, so that content is right whichever attempt
/// wrote it, and blocks of an earlier life of the zone are found.
pub(super) struct WrittenZone<'a> {
    device: &'a dyn ZonedDevice,
    zone: ZoneId,
    /// Number of resets.
    life: u64,
    /// Blocks from the zone's start to the next write.
    next: u64,
    /// Blocks from the zone's start to the end of the last write that was acknowledged.
    acknowledged: u64,
}

impl<'a> WrittenZone<'a> {
    pub(super) fn new(device: &'a dyn ZonedDevice, zone: ZoneId) -> WrittenZone<'a> {
        WrittenZone { device, zone, life: 0, next: 0, acknowledged: 0 }
    }

    /// Resets the zone.
    pub(super) fn reset(&mut self) -> Result<()> {
        repeat(|| self.device.zone(self.zone, Action::Reset))?;
        *self = WrittenZone { life: self.life + 1, ..WrittenZone::new(self.device, self.zone) };
        Ok(())
    }

    /// Finishes the zone: nothing more is written before the next reset.
    pub(super) fn finish(&mut self) -> Result<()> {
        repeat(|| self.device.zone(self.zone, Action::Finish))?;
        self.next = self.capacity();
        Ok(())
    }

    /// Blocks from the zone's start to the end of the last write that was acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// True if the zone takes no writes before its next reset.
    pub(super) fn is_full(&self) -> bool {
        self.next == self.capacity()
    }

    /// Submits writes of so many blocks each, one behind the other, and waits for all. Returns the number of those that failed
    /// because of a kill; the zone's content has been compared then.
    pub(super) fn write(&mut self, lengths: impl Iterator<Item = u64>, load: &Load) -> Result<u64> {
        let moment = load.moment();
        let mut submitted: Vec<(u64, Io<()>)> = Vec::new();
        for length in lengths {
            let (from, to) = (self.next, (self.next + length).min(self.capacity()));
            if from == to {
                break;
            }
            let data = self.content(from, to);
            let at = Lba(self.start() + from);
            submitted.push((to, self.device.write(at, Buf::copy_from(&data), Durability::Cached)));
            self.next = to;
        }
        let mut failures = 0;
        for (to, write) in submitted {
            match write.wait() {
                Ok(()) => {
                    self.acknowledged = self.acknowledged.max(to);
                    load.acknowledge();
                }
                Err(error) => {
                    load.check_failure(moment, error)?;
                    failures += 1;
                }
            }
        }
        if failures > 0 {
            self.next = self.compare()?;
        }
        Ok(failures)
    }

    /// Compares what lies below the pointer with what was written; returns the pointer, as blocks from the zone's start.
    pub(super) fn compare(&self) -> Result<u64> {
        let numbers = self.zone.0..self.zone.0 + 1;
        let zones = repeat(|| self.device.report(numbers.clone()))?;
        let [found] = zones.as_slice() else {
            anyhow::bail!("a report of {} zones, not of one", zones.len())
        };
        let (zone, acknowledged) = (self.zone, self.acknowledged);
        ensure!(
            found.pointer.0 >= acknowledged,
            "zone {zone}: writes up to block {acknowledged} were acknowledged, and the pointer is at {}",
            found.pointer.0
        );
        // A finish leaves blocks unwritten.
        let end = if found.state == ZoneState::Full { acknowledged } else { found.pointer.0 };
        let mut from = 0;
        while from < end {
            let to = end.min(from + BLOCKS_OF_A_READ);
            let wanted = self.content(from, to);
            let at = Lba(self.start() + from);
            let read = repeat(|| self.device.read(at, BufMut::zeroed(wanted.len())))?;
            let wrong = read.chunks(self.block()).zip(wanted.chunks(self.block())).position(|(a, b)| a != b);
            if let Some(wrong) = wrong {
                let (block, life) = (from + wrong as u64, self.life);
                anyhow::bail!(
                    "zone {zone} in life {life}: block {block} of {acknowledged} acknowledged ones, pointer {end}, \
                     is not what was written"
                );
            }
            from = to;
        }
        Ok(found.pointer.0)
    }

    /// Blocks of the zone.
    fn capacity(&self) -> u64 {
        self.device.geometry().zone_capacity.0
    }

    /// Address of the zone's first block.
    fn start(&self) -> u64 {
        self.device.geometry().start(self.zone).0
    }

    /// Bytes in a block.
    fn block(&self) -> usize {
        self.device.geometry().block_size as usize
    }

    /// The content of blocks of the zone.
    fn content(&self, from: u64, to: u64) -> Vec<u8> {
        let block = |block: u64| pattern::block([self.start() + block, self.life], self.block());
        (from..to).map(block).collect::<Vec<_>>().concat()
    }
}
