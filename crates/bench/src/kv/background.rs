//! RocksDB's flushes, compactions and stalls, read from its statistics.

use rocks::Db;
use serde::Serialize;

/// Counts of RocksDB's background work since the database was opened, or the difference of two such counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Background {
    /// Number of memtables written to tables.
    pub flushes: u64,
    /// Number of compactions; moves of whole tables are not counted.
    pub compactions: u64,
    /// Bytes of tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of tables that compactions wrote.
    pub compacted_bytes: u64,
    /// Number of times that RocksDB slowed writers down or stopped them.
    pub stalls: u64,
    /// Number of writers that RocksDB's group commit took, with any kind of log; RocksDB rounds it from 1,000 on.
    pub writers: u64,
    /// Number of groups in which RocksDB's group commit wrote; rounded from 1,000 on.
    pub groups: u64,
}

impl Background {
    /// RocksDB's counts of background work now.
    pub(super) fn of(db: &Db) -> Background {
        let cf = db.property("rocksdb.cfstats-no-file-histogram").unwrap_or_default();
        let all = db.property("rocksdb.dbstats").unwrap_or_default();
        parse(&cf, &all)
    }

    /// The difference between these counts and the counts `before`.
    pub(super) fn since(self, before: Background) -> Background {
        Background {
            flushes: self.flushes.saturating_sub(before.flushes),
            compactions: self.compactions.saturating_sub(before.compactions),
            flushed_bytes: self.flushed_bytes.saturating_sub(before.flushed_bytes),
            compacted_bytes: self.compacted_bytes.saturating_sub(before.compacted_bytes),
            stalls: self.stalls.saturating_sub(before.stalls),
            writers: self.writers.saturating_sub(before.writers),
            groups: self.groups.saturating_sub(before.groups),
        }
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

fn parse(cf: &str, all: &str) -> Background {
    // The stall counts named "with_compaction" are part of the counts without that suffix.
    let stalls =
        rest_of_line(cf, "Stalls(count):").split(',').filter(|part| !part.contains("with_compaction"));
    let flushed_bytes = bytes_of_gib(rest_of_line(cf, "Flush(GB): cumulative"));
    let value = |behind: &str| {
        let parts = rest_of_line(all, "Cumulative writes:").split(',');
        let part = parts.map(str::trim).find_map(|part| part.strip_suffix(behind));
        part.map_or(0.0, parse_number) as u64
    };
    Background {
        flushes: job_count(cf, "High"),
        compactions: job_count(cf, "Low"),
        flushed_bytes,
        compacted_bytes: bytes_of_gib(rest_of_line(cf, "Cumulative compaction:"))
            .saturating_sub(flushed_bytes),
        stalls: stalls
            .filter(|part| !part.contains("interval"))
            .filter_map(|part| part.split_whitespace().next()?.parse::<u64>().ok())
            .sum(),
        writers: value(" writes"),
        groups: value(" commit groups"),
    }
}

/// The rest of a line of RocksDB's statistics that begins with a prefix.
fn rest_of_line<'a>(text: &'a str, begins: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(begins)).unwrap_or("")
}

/// Number of jobs of a priority in RocksDB's statistics: flushes have the high priority, compactions the low one.
fn job_count(cf: &str, priority: &str) -> u64 {
    let named = |name: &str| cf.lines().find(|line| line.split_whitespace().next() == Some(name));
    let (Some(header), Some(line)) = (named("Priority"), named(priority)) else { return 0 };
    // The column is counted from the line's end: a size is two words in a row of numbers, and one in the header.
    let behind = header.split_whitespace().rev().position(|word| word == "Comp(cnt)");
    let word = behind.and_then(|behind| line.split_whitespace().rev().nth(behind));
    word.map_or(0.0, parse_number) as u64
}

/// The number of GiB that a text begins with.
fn bytes_of_gib(text: &str) -> u64 {
    let first = text.split([',', ' ']).find(|word| !word.is_empty());
    (first.map_or(0.0, parse_number) * GIB) as u64
}

/// Parses a number of RocksDB's statistics: `12`, `1.5`, `12K`, `3M`.
fn parse_number(word: &str) -> f64 {
    let (digits, factor) = match word.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if word.ends_with('K') => (digits, 1e3),
        Some(digits) if word.ends_with('M') => (digits, 1e6),
        Some(digits) => (digits, 1e9),
        None => (word, 1.0),
    };
    digits.parse::<f64>().unwrap_or(0.0) * factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rocksdbs_statistics_are_read() {
        let cf = "** Compaction Stats [default] **\n\
            Level    Files   Size     Score Comp(cnt) Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)\n\
              L0      3/0   11.24 MB   0.8     25    0.059       0      0       0.0       0.0\n\
             Sum      4/0   67.76 MB   0.0     30    0.196    208K    26K       0.0       0.0\n\n\
            Priority    Files   Size     Score Comp(cnt) Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)\n\
             Low      0/0    0.00 KB   0.0         5    0.882    208K    26K       0.0       0.0\n\
            High      0/0    0.00 KB   0.0        1K    0.059       0      0       0.0       0.0\n\
            Flush(GB): cumulative 0.125, interval 0.037\n\
            Cumulative compaction: 0.25 GB write, 46.32 MB/s write, 0.20 GB read, 34.82 MB/s read, 5.9 seconds\n\
            Stalls(count): 1 level0_slowdown, 1 level0_slowdown_with_compaction, 2 level0_numfiles, \
            4 memtable_compaction, 0 memtable_slowdown, interval 9 total count\n";
        let all =
            "Cumulative writes: 100K writes, 100K keys, 25K commit groups, 1.0 writes per commit group\n";
        let expected = Background {
            flushes: 1000,
            compactions: 5,
            flushed_bytes: 1 << 27,
            compacted_bytes: 1 << 27,
            stalls: 7,
            writers: 100_000,
            groups: 25_000,
        };
        assert_eq!(parse(cf, all), expected);
        assert_eq!(parse("", ""), Background::default());
    }
}
