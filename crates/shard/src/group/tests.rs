//! Tests of a replica that ends.

use fs::{FormatOptions, Fs, MountOptions};
use replica::{Base, Configuration};
use units::{Blocks, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

use super::*;
use crate::{GroupTables, GroupsLogOptions, TablesDb, TablesOptions};

const GROUP: GroupId = GroupId(1);

/// A network that loses everything.
#[derive(Debug)]
struct Nowhere;

impl Peers for Nowhere {
    fn send(&self, _group: GroupId, _from: ReplicaId, _to: ReplicaId, _message: PeerMessage) {}
}

#[test]
fn who_waits_for_the_tables_of_a_replica_that_has_ended_hears_so() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let size = Blocks(1 << 10);
    let options = EmuOptions { zones: 32, zone_size: size, zone_capacity: size, ..EmuOptions::default() };
    let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
    block_on(&*driver, async {
        Fs::format(&device, &FormatOptions::default()).await.expect("formats");
        let fs = Fs::mount(device, &MountOptions::default()).await.expect("mounts");
        let (log, _) = GroupsLog::open(&fs, "/groups", &GroupsLogOptions::default()).await.expect("opens");
        let log = Arc::new(log);
        let voters = [(ReplicaId(1), Role::Witness), (ReplicaId(2), Role::Backup)];
        let stored = StoredGroup::new(Base::first(Configuration::new(voters), ReplicaId(1)));
        log.write(GROUP, &Change::State(stored.clone())).await.expect("writes");
        let db = TablesDb::open(&fs, "/tables", &TablesOptions::new(1 << 20, 8 << 20)).expect("opens");
        let tables = Arc::new(GroupTables::open(&db, GROUP, Role::Witness).expect("opens"));
        let place = Place { group: GROUP, replica: ReplicaId(1), role: Role::Witness };
        let parts =
            Parts { driver: Arc::clone(&driver), log: Arc::clone(&log), tables, peers: Arc::new(Nowhere) };
        let group = Group::start(place, &GroupOptions::default(), parts, stored).expect("starts");
        assert_eq!(group.table_work_before().await, Some(()));
        group.close();
        assert_eq!(group.table_work_before().await, None);
        group.finished().await;
        db.close().expect("closes");
        log.close().await.expect("closes");
        fs.unmount().await.expect("unmounts");
    });
}
