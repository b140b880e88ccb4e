//! The nodes of one cluster, whose clients are in the leader's process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kv::{Expiry, Overlay, Record};
use replica::{Base, Configuration, ReplicaId, Role, Settings};
use shard::{Group, Place, Refused};
use units::{Driver, VirtualDriver, block_on, sleep_until};
use zoned::emu::{EmuOptions, Profile};

use super::load::ClusterLoad;
use super::network::Network;
use super::node::{GROUP, Node};
use super::tables::MemoryTables;
use crate::{Error, Result};

/// A primary, two backups, and two witnesses more.
pub(super) const ROLES: [Role; 5] = [Role::Witness, Role::Backup, Role::Backup, Role::Witness, Role::Witness];
/// Zones of a drive: room for more than a group's log keeps.
const ZONES: u32 = 32;
/// The time between two looks at who leads: also the most by which the time of a first write is too long.
pub(super) const LOOK_PAUSE: Duration = Duration::from_micros(100);
/// Election timeouts after which a group without a leader is given up.
const MOST_TIMEOUTS: u32 = 40;

/// The nodes of a cluster with one group.
pub(super) struct Nodes {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) network: Network,
    pub(super) nodes: Vec<Node>,
    timeout: Duration,
    value: bytes::Bytes,
}

/// Runs a measurement on a new cluster, until it has a leader that has relieved all others.
pub(super) fn with_cluster<T>(
    load: &ClusterLoad,
    seed: u64,
    measure: impl AsyncFnOnce(&Arc<Nodes>) -> Result<T>,
) -> Result<T> {
    let virtual_driver = VirtualDriver::new(seed);
    let driver: Arc<dyn Driver> = Arc::clone(&virtual_driver) as Arc<dyn Driver>;
    let measured = block_on(&*driver, async {
        let nodes = Arc::new(Nodes::start(load, &driver).await?);
        let leader = nodes.wait_for_leader().await?;
        nodes.write(&leader, 0).await?;
        let measured = measure(&nodes).await;
        for node in &nodes.nodes {
            nodes.network.disconnect(node.group.place().replica);
            node.end().await?;
        }
        measured
    });
    virtual_driver.drop_all_tasks();
    measured
}

/// A node's drive.
pub(super) fn drive(load: &ClusterLoad) -> Result<EmuOptions> {
    let profile = Profile::load(&load.profile).map_err(|why| Error::settings(format!("profile: {why}")))?;
    let options = EmuOptions::of_profile(profile);
    Ok(EmuOptions { zones: options.zones.min(ZONES), ..options })
}

impl Nodes {
    async fn start(load: &ClusterLoad, driver: &Arc<dyn Driver>) -> Result<Nodes> {
        let network = Network::new(driver, load.one_way, load.link_bits_per_s);
        let settings = Settings {
            election_timeout: load.election_timeout,
            heartbeat: load.election_timeout / 10,
            ..Settings::default()
        };
        let voters = Configuration::new((1..).map(ReplicaId).zip(ROLES));
        let base = Base::first(voters, ReplicaId(1));
        let drive = drive(load)?;
        let starts = (1..).map(ReplicaId).zip(ROLES).map(|(replica, role)| {
            let place = Place { group: GROUP, replica, role };
            let tables = MemoryTables::new(role == Role::Witness);
            Node::start(place, settings, &base, (&drive, tables), (driver, &network))
        });
        let nodes = join_all(starts).await.into_iter().collect::<Result<Vec<Node>>>()?;
        let driver = Arc::clone(driver);
        let value = vec![0x5A; usize::try_from(load.value.0).unwrap_or(usize::MAX)].into();
        Ok(Nodes { driver, network, nodes, timeout: load.election_timeout, value })
    }

    /// The replica that takes commands.
    pub(super) fn leader(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.group.view().is_ok())
    }

    /// Waits until a replica takes commands.
    pub(super) async fn wait_for_leader(&self) -> Result<Arc<Group>> {
        let end = self.driver.now().after(self.timeout * MOST_TIMEOUTS);
        loop {
            if let Some(leader) = self.leader() {
                return Ok(Arc::clone(&leader.group));
            }
            if self.driver.now() > end {
                return Err(Error::Cluster(String::from("nobody leads the group")));
            }
            self.pause(LOOK_PAUSE).await;
        }
    }

    /// Writes the value of a key.
    pub(super) async fn write(&self, leader: &Group, number: u64) -> Result<()> {
        let mut overlay = Overlay::default();
        overlay.put(key(number), Record { expires: Expiry::NEVER, value: self.value.clone() });
        leader.write(&overlay).await.map(|_| ()).map_err(refused)
    }

    /// Waits.
    pub(super) async fn pause(&self, time: Duration) {
        sleep_until(&*self.driver, self.driver.now().after(time)).await;
    }

    /// A time below `most`, at random.
    pub(super) fn time_below(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(self.driver.random() % most)
    }
}

/// The error of a command that was refused.
pub(super) fn refused(why: Refused) -> Error {
    Error::Cluster(format!("a command was refused: {why}"))
}

/// The key of a number, 16 bytes long.
pub(super) fn key(number: u64) -> bytes::Bytes {
    format!("key:{number:012}").into_bytes().into()
}
