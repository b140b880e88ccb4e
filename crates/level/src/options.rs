//! Settings of a LevelDB database.

/// Settings with which [`Db::open`](crate::Db::open) opens a database. LevelDB takes the nearest value it allows.
#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Bytes of a memtable, 64 KiB to 1 GiB. A second one may be in memory while it is written to a table. Default: 4 MiB, LevelDB's own.
    pub write_buffer: usize,
    /// Bytes of the block cache, which holds uncompressed blocks. Default: 8 MiB, LevelDB's own.
    pub block_cache: usize,
    /// Bytes of a table file, 1 MiB to 1 GiB. Tables of three quarters of a zone's capacity or more, and no more than all of it, get zones to themselves.
    /// Default: 2 MiB, LevelDB's own.
    pub table_size: usize,
    /// Bits of the Bloom filters per key; 0: no filters. Default: 10.
    pub bloom_bits: u8,
    /// Compress tables with Snappy. Default: off.
    pub compression: bool,
    /// Check the checksum of each block that is read from a table. Default: off, as LevelDB's own; logs and manifests are always checked.
    pub verify_checksums: bool,
    /// Create the database if it does not exist. Default: on.
    pub create: bool,
}

impl Default for DbOptions {
    fn default() -> DbOptions {
        DbOptions {
            write_buffer: 4 << 20,
            block_cache: 8 << 20,
            table_size: 2 << 20,
            bloom_bits: 10,
            compression: false,
            verify_checksums: false,
            create: true,
        }
    }
}
