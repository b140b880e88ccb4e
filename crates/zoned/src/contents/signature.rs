//! Signatures of known formats, such as file systems, arrays and partition tables.
//!
//! | what | where, in bytes | bytes |
//! |---|---|---|
//! | Furrow file system | start of zone 0 and 1 | `FURROWFS` |
//! | Furrow array | start of a metadata zone | `FURROWMD` |
//! | ZenFS | 8 behind the start of a metadata zone | `FNEZ` |
//! | btrfs | 65,536 + 64; of a zoned one 64 behind the start of a superblock zone | `_BHRfS_M` |
//! | f2fs | 1,024 and 5,120 | `10 20 f5 f2` |
//! | zonefs | 0 | `SFOZ` |
//! | dm-zoned | 0 | `DBZD` |
//! | LVM | 0, 512, 1,024 or 1,536, and 24 behind that | `LABELONE`, `LVM2 001` |
//! | md 1.1, 1.2 | 0, 4,096 | `fc 4e 2b a9`, then 1 in 32 bits |
//! | md 1.0 | 8 to 12 KiB before the end, at 4 KiB | the same |
//! | md 0.90 | 64 to 128 KiB before the end, at 64 KiB | the same, or turned round, then 0 |
//! | LUKS | 0; the second header at 16,384 | `LUKS ba be`; `SKUL ba be` |
//! | xfs | 0 | `XFSB` |
//! | ext2, 3, 4 | 1,080 | `53 ef` |
//! | bcache, bcachefs | 4,120 | `c6 85 73 f6` |
//! | swap | 4,086 or 65,526 | `SWAPSPACE2` |
//! | GPT | second block, last block | `EFI PART` |
//! | MBR | 510 | `55 aa` |

use std::fmt;

use super::{Layout, Samples};

/// A format that is known by its signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Signature {
    /// A Furrow file system.
    FurrowFs,
    /// A member of a Furrow array.
    FurrowArray,
    /// ZenFS, RocksDB's file system for zoned drives.
    ZenFs,
    /// btrfs, zoned or not.
    Btrfs,
    /// f2fs.
    F2fs,
    /// zonefs: a file for each zone.
    Zonefs,
    /// dm-zoned: zones behind an ordinary disk's interface.
    DmZoned,
    /// A physical volume of LVM.
    Lvm,
    /// A member of an md array.
    Md {
        /// Version of the md superblock: `0.90`, `1.0`, `1.1` or `1.2`.
        version: &'static str,
    },
    /// An encrypted volume (LUKS).
    Luks,
    /// xfs.
    Xfs,
    /// ext2, ext3 or ext4.
    Ext,
    /// bcache or bcachefs.
    Bcache,
    /// Swap space.
    Swap,
    /// A GPT partition table.
    Gpt,
    /// An MBR partition table or boot sector.
    Mbr,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Signature as S;
        f.write_str(match self {
            S::FurrowFs => "a Furrow file system",
            S::FurrowArray => "a member of a Furrow array",
            S::ZenFs => "a ZenFS file system",
            S::Btrfs => "a btrfs file system",
            S::F2fs => "an f2fs file system",
            S::Zonefs => "a zonefs file system",
            S::DmZoned => "dm-zoned metadata",
            S::Lvm => "an LVM physical volume",
            S::Md { version } => return write!(f, "a member of an md array (version {version})"),
            S::Luks => "a LUKS volume",
            S::Xfs => "an xfs file system",
            S::Ext => "an ext2, ext3 or ext4 file system",
            S::Bcache => "bcache or bcachefs",
            S::Swap => "swap space",
            S::Gpt => "a GPT partition table",
            S::Mbr => "an MBR partition table",
        })
    }
}

/// Signatures at fixed offsets of the drive.
const SIGNATURES_IN_DRIVE: &[(Signature, u64, &[u8])] = &[
    (Signature::Btrfs, 65_536 + 64, b"_BHRfS_M"),
    (Signature::F2fs, 1_024, F2FS_MAGIC),
    (Signature::F2fs, 5_120, F2FS_MAGIC),
    (Signature::Zonefs, 0, b"SFOZ"),
    (Signature::DmZoned, 0, b"DBZD"),
    (Signature::Luks, 0, b"LUKS\xba\xbe"),
    (Signature::Luks, 16_384, b"SKUL\xba\xbe"),
    (Signature::Xfs, 0, b"XFSB"),
    (Signature::Bcache, 4_096 + 24, &[0xc6, 0x85, 0x73, 0xf6]),
    (Signature::Swap, 4_096 - 10, b"SWAPSPACE2"),
    (Signature::Swap, 65_536 - 10, b"SWAPSPACE2"),
    (Signature::Gpt, 512, GPT),
    (Signature::Gpt, 4_096, GPT),
];
/// Signatures at fixed offsets from the start of a zone.
const SIGNATURES_IN_ZONES: &[(Signature, u64, &[u8])] = &[
    (Signature::FurrowFs, 0, b"FURROWFS"),
    (Signature::FurrowArray, 0, b"FURROWMD"),
    // In ZenFS the magic follows the checksum and the length of the first log record.
    (Signature::ZenFs, 8, b"FNEZ"),
    (Signature::Btrfs, 64, b"_BHRfS_M"),
];
const F2FS_MAGIC: &[u8] = &[0x10, 0x20, 0xf5, 0xf2];
const GPT: &[u8] = b"EFI PART";
const MD: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

