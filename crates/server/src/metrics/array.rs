//! The metrics `furrow_array_*`, with values of the moment of a scrape.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::encode::{Encoded, encode_family, encode_gauge};
use crate::array::{ArrayView, ProgressView};

// Names of the array's metrics. The exposition format adds `_total` to the names of counters.
const HEALTH: &str = "furrow_array_health";
const MEMBERS: &str = "furrow_array_members";
const MEMBER: &str = "furrow_array_member_state";
const SPARES: &str = "furrow_array_spares";
const MEDIA_ERRORS: &str = "furrow_array_member_media_errors";
const WORN: &str = "furrow_array_worn_zones";
const BYTES: &str = "furrow_array_written_bytes";
const REBUILD_DONE: &str = "furrow_array_rebuild_done_bytes";
const REBUILD_TOTAL: &str = "furrow_array_rebuild_total_bytes";
const REBUILD_LEFT: &str = "furrow_array_rebuild_left_seconds";
const SCRUB_DONE: &str = "furrow_array_scrub_done_bytes";
const SCRUB_TOTAL: &str = "furrow_array_scrub_total_bytes";

/// The states of an array's member, as values of a metric's label.
const STATES: [&str; 4] = ["good", "failed", "missing", "rebuilding"];
/// The states of an idle spare, as values of a metric's label.
const SPARE_STATES: [&str; 2] = ["spare", "missing"];
/// The array's counters of written bytes: the name of the counter, and its kind as a label of the metric.
const WRITTEN_BYTES_KINDS: [(&str, &str); 6] = [
    ("data_bytes", "data"),
    ("parity_bytes", "parity"),
    ("partial_parity_bytes", "partial_parity"),
    ("metadata_bytes", "metadata"),
    ("rebuilt_bytes", "rebuild"),
    ("moved_bytes", "move"),
];
/// The array's other counters: the name of the counter, the name of the metric, the help text.
const COUNTERS: [(&str, &str, &str); 10] = [
    ("degraded_reads", "furrow_array_degraded_reads", "Reads reconstructed from the other drives"),
    ("read_errors", "furrow_array_read_errors", "Reads of a drive that gave an error of the medium"),
    (
        "read_repairs",
        "furrow_array_read_repairs",
        "Reads with an error of the medium that were answered from the other drives",
    ),
    ("relocations", "furrow_array_relocations", "Stripe units recorded elsewhere than in their place"),
    ("reclaimed_zones", "furrow_array_reclaimed_zones", "Physical zones that reclaims freed"),
    ("waits_for_room", "furrow_array_waits_for_room", "First writes of zones that waited for a reclaim"),
    ("scrub_bytes", "furrow_array_scrub_read_bytes", "Bytes that scrubs read"),
    ("scrub_errors", "furrow_array_scrub_errors", "Reads of scrubs that failed"),
    ("scrub_mismatches", "furrow_array_scrub_mismatches", "Stripes whose parity did not fit their data"),
    ("drive_failures", "furrow_array_drive_failures", "Drives that failed while the array was in use"),
];

/// The metrics of an array at the moment of a scrape.
#[derive(Debug)]
pub(super) struct ArrayMetrics(pub ArrayView);

impl Collector for ArrayMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let view = &self.0;
        let health = match view.health.as_str() {
            "clean" => 0,
            "degraded" => 1,
            _ => 2,
        };
        encode_gauge(
            &mut encoder,
            HEALTH,
            "0 clean, 1 degraded (one drive failed), 2 failed (more drives failed)",
            health,
        )?;
        let of = |state: &str| view.members.iter().filter(|member| member.state == state).count() as u64;
        encode_family(
            &mut encoder,
            MEMBERS,
            "Drives by state",
            MetricType::Gauge,
            STATES.map(|s| ([("state", s.to_owned())], of(s))),
        )?;
        let spares = |state: &str| view.spares.iter().filter(|spare| spare.state == state).count() as u64;
        encode_family(
            &mut encoder,
            SPARES,
            "Idle spares by state",
            MetricType::Gauge,
            SPARE_STATES.map(|s| ([("state", s.to_owned())], spares(s))),
        )?;
        let states = view.members.iter().map(|member| {
            let drive = member.drive.clone().unwrap_or_default();
            ([("slot", member.slot.to_string()), ("drive", drive), ("state", member.state.clone())], 1)
        });
        encode_family(
            &mut encoder,
            MEMBER,
            "1 for the present state of each drive",
            MetricType::Gauge,
            states,
        )?;
        let errors = view.members.iter().map(|m| ([("slot", m.slot.to_string())], m.media_errors));
        encode_family(
            &mut encoder,
            MEDIA_ERRORS,
            "Reads that gave errors of the medium",
            MetricType::Counter,
            errors,
        )?;
        encode_gauge(
            &mut encoder,
            WORN,
            "Physical zones that are read-only or offline",
            view.worn.len() as u64,
        )?;
        let count = |name: &str| view.counters.get(name).copied().unwrap_or(0);
        let bytes = WRITTEN_BYTES_KINDS.map(|(name, kind)| ([("kind", kind.to_owned())], count(name)));
        encode_family(
            &mut encoder,
            BYTES,
            "Bytes written to the drives by kind",
            MetricType::Counter,
            bytes,
        )?;
        for (name, metric, help) in COUNTERS {
            let counter = ConstCounter::new(count(name));
            counter.encode(encoder.encode_descriptor(metric, help, None, MetricType::Counter)?)?;
        }
        let none = ProgressView::default();
        let rebuild = view.rebuild.as_ref().unwrap_or(&none);
        encode_gauge(
            &mut encoder,
            REBUILD_DONE,
            "Bytes that the running rebuild has written",
            rebuild.bytes,
        )?;
        encode_gauge(
            &mut encoder,
            REBUILD_TOTAL,
            "Bytes that the running rebuild will have written; 0 without one",
            rebuild.total,
        )?;
        let left = rebuild.eta_seconds.map_or(0, |left| left.ceil() as u64);
        encode_gauge(
            &mut encoder,
            REBUILD_LEFT,
            "Estimated seconds until the end of the running rebuild",
            left,
        )?;
        let scrub = view.scrub.as_ref().unwrap_or(&none);
        encode_gauge(&mut encoder, SCRUB_DONE, "Bytes that the running scrub has read", scrub.bytes)?;
        encode_gauge(
            &mut encoder,
            SCRUB_TOTAL,
            "Bytes that the running scrub will have read; 0 without one",
            scrub.total,
        )
    }
}
