//! The metrics `furrow_share_*`: the scheduler before the drive, by class of operation.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use zoned::{ClassStatus, IoClass, ShareStatus};

use super::encode::{Encoded, encode_family, encode_gauge};

// Names of the scheduler's metrics. The exposition format adds `_total` to the names of counters.
const OPERATIONS: &str = "furrow_share_operations";
const BYTES: &str = "furrow_share_bytes";
const HELD: &str = "furrow_share_held_operations";
const HELD_SECONDS: &str = "furrow_share_held_seconds";
const WAITING: &str = "furrow_share_waiting_operations";

/// The counts of the scheduler before a drive at the moment of a scrape.
#[derive(Debug)]
pub(super) struct ShareMetrics(pub ShareStatus);

impl Collector for ShareMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let ShareStatus { classes, held } = self.0;
        type Count = fn(&ClassStatus) -> u64;
        let counts: [(&str, &str, Count); 3] = [
            (OPERATIONS, "Operations of the drive", |class| class.operations),
            (BYTES, "Bytes that operations of the drive read or wrote", |class| class.bytes),
            (HELD, "Operations that waited beside a log or a read", |class| class.held),
        ];
        for (name, help, count) in counts {
            let values = IoClass::ALL.iter().zip(&classes);
            let values = values.map(|(class, status)| ([("class", class.to_string())], count(status)));
            encode_family(&mut encoder, name, help, MetricType::Counter, values)?;
        }
        let help = "Seconds for which operations waited, in all";
        let mut seconds = encoder.encode_descriptor(HELD_SECONDS, help, None, MetricType::Counter)?;
        for (class, status) in IoClass::ALL.iter().zip(&classes) {
            let labels = [("class", class.to_string())];
            ConstCounter::new(status.held_for.as_secs_f64()).encode(seconds.encode_family(&labels)?)?;
        }
        encode_gauge(&mut encoder, WAITING, "Operations that wait now", held as u64)
    }
}
