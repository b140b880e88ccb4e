//! The groups' log on an emulated drive.
#![allow(clippy::indexing_slicing, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions};
use raft::eraftpb::{Entry, HardState};
use replica::{Base, Configuration, Index, ReplicaId, Role};
use shard::{Change, Error, GroupId, GroupsLog, GroupsLogOptions, StoredGroup};
use units::{Blocks, Bytes, Driver, VirtualDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Profile};

struct Drive {
    driver: Arc<dyn Driver>,
    device: Arc<dyn ZonedDevice>,
}

impl Drive {
    fn new() -> Drive {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let profile = Profile::load("zn540").expect("the profile is built in");
        let (zone_size, zone_capacity) = (Blocks(256), Blocks(256));
        let options = EmuOptions { zones: 64, zone_size, zone_capacity, ..EmuOptions::of_profile(profile) };
        let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
        block_on(&*driver, Fs::format(&device, &FormatOptions::default())).expect("formats");
        Drive { driver, device }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&*self.driver, future)
    }

    async fn open(&self, options: &GroupsLogOptions) -> (Fs, GroupsLog, BTreeMap<GroupId, StoredGroup>) {
        let fs = Fs::mount(Arc::clone(&self.device), &MountOptions::default()).await.expect("mounts");
        let (log, groups) = GroupsLog::open(&fs, "/groups", options).await.expect("opens");
        (fs, log, groups)
    }
}

fn base(index: u64) -> Base {
    let members = Configuration::new([(ReplicaId(1), Role::Witness), (ReplicaId(2), Role::Backup)]);
    let mut base = Base::first(members, ReplicaId(1));
    (base.index, base.state.since) = (Index(index), Index(0));
    base
}

fn group(entries: impl IntoIterator<Item = Entry>) -> StoredGroup {
    StoredGroup { entries: entries.into_iter().collect(), ..StoredGroup::new(base(0)) }
}

fn entry(index: u64, len: usize) -> Entry {
    Entry { index, term: 1, data: vec![7; len].into(), ..Entry::default() }
}

fn write(entries: impl IntoIterator<Item = Entry>, vote: Option<HardState>) -> Change {
    Change::Write { base: None, entries: entries.into_iter().collect(), vote }
}

#[test]
fn groups_are_found_again_as_they_were_left() {
    let drive = Drive::new();
    let options = GroupsLogOptions::default();
    let vote = HardState { term: 4, vote: 2, commit: 1, ..HardState::default() };
    drive.run(async {
        let (fs, log, groups) = drive.open(&options).await;
        assert_eq!(groups, BTreeMap::new());
        for id in 1..=3 {
            log.write(GroupId(id), &Change::State(group([]))).await.expect("writes");
            log.write(GroupId(id), &write([entry(1, 5), entry(2, 9)], None)).await.expect("writes");
        }
        log.write(GroupId(2), &write([entry(2, 3)], Some(vote.clone()))).await.expect("writes");
        log.write(GroupId(2), &Change::Retired(base(1))).await.expect("writes");
        log.write(GroupId(3), &Change::Removed).await.expect("writes");
        let refused = log.write(GroupId(3), &write([entry(3, 1)], None)).await.expect_err("refused");
        assert!(matches!(refused, Error::Group { group: GroupId(3), .. }), "{refused}");
        log.close().await.expect("closes");
        fs.unmount().await.expect("unmounts");
        let (_, _, groups) = drive.open(&options).await;
        let second = StoredGroup { base: base(1), entries: vec![entry(2, 3)], vote };
        let wanted = [(GroupId(1), group([entry(1, 5), entry(2, 9)])), (GroupId(2), second)];
        assert_eq!(groups, BTreeMap::from(wanted));
    });
}

#[test]
fn a_group_that_writes_nothing_keeps_no_other_s_records_once_it_is_written_again() {
    let drive = Drive::new();
    let options = GroupsLogOptions { size: Bytes(64 << 10), ..GroupsLogOptions::default() };
    drive.run(async {
        let (_fs, log, _) = drive.open(&options).await;
        let idle = group([entry(1, 100)]);
        log.write(GroupId(1), &Change::State(idle.clone())).await.expect("writes");
        log.write(GroupId(2), &Change::State(group([]))).await.expect("writes");
        let mut copies = 0;
        for index in 1..=1_000 {
            log.write(GroupId(2), &write([entry(index, 1_000)], None)).await.expect("writes");
            log.write(GroupId(2), &Change::Retired(base(index))).await.expect("writes");
            if let Some(pinning) = log.pinning() {
                let state = if pinning == GroupId(1) { idle.clone() } else { StoredGroup::new(base(index)) };
                log.write(pinning, &Change::State(state)).await.expect("writes");
                copies += 1;
            }
            assert!(log.held().0 < 200 << 10, "{} bytes are held", log.held());
        }
        assert!((10..300).contains(&copies), "{copies} copies for eight megabytes of the drive");
    });
}

/// Found by simulated clusters: small records filled the drive before the log was as large as its size, and no group could write any more.
#[test]
fn records_count_as_the_blocks_that_they_take() {
    let drive = Drive::new();
    let options = GroupsLogOptions { size: Bytes(256 << 10), ..GroupsLogOptions::default() };
    drive.run(async {
        let (fs, log, _) = drive.open(&options).await;
        log.write(GroupId(1), &Change::State(group([]))).await.expect("writes");
        let mut written = 0;
        while log.pinning().is_none() {
            written += 1;
            assert!(written < 100, "{} bytes are held", log.held());
            log.write(GroupId(1), &write([entry(written, 10)], None)).await.expect("writes");
        }
        assert!(written >= 60, "{written} records of a block each fill the log");
        log.close().await.expect("closes");
        fs.unmount().await.expect("unmounts");
        let (_, log, _) = drive.open(&options).await;
        assert_eq!(log.pinning(), Some(GroupId(1)), "{} bytes are held", log.held());
    });
}
