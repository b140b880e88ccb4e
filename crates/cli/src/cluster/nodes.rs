//! The verbs of `furrow cluster` about nodes that go, and about etcd.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use node::admin::{self, Departure};
use placement::Epoch;
use replica::NodeId;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::etcd_args::EtcdArgs;
use crate::context::Context;
use crate::exit::Code;
use crate::output;

/// `furrow cluster drain`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  furrow cluster drain --join http://127.0.0.1:2379 --cluster barn --node UUID\n\
    Each replica is brought up on another node before the old one goes. Exit code 1: the node still has replicas."
)]
pub struct DrainArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// The node's name, as in furrow cluster status.
    #[arg(long, value_name = "UUID")]
    node: Uuid,
    /// Let the node have replicas again.
    #[arg(long)]
    undo: bool,
    /// The longest wait until the node has no replicas; moving goes on afterwards.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Duration,
}

/// `furrow cluster replace`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  furrow cluster replace --join http://127.0.0.1:2379 --cluster barn --node UUID\n\
    Without this verb the replicas of a dead node are replaced after --replace-after of furrow serve, and the node stays."
)]
pub struct ReplaceArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// The node's name, as in furrow cluster status.
    #[arg(long, value_name = "UUID")]
    node: Uuid,
    /// The longest wait until the node is removed; replacing goes on afterwards.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Duration,
}

/// `furrow cluster epoch`
#[derive(Debug, Args)]
pub struct EpochArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Raise the epoch to N [default: the next one]
    #[arg(long, value_name = "N")]
    raise: Option<Option<u64>>,
}

/// `furrow cluster dump`
#[derive(Debug, Args)]
pub struct DumpArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(super) fn drain(context: &Context, args: &DrainArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let node = NodeId(args.node);
    if args.undo {
        admin::undrain(&etcd, &name, node)?;
        output::line(format!("node {node} may have replicas again"))?;
        return Ok(ExitCode::SUCCESS);
    }
    ended(context, node, &admin::drain(&etcd, &name, node, args.wait)?, "has no replicas any more")
}

pub(super) fn replace(context: &Context, args: &ReplaceArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let node = NodeId(args.node);
    ended(context, node, &admin::replace(&etcd, &name, node, args.wait)?, "is removed from the cluster")
}

fn ended(context: &Context, node: NodeId, departure: &Departure, done: &str) -> Result<ExitCode> {
    let Departure { replicas, is_done, lacking } = departure;
    if context.json {
        let node = node.to_string();
        output::json(&json!({"node": node, "replicas": replicas, "done": is_done, "lacking": lacking}))?;
    } else if *is_done {
        output::line(format!("node {node} {done}"))?;
    } else {
        output::line(format!("not done yet: node {node} has {replicas} replicas; moving them goes on"))?;
        for why in lacking {
            output::line(format!("  {why}"))?;
        }
    }
    Ok(if *is_done { ExitCode::SUCCESS } else { Code::Failure.into() })
}

pub(super) fn epoch(context: &Context, args: &EpochArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let epoch = match args.raise {
        None => admin::epoch(&etcd, &name)?,
        Some(to) => admin::raise_epoch(&etcd, &name, to.map(Epoch))?,
    };
    if context.json {
        output::json(&json!({"cluster": name.as_str(), "epoch": epoch.0}))?;
    } else {
        output::line(format!("cluster {} is in epoch {}", name.as_str(), epoch.0))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn dump(context: &Context, args: &DumpArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let pairs = admin::dump(&etcd, &name)?;
    if context.json {
        let pairs = pairs.into_iter().map(|(key, value)| (key, Value::String(value)));
        output::json(&Value::Object(pairs.collect::<Map<_, _>>()))?;
    } else {
        for (key, value) in pairs {
            output::line(format!("{key} {value}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
