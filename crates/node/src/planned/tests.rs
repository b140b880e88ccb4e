use std::collections::BTreeSet;

use fs::{FormatOptions, MountOptions};
use placement::{Epoch, GroupPlan, Member, Meta, Remembered, Revision, SlotMap};
use replica::{ClusterId, ReplicaId, Role};
use shard::PeerMessage;
use units::{Driver, RealDriver};
use uuid::Uuid;
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

use super::*;
use crate::replicas::ReplicaOptions;
use crate::state::Belonging;

const GROUP: GroupId = GroupId(0);

/// A network in which every message is lost.
#[derive(Debug)]
struct Silence;

impl Peers for Silence {
    fn send(&self, _: GroupId, _: ReplicaId, _: ReplicaId, _: PeerMessage) {}
}

fn node(number: u64) -> NodeId {
    NodeId(Uuid::from_u128(number.into()))
}

fn plan(numbers: [u64; 3], last: u64) -> GroupPlan {
    let roles = [Role::Witness, Role::Backup, Role::Witness];
    let member =
        |(number, role): (u64, Role)| Member { replica: ReplicaId(number), node: node(number), role };
    let members = numbers.into_iter().zip(roles).map(member).collect();
    GroupPlan::new(members, ReplicaId(1), ReplicaId(last)).unwrap()
}

/// A cluster whose group has this plan, if it has one.
fn view(plan: Option<GroupPlan>) -> ClusterView {
    let cluster = ClusterId(Uuid::from_u128(77));
    let changed = Revision(8);
    ClusterView {
        revision: Revision(9),
        meta: Meta::new(cluster, 1, 1).unwrap(),
        nodes: BTreeMap::new(),
        alive: BTreeMap::new(),
        draining: BTreeMap::new(),
        want: plan.map(|plan| (GROUP, Want { plan, changed })).into_iter().collect(),
        seen: BTreeMap::new(),
        slots: SlotMap::even(1),
        placer: None,
    }
}

/// A node with a drive, which is started again and again.
struct Machine {
    device: Arc<dyn ZonedDevice>,
}

impl Machine {
    fn new() -> Machine {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let size = units::Blocks(1 << 10);
        let options = EmuOptions { zones: 64, zone_size: size, zone_capacity: size, ..EmuOptions::default() };
        let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
        block_on(&*driver, Fs::format(&device, &FormatOptions::default())).unwrap();
        Machine { device }
    }

    /// Starts the node, follows a view, calls `then`, and ends the process as a kill would: nothing is written any more.
    fn start<R>(
        &self,
        follows: &ClusterView,
        then: impl FnOnce(&mut Planned) -> R,
    ) -> (R, BTreeSet<GroupId>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let driver = Arc::clone(self.device.driver());
            let options = MountOptions::default();
            let mounted = Fs::mount(Arc::clone(&self.device), &options);
            let fs = block_in_place(|| block_on(&*driver, mounted)).unwrap();
            let mut state =
                block_in_place(|| block_on(&*driver, NodeState::start(&fs, || driver.random()))).unwrap();
            state.node = node(1);
            let remembered =
                Remembered { cluster: follows.meta.cluster(), epoch: Epoch(1), revision: follows.revision };
            let replicas = state.belonging.take().map(|belonging| belonging.replicas).unwrap_or_default();
            state.belonging = Some(Belonging { remembered, replicas, values: Vec::new() });
            let options = ReplicaOptions {
                group: shard::GroupOptions::default(),
                engine: kv::EngineOptions::default(),
                block_cache: 1 << 20,
                write_buffer: None,
            };
            let (replicas, stored) = block_in_place(|| Replicas::open(&fs, options)).unwrap();
            let replicas = Arc::new(replicas);
            let found = stored.keys().copied().collect();
            let mut planned = Planned::new(fs.clone(), Arc::clone(&replicas), state, stored);
            let peers: Arc<dyn Peers> = Arc::new(Silence);
            planned.follow(follows, &peers);
            let returned = then(&mut planned);
            block_in_place(|| replicas.close()).unwrap();
            drop((planned, replicas));
            block_in_place(|| block_on(&*driver, fs.unmount())).unwrap();
            (returned, found)
        })
    }
}

