//! The superblock: one block at the start of zone 0, and a copy at the start of zone 1.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FURROWFS` |
//! | 8 | 4 | version | 2 |
//! | 12 | 4 | crc | CRC32C of these 512 bytes with this field zero |
//! | 16 | 8 | compat | features that older builds may ignore |
//! | 24 | 8 | ro_compat | features that older builds may read, not write |
//! | 32 | 8 | incompat | features that older builds must refuse; bit 0: logs in conventional zones |
//! | 40 | 16 | uuid | identity of the file system |
//! | 56 | 4 | block_size | bytes |
//! | 60 | 4 | zones | number of zones |
//! | 64 | 8 | zone_size | blocks |
//! | 72 | 8 | zone_capacity | blocks |
//! | 80 | 4 | conventional | leading conventional zones |
//! | 84 | 4 | metadata_first | first zone of the metadata log |
//! | 88 | 4 | metadata_zones | their number |
//! | 92 | 4 | label_len | bytes of the label |
//! | 96 | 64 | label | UTF-8, zero-filled |
//! | 160 | 8 | created_ms | milliseconds since 1970 |
//! | 168 | 344 | reserved | zero |

use units::{Blocks, ZoneId};
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, ErrorKind, Result};
use crate::files::stat::Superblock;
use crate::metadata::format::crc32c;

/// The first eight bytes of a superblock.
pub(crate) const MAGIC: [u8; 8] = *b"FURROWFS";
/// The superblock version that this build writes and reads.
pub(crate) const VERSION: u32 = 2;
/// Bytes of the superblock's structure; the rest of its block is zero.
pub(crate) const SIZE: usize = 512;
/// The longest label.
pub(crate) const MAX_LABEL: usize = 64;
/// The read-only-compatible features this build knows.
const KNOWN_RO_COMPAT: u64 = 0;
/// Incompatible feature: segments of ordered logs may lie in conventional zones.
pub(crate) const CONVENTIONAL_LOGS: u64 = 1;
/// The incompatible features this build knows.
const KNOWN_INCOMPAT: u64 = CONVENTIONAL_LOGS;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    uuid: [u8; 16],
    block_size: U32,
    zones: U32,
    zone_size: U64,
    zone_capacity: U64,
    conventional: U32,
    metadata_first: U32,
    metadata_zones: U32,
    label_len: U32,
    label: [u8; MAX_LABEL],
    created_ms: U64,
    reserved: [u8; 344],
}

const _: () = assert!(size_of::<Raw>() == SIZE);
const _: () = assert!(std::mem::offset_of!(Raw, uuid) == 40);
const _: () = assert!(std::mem::offset_of!(Raw, label) == 96);

/// The bytes of the superblock `sb` on the device.
pub(crate) fn encode(sb: &Superblock, conventional: u32, created_ms: u64) -> [u8; SIZE] {
    let mut label = [0; MAX_LABEL];
    let len = sb.label.len().min(MAX_LABEL);
    label.iter_mut().zip(sb.label.as_bytes()).for_each(|(to, from)| *to = *from);
    let mut raw = Raw {
        magic: MAGIC,
        version: sb.version.into(),
        crc: 0.into(),
        compat: sb.features_compat.into(),
        ro_compat: sb.features_ro_compat.into(),
        incompat: sb.features_incompat.into(),
        uuid: *sb.uuid.as_bytes(),
        block_size: sb.block_size.into(),
        zones: sb.zones.into(),
        zone_size: sb.zone_size.0.into(),
        zone_capacity: sb.zone_capacity.0.into(),
        conventional: conventional.into(),
        metadata_first: sb.metadata_first.0.into(),
        metadata_zones: sb.metadata_zones.into(),
        label_len: u32::try_from(len).unwrap_or(0).into(),
        label,
        created_ms: created_ms.into(),
        reserved: [0; 344],
    };
    raw.crc = crc32c(&[raw.as_bytes()]).into();
    let mut bytes = [0; SIZE];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

/// The outcome of decoding a block as a superblock.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// The block has no magic.
    Absent,
    /// The block has the magic, and a wrong checksum or an invalid field.
    Damaged,
    /// A superblock of this build's version.
    Good(Superblock),
}

