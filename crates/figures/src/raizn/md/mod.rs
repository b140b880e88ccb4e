//! md's RAID-5 over conventional drives, **as a model**: nothing here is a measurement of md.
//!
//! Five drives with the time model of `zn540`, 2 % faster in writes and 4 % in reads (section 4.4.1), that may be written anywhere
//! ([`drive`]); where they are full they collect garbage ([`ftl`]). Over them md's layout, its reads that are cut at chunks,
//! and its cache of stripes ([`stripes`], [`array`]). The same loads run on it as on our array, on the same virtual clock.
//! md's threads cost nothing, as ours do not, and are never in one another's way; its cache is never short of rows; no
//! journal and no bitmap are written. Within a drive nothing is read for what is moved, wear is not levelled.
//!
//! Fig. 4.13 has one drive instead that is as fast as that array ([`profile`]).

mod array;
mod drive;
mod ftl;
mod stripes;

pub(super) use array::Setup;
pub(super) use ftl::overwritten;

/// Drives of an array.
const DRIVES: usize = super::DRIVES as usize;

/// Bandwidth of a conventional drive's reads, in MiB/s: 4 % above the zoned one.
const READ: f64 = 3265.0 / 0.96;
/// And of its writes: 2 % above `zn540`, whose profile has 1,145 MiB/s.
const PROFILE_WRITE: f64 = 1145.0 / 0.98;

/// Streams that RocksDB writes at the same time: its log, flushes and compactions.
const ROCKSDB_STREAMS: u64 = 3;

/// The share of the bandwidth of writes that is RocksDB's once the drives were full: the mean over a whole overwriting.
pub(super) fn collecting() -> f64 {
    let shares = overwritten(ROCKSDB_STREAMS, 40);
    let late = shares.get(40..).unwrap_or_default();
    // Equal parts: times add up, not shares.
    late.len() as f64 / late.iter().map(|share| 1.0 / share).sum::<f64>()
}

/// The array as the profile of one emulated drive: `zn540` without the costs of zones, with `share` of four drives'
/// bandwidth of writes, five drives' dies and bandwidth of reads. Nothing is ever read for parity. That a fifth of what dies
/// program is parity is in the times of programs: the square root of 5/4 times `zn540`'s, so that reads wait for them as long.
pub(super) fn profile(share: f64) -> String {
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
