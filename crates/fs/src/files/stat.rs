//! The types that describe a file system: superblock, space, zones, files.

use units::{Blocks, Bytes, ZoneId};
use uuid::Uuid;
use zoned::ZoneState;

use crate::options::{FileKind, Lifetime};

/// The superblock: identity and layout of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Format version.
    pub version: u32,
    /// Identity.
    pub uuid: Uuid,
    /// The file system's label, given at the format.
    pub label: String,
    /// Bytes per block.
    pub block_size: u32,
    /// Zones of the device.
    pub zones: u32,
    /// Distance between the starts of two zones, in blocks.
    pub zone_size: Blocks,
    /// Writable blocks of each zone.
    pub zone_capacity: Blocks,
    /// First zone of the metadata log.
    pub metadata_first: ZoneId,
    /// Number of zones of the metadata log.
    pub metadata_zones: u32,
    /// File system features that older builds may ignore.
    pub features_compat: u64,
    /// File system features that older builds may read but not write.
    pub features_ro_compat: u64,
    /// File system features that older builds must refuse.
    pub features_incompat: u64,
}

/// The result of [`Fs::stat`](crate::Fs::stat).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The inode's number.
    pub ino: u64,
    /// Kind of the file or directory.
    pub kind: FileKind,
    /// Length of a file in bytes; of a directory, its number of entries.
    pub size: Bytes,
    /// Last change of the file's content, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Number of names.
    pub links: u32,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The directory entry's name, without slashes.
    pub name: String,
    /// Kind of the file or directory.
    pub kind: FileKind,
    /// The inode's number.
    pub ino: u64,
}

/// Space and counts of a mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Identity.
    pub uuid: Uuid,
    /// The file system's label, given at the format.
    pub label: String,
    /// Bytes that files can hold at most: all zones but those of the superblock, the metadata and those kept
    /// for reclaim.
    pub capacity: Bytes,
    /// Bytes in live blocks.
    pub used: Bytes,
    /// Bytes that data files can still be given, after reclaim: 0 when a write fails with `NoSpace`. Less than
    /// `capacity - used` where a log's zone has dead blocks between live ones, or where a zone has too few dead blocks for a
    /// reclaim.
    pub free: Bytes,
    /// Bytes in dead blocks.
    pub garbage: Bytes,
    /// Number of files, logs and directories.
    pub files: u64,
    /// How often since the mount a log waited for a zone, because none was opened ahead or empty.
    pub log_waits: u64,
    /// Zones by use.
    pub zones: ZoneCounts,
}

/// Zones by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCounts {
    /// Zones of the superblock and the metadata.
    pub metadata: u32,
    /// Zones with log segments.
    pub log: u32,
    /// Zones with file data.
    pub data: u32,
    /// Empty zones.
    pub free: u32,
    /// Read-only and offline zones.
    pub worn: u32,
    /// Zones open on the device.
    pub open: u32,
}

/// The use of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneRole {
    /// A copy of the superblock.
    Superblock,
    /// The metadata log.
    Metadata,
    /// Log segments.
    Log,
    /// File data of one expected lifetime.
    Data {
        /// The lifetime of the first file whose data the zone got.
        lifetime: Lifetime,
    },
    /// No use yet.
    Free,
}

/// One zone in [`Fs::zone_map`](crate::Fs::zone_map).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneUse {
    /// The zone.
    pub zone: ZoneId,
    /// The zone's use.
    pub role: ZoneRole,
    /// The device's state of the zone.
    pub state: ZoneState,
    /// Blocks written.
    pub pointer: Blocks,
    /// Blocks of the zone that can be written.
    pub capacity: Blocks,
    /// Blocks of the zone that a file or the metadata log still needs.
    pub live: Blocks,
}

/// The result of [`Fs::check`](crate::Fs::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The problems found, one sentence each.
    pub problems: Vec<String>,
    /// Data files and logs.
    pub files: u64,
    /// Number of directories, the root included.
    pub directories: u64,
    /// Number of extents of data files.
    pub extents: u64,
    /// Log segments.
    pub segments: u64,
    /// Number of metadata records replayed.
    pub records: u64,
    /// Number of blocks that files refer to.
    pub live: Blocks,
}
