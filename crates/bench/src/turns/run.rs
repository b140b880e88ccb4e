//! One run of a group.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use units::sync::Event;
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until};
use zoned::emu::{Emu, EmuOptions, Profile};
use zoned::{Goal, Share, ZonedDevice};

use super::cluster::Cluster;
use super::load::{Due, Policy, TurnsLoad, WARM_UP};
use super::replication::{self, LOG_ZONES};
use super::rules::Rule;
use super::server::{Server, ServerState};
use super::snapshots;
use super::tally::Tally;
use crate::{Error, Latencies, Result};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnsLine {
    /// The rule by which snapshots began.
    pub policy: Policy,
    /// Whether each drive had a scheduler before it.
    pub scheduler: bool,
    /// When a snapshot was due.
    pub due: Due,
    /// Bytes of a snapshot.
    pub snapshot_bytes: u64,
    /// Writes of clients a second.
    pub writes_per_s: f64,
    /// From the sending of a write to the arrival of its acknowledgement.
    pub write_latency: Latencies,
    /// Bytes of snapshots a second, on all servers together.
    pub bulk_bytes_per_s: f64,
    /// Snapshots that became durable.
    pub snapshots: u64,
    /// Of those, how many on the leader.
    pub snapshots_on_leader: u64,
    /// The most servers that wrote snapshots at the same time.
    pub most_at_once: usize,
    /// Snapshots that servers took at the limit of their logs, without a turn (`turns` alone).
    pub forced: u64,
    /// Times that leadership was handed over.
    pub hand_overs: u64,
    /// Bytes of the longest log since its snapshot.
    pub longest_log_bytes: u64,
}

/// Measures a group.
///
/// # Errors
/// Settings outside of their ranges, an unknown profile, or a drive's error.
pub fn measure(load: &TurnsLoad) -> Result<TurnsLine> {
    load.check()?;
    let mut random = SplitMix64::new(load.seed);
    let virtual_driver = VirtualDriver::new(random.draw());
    let driver: Arc<dyn Driver> = Arc::clone(&virtual_driver) as Arc<dyn Driver>;
    let servers: Result<Vec<Server>> =
        (0..load.servers).map(|_| server(load, &driver, &mut random)).collect();
    let servers = servers?;
    let from = driver.now().after(WARM_UP);
    let tally = Tally::new(servers.len(), from, load.time);
    let rule = Arc::new(Rule::of(load, &mut random)?);
    let cluster = Cluster::new(load.clone(), Arc::clone(&driver), servers, tally);
    let failure = Arc::new(Mutex::new(None));
    for at in 0..cluster.len() {
        start(&cluster, &failure, "log", replication::write_log(Arc::clone(&cluster), at));
        let snapshots = snapshots::write_snapshots(Arc::clone(&cluster), Arc::clone(&rule), at);
        start(&cluster, &failure, "snapshots", snapshots);
    }
    driver.spawn("leader", Box::pin(replication::lead(Arc::clone(&cluster))));
    rule.start(&cluster);
    block_on(&*driver, sleep_until(&*driver, from.after(load.time)));
    virtual_driver.drop_all_tasks();
    if let Some(error) = failure.lock().take() {
        return Err(error.into());
    }
    Ok(line(load, &cluster.tally.lock(), rule.forced()))
}

type Failure = Arc<Mutex<Option<zoned::Error>>>;

fn start(
    cluster: &Cluster,
    failure: &Failure,
    name: &'static str,
    task: impl Future<Output = zoned::Result<()>> + Send + 'static,
) {
    let failure = Arc::clone(failure);
    let task = async move {
        if let Err(error) = task.await {
            failure.lock().get_or_insert(error);
        }
    };
    cluster.driver.spawn(name, Box::pin(task));
}

/// A server whose log has a random length below the due one.
fn server(load: &TurnsLoad, driver: &Arc<dyn Driver>, random: &mut SplitMix64) -> Result<Server> {
    let profile = Profile::load(&load.profile).map_err(|why| Error::settings(format!("profile: {why}")))?;
    let mut options = EmuOptions::of_profile(profile);
    let zone_bytes = options.zone_capacity.bytes(options.block_size).0;
    // Room for the last snapshot and the next one, and the zone in which the one before ended.
    let zones = LOG_ZONES + 2 + u32::try_from(2 * load.snapshot.0.div_ceil(zone_bytes)).unwrap_or(u32::MAX);
    options.zones = options.zones.min(zones);
    if options.zones < LOG_ZONES + 2 {
        return Err(Error::settings(format!("profile {}: too few zones", load.profile)));
    }
    let drive: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(driver));
    let device: Arc<dyn ZonedDevice> =
        if load.scheduler { Share::over(drive, Goal::default()) } else { drive };
    let before = random.draw() % (load.due_log().0 / load.entry.0).max(1);
    let state = Mutex::new(ServerState { before, ..ServerState::default() });
    Ok(Server { device, state, log_work: Event::new() })
}

fn line(load: &TurnsLoad, tally: &Tally, forced: u64) -> TurnsLine {
    let seconds = load.time.as_secs_f64();
    TurnsLine {
        policy: load.policy,
        scheduler: load.scheduler,
        due: load.due,
        snapshot_bytes: load.snapshot.0,
        writes_per_s: tally.writes.count() as f64 / seconds,
        write_latency: tally.writes.summary(1),
        bulk_bytes_per_s: tally.bulk_bytes as f64 / seconds,
        snapshots: tally.snapshots,
        snapshots_on_leader: tally.on_leader,
        most_at_once: tally.most_at_once,
        forced,
        hand_overs: tally.hand_overs,
        longest_log_bytes: tally.longest_log * load.entry.0,
    }
}
