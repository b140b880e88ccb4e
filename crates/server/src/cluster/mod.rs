//! A cluster as its clients see it: the slots of Redis Cluster, who leads them, and this process's part.

mod describe;
mod route;
mod scan_cursor;
mod topology;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use kv::Engine;
use tokio::sync::watch;

pub(crate) use self::describe::{
    cluster_info, find_node, nodes_text, reply_replicas, reply_shards, reply_slots,
};
pub(crate) use self::route::{Access, KeySlots, Route, Router, parse_slot};
pub(crate) use self::scan_cursor::ScanOrder;
pub use self::topology::{ClusterNode, NodeIndex, SlotRange, Topology};
pub use replica::{GroupId, GroupStats};

/// The handing over of the lead of a process's groups.
pub type HandingOver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The cluster that the server's process is part of.
///
/// Nothing here waits for another process.
pub trait Cluster: Send + Sync + Debug {
    /// The cluster as this process knows it now.
    fn topology(&self) -> Arc<Topology>;

    /// The engine over this process's replica of a group; `None` if it has none.
    fn engine(&self, group: GroupId) -> Option<Engine>;

    /// True if this process's replica of the group leads, and commands may run in its engine now.
    fn leads(&self, group: GroupId) -> bool;

    /// The time by which this process's replica of a group may be behind the leader, in milliseconds; `None` if the replica cannot tell.
    fn behind_ms(&self, group: GroupId) -> Option<u64>;

    /// True if this process's replica of the group led and has lost its majority for good, as far as it knows: commands of the group need not wait here.
    fn is_cut_off(&self, group: GroupId) -> bool;

    /// This process's replicas in numbers, in the order of their groups.
    fn stats(&self) -> Vec<GroupStats>;

    /// Hands the lead of this process's groups over to other nodes, before the process ends. Done after a bounded time, also where nobody takes over.
    fn hand_over(&self) -> HandingOver;

    /// A number that changes with the topology, and with the leader of a group that this process has a replica of. The
    /// number changes after [`topology`](Cluster::topology) and [`leads`](Cluster::leads) have.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Closes the engines of this process's replicas, at the end of the server. A second call does nothing.
    ///
    /// # Errors
    /// The first error of an engine; all engines are closed nevertheless.
    fn close(&self) -> kv::Result<()>;
}
