//! The payload of a maps record: where the parts of logical zones lie.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | count | maps |
//! | 4 | 4 | parts | parts of each map |
//! | 8 | 8 | reserved | zero |
//! | 16 | | maps | one after the other |
//!
//! A map:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | generation | the generation of the logical zone that the map is for |
//! | 8 | 4 | zone | the logical zone |
//! | 12 | 4 | version | 1 for the map of the zone's first write; each map that moves parts has the next number, up to 65,535 |
//! | 16 | 12 each | parts | by role: slot (2), placed_by (2), physical zone (4), first row (4: 0, or a multiple of a part's rows where logical zones share physical zones) |
//!
//! `placed_by` is the version of the map that moved the part to its place, and 0 if none did. Each version after the first moves a part.
//!
//! The highest version of a zone's highest generation counts. A zone whose highest generation has no map is empty. A physical zone
//! that no map names holds nothing.

use std::collections::BTreeMap;

use units::ZoneId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::placement::Place;
use crate::layout::stored_maps::{FIRST_VERSION, PlacedBy, ZoneMap};
use crate::layout::{MAX_MEMBERS, Role, Slot};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    count: U32,
    parts: U32,
    reserved: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawMap {
    generation: U64,
    zone: U32,
    version: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawPlace {
    slot: U16,
    placed_by: U16,
    zone: U32,
    row: U32,
}

const _: () = assert!(size_of::<Raw>() == 16 && size_of::<RawMap>() == 16 && size_of::<RawPlace>() == 12);

/// The number of maps of `parts` parts in a record of one block: at least one.
fn per_block(block_size: u32, parts: usize) -> usize {
    let room = (block_size as usize).saturating_sub(super::header::SIZE + size_of::<Raw>());
    (room / (size_of::<RawMap>() + parts * size_of::<RawPlace>())).max(1)
}

/// Blocks of the records with the maps of `zones` zones of `parts` parts.
pub(crate) fn blocks(zones: u64, parts: u32, block_size: u32) -> u64 {
    let count = per_block(block_size, parts as usize);
    let bytes = super::header::SIZE
        + size_of::<Raw>()
        + count * (size_of::<RawMap>() + parts as usize * size_of::<RawPlace>());
    zones.div_ceil(count as u64) * (bytes as u64).div_ceil(u64::from(block_size))
}

/// Splits maps into the contents of records of one block each; a map that is larger than a block has a record of its own.
pub(crate) fn split(maps: &[ZoneMap], block_size: u32) -> impl Iterator<Item = Vec<ZoneMap>> {
    let parts = maps.iter().map(|map| map.places.len()).max().unwrap_or(0);
    maps.chunks(per_block(block_size, parts)).map(<[ZoneMap]>::to_vec)
}

/// Encodes maps with the same number of parts.
pub(crate) fn encode(maps: &[ZoneMap]) -> Vec<u8> {
    let number = |n: usize| U32::new(u32::try_from(n).expect("a block's worth of maps"));
    let parts = maps.first().map_or(0, |map| map.places.len());
    let raw = Raw { count: number(maps.len()), parts: number(parts), reserved: 0.into() };
    let mut bytes = raw.as_bytes().to_vec();
    for map in maps {
        let version = u32::from(map.version).into();
        let raw = RawMap { generation: map.generation.into(), zone: map.zone.0.into(), version };
        bytes.extend_from_slice(raw.as_bytes());
        for (role, place) in (0..).map(Role).zip(&map.places) {
            let placed_by = map.moved.get(&role).map_or(0, |placed_by| placed_by.0).into();
            let slot = u16::try_from(place.slot.0).expect("no more than MAX_MEMBERS").into();
            let row = u32::try_from(place.row).expect("a row of a physical zone").into();
            let raw = RawPlace { slot, placed_by, zone: place.zone.0.into(), row };
            bytes.extend_from_slice(raw.as_bytes());
        }
    }
    bytes
}

/// Decodes the payload of a maps record. `None` if the payload is too short, or names what no build of this version writes.
pub(crate) fn decode(payload: &[u8]) -> Option<Vec<ZoneMap>> {
    let (raw, mut rest) = Raw::read_from_prefix(payload).ok()?;
    let (count, parts) = (raw.count.get() as usize, raw.parts.get());
    if parts > MAX_MEMBERS {
        return None;
    }
    let bytes = size_of::<RawMap>() + parts as usize * size_of::<RawPlace>();
    if count.checked_mul(bytes)? > rest.len() {
        return None;
    }
    let mut maps = Vec::with_capacity(count);
    for _ in 0..count {
        let (raw, left) = RawMap::read_from_prefix(rest).ok()?;
        rest = left;
        let mut map = ZoneMap {
            zone: ZoneId(raw.zone.get()),
            generation: raw.generation.get(),
            version: u16::try_from(raw.version.get()).ok()?,
            places: Vec::with_capacity(parts as usize),
            moved: BTreeMap::new(),
        };
        for role in (0..parts).map(Role) {
            let (place, left) = RawPlace::read_from_prefix(rest).ok()?;
            rest = left;
            let placed_by = PlacedBy(place.placed_by.get());
            if placed_by != PlacedBy::default() {
                map.moved.insert(role, placed_by);
            }
            let (slot, zone) = (Slot(place.slot.get().into()), ZoneId(place.zone.get()));
            map.places.push(Place { slot, zone, row: place.row.get().into() });
        }
        if !has_possible_version(&map) {
            return None;
        }
        maps.push(map);
    }
    Some(maps)
}

/// True if a map has the first version and names no moved part, or a later version that moved a part, as none later did.
fn has_possible_version(map: &ZoneMap) -> bool {
    let newest = map.moved.values().map(|placed_by| placed_by.0).max();
    let oldest = map.moved.values().map(|placed_by| placed_by.0).min();
    newest.unwrap_or(FIRST_VERSION) == map.version && oldest.is_none_or(|oldest| oldest > FIRST_VERSION)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(zone: u32, parts: u32) -> ZoneMap {
        let place = |n| Place { slot: Slot(n), zone: ZoneId(zone * 7 + n), row: u64::from(zone + n) };
        let generation = u64::from(zone) + 3;
        let mut map = ZoneMap::first(ZoneId(zone), generation, (0..parts).map(place).collect());
        if zone.is_multiple_of(3) {
            map.version = 700;
            map.moved = [(Role(0), PlacedBy(2)), (Role(parts - 1), PlacedBy(700))].into_iter().collect();
        }
        map
    }

    #[test]
    fn maps_fill_blocks_and_read_as_they_were_written() {
        for (parts, block) in [(3, 512), (5, 4096), (64, 512), (64, 4096)] {
            let maps: Vec<ZoneMap> = (0..100).map(|zone| sample(zone, parts)).collect();
            let records: Vec<Vec<ZoneMap>> = split(&maps, block).collect();
            assert_eq!(records.concat(), maps);
            let mut taken = 0;
            for record in &records {
                let bytes = encode(record);
                taken += (bytes.len() as u64 + super::super::header::SIZE as u64).div_ceil(block.into());
                assert_eq!(decode(&bytes).as_ref(), Some(record));
                assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            }
            assert!(
                taken <= blocks(100, parts, block) && blocks(100, parts, block) <= taken + 1,
                "{parts} {block}"
            );
        }
    }

    #[test]
    fn a_map_that_no_build_of_this_version_writes_is_refused() {
        // A map that moved nothing, and one whose version 700 moved its last part: version, its high bytes, and the versions that
        // moved the first and last part.
        for (zone, bytes) in [(1, [28, 30, 34, 58]), (3, [28, 31, 34, 58])] {
            let good = encode(&[sample(zone, 3)]);
            assert!(decode(&good).is_some());
            for at in bytes {
                let mut bad = good.clone();
                bad[at] = if at == 34 { 1 } else { 9 };
                assert_eq!(decode(&bad), None, "byte {at} of the map of zone {zone}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_maps_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(maps) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&maps)), Some(maps));
            }
        }
    }
}
