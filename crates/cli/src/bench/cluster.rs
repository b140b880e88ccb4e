//! The command `furrow bench cluster`.

use std::process::ExitCode;
use std::time::Duration;

use ::bench::Latencies;
use ::bench::cluster::{ClusterLoad, ClusterOutcome, measure};
use anyhow::Result;
use clap::Args;
use units::Bytes;

use super::result::{failed, latency_cells, with_host};
use crate::context::Context;
use crate::{output, progress, size};

/// `furrow bench cluster`
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Bytes of a value.
    #[arg(long, default_value = "512", value_name = "SIZE", value_parser = size::parse)]
    value: Bytes,
    /// Writers that write side by side.
    #[arg(long, default_value_t = 64, value_name = "N")]
    writers: u32,
    /// Records that these write together.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    records: u64,
    /// Clusters that lose their primary.
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    lost_primaries: u64,
    /// Microseconds that a message takes behind its sender's link.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    one_way_us: u64,
    /// Gigabits a second of each node's link.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    link_gbit: u64,
    /// Milliseconds of the election timeout.
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    election_timeout_ms: u64,
    /// Seed of all that is random.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// The profile of the emulated drives.
    #[arg(long, default_value = "zn540", value_name = "PROFILE")]
    profile: String,
}

/// Measures a cluster of five nodes, in virtual time.
pub fn run(context: &Context, args: &ClusterArgs) -> Result<ExitCode> {
    let load = ClusterLoad {
        profile: args.profile.clone(),
        one_way: Duration::from_micros(args.one_way_us),
        link_bits_per_s: args.link_gbit.saturating_mul(1_000_000_000),
        value: args.value,
        writers: args.writers,
        records: args.records,
        lost_primaries: args.lost_primaries,
        election_timeout: Duration::from_millis(args.election_timeout_ms),
        seed: args.seed,
        ..ClusterLoad::default()
    };
    load.check().map_err(failed)?;
    let bar = progress::spinner();
    bar.set_message("five nodes in virtual time");
    let outcome = measure(&load).map_err(failed)?;
    bar.finish_and_clear();
    if context.json {
        output::json(&with_host(&outcome)?)?;
    } else {
        print(&outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(outcome: &ClusterOutcome) -> Result<()> {
    let ClusterOutcome { load, alone, writers, reads, first_write } = outcome;
    output::line(format!(
        "five nodes on {}, {:?} one way, links of {} Gbit/s, values of {}; processors and tables take no time",
        load.profile,
        load.one_way,
        load.link_bits_per_s / 1_000_000_000,
        size::show(load.value)
    ))?;
    let named = [
        ("a write alone".to_owned(), &alone.latency_us),
        (format!("{} writers", load.writers), &writers.latency_us),
        (format!("{} writers of a log", load.writers), &writers.log_latency_us),
        ("first write, witnesses fresh".to_owned(), &first_write.fresh_us),
        ("first write, witnesses stale".to_owned(), &first_write.stale_us),
    ];
    let (mut header, _) = latency_cells(&Latencies::default());
    header.insert(0, "");
    let numbers = header.get(1..).unwrap_or_default();
    let rows = named.into_iter().map(|(name, latencies)| {
        let (_, mut cells) = latency_cells(latencies);
        cells.insert(0, name);
        cells
    });
    output::table(&header, numbers, rows.collect())?;
    output::line(format!(
        "a write alone: {:.3} of its floor of {:.1} us: a round trip of {:.1} us and a drive's write of {:.1} us; {:.2} writes of the leader's drive",
        alone.over_floor,
        alone.floor_us,
        alone.round_trip_us,
        alone.raw_write_us,
        alone.drive_writes_per_write
    ))?;
    output::line(format!(
        "{} writers: {:.0} records a second, {:.3} of the {:.0} of a log on one drive; {:.1} records in a write of the leader's drive, {:.0} bytes and {:.2} messages for a record",
        load.writers,
        writers.records_per_s,
        writers.over_log,
        writers.log_records_per_s,
        writers.records_per_drive_write,
        writers.drive_bytes_per_record,
        writers.messages_per_record
    ))?;
    output::line(format!(
        "{} reads under the lease: {} messages, {} operations of the leader's drive",
        reads.reads, reads.messages, reads.drive_operations
    ))?;
    output::line(format!(
        "first write after a lost primary, {} times: {:.1} % within two election timeouts of {:.0} ms, the longest {:.2} timeouts",
        first_write.runs,
        first_write.within_two_timeouts * 100.0,
        first_write.election_timeout_us / 1e3,
        first_write.longest_over_timeout
    ))
}
