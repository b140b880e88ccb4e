//! Selects the parts of a drive that are read to detect its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Geometry;

/// Bytes that are sampled at the start and at the end of a drive.
const EDGE_BYTES: u64 = 128 << 10;
/// Bytes that are sampled at the start of a zone.
const ZONE_HEAD_BYTES: u64 = 4 << 10;
/// Number of first zones, of first sequential zones and of last zones whose start is read.
const MAX_SAMPLED_ZONES: u32 = 8;
/// Number of conventional zones that are sampled, and of blocks read from each.
const MAX_SAMPLED_CONVENTIONAL: u32 = 64;
const SAMPLES_IN_EACH_ZONE: u64 = 16;
/// Offsets of btrfs's superblock copies, each in the zone at the offset or in the next zone.
const BTRFS_COPIES: [u64; 2] = [512 << 30, 4 << 40];

/// Sizes of a drive and its zones, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Size of the drive's address space, in bytes.
    pub size: u64,
    /// Distance between the starts of two zones, in bytes.
    pub zone_size: u64,
    /// Number of zones.
    pub zones: u32,
    /// Number of conventional zones, which come before the sequential ones.
    pub conventional: u32,
}

/// Samples: bytes read from a drive, by offset.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Samples(BTreeMap<u64, Vec<u8>>);

impl Layout {
    /// The layout of a drive.
    pub fn of(geometry: &Geometry) -> Layout {
        let zone_size = geometry.zone_size.bytes(geometry.block_size).0;
        Layout {
            size: zone_size.saturating_mul(u64::from(geometry.zones)),
            zone_size,
            zones: geometry.zones,
            conventional: geometry.conventional,
        }
    }

    /// Zones whose start is sampled, because it may hold a signature.
    pub(super) fn sampled_zones(&self) -> BTreeSet<u32> {
        let from = |first: u32| first..first.saturating_add(MAX_SAMPLED_ZONES);
        let mut zones: BTreeSet<u32> = from(0).collect();
        zones.extend(from(self.conventional));
        zones.extend(from(self.zones.saturating_sub(MAX_SAMPLED_ZONES)));
        for copy in BTRFS_COPIES {
            let zone = copy.checked_div(self.zone_size).and_then(|zone| u32::try_from(zone).ok());
            zones.extend(zone.into_iter().flat_map(|zone| [zone, zone.saturating_add(1)]));
        }
        zones.retain(|zone| *zone < self.zones);
        zones
    }

    /// Byte offsets of the samples in conventional zones: an evenly spread list for each sampled zone. The
    /// first two zones, which file systems use first, are always sampled.
    pub(super) fn conventional_zone_sample_offsets(&self) -> Vec<Vec<u64>> {
        let step = (self.conventional / MAX_SAMPLED_CONVENTIONAL).max(1);
        let mut zones: BTreeSet<u32> = (0..self.conventional.min(2)).collect();
        zones.extend((0..self.conventional).step_by(step as usize));
        let within = |zone: u32| {
            let start = u64::from(zone).saturating_mul(self.zone_size);
            (0..SAMPLES_IN_EACH_ZONE)
                .map(|n| start.saturating_add(self.zone_size / SAMPLES_IN_EACH_ZONE * n))
                .collect()
        };
        zones.into_iter().map(within).collect()
    }

    /// Byte ranges of the drive to sample: disjoint, within the drive.
    pub fn places(&self) -> Vec<Range<u64>> {
        let start = |zone: u32| u64::from(zone).saturating_mul(self.zone_size);
        let mut wanted = vec![0..EDGE_BYTES, self.size.saturating_sub(EDGE_BYTES)..self.size];
        let heads = self.sampled_zones().into_iter();
        wanted.extend(heads.map(|zone| start(zone)..start(zone).saturating_add(ZONE_HEAD_BYTES)));
        wanted.sort_unstable_by_key(|place| place.start);
        let mut places: Vec<Range<u64>> = Vec::new();
        for place in wanted {
            let place = place.start..place.end.min(self.size);
            match places.last_mut() {
                Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
                _ if place.is_empty() => {}
                _ => places.push(place),
            }
        }
        places
    }
}

impl Samples {
    /// Adds a sample: bytes read at offset `at`.
    pub fn insert(&mut self, at: u64, bytes: Vec<u8>) {
        self.0.insert(at, bytes);
    }

    /// `len` bytes at `at`, if one sample contains all of them.
    pub(super) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let (start, bytes) = self.0.range(..=at).next_back()?;
        let skip = usize::try_from(at.checked_sub(*start)?).ok()?;
        bytes.get(skip..skip.checked_add(len)?)
    }
}
