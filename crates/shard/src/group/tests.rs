//! Tests of a replica that ends, and of one whose log takes nothing.

use fs::{FormatOptions, Fs, MountOptions};
use raft::eraftpb::HardState;
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

/// Starts a replica of a new drive, calls `then` with it, and ends it.
fn with_group(base: Base, then: impl AsyncFnOnce(&Arc<Group>)) {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let size = Blocks(1 << 10);
    let options = EmuOptions { zones: 32, zone_size: size, zone_capacity: size, ..EmuOptions::default() };
    let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
    block_on(&*driver, async {
        Fs::format(&device, &FormatOptions::default()).await.expect("formats");
        let fs = Fs::mount(device, &MountOptions::default()).await.expect("mounts");
        let (log, _) = GroupsLog::open(&fs, "/groups", &GroupsLogOptions::default()).await.expect("opens");
        let log = Arc::new(log);
        let stored = StoredGroup::new(base);
        log.write(GROUP, &Change::State(stored.clone())).await.expect("writes");
        let db = TablesDb::open(&fs, "/tables", &TablesOptions::new(1 << 20, 8 << 20)).expect("opens");
        let tables = Arc::new(GroupTables::open(&db, GROUP, Role::Witness).expect("opens"));
        let place = Place { group: GROUP, replica: ReplicaId(1), role: Role::Witness };
        let parts =
            Parts { driver: Arc::clone(&driver), log: Arc::clone(&log), tables, peers: Arc::new(Nowhere) };
        let group = Group::start(place, &GroupOptions::default(), parts, stored).expect("starts");
        then(&group).await;
        group.close();
        group.finished().await;
        db.close().expect("closes");
        log.close().await.expect("closes");
        fs.unmount().await.expect("unmounts");
    });
}

#[test]
fn who_waits_for_the_tables_of_a_replica_that_has_ended_hears_so() {
    let voters = [(ReplicaId(1), Role::Witness), (ReplicaId(2), Role::Backup)];
    with_group(Base::first(Configuration::new(voters), ReplicaId(1)), async |group| {
        assert_eq!(group.table_work_before().await, Some(()));
        group.close();
        assert_eq!(group.table_work_before().await, None);
    });
}

#[test]
fn a_command_waits_for_a_log_that_takes_nothing_until_the_next_tick_at_most() {
    // A replica that knows no members never stands, so that nothing else wakes its log.
    with_group(Base::joining(), async |group| {
        let (driver, timeout) = (&*group.parts.driver, group.options.settings.election_timeout);
        // The log's task is not woken: the request stands for one that a drive does not answer.
        group.state.lock().log.persist(1, None, Vec::new(), Some(HardState::default()));
        let mut overlay = Overlay::default();
        overlay.put("key".into(), kv::Record { expires: kv::Expiry::NEVER, value: "value".into() });
        let writing = group.write(&overlay);
        let ended = within(driver, driver.now().after(timeout * 20), writing).await;
        assert_eq!(ended, Some(Err(Refused::NotLeader(None))));
    });
}
