//! The metrics `furrow_group_*`: the replicas of groups in a process of a cluster.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use replica::GroupStats;

use super::encode::{Encoded, encode_family};

// Names of the groups' metrics. The exposition format adds `_total` to the names of counters.
const IS_LEADER: &str = "furrow_group_is_leader";
const HAS_LEADER: &str = "furrow_group_has_leader";
const ENDED: &str = "furrow_group_ended";
const TERM: &str = "furrow_group_term";
const COMMITTED: &str = "furrow_group_commit_index";
const APPLIED: &str = "furrow_group_applied_index";
const STABLE: &str = "furrow_group_stable_index";
const LOG_ENTRIES: &str = "furrow_group_log_entries";
const LOG_BYTES: &str = "furrow_group_log_bytes";
const LOG_LIMIT: &str = "furrow_group_log_limit_bytes";
const UNFINISHED: &str = "furrow_group_unfinished_writes";
const BEHIND: &str = "furrow_group_behind_seconds";
const ELECTIONS: &str = "furrow_group_elections";
const SNAPSHOTS_SENT: &str = "furrow_group_snapshots_sent";
const SNAPSHOTS_TAKEN: &str = "furrow_group_snapshots_taken";
const REFUSED_FULL: &str = "furrow_group_refused_full";

/// The replicas of a process at the moment of a scrape.
#[derive(Debug)]
pub(super) struct GroupMetrics(pub Vec<GroupStats>);

/// Name, help and value of a metric.
type Metric = (&'static str, &'static str, fn(&GroupStats) -> u64);

const GAUGES: [Metric; 11] = [
    (IS_LEADER, "1 if this replica leads the group and takes commands", |group| group.replica.serves.into()),
    (HAS_LEADER, "1 if this replica knows a leader of the group", |group| {
        group.replica.leader.is_some().into()
    }),
    (ENDED, "1 if an error has ended this replica until the process starts again", |group| {
        group.has_ended.into()
    }),
    (TERM, "The replica's term", |group| group.replica.term.0),
    (COMMITTED, "Index up to which the group's log is committed, as far as the replica knows", |group| {
        group.replica.committed.0
    }),
    (APPLIED, "Index up to which the replica's tables hold the log", |group| group.replica.applied.0),
    (STABLE, "Index up to which witnesses need no values, as far as the replica knows", |group| {
        group.replica.stable.0
    }),
    (LOG_ENTRIES, "Entries in the replica's log", |group| group.replica.log_entries),
    (LOG_BYTES, "Bytes of entries in the replica's log", |group| group.replica.log_bytes),
    (LOG_LIMIT, "Bytes of entries in the log above which a leader takes no commands", |group| {
        group.log_limit
    }),
    (UNFINISHED, "Writes of clients that have no outcome yet", |group| group.unfinished),
];

const COUNTERS: [Metric; 4] = [
    (ELECTIONS, "Times that the replica stood for election", |group| group.replica.counts.elections),
    (SNAPSHOTS_SENT, "Snapshots that the replica sent, repeated ones too", |group| {
        group.replica.counts.snapshots_sent
    }),
    (SNAPSHOTS_TAKEN, "Snapshots that the replica took", |group| group.replica.counts.snapshots_taken),
    (REFUSED_FULL, "Writes that were refused because the group's log was full", |group| group.refused_full),
];

/// The labels of a replica's metrics.
fn labels(group: &GroupStats) -> [(&'static str, String); 2] {
    [("group", group.group.0.to_string()), ("role", group.replica.role.name().to_owned())]
}

impl Collector for GroupMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let metrics = GAUGES.map(|metric| (metric, MetricType::Gauge)).into_iter();
        for ((name, help, value), kind) in metrics.chain(COUNTERS.map(|metric| (metric, MetricType::Counter)))
        {
            let values = self.0.iter().map(|group| (labels(group), value(group)));
            encode_family(&mut encoder, name, help, kind, values)?;
        }
        let help = "Seconds by which a backup's tables may be behind the leader";
        let mut behind = encoder.encode_descriptor(BEHIND, help, None, MetricType::Gauge)?;
        for group in &self.0 {
            if let Some(time) = group.replica.behind {
                ConstGauge::new(time.as_secs_f64()).encode(behind.encode_family(&labels(group))?)?;
            }
        }
        Ok(())
    }
}
