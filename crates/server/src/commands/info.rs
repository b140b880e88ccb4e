//! The command INFO.

use std::fmt::Write;

use kv::KeyspaceCounts;
use zoned::{ClassStatus, IoClass};

use super::call::{Call, Outcome};
use super::hello::COMPATIBLE_VERSION;
use crate::shared::Shared;

const INFO_SECTIONS: [&str; 10] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "engine",
    "scheduler",
    "replication",
    "cluster",
    "keyspace",
];

pub(super) fn info(call: &mut Call<'_>) -> Outcome {
    let named: Vec<String> = call.args.rest(1).map(|w| String::from_utf8_lossy(w).to_lowercase()).collect();
    let all =
        named.is_empty() || named.iter().any(|n| matches!(n.as_str(), "all" | "default" | "everything"));
    let text = info_text(call.shared, |section| all || named.iter().any(|n| n == section));
    call.out.verbatim(&text);
    Ok(())
}

/// Bytes of this process's memory in RAM, or 0 if the kernel does not report them.
fn resident_bytes() -> u64 {
    const KIB: u64 = 1 << 10;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * KIB
}

/// The text of INFO's sections that `wanted` accepts.
pub(crate) fn info_text(shared: &Shared, wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for section in INFO_SECTIONS.into_iter().filter(|s| wanted(s)) {
        let mut title = section.to_owned();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _infallible = write!(text, "# {title}\r\n");
        for (name, value) in section_lines(shared, section) {
            let _infallible = write!(text, "{name}:{value}\r\n");
        }
    }
    text
}

fn section_lines(shared: &Shared, section: &str) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: String| out.push((name.into(), value));
    let engine = &shared.engines;
    let stats = engine.stats();
    let connected = shared.clients.counts().connected;
    match section {
        "server" => {
            put("redis_version", COMPATIBLE_VERSION.into());
            put("furrow_version", env!("CARGO_PKG_VERSION").into());
            put("redis_mode", engine.redis_mode().into());
            put("os", std::env::consts::OS.into());
            put("arch_bits", usize::BITS.to_string());
            put("process_id", std::process::id().to_string());
            put("tcp_port", shared.port.to_string());
            let seconds = shared.now_ms().saturating_sub(shared.started_ms) / 1000;
            put("uptime_in_seconds", seconds.to_string());
            put("uptime_in_days", (seconds / 86_400).to_string());
        }
        "clients" => {
            put("connected_clients", connected.to_string());
            put("maxclients", shared.options.max_clients.to_string());
        }
        "memory" => {
            let resident = resident_bytes();
            let used = engine.used_memory();
            put("used_memory", used.to_string());
            put("used_memory_human", format!("{:.2}M", used as f64 / f64::from(1 << 20)));
            put("used_memory_rss", resident.to_string());
            put("maxmemory", "0".into());
            put("maxmemory_policy", "noeviction".into());
            for (name, value) in engine.describe_store() {
                if matches!(name.as_str(), "memtable_bytes" | "block_cache_bytes") {
                    put(&name, value);
                }
            }
        }
        "persistence" => {
            put("loading", "0".into());
            put("durability", shared.options.durability.to_string());
            let promise = match shared.options.durability.is_sync() {
                true => "acknowledged writes are durable",
                false => "up to about a second of acknowledged writes may be lost",
            };
            put("durability_promise", promise.into());
            put("wal", shared.options.wal.to_string());
            put("aof_enabled", "1".into());
            put("aof_last_write_status", if engine.failure().is_none() { "ok" } else { "err" }.into());
            put("writes_refused", engine.failure().unwrap_or_else(|| "no".into()).replace(['\r', '\n'], " "));
            if let Some(room) = engine.room() {
                put("drive_free_bytes", room.free.0.to_string());
                put("drive_reserve_bytes", room.reserve.0.to_string());
                put("drive_full", u8::from(room.is_short()).to_string());
            }
        }
        "stats" => {
            let totals = shared.totals_since_reset();
            put("total_connections_received", totals.accepted.to_string());
            put("rejected_connections", totals.refused.to_string());
            put("total_commands_processed", totals.commands.to_string());
            put("expired_keys", totals.expired.to_string());
        }
        "engine" => {
            put("write_groups", stats.groups.to_string());
            put("write_pipelines", stats.pipelines.to_string());
            put("write_keys", stats.keys_written.to_string());
            put("write_bytes", stats.bytes_written.to_string());
            put("write_failures", stats.failed.to_string());
            put("read_pipelines", stats.reads.to_string());
            for (name, value) in engine.describe_store() {
                put(&name, value);
            }
            if let Some(log) = engine.log() {
                put("log_held_records", log.held.records.to_string());
                put("log_held_bytes", log.held.bytes.to_string());
                put("log_records", log.log.records.to_string());
                put("log_appends", log.log.operations().to_string());
                put("log_drive_flushes", log.log.flushes.to_string());
                put("log_voids", log.log.voids.to_string());
                put("log_replacements", log.log.replaced.to_string());
                put("log_waits", log.log.waits.to_string());
                put("log_flushes_asked", log.held.flushes_asked.to_string());
            }
        }
        // The scheduler before the drive: what each class of operations moved, and how long its operations waited beside a log.
        "scheduler" => {
            if let Some(share) = shared.share_status() {
                put("waiting_operations", share.held.to_string());
                for (class, status) in IoClass::ALL.iter().zip(share.classes) {
                    let ClassStatus { operations, bytes, held, held_for } = status;
                    let held_ms = held_for.as_millis();
                    let counts =
                        format!("operations={operations},bytes={bytes},held={held},held_ms={held_ms}");
                    put(&format!("class_{class}"), counts);
                }
            }
        }
        "replication" => {
            put("role", "master".into());
            put("connected_slaves", "0".into());
        }
        "cluster" => put("cluster_enabled", u8::from(engine.cluster().is_some()).to_string()),
        // The key count of the last walk, which may be minutes old in a large database; DBSIZE counts anew.
        "keyspace" => {
            if let Some(KeyspaceCounts { keys, expires, avg_ttl_ms, .. }) = engine.keyspace_counts()
                && keys > 0
            {
                put("db0", format!("keys={keys},expires={expires},avg_ttl={avg_ttl_ms}"));
            }
        }
        _ => {}
    }
    out
}
