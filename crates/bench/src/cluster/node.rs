//! One node: a drive, its file system with the log, and a replica.

use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions, Uuid};
use replica::{Base, GroupId, Settings};
use shard::{Change, Group, GroupOptions, GroupsLog, GroupsLogOptions, Parts, Place, StoredGroup, Tables};
use units::Driver;
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

use super::network::Network;
use super::tables::MemoryTables;
use crate::Result;
use crate::counted::{Counted, Counts};

pub(super) const GROUP: GroupId = GroupId(1);
const LOG_PATH: &str = "/groups";

/// A node that runs.
pub(super) struct Node {
    pub(super) group: Arc<Group>,
    log: Arc<GroupsLog>,
    drive: Arc<Counted>,
    _fs: Fs,
}

impl Node {
    /// Formats a drive, and starts a new replica of the group that begins with `base`.
    pub(super) async fn start(
        place: Place,
        settings: Settings,
        base: &Base,
        (drive, tables): (&EmuOptions, MemoryTables),
        (driver, network): (&Arc<dyn Driver>, &Network),
    ) -> Result<Node> {
        let drive = Counted::new(Emu::memory(drive.clone(), Arc::clone(driver)) as Arc<dyn ZonedDevice>);
        let device: Arc<dyn ZonedDevice> = Arc::clone(&drive) as Arc<dyn ZonedDevice>;
        let uuid = Some(Uuid::from_u128(u128::from(place.replica.0)));
        let superblock = Fs::format(&device, &FormatOptions { uuid, ..FormatOptions::default() }).await?;
        drive.begin(&superblock);
        let fs = Fs::mount(device, &MountOptions::default()).await?;
        let (log, _) = GroupsLog::open(&fs, LOG_PATH, &GroupsLogOptions::default()).await?;
        let log = Arc::new(log);
        let stored = StoredGroup::new(base.clone());
        log.write(GROUP, &Change::State(stored.clone())).await?;
        let parts = Parts {
            driver: Arc::clone(driver),
            log: Arc::clone(&log),
            tables: Arc::new(tables) as Arc<dyn Tables>,
            peers: Arc::new(network.clone()),
        };
        let options = GroupOptions { settings, ..GroupOptions::default() };
        let group = Group::start(place, &options, parts, stored)?;
        network.connect(&group);
        Ok(Node { group, log, drive, _fs: fs })
    }

    /// Ends the replica, then its log.
    pub(super) async fn end(&self) -> Result<()> {
        self.group.close();
        self.group.finished().await;
        Ok(self.log.close().await?)
    }

    /// The operations of the node's drive so far.
    pub(super) fn counts(&self) -> Counts {
        self.drive.counts()
    }
}
