//! The engines in which the server's commands run: one, or those of a cluster's groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use kv::{Engine, KeyspaceCounts, LogReport, MemoryStore, Room, Stats};
use units::Driver;

use crate::cluster::Cluster;
use replica::GroupId;

/// The engines in which the server's commands run.
pub(crate) enum Engines {
    /// One engine has all keys.
    One(Engine),
    /// Each group of a cluster has an engine on the nodes with its replicas.
    Cluster(ClusterEngines),
}

/// The engines of a process that is part of a cluster.
pub(crate) struct ClusterEngines {
    pub cluster: Arc<dyn Cluster>,
    /// The engine over an empty store, for commands that need no data.
    pub no_data: Engine,
}

impl Engines {
    /// The engines of a cluster's process.
    pub fn of_cluster(cluster: Arc<dyn Cluster>, driver: Arc<dyn Driver>) -> Engines {
        let no_data = Engine::without_writers(Arc::new(MemoryStore::new()), driver);
        Engines::Cluster(ClusterEngines { cluster, no_data })
    }

    /// The cluster that the server is part of.
    pub fn cluster(&self) -> Option<&Arc<dyn Cluster>> {
        match self {
            Engines::One(_) => None,
            Engines::Cluster(engines) => Some(&engines.cluster),
        }
    }

    /// The server's mode, in Redis's words.
    pub fn redis_mode(&self) -> &'static str {
        match self {
            Engines::One(_) => "standalone",
            Engines::Cluster(_) => "cluster",
        }
    }

    /// The driver with the server's clock.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        match self {
            Engines::One(engine) => engine.driver(),
            Engines::Cluster(engines) => engines.no_data.driver(),
        }
    }

    /// The engines with the keys of this process: in a cluster those of the groups that it leads.
    pub fn led(&self) -> Vec<Engine> {
        match self {
            Engines::One(engine) => vec![engine.clone()],
            Engines::Cluster(engines) => engines.led().into_iter().map(|(_, engine)| engine).collect(),
        }
    }

    /// The counters of the engines, added up. In a cluster they fall when a group gets another leader.
    pub fn stats(&self) -> Stats {
        self.led().iter().map(Engine::stats).fold(Stats::default(), |a, b| Stats {
            groups: a.groups + b.groups,
            pipelines: a.pipelines + b.pipelines,
            keys_written: a.keys_written + b.keys_written,
            bytes_written: a.bytes_written + b.bytes_written,
            failed: a.failed + b.failed,
            expired: a.expired + b.expired,
            reads: a.reads + b.reads,
        })
    }

    /// The failure after which an engine takes no writes.
    pub fn failure(&self) -> Option<String> {
        self.led().iter().find_map(Engine::failure)
    }

    /// The room left on the drive, which all engines share.
    pub fn room(&self) -> Option<Room> {
        self.led().iter().find_map(Engine::room)
    }

    /// State of the parallel log, if the server has one engine and the engine has such a log.
    pub fn log(&self) -> Option<LogReport> {
        match self {
            Engines::One(engine) => engine.log(),
            Engines::Cluster(_) => None,
        }
    }

    /// Bytes of memory that the engines' data takes.
    pub fn used_memory(&self) -> u64 {
        self.led().iter().map(Engine::used_memory).sum()
    }

    /// The keys of the engines, added up; `None` if an engine cannot tell.
    pub fn keyspace_counts(&self) -> Option<KeyspaceCounts> {
        let counts: Vec<KeyspaceCounts> =
            self.led().iter().map(|engine| engine.keyspace_counts().ok()).collect::<Option<_>>()?;
        let sum = |of: fn(&KeyspaceCounts) -> u64| counts.iter().map(of).fold(0, u64::saturating_add);
        let ttl_ms: u128 =
            counts.iter().map(|counts| u128::from(counts.avg_ttl_ms) * u128::from(counts.expires)).sum();
        let expires = sum(|counts| counts.expires);
        Some(KeyspaceCounts {
            keys: sum(|counts| counts.keys),
            expires,
            avg_ttl_ms: u64::try_from(ttl_ms / u128::from(expires.max(1))).unwrap_or(u64::MAX),
            age_ms: None,
        })
    }

    /// Lines of `name:value` about the store, for INFO; none in a cluster, whose groups have a store each.
    pub fn describe_store(&self) -> Vec<(String, String)> {
        match self {
            Engines::One(engine) => engine.describe_store(),
            Engines::Cluster(_) => Vec::new(),
        }
    }

    /// Runs the queued pipelines, makes every write durable and closes the stores.
    ///
    /// # Errors
    /// The error of an engine.
    pub fn close(&self) -> kv::Result<()> {
        match self {
            Engines::One(engine) => engine.close(),
            Engines::Cluster(engines) => engines.cluster.close(),
        }
    }
}

impl ClusterEngines {
    /// The groups that this process leads, in the order of their numbers, and their engines.
    pub fn led(&self) -> Vec<(GroupId, Engine)> {
        let topology = self.cluster.topology();
        let groups: BTreeSet<GroupId> = topology.ranges.iter().map(|range| range.group).collect();
        let led = groups.into_iter().filter(|group| self.cluster.leads(*group));
        led.filter_map(|group| Some((group, self.cluster.engine(group)?))).collect()
    }
}