/// Decodes a superblock. Fails with `Version` for another version, or for incompatible features unknown to this build.
pub(crate) fn decode(block: &[u8]) -> Result<Decoded> {
    let Ok((raw, _)) = Raw::read_from_prefix(block) else { return Ok(Decoded::Absent) };
    if raw.magic != MAGIC {
        return Ok(Decoded::Absent);
    }
    let mut unsigned = raw.clone();
    unsigned.crc = 0.into();
    if crc32c(&[unsigned.as_bytes()]) != raw.crc.get() {
        return Ok(Decoded::Damaged);
    }
    let version = raw.version.get();
    if version != VERSION {
        return Err(Error::new(ErrorKind::Version, "reading the superblock").because(format!(
            "the file system has format version {version}, this build reads version {VERSION}: use a build that \
             reads version {version}, or format the drive again and lose what is on it"
        )));
    }
    let incompat = raw.incompat.get();
    if incompat & !KNOWN_INCOMPAT != 0 {
        return Err(Error::new(ErrorKind::Version, "reading the superblock").because(format!(
            "it uses features that this build does not know (incompat bits {:#x}): use a newer build",
            incompat & !KNOWN_INCOMPAT
        )));
    }
    let label = raw.label.get(..raw.label_len.get() as usize).and_then(|label| str::from_utf8(label).ok());
    let Some(label) = label else { return Ok(Decoded::Damaged) };
    Ok(Decoded::Good(Superblock {
        version,
        uuid: Uuid::from_bytes(raw.uuid),
        label: label.to_owned(),
        block_size: raw.block_size.get(),
        zones: raw.zones.get(),
        zone_size: Blocks(raw.zone_size.get()),
        zone_capacity: Blocks(raw.zone_capacity.get()),
        metadata_first: ZoneId(raw.metadata_first.get()),
        metadata_zones: raw.metadata_zones.get(),
        features_compat: raw.compat.get(),
        features_ro_compat: raw.ro_compat.get(),
        features_incompat: incompat,
    }))
}

/// Fails if the superblock names features that this build can read but not write.
pub(crate) fn check_writable(sb: &Superblock) -> Result<()> {
    let unknown = sb.features_ro_compat & !KNOWN_RO_COMPAT;
    if unknown == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Version, "mounting for writing").because(format!(
        "it uses features that this build can read but not write (bits {unknown:#x}): mount it read-only"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::format::golden;

    pub(crate) fn sample() -> Superblock {
        Superblock {
            version: VERSION,
            uuid: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            label: "field".into(),
            block_size: 4096,
            zones: 256,
            zone_size: Blocks(16384),
            zone_capacity: Blocks(16000),
            metadata_first: ZoneId(2),
            metadata_zones: 3,
            features_compat: 0,
            features_ro_compat: 0,
            features_incompat: 0,
        }
    }

    #[test]
    fn the_golden_superblock_decodes_and_encodes_to_the_same_bytes() {
        let golden = golden("superblock-v2.bin", &encode(&sample(), 0, 1_700_000_000_000));
        let Ok(Decoded::Good(sb)) = decode(&golden) else { panic!("the golden superblock is good") };
        assert_eq!(sb, sample());
        assert_eq!(encode(&sb, 0, 1_700_000_000_000).as_slice(), golden);
    }

    /// Superblock version 1 is refused: its frames and log entries have other checksums.
    #[test]
    fn version_1_is_refused_with_advice() {
        let old =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/superblock-v1.bin")).unwrap();
        let error = decode(&old).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        for word in ["version 1", "version 2", "format the drive again"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_superblock_with_a_changed_byte_is_damaged() {
        let mut bytes = encode(&sample(), 0, 0);
        bytes[100] ^= 1;
        assert!(matches!(decode(&bytes), Ok(Decoded::Damaged)));
    }

    #[test]
    fn the_error_of_another_version_names_the_version() {
        let error =
            decode(&encode(&Superblock { version: 7, ..sample() }, 0, 0)).expect_err("another version");
        assert_eq!(error.kind(), ErrorKind::Version);
        assert!(error.to_string().contains("format version 7"), "{error}");
    }

    #[test]
    fn unknown_incompatible_features_refuse_a_mount_and_read_only_compatible_ones_refuse_writing() {
        let error =
            decode(&encode(&Superblock { features_incompat: 4, ..sample() }, 0, 0)).expect_err("incompat");
        assert_eq!(error.kind(), ErrorKind::Version);
        let ro = Superblock { features_ro_compat: 4, features_compat: 9, ..sample() };
        let Ok(Decoded::Good(read)) = decode(&encode(&ro, 0, 0)) else { panic!("readable") };
        assert_eq!(check_writable(&read).expect_err("read-only").kind(), ErrorKind::Version);
    }
}
