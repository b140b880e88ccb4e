//! The zone report of the NVMe command zone management receive.

use units::{Blocks, Bytes, Lba};

use super::{u8_at, u64_at};
use crate::block::Condition;

/// Bytes of a zone report's header, and of each zone's descriptor.
const REPORT_HEADER_BYTES: usize = 64;
const ZONE_DESCRIPTOR_BYTES: usize = 64;

/// A zone in an NVMe zone report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// First block of the zone.
    pub start: Lba,
    /// Blocks of the zone that can be written.
    pub capacity: Blocks,
    /// The zone's write pointer; without meaning for a full, read-only or offline zone.
    pub pointer: Lba,
    /// State of the zone.
    pub condition: Condition,
    /// True for a zone that must be written sequentially: the only type that the command set has so far.
    pub sequential: bool,
    /// True if the device finished the zone by itself: an active zone that was idle for too long.
    pub finished_by_controller: bool,
}

/// A report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    /// The zones in the report.
    pub zones: Vec<Zone>,
    /// The number of zones that the report's header counts: more than `zones` has if the buffer was short.
    pub counted: u64,
}

/// The length of a buffer for a report of `zones` zones.
pub fn report_len(zones: u32) -> Bytes {
    Bytes((REPORT_HEADER_BYTES + zones as usize * ZONE_DESCRIPTOR_BYTES) as u64)
}

impl ZoneReport {
    /// Decodes the result of zone management receive: as many zones as the header counts and the buffer
    /// holds.
    pub fn decode(from: &[u8]) -> Option<ZoneReport> {
        let counted = u64_at(from, 0)?;
        let (descriptors, _rest) = from.get(REPORT_HEADER_BYTES..)?.as_chunks::<ZONE_DESCRIPTOR_BYTES>();
        let count = usize::try_from(counted).unwrap_or(usize::MAX);
        let zones =
            descriptors.iter().take(count).map(|raw| decode_zone_descriptor(raw)).collect::<Option<_>>()?;
        Some(ZoneReport { zones, counted })
    }
}

fn decode_zone_descriptor(raw: &[u8]) -> Option<Zone> {
    Some(Zone {
        start: Lba(u64_at(raw, 16)?),
        capacity: Blocks(u64_at(raw, 8)?),
        pointer: Lba(u64_at(raw, 24)?),
        condition: Condition::from_code(u8_at(raw, 1)? >> 4),
        sequential: u8_at(raw, 0)? & 0xf == 2,
        finished_by_controller: u8_at(raw, 2)? & 1 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of_two_zones() -> Vec<u8> {
        let mut raw = vec![0; report_len(2).0 as usize];
        raw[0] = 2;
        for (zone, state) in [(0usize, 0x20), (1, 0xe0)] {
            let at = REPORT_HEADER_BYTES + zone * ZONE_DESCRIPTOR_BYTES;
            raw[at] = 2;
            raw[at + 1] = state;
            raw[at + 2] = zone as u8;
            raw[at + 8..at + 16].copy_from_slice(&3072u64.to_le_bytes());
            raw[at + 16..at + 24].copy_from_slice(&(zone as u64 * 4096).to_le_bytes());
            raw[at + 24..at + 32].copy_from_slice(&(zone as u64 * 4096 + 17).to_le_bytes());
        }
        raw
    }

    #[test]
    fn a_report_is_decoded() {
        let report = ZoneReport::decode(&report_of_two_zones()).expect("a report");
        assert_eq!((report.counted, report.zones.len()), (2, 2));
        let first = Zone {
            start: Lba(0),
            capacity: Blocks(3072),
            pointer: Lba(17),
            condition: Condition::ImplicitOpen,
            sequential: true,
            finished_by_controller: false,
        };
        assert_eq!(report.zones[0], first);
        assert_eq!((report.zones[1].start, report.zones[1].condition), (Lba(4096), Condition::Full));
        assert!(report.zones[1].finished_by_controller);
    }

    #[test]
    fn a_report_that_counts_more_than_it_holds_gives_what_it_holds() {
        let mut raw = report_of_two_zones();
        raw[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let report = ZoneReport::decode(&raw).expect("a report");
        assert_eq!((report.zones.len(), report.counted), (2, u64::MAX));
        assert_eq!(ZoneReport::decode(&raw[..REPORT_HEADER_BYTES - 1]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_report_or_none(raw: Vec<u8>) {
            let zones = ZoneReport::decode(&raw).map_or(0, |report| report.zones.len());
            proptest::prop_assert!(zones * ZONE_DESCRIPTOR_BYTES <= raw.len());
        }
    }
}
