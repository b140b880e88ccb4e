//! md's array as the profile of one emulated drive.

use super::ftl::bandwidth_shares_of_overwriting;
use super::published::{PROFILE_WRITE, READ};

/// Number of streams that RocksDB writes at the same time: its log, flushes and compactions.
const ROCKSDB_STREAMS: u64 = 3;

/// The share of the write bandwidth that RocksDB gets once the drives were full: the mean over a whole overwriting.
pub fn write_share_while_collecting() -> f64 {
    let shares = bandwidth_shares_of_overwriting(ROCKSDB_STREAMS, 40);
    let late = shares.get(40..).unwrap_or_default();
    // The shares are of equal parts of the data, so their times add up: the mean is harmonic.
    late.len() as f64 / late.iter().map(|share| 1.0 / share).sum::<f64>()
}

/// md's array as the profile of one emulated drive: `zn540` without the costs of zones, with `share` of four drives' write
/// bandwidth, five drives' dies and read bandwidth. Nothing is ever read for parity. A fifth of the dies' programs is parity,
/// which the program times include: they are the square root of 5/4 times those of `zn540`, so that reads wait for them as
/// long.
pub fn profile(share: f64) -> String {
    let (write, read) = (4.0 * PROFILE_WRITE * share, 5.0 * READ);
    let bytes = |mib: f64| (mib * 1048576.0) as u64;
    format!(
        r#"# md's RAID-5 over five conventional drives, as a model.
[geometry]
block-size = "4KiB"
zone-size = "8GiB"
zone-capacity = "4308MiB"
max-append = "1MiB"
max-open = 14
max-active = 14
cache = "none"

[write]
acknowledge = "buffer"
latency = "6.1us"
per-kib = "0.16us"
least = "8KiB"
controller = "1.36us"
bandwidth = "{}B"
buffer = "8MiB"

[append]
latency = "9us"
controller = "1.79us"

[flash]
channels = 40
dies = 4
planes = 1
page = "8KiB"
read = ["61us", "61us", "61us", "61us", "61us", "61us", "61us", "65us", "65us", "70us"]
program = ["192us", "192us", "192us", "192us", "192us", "192us", "248us", "248us", "341us", "341us"]
zones = "device"

[read]
latency = "0.5us"
per-kib = "2.42us"
per-kib-limit = "16KiB"
controller = "0.46us"
bandwidth = "{}B"

[flush]
latency = "5us"
"#,
        bytes(write),
        bytes(read)
    )
}
