//! Entry points for the fuzz targets (cargo feature `fuzzing`; `crates/fuzz`): each decodes any bytes, and what it decodes must
//! survive being encoded and decoded again.

use units::crc32c;
use uuid::Uuid;
use zoned::contents::RecordHeader;
use zoned::{Buf, BufMut};

use crate::format::{frames, header, record, row_ranges, superblock, zone_entries, zone_maps};

/// Bytes in a block of the fuzzed records.
const BLOCK_BYTES: u32 = 4096;

/// A record of a metadata log. The magic, the version and both checksums are made right first: random bytes would never pass them.
pub fn record(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some((head, payload)) = bytes.split_at_mut_checked(header::SIZE) {
        put(head, 0, &RecordHeader::MAGIC);
        put(head, 8, &RecordHeader::VERSION.to_le_bytes());
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        put(head, 80, &length.to_le_bytes());
        put(head, 84, &crc32c(&[payload]).to_le_bytes());
        let crc = crc32c(&[head.get(..header::SIZE - 4).unwrap_or_default()]);
        put(head, header::SIZE - 4, &crc.to_le_bytes());
    }
    let mut padded = BufMut::with_capacity(bytes.len().next_multiple_of(BLOCK_BYTES as usize));
    padded.extend_from_slice(&bytes);
    padded.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    let decode = |bytes: &Buf| record::decode(bytes, BLOCK_BYTES);
    if let Ok(Some((first, blocks))) = decode(&padded.freeze()) {
        let encoded = record::encode(first.place, &first.body, BLOCK_BYTES);
        let again = decode(&encoded).expect("a record of this build").expect("a whole record");
        assert_eq!(again.0, first);
        assert!(again.1 <= blocks, "a record takes no more blocks than the one that it was read from");
    }
}

/// The payload of a superblock record.
pub fn superblock(bytes: &[u8]) {
    let uuid = Uuid::from_u128(7);
    let Ok(first) = superblock::decode(uuid, bytes) else { return };
    let encoded = superblock::encode(&first);
    let Ok(again) = superblock::decode(uuid, &encoded) else {
        panic!("a superblock of this build: {first:?}")
    };
    assert_eq!(again, first);
}

/// Fuzzes the payloads of zones records, of frames records and of records of stale rows, bad rows, zone copies and maps.
pub fn payloads(bytes: &[u8]) {
    if let Some((ranges, rewritten)) = row_ranges::decode(bytes) {
        assert_eq!(row_ranges::decode(&row_ranges::encode(&ranges, rewritten)), Some((ranges, rewritten)));
    }
    if let Some((known, before)) = frames::decode(bytes) {
        assert_eq!(frames::decode(&frames::encode(&known)), Some((known, before)));
    }
    if let Some((zone, mask)) = row_ranges::decode_copy(bytes) {
        assert_eq!(row_ranges::decode_copy(&row_ranges::encode_copy(zone, mask)), Some((zone, mask)));
    }
    if let Some(maps) = zone_maps::decode(bytes) {
        assert_eq!(zone_maps::decode(&zone_maps::encode(&maps)), Some(maps));
    }
    if let Some((first, entries)) = zone_entries::decode(bytes) {
        assert_eq!(zone_entries::decode(&zone_entries::encode(first, &entries)), Some((first, entries)));
    }
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + what.len()) {
        place.copy_from_slice(what);
    }
}
