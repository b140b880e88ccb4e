//! The metrics `furrow_fs_*` and `furrow_zones`: the file system's space and the device's zones.

use fs::{Fs, StatFs};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use zoned::ZoneState;

const CAPACITY: &str = "furrow_fs_capacity_bytes";
const USED: &str = "furrow_fs_used_bytes";
const GARBAGE: &str = "furrow_fs_garbage_bytes";
const ZONES: &str = "furrow_zones";

const STATES: [(ZoneState, &str); 8] = [
    (ZoneState::Conventional, "conventional"),
    (ZoneState::Empty, "empty"),
    (ZoneState::ImplicitOpen, "implicit-open"),
    (ZoneState::ExplicitOpen, "explicit-open"),
    (ZoneState::Closed, "closed"),
    (ZoneState::Full, "full"),
    (ZoneState::ReadOnly, "read-only"),
    (ZoneState::Offline, "offline"),
];

/// The metrics of a file system and its device at the moment of a scrape.
#[derive(Debug)]
pub(super) struct DriveMetrics {
    space: StatFs,
    /// The state of each zone; empty if the device cannot report the states.
    zones: Vec<ZoneState>,
}

impl DriveMetrics {
    /// Collects the metrics from the file system and the device.
    pub fn of(fs: &Fs) -> DriveMetrics {
        let zones = fs.device().report_all().unwrap_or_else(|error| {
            tracing::warn!(%error, "the metrics lack the zones: the device does not report them");
            Vec::new()
        });
        DriveMetrics { space: fs.statfs(), zones: zones.iter().map(|zone| zone.state).collect() }
    }
}

impl Collector for DriveMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let gauge = |value: u64| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        for (name, help, value) in [
            (CAPACITY, "Bytes that files can hold at most", self.space.capacity.0),
            (USED, "Bytes in live blocks of files and logs", self.space.used.0),
            (GARBAGE, "Bytes in dead blocks that a reclaim would free", self.space.garbage.0),
        ] {
            gauge(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let mut family = encoder.encode_descriptor(ZONES, "Zones by state", None, MetricType::Gauge)?;
        for (state, name) in STATES {
            let count = self.zones.iter().filter(|zone| **zone == state).count() as u64;
            gauge(count).encode(family.encode_family(&[("state", name)])?)?;
        }
        Ok(())
    }
}