/// Possible byte offsets of the LVM label.
const LVM_LABEL_OFFSETS: [u64; 4] = [0, 512, 1_024, 1_536];
/// Byte offset of the label type within the LVM label.
const LVM_TYPE_OFFSET: u64 = 24;
/// Byte offset of ext's superblock, and in it the magic, the logarithm of the block size above 1 KiB, and the
/// revision.
const EXT: u64 = 1_024;
const EXT_MAGIC_AT: u64 = EXT + 56;
const EXT_BLOCK_SIZE_AT: u64 = EXT + 24;
const EXT_REVISION_AT: u64 = EXT + 76;
/// Largest valid values of ext's block size (64 KiB) and revision.
const EXT_MAX_BLOCK_AND_REVISION: (u32, u32) = (6, 1);
/// Byte offset of the partition table in a boot sector: four entries, followed by two bytes of magic.
const MBR_TABLE_AT: u64 = 446;
const MBR_ENTRY_BYTES: usize = 16;
const MBR_TABLE_BYTES: usize = 4 * MBR_ENTRY_BYTES;
const MBR_MAGIC: &[u8] = &[0x55, 0xaa];
/// Byte offset of the partition type within an entry of the MBR partition table.
const MBR_TYPE_OFFSET: usize = 4;

/// The signatures found in a drive's samples, each once. Any bytes give an answer.
pub fn detect(layout: &Layout, samples: &Samples) -> Vec<Signature> {
    let mut found = Vec::new();
    let is = |at: u64, magic: &[u8]| samples.get(at, magic.len()) == Some(magic);
    for zone in layout.sampled_zones() {
        let start = u64::from(zone).saturating_mul(layout.zone_size);
        found.extend(
            SIGNATURES_IN_ZONES
                .iter()
                .filter(|(_, at, magic)| is(start.saturating_add(*at), magic))
                .map(|p| p.0),
        );
    }
    found.extend(SIGNATURES_IN_DRIVE.iter().filter(|(_, at, magic)| is(*at, magic)).map(|probe| probe.0));
    if LVM_LABEL_OFFSETS.iter().any(|at| is(*at, b"LABELONE") && is(at + LVM_TYPE_OFFSET, b"LVM2 001")) {
        found.push(Signature::Lvm);
    }
    md(layout, samples, &mut found);
    if ext(samples) {
        found.push(Signature::Ext);
    }
    let last_block = [512, 4_096].map(|block| layout.size.saturating_sub(block));
    if last_block.iter().any(|at| is(*at, GPT)) {
        found.push(Signature::Gpt);
    }
    // A GPT disk has a protective MBR, which is not reported.
    if !found.contains(&Signature::Gpt) && mbr(samples) {
        found.push(Signature::Mbr);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn md(layout: &Layout, samples: &Samples, found: &mut Vec<Signature>) {
    let u32_at = |at: u64| Some(u32::from_le_bytes(samples.get(at, 4)?.try_into().ok()?));
    let is_md = |at: u64, version: u32| {
        samples.get(at, 4) == Some(&MD) && u32_at(at.saturating_add(4)) == Some(version)
    };
    let (of_1_0, of_0_90) =
        (layout.size.saturating_sub(8_192) & !4_095, (layout.size & !65_535).saturating_sub(65_536));
    for (version, at) in [("1.0", of_1_0), ("1.1", 0), ("1.2", 4_096)] {
        if is_md(at, 1) {
            found.push(Signature::Md { version });
        }
    }
    let mut turned = MD;
    turned.reverse();
    if is_md(of_0_90, 0) || (samples.get(of_0_90, 4) == Some(&turned) && u32_at(of_0_90 + 4) == Some(0)) {
        found.push(Signature::Md { version: "0.90" });
    }
}

/// True if the samples hold an ext superblock. The magic has only two bytes, so other fields are checked too.
fn ext(samples: &Samples) -> bool {
    let u32_at = |at: u64| Some(u32::from_le_bytes(samples.get(at, 4)?.try_into().ok()?));
    let sense = || {
        let (inodes, blocks) = (u32_at(EXT)?, u32_at(EXT + 4)?);
        let (size, revision) = (u32_at(EXT_BLOCK_SIZE_AT)?, u32_at(EXT_REVISION_AT)?);
        Some(
            inodes > 0
                && blocks > 0
                && size <= EXT_MAX_BLOCK_AND_REVISION.0
                && revision <= EXT_MAX_BLOCK_AND_REVISION.1,
        )
    };
    samples.get(EXT_MAGIC_AT, 2) == Some(&[0x53, 0xef]) && sense() == Some(true)
}

/// True if the samples hold an MBR. The magic has only two bytes, so the partition table must have an entry
/// and no impossible one.
fn mbr(samples: &Samples) -> bool {
    let Some(table) = samples.get(MBR_TABLE_AT, MBR_TABLE_BYTES) else { return false };
    let entries = || table.chunks_exact(MBR_ENTRY_BYTES);
    let legal = |entry: &[u8]| matches!(entry.first(), Some(0 | 0x80));
    let used = |entry: &[u8]| entry.get(MBR_TYPE_OFFSET).is_some_and(|kind| *kind != 0);
    samples.get(510, 2) == Some(MBR_MAGIC) && entries().all(legal) && entries().any(used)
}