#[test]
fn a_replica_that_has_heard_of_a_later_change_is_not_deleted() {
    let machine = Machine::new();
    let first = view(Some(plan([1, 2, 3], 3)));
    machine.start(&first, |planned| planned.delete(GROUP, Index(0)).unwrap());
    let is_here = |planned: &mut Planned| planned.replicas.group(GROUP).is_some();
    assert_eq!(machine.start(&view(None), is_here), (true, BTreeSet::from([GROUP])));
}

#[test]
fn a_node_creates_the_replica_of_its_plan_and_has_it_after_a_restart() {
    let machine = Machine::new();
    let first = view(Some(plan([1, 2, 3], 3)));
    let here = |planned: &mut Planned| {
        let local = planned.replicas.group(GROUP).unwrap().group;
        (local.place().replica, local.with_replica(|replica| replica.members().current().voters().len()))
    };
    assert_eq!(machine.start(&first, here), ((ReplicaId(1), 3), BTreeSet::new()));
    assert_eq!(machine.start(&view(None), here), ((ReplicaId(1), 3), BTreeSet::from([GROUP])));
    let joining = Machine::new();
    let (created, _) = joining.start(&view(Some(plan([1, 2, 4], 4))), here);
    assert_eq!(created, (ReplicaId(1), 0), "a replica that joins knows no members");
}

#[test]
fn a_replica_whose_creation_a_crash_cut_short_is_deleted_at_the_next_start() {
    let machine = Machine::new();
    let created =
        |planned: &mut Planned| block_in_place(|| planned.replicas.create(GROUP, &Base::joining())).is_ok();
    assert_eq!(machine.start(&view(None), created), (true, BTreeSet::new()));
    let is_here = |planned: &mut Planned| planned.replicas.group(GROUP).is_some();
    assert_eq!(machine.start(&view(None), is_here), (false, BTreeSet::from([GROUP])));
    assert_eq!(machine.start(&view(None), is_here), (false, BTreeSet::new()));
}

#[test]
fn a_replica_whose_deletion_a_crash_cut_short_is_gone_after_the_next_start() {
    let machine = Machine::new();
    let first = view(Some(plan([1, 2, 3], 3)));
    machine.start(&first, |_| ());
    let leaves_the_state = |planned: &mut Planned| {
        block_in_place(|| planned.replicas.stop(GROUP)).unwrap();
        planned.state.belonging.as_mut().unwrap().replicas.clear();
        planned.save().unwrap();
    };
    machine.start(&view(None), leaves_the_state);
    let is_here = |planned: &mut Planned| planned.replicas.group(GROUP).is_some();
    assert_eq!(machine.start(&view(None), is_here), (false, BTreeSet::from([GROUP])));
    assert_eq!(machine.start(&view(None), is_here), (false, BTreeSet::new()));
}

#[test]
fn a_replica_that_the_log_has_lost_never_begins_again() {
    let machine = Machine::new();
    let first = view(Some(plan([1, 2, 3], 3)));
    machine.start(&first, |_| ());
    let loses_the_log = |planned: &mut Planned| {
        block_in_place(|| planned.replicas.stop(GROUP).and_then(|()| planned.replicas.delete(GROUP)))
            .unwrap();
    };
    machine.start(&first, loses_the_log);
    let is_here = |planned: &mut Planned| planned.replicas.group(GROUP).is_some();
    assert_eq!(machine.start(&first, is_here), (false, BTreeSet::new()));
}

#[test]
fn a_deleted_replica_leaves_nothing_and_another_one_takes_its_place() {
    let machine = Machine::new();
    machine.start(&view(Some(plan([1, 2, 3], 3))), |planned| planned.delete(GROUP, Index(9)).unwrap());
    let members = [(2, 2, Role::Witness), (3, 3, Role::Backup), (9, 1, Role::Witness)];
    let member = |(replica, on, role)| Member { replica: ReplicaId(replica), node: node(on), role };
    let later = GroupPlan::new(members.map(member).to_vec(), ReplicaId(2), ReplicaId(9)).unwrap();
    let replica = |planned: &mut Planned| planned.replicas.group(GROUP).unwrap().group.place().replica;
    assert_eq!(machine.start(&view(Some(later)), replica), (ReplicaId(9), BTreeSet::new()));
}
