//! The verb of `furrow cluster` about versions.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use node::admin::{self, ClusterVersion};
use replica::Version;
use serde_json::json;

use super::etcd_args::EtcdArgs;
use crate::context::Context;
use crate::exit::Code;
use crate::output;

/// `furrow cluster finalize`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  furrow cluster finalize --join http://127.0.0.1:2379 --cluster barn\n\
    Before: each node was started once with the newer program, and any may go back. Afterwards an older program is refused. \
    Exit code 1: a node has an older program, or a group is not raised yet; with --check the latter alone.")]
pub struct FinalizeArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Only show the versions of the cluster and of its nodes' programs.
    #[arg(long)]
    check: bool,
    /// The longest wait until every group is raised; raising goes on afterwards.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Duration,
}

pub(super) fn finalize(context: &Context, args: &FinalizeArgs) -> Result<ExitCode> {
    let (etcd, name) = args.etcd.required()?;
    let version =
        if args.check { admin::version(&etcd, &name)? } else { admin::finalize(&etcd, &name, args.wait)? };
    print(context, name.as_str(), &version)?;
    Ok(if version.below.is_empty() { ExitCode::SUCCESS } else { Code::Failure.into() })
}

fn print(context: &Context, cluster: &str, version: &ClusterVersion) -> Result<()> {
    let below: Vec<u64> = version.below.iter().map(|group| group.0).collect();
    if context.json {
        let nodes = version.nodes.iter();
        let nodes = nodes.map(|node| json!({"node": node.node.to_string(), "speaks": node.speaks.0}));
        return output::json(&json!({
            "cluster": cluster,
            "version": version.cluster.0,
            "may_be": version.may_be().0,
            "groups_below": below,
            "nodes": nodes.collect::<Vec<_>>(),
        }));
    }
    output::line(format!("cluster {cluster} is at version {}", version.cluster))?;
    for group in below {
        output::line(format!("  group {group} is not raised to it yet"))?;
    }
    for node in &version.nodes {
        output::line(format!("  node {} speaks versions up to {}", node.node, node.speaks))?;
    }
    if version.may_be() > Version::NEWEST {
        output::line(format!(
            "this program raises it to version {} at most: take the newer one",
            Version::NEWEST
        ))?;
    } else if version.may_be() > version.cluster {
        output::line(format!("furrow cluster finalize raises it to version {}", version.may_be()))?;
    }
    Ok(())
}
