//! The server's counters of commands and pipelines.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::needs::Needs;

type MetricLabels = Vec<(&'static str, &'static str)>;

/// Counters of the server.
pub(crate) struct Counters {
    pub commands: Family<MetricLabels, Counter>,
    /// The counter of each command, found without the lock of the metrics family.
    by_name: BTreeMap<&'static str, Counter>,
    pub seconds: Family<MetricLabels, Histogram>,
    by_needs: [Histogram; 4],
}

impl Counters {
    /// Counters at zero, for commands of these names.
    pub fn new(names: impl Iterator<Item = &'static str>) -> Counters {
        let commands = Family::<MetricLabels, Counter>::default();
        let by_name =
            names.map(|name| (name, commands.get_or_create_owned(&vec![("command", name)]))).collect();
        let seconds = Family::<MetricLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(20e-6, 2.0, 20))
        });
        let by_needs = Needs::METRIC_NAMES.map(|needs| seconds.get_or_create_owned(&vec![("needs", needs)]));
        Counters { commands, by_name, seconds, by_needs }
    }

    /// Counts an execution of the command `name`.
    pub fn count(&self, name: &'static str) {
        if let Some(counter) = self.by_name.get(name) {
            counter.inc();
        }
    }

    /// Counts a pipeline, with the time from its last byte to its last reply.
    pub fn observe(&self, needs: Needs, took: Duration) {
        if let Some(histogram) = self.by_needs.get(needs as usize) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// Number of commands executed so far.
    pub fn commands_total(&self) -> u64 {
        self.by_name.values().map(Counter::get).sum()
    }
}
