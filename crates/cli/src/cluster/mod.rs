//! The command `furrow cluster`.

mod etcd_args;
mod nodes;
mod versions;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use node::admin::{self, GroupStatus, Health, NewCluster};
use placement::ClusterName;
use replica::Role;
use serde_json::json;
use units::{Driver, RealDriver};

pub use self::etcd_args::EtcdArgs;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;

/// The exit code where a group cannot serve.
const NO_QUORUM: u8 = 2;

/// `furrow cluster`
#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Create a cluster, wait for its nodes, and give each group its replicas.
    Create(CreateArgs),
    /// Show each group's replicas: 0 all is whole, 1 something is missing, 2 a group cannot serve, 6 etcd does not answer.
    Status(StatusArgs),
    /// Move a node's replicas to other nodes, and give it none any more.
    Drain(nodes::DrainArgs),
    /// Give the replicas of a node that is gone for good to others at once, and remove it from the cluster.
    Replace(nodes::ReplaceArgs),
    /// Show or raise the cluster's epoch: nodes refuse what an etcd holds that was restored from a backup, until it is raised.
    Epoch(nodes::EpochArgs),
    /// Raise the cluster to the version of this program, once every node has it: no node goes back afterwards.
    Finalize(versions::FinalizeArgs),
    /// Print every key of the cluster in etcd, with its value.
    Dump(nodes::DumpArgs),
}

/// `furrow cluster create`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  furrow cluster create --join http://127.0.0.1:2379 --cluster barn --groups 3 --copies 1\n\
    Start the nodes with furrow serve --join before or meanwhile: 2 * COPIES + 1 at least."
)]
struct CreateArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Number of groups: each has a part of the keys, and a leader.
    #[arg(long, value_name = "N", default_value_t = 3)]
    groups: u32,
    /// Number of a group's nodes that may be lost: each group has 2 * COPIES + 1 nodes.
    #[arg(long, value_name = "K", default_value_t = 1)]
    copies: usize,
    /// The longest wait for nodes.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Duration,
}

/// `furrow cluster status`
#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Runs a verb.
pub fn run(context: &Context, args: ClusterArgs) -> Result<ExitCode> {
    match args.command {
        ClusterCommand::Create(args) => create(context, &args),
        ClusterCommand::Status(args) => status(context, &args),
        ClusterCommand::Drain(args) => nodes::drain(context, &args),
        ClusterCommand::Replace(args) => nodes::replace(context, &args),
        ClusterCommand::Epoch(args) => nodes::epoch(context, &args),
        ClusterCommand::Finalize(args) => versions::finalize(context, &args),
        ClusterCommand::Dump(args) => nodes::dump(context, &args),
    }
}

fn create(context: &Context, args: &CreateArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let new = NewCluster { name: name.clone(), groups: args.groups, copies: args.copies, wait: args.wait };
    let driver = RealDriver::new();
    let groups = admin::create(&etcd, &new, || driver.random())?;
    print(context, &name, &groups)?;
    Ok(ExitCode::SUCCESS)
}

fn status(context: &Context, args: &StatusArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let groups = admin::status(&etcd, &name).map_err(|error| Failure::unknown(error.to_string()))?;
    print(context, &name, &groups)?;
    Ok(match groups.iter().map(GroupStatus::health).max().unwrap_or(Health::NoQuorum) {
        Health::Whole => ExitCode::SUCCESS,
        Health::Degraded => Code::Failure.into(),
        Health::NoQuorum => ExitCode::from(NO_QUORUM),
    })
}

fn print(context: &Context, cluster: &ClusterName, groups: &[GroupStatus]) -> Result<()> {
    let health = |group: &GroupStatus| match group.health() {
        Health::Whole => "whole",
        Health::Degraded => "degraded",
        Health::NoQuorum => "no quorum",
    };
    if context.json {
        let groups = groups.iter().map(|group| {
            let replicas = group.replicas.iter().map(|replica| {
                json!({
                    "replica": replica.replica.0,
                    "role": role(group, replica.role, replica.replica),
                    "node": replica.node.to_string(),
                    "client": replica.client,
                    "alive": replica.is_alive,
                    "draining": replica.is_draining,
                })
            });
            json!({
                "group": group.group,
                "slots": [group.slots.0, group.slots.1],
                "health": health(group),
                "settled": group.is_settled,
                "leader": group.leader.map(|leader| leader.0),
                "replicas": replicas.collect::<Vec<_>>(),
            })
        });
        return output::json(&json!({"cluster": cluster.as_str(), "groups": groups.collect::<Vec<_>>()}));
    }
    output::line(format!("cluster {}", cluster.as_str()))?;
    for group in groups {
        let (first, last) = group.slots;
        let changes = if group.is_settled || group.replicas.is_empty() { "" } else { ", replicas change" };
        output::line(format!("group {}  slots {first} to {last}  {}{changes}", group.group, health(group)))?;
        for replica in &group.replicas {
            let alive = match (replica.is_alive, replica.is_draining) {
                (true, false) => "",
                (true, true) => "  to be drained",
                (false, _) => "  not heard of",
            };
            let role = role(group, replica.role, replica.replica);
            output::line(format!("  {role:<8} {}  node {}{alive}", replica.client, replica.node))?;
        }
    }
    Ok(())
}

/// The role of a replica, for people: the leader of the moment is the primary.
fn role(group: &GroupStatus, role: Role, replica: replica::ReplicaId) -> &'static str {
    match role {
        _ if group.leader == Some(replica) => "primary",
        Role::Backup => "backup",
        Role::Witness => "witness",
    }
}
