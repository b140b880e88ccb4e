//! Settings of a RocksDB database.

use crate::error::{Error, ErrorKind, Result};

/// The smallest and the largest default of [`DbOptions::table_size`], in bytes.
const TABLE_MIN: u64 = 2 << 20;
const TABLE_MAX: u64 = 64 << 20;
/// The largest number of memtables of a database.
const WRITE_BUFFERS_MAX: i32 = 64;
/// The largest number of RocksDB's background threads.
const BACKGROUND_JOBS_MAX: i32 = 256;
/// RocksDB's own minimum of the memtable size, in bytes.
const WRITE_BUFFER_MIN: usize = 64 << 10;

/// Settings with which [`Db::open`](crate::Db::open) opens a database.
#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Bytes of a memtable, at least 64 KiB. Bounds the size of a log, which a recovery must replay. Default: 64 MiB.
    pub write_buffer: usize,
    /// Memtables, the active one included, at which RocksDB stops writers; 2 to 64. Default: 4.
    pub write_buffers: i32,
    /// Threads for flushes and compactions, 1 to 256. Default: 4.
    pub background_jobs: i32,
    /// Bytes of the block cache. Default: 64 MiB.
    pub block_cache: usize,
    /// The blocks of a memtable that is written to a table go into the block cache (RocksDB's `prepopulate_block_cache=kFlushOnly`). Default:
    /// off.
    pub prepopulate: bool,
    /// Bytes of a table file. Default: none, which means a zone's capacity, within 2 and 64 MiB, so that a file fits a
    /// zone and a deleted file frees the zone.
    pub table_size: Option<u64>,
    /// Compress tables with LZ4. Default: off.
    pub compression: bool,
    /// Compactions drop a value whose expiry time is past. The expiry is the value's 8-byte little-endian header:
    /// milliseconds since 1970; 0 is never. Every value then needs the header. Default: off.
    pub expiry: bool,
    /// Keep the replayed log records in memtables when the database is opened, and keep the logs, instead of flushing
    /// the memtables to tables. Opening is faster, and the next opening replays the same logs. Default: off.
    pub keep_recovered: bool,
    /// Turn RocksDB's log off. Writes come through [`Db::apply`](crate::Db::apply), from a caller with a log of its
    /// own. Default: off.
    pub unlogged: bool,
    /// Merges add 8-byte little-endian numbers to a value. Default: off; merges are refused.
    pub adds: bool,
    /// Number of column families `family1`, `family2`, ... besides the default one, with the same settings. Missing
    /// ones are created. Batches name a family by its number. Default: none.
    pub families: u8,
    /// Create the database if it does not exist. Default: on.
    pub create: bool,
}

impl Default for DbOptions {
    fn default() -> DbOptions {
        DbOptions {
            write_buffer: 64 << 20,
            write_buffers: 4,
            background_jobs: 4,
            block_cache: 64 << 20,
            prepopulate: false,
            table_size: None,
            compression: false,
            expiry: false,
            keep_recovered: false,
            unlogged: false,
            adds: false,
            families: 0,
            create: true,
        }
    }
}

impl DbOptions {
    /// Bytes of memtables up to which RocksDB takes writes at full speed. With more than three memtables it slows writers
    /// down when all but one are full, else it stops them when all are.
    pub fn unslowed_memtables(&self) -> u64 {
        let memtables = if self.write_buffers > 3 { self.write_buffers - 1 } else { self.write_buffers };
        self.write_buffer as u64 * u64::from(memtables.unsigned_abs())
    }

    /// Checks the options against RocksDB's and this crate's limits; the error names the field.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Invalid, format!("database options: {what}")));
        if self.write_buffer < WRITE_BUFFER_MIN {
            return wrong(&format!("write_buffer is {}, the least is {WRITE_BUFFER_MIN}", self.write_buffer));
        }
        if !(2..=WRITE_BUFFERS_MAX).contains(&self.write_buffers) {
            return wrong(&format!("write_buffers is {}, not 2 to {WRITE_BUFFERS_MAX}", self.write_buffers));
        }
        if !(1..=BACKGROUND_JOBS_MAX).contains(&self.background_jobs) {
            return wrong(&format!(
                "background_jobs is {}, not 1 to {BACKGROUND_JOBS_MAX}",
                self.background_jobs
            ));
        }
        Ok(())
    }

    /// The table size in bytes on a device whose zones hold `zone` bytes.
    pub(crate) fn table_size_for(&self, zone: u64) -> u64 {
        self.table_size.unwrap_or_else(|| zone.clamp(TABLE_MIN, TABLE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_a_zone_within_bounds() {
        let options = DbOptions::default();
        assert_eq!(options.table_size_for(8 << 20), 8 << 20);
        assert_eq!(options.table_size_for(56 << 10), TABLE_MIN);
        assert_eq!(options.table_size_for(1 << 30), TABLE_MAX);
        assert_eq!(DbOptions { table_size: Some(5), ..options }.table_size_for(1 << 30), 5);
    }

    #[test]
    fn a_bad_option_is_named() {
        let bad = DbOptions { background_jobs: 0, ..DbOptions::default() };
        assert!(bad.validate().unwrap_err().to_string().contains("background_jobs is 0"));
    }
}
