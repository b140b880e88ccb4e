//! The metrics of the server and the engine, and the text of all metrics.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::array::ArrayMetrics;
use super::drive::DriveMetrics;
use super::format::Format;
use super::groups::GroupMetrics;
use super::share::ShareMetrics;
use crate::shared::Shared;

// Names of the server's and the engine's metrics. The exposition format adds `_total` to the names of counters.
const COMMANDS: &str = "furrow_server_commands";
const PIPELINE_SECONDS: &str = "furrow_server_pipeline_seconds";
const CLIENTS: &str = "furrow_server_connected_clients";
const CONNECTIONS: &str = "furrow_server_accepted_connections";
const REFUSED: &str = "furrow_server_refused_connections";
const UPTIME: &str = "furrow_server_uptime_seconds";
const GROUPS: &str = "furrow_kv_write_groups";
const PIPELINES: &str = "furrow_kv_write_pipelines";
const KEYS: &str = "furrow_kv_written_keys";
const BYTES: &str = "furrow_kv_written_bytes";
const FAILED: &str = "furrow_kv_failed_pipelines";
const EXPIRED: &str = "furrow_kv_expired_keys";
const READS: &str = "furrow_kv_read_pipelines";
const READ_ONLY: &str = "furrow_kv_writes_refused";
// Names of info metrics and of the log's metrics. The exposition format adds `_info` to the names of infos.
const BUILD_INFO: &str = "furrow_build";
const LOG_INFO: &str = "furrow_kv_log";
const LOG_HELD: &str = "furrow_kv_log_held_records";
const LOG_HELD_BYTES: &str = "furrow_kv_log_held_bytes";
const LOG_RECORDS: &str = "furrow_kv_log_records";
const LOG_APPENDS: &str = "furrow_kv_log_appends";
const LOG_DRIVE_FLUSHES: &str = "furrow_kv_log_drive_flushes";
const LOG_VOIDS: &str = "furrow_kv_log_voids";
const LOG_REPLACEMENTS: &str = "furrow_kv_log_replacements";
const LOG_WAITS: &str = "furrow_kv_log_waits";
const LOG_FLUSHES_ASKED: &str = "furrow_kv_log_flushes_asked";
const FREE: &str = "furrow_fs_free_bytes";
const CACHE_HITS: &str = "furrow_fs_cache_hits";
const CACHE_MISSES: &str = "furrow_fs_cache_misses";
const CACHE_BYTES: &str = "furrow_fs_cache_bytes";
const CACHE_CAPACITY: &str = "furrow_fs_cache_capacity_bytes";
const CACHE_DIRTY: &str = "furrow_fs_cache_dirty_bytes";
const RESERVE: &str = "furrow_fs_reserve_bytes";

/// The text of all metrics with their present values. Asks the device for its zones, which may block.
pub(crate) fn render(shared: &Shared, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register(COMMANDS, "Commands by name", shared.counters.commands.clone());
    registry.register(
        PIPELINE_SECONDS,
        "From the last byte of a pipeline to its last reply",
        shared.counters.seconds.clone(),
    );
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register(BUILD_INFO, "The version of the server", build);
    let log = Info::new(vec![("mode", shared.options.wal.name())]);
    registry.register(LOG_INFO, "The log that writes go to", log);
    registry.register_collector(Box::new(MetricValues::of(shared)));
    if let Some(cluster) = shared.engines.cluster() {
        registry.register_collector(Box::new(GroupMetrics(cluster.stats())));
    }
    if let Some(fs) = &shared.backing.fs {
        registry.register_collector(Box::new(DriveMetrics::of(fs)));
    }
    if let Some(share) = shared.share_status() {
        registry.register_collector(Box::new(ShareMetrics(share)));
    }
    if let Some(array) = &shared.backing.array {
        registry.register_collector(Box::new(ArrayMetrics(array.view())));
    }
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => format.convert(text),
        Err(error) => format!("# {error}\n"),
    }
}

/// The values of the server's and the engine's metrics at the moment of a scrape.
#[derive(Debug)]
struct MetricValues {
    counters: Vec<(&'static str, &'static str, u64)>,
    gauges: Vec<(&'static str, &'static str, u64)>,
}

impl MetricValues {
    fn of(shared: &Shared) -> MetricValues {
        let stats = shared.engines.stats();
        let clients = shared.clients.counts();
        let mut counters = vec![
            (CONNECTIONS, "Connections accepted", clients.accepted),
            (REFUSED, "Connections refused: too many clients", clients.refused),
            (GROUPS, "Batches written to the store", stats.groups),
            (PIPELINES, "Pipelines in the batches written to the store", stats.pipelines),
            (KEYS, "Keys put and deleted", stats.keys_written),
            (BYTES, "Bytes of keys and values written", stats.bytes_written),
            (FAILED, "Pipelines whose write failed", stats.failed),
            (EXPIRED, "Expired keys deleted in the background", stats.expired),
            (READS, "Read-only pipelines", stats.reads),
        ];
        let mut gauges = vec![
            (CLIENTS, "Clients connected", clients.connected as u64),
            (
                UPTIME,
                "Seconds since the server started",
                shared.now_ms().saturating_sub(shared.started_ms) / 1000,
            ),
            (READ_ONLY, "1 if the engine takes no writes", u64::from(shared.engines.failure().is_some())),
        ];
        if let Some(room) = shared.engines.room() {
            gauges.push((FREE, "Bytes that can still be written", room.free.0));
            gauges.push((RESERVE, "Bytes kept back for deletes", room.reserve.0));
        }
        if let Some(fs) = &shared.backing.fs {
            let cache = fs.cache_stats();
            counters.extend([
                (CACHE_HITS, "Pages of files that reads found in the page cache", cache.hits),
                (CACHE_MISSES, "Pages of files that reads took from the drive", cache.misses),
            ]);
            gauges.extend([
                (CACHE_BYTES, "Memory that the page cache takes", cache.used.0),
                (CACHE_CAPACITY, "Memory that the page cache may take", cache.capacity.0),
                (CACHE_DIRTY, "Bytes of files that are in memory only", cache.dirty.0),
            ]);
        }
        if let Some(kv::LogReport { log, held }) = shared.engines.log() {
            counters.extend([
                (LOG_RECORDS, "Records of the parallel log", log.records),
                (
                    LOG_APPENDS,
                    "Appends of the parallel log; records beyond that went together",
                    log.operations(),
                ),
                (LOG_DRIVE_FLUSHES, "Flushes of the drive by the parallel log", log.flushes),
                (LOG_VOIDS, "Records that the parallel log marked as never written", log.voids),
                (LOG_REPLACEMENTS, "Zones that the parallel log left for the next one", log.replaced),
                (LOG_WAITS, "Waits for a zone by records of the parallel log", log.waits),
                (
                    LOG_FLUSHES_ASKED,
                    "Flushes of memtables to make room in the parallel log",
                    held.flushes_asked,
                ),
            ]);
            gauges.push((LOG_HELD, "Records in the parallel log that are not in tables", held.records));
            gauges.push((
                LOG_HELD_BYTES,
                "Bytes of the records in the parallel log that are not in tables, in whole blocks",
                held.bytes,
            ));
        }
        MetricValues { counters, gauges }
    }
}

impl Collector for MetricValues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, value) in &self.counters {
            let counter = ConstCounter::new(*value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        for (name, help, value) in &self.gauges {
            let gauge = ConstGauge::new(i64::try_from(*value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
