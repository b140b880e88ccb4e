//! Encodes metrics whose values are of the moment of a scrape.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(super) type Encoded = Result<(), std::fmt::Error>;

/// Encodes a gauge without labels.
pub(super) fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Encoded {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// Encodes a family of counters or gauges, by their labels.
pub(super) fn encode_family<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: impl IntoIterator<Item = ([(&'static str, String); N], u64)>,
) -> Encoded {
    let mut encoder = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in values {
        let encoder = encoder.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
            _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)?,
        }
    }
    Ok(())
}
