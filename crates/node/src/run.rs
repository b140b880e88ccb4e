//! Starts a process of a cluster, serves its clients, and ends it.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use kv::{EngineOptions, Limits};
use placement::Address;
use server::Server;
use shard::GroupOptions;
use tokio::sync::watch;
use units::{Driver, RealDriver, block_on};

use crate::agreement::{Agreement, stored_view};
use crate::error::{Error, Result};
use crate::leaders::Leaders;
use crate::members::Members;
use crate::options::NodeOptions;
use crate::placer::Placer;
use crate::planned::Planned;
use crate::replicas::{ReplicaOptions, Replicas};
use crate::spread::spread_leaders;
use crate::state::NodeState;

/// Threads for the connections to other processes and to etcd. Clients have threads of their own, so that heartbeats do not wait for commands.
const WORKERS: usize = 2;

/// The time within which the agreement ends, and takes the node's sign of life from etcd: without it others see the node as dead when its lease ends.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Runs a process of a cluster until SIGTERM, SIGINT, SIGHUP or SHUTDOWN.
///
/// Prints one line that begins with `ready` to the standard output when clients can connect. Commands wait until their group has a leader.
///
/// # Errors
/// Settings out of range, a drive that cannot be opened, a port that is taken, a drive of another cluster.
pub fn run(options: NodeOptions) -> Result<()> {
    options.check()?;
    let driver: Arc<dyn Driver> = RealDriver::new();
    let drive = server::open_drive(&options.serve, &driver)?;
    let fs = drive.fs;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("furrow-peers")
        .enable_all()
        .build()
        .map_err(|source| Error::System { doing: "starting threads", source })?;
    let state = block_on(&*driver, NodeState::start(&fs, || driver.random()))?;
    let value = usize::try_from(options.serve.max_value).unwrap_or(usize::MAX);
    let mut group = GroupOptions::default();
    (group.settings, group.log) = (options.settings(), options.group_log);
    let replica_options = ReplicaOptions {
        group,
        engine: EngineOptions {
            limits: Limits { value, ..Limits::default() },
            writers: Some(1),
            ..EngineOptions::default()
        },
        block_cache: options.serve.block_cache,
        write_buffer: options.serve.write_buffer,
    };
    let (replicas, stored) = Replicas::open(&fs, replica_options)?;
    let replicas = Arc::new(replicas);
    let members = Arc::new(Members::new(state.node, Arc::clone(&replicas), options.election_timeout));
    // A client that asks for the slots before its first answer would believe that there are none.
    if let Some(view) = stored_view(&state, &options.cluster)? {
        members.set_view(view);
    }
    let cluster = Arc::clone(&members) as Arc<dyn server::cluster::Cluster>;
    let server =
        Server::start_in_cluster(cluster, Arc::clone(&driver), Some(fs.clone()), options.serve.clone())?;
    server.stop_on_signals()?;
    let client = match &options.announce {
        Some(address) => address.clone(),
        None => Address::parse(&server.address().to_string())
            .map_err(|why| Error::Setting(format!("--announce is needed: {why}")))?,
    };
    print_ready_line(&server, &options, &state);
    let (ending, has_ended) = watch::channel(false);
    runtime.spawn(spread_leaders(Arc::clone(&members), Arc::clone(&replicas)));
    let agreement = Agreement {
        placer: Placer::new(state.node, options.replace_after, options.node_ttl),
        planned: Planned::new(fs.clone(), Arc::clone(&replicas), state, stored),
        options: Arc::new(options),
        replicas: Arc::clone(&replicas),
        members,
        runtime: runtime.handle().clone(),
        client,
        view: None,
        network: None,
        leaders: Leaders::default(),
        complaint: None,
        ended: BTreeSet::new(),
        has_met: false,
        is_current: false,
        ending: has_ended,
    };
    let stopper = server.stopper();
    let mut agreed = runtime.spawn(async move {
        let ended = agreement.run().await;
        stopper.stop();
        ended
    });
    let served = server.wait();
    // An agreement that failed has stopped the server, and returned already.
    ending.send_replace(true);
    let ended = runtime.block_on(async { tokio::time::timeout(END_WITHIN, &mut agreed).await });
    agreed.abort();
    let failed = ended.map_or(Ok(()), |ended| ended.unwrap_or(Ok(())));
    let closed = replicas.close();
    runtime.shutdown_background();
    let unmounted = block_on(&*driver, fs.unmount());
    failed?;
    served?;
    closed?;
    Ok(unmounted?)
}

/// Prints the `ready` line that scripts and people wait for. A closed standard output does not stop the process.
fn print_ready_line(server: &Server, options: &NodeOptions, state: &NodeState) {
    let (device, cluster) = (&options.serve.device, options.cluster.as_str());
    let line = format!(
        "ready: {device} on {}, node {} of cluster {cluster}, peers on {}",
        server.address(),
        state.node.0,
        options.peer
    );
    tracing::info!("{line}");
    let mut out = std::io::stdout();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}
