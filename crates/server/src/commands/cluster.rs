//! The command CLUSTER and its subcommands, READONLY, READWRITE and ASKING.

use std::sync::Arc;

use kv::Answer;

use super::call::{Call, Outcome, reply_help, subcommand_arity, unknown_subcommand};
use crate::cluster::{
    NodeIndex, Topology, cluster_info, find_node, nodes_text, parse_slot, reply_replicas, reply_shards,
    reply_slots,
};

const DISABLED: &str = "ERR This instance has cluster support disabled";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

const HELP: &[(&str, &str)] = &[
    ("COUNT-FAILURE-REPORTS <node-id>", "Prints 0: nodes do not report each other's failures."),
    ("COUNTKEYSINSLOT <slot>", "Prints the number of keys in a slot, if this node leads its group."),
    ("GETKEYSINSLOT <slot> <count>", "Prints keys in a slot, if this node leads its group."),
    ("INFO", "Describes the state of the cluster."),
    ("KEYSLOT <key>", "Prints the slot of a key."),
    ("LINKS", "Prints an empty list: there is no cluster bus."),
    ("MYID", "Prints the name of this node."),
    ("NODES", "Describes the nodes."),
    ("REPLICAS <node-id>", "Describes the nodes with backups of what a node leads."),
    ("SHARDS", "Describes the groups with their slots and nodes."),
    ("SLOTS", "Describes the ranges of slots with their nodes."),
];

/// The subcommands of Redis that change a cluster.
const CHANGING: [&str; 14] = [
    "ADDSLOTS",
    "ADDSLOTSRANGE",
    "BUMPEPOCH",
    "DELSLOTS",
    "DELSLOTSRANGE",
    "FAILOVER",
    "FLUSHSLOTS",
    "FORGET",
    "MEET",
    "REPLICATE",
    "RESET",
    "SAVECONFIG",
    "SET-CONFIG-EPOCH",
    "SETSLOT",
];

pub(super) fn cluster(call: &mut Call<'_>) -> Outcome {
    let topology = topology(call)?;
    let args = call.args;
    let words = args.len();
    let subcommand = String::from_utf8_lossy(args.get(1)).to_ascii_uppercase();
    match subcommand.as_str() {
        "COUNT-FAILURE-REPORTS" if words == 3 => {
            named_node(&topology, args.get(2))?;
            call.out.integer(0);
        }
        "COUNTKEYSINSLOT" if words == 3 => return Err(walk_error(args.get(2), b"0")),
        "GETKEYSINSLOT" if words == 4 => return Err(walk_error(args.get(2), args.get(3))),
        "INFO" if words == 2 => call.out.verbatim(&cluster_info(&topology)),
        "KEYSLOT" if words == 3 => call.out.integer(kv::key_slot(args.get(2)).into()),
        "LINKS" if words == 2 => call.out.array(0),
        "MYID" if words == 2 => {
            let name = topology.node(topology.me).map_or("", |node| &node.name);
            call.out.bulk(name.as_bytes());
        }
        "NODES" if words == 2 => call.out.verbatim(&nodes_text(&topology)),
        "REPLICAS" | "SLAVES" if words == 3 => {
            let master = named_node(&topology, args.get(2))?;
            reply_replicas(&topology, master, call.out)?;
        }
        "SHARDS" if words == 2 => reply_shards(&topology, call.shared.tls.is_some(), call.out),
        "SLOTS" if words == 2 => reply_slots(&topology, call.out),
        "HELP" if words == 2 => reply_help(call.out, "CLUSTER", HELP),
        name if CHANGING.contains(&name) => {
            return Err(format!("ERR CLUSTER {name}: a cluster of Furrow is changed with 'furrow cluster'"));
        }
        "COUNT-FAILURE-REPORTS"
        | "COUNTKEYSINSLOT"
        | "GETKEYSINSLOT"
        | "INFO"
        | "KEYSLOT"
        | "LINKS"
        | "MYID"
        | "NODES"
        | "REPLICAS"
        | "SLAVES"
        | "SHARDS"
        | "SLOTS"
        | "HELP" => {
            return Err(subcommand_arity(args));
        }
        _ => return Err(unknown_subcommand(args, "CLUSTER")),
    }
    Ok(())
}

/// READONLY: from now on reads of the connection may be answered by a backup.
pub(super) fn read_only(call: &mut Call<'_>) -> Outcome {
    set_read_only(call, true)
}

/// READWRITE: ends the mode that READONLY began.
pub(super) fn read_write(call: &mut Call<'_>) -> Outcome {
    set_read_only(call, false)
}

/// ASKING changes nothing: slots do not move while they are served by two groups.
pub(super) fn asking(call: &mut Call<'_>) -> Outcome {
    topology(call)?;
    call.out.simple("OK");
    Ok(())
}

fn set_read_only(call: &mut Call<'_>, read_only: bool) -> Outcome {
    topology(call)?;
    call.session.read_only = read_only;
    call.out.simple("OK");
    Ok(())
}

fn topology(call: &Call<'_>) -> Result<Arc<Topology>, String> {
    let cluster = call.shared.engines.cluster().ok_or(DISABLED)?;
    Ok(cluster.topology())
}

fn named_node(topology: &Topology, name: &[u8]) -> Result<NodeIndex, String> {
    let shown = || String::from_utf8_lossy(name).chars().take(128).collect::<String>();
    find_node(topology, name).ok_or_else(|| format!("ERR Unknown node {}", shown()))
}

/// The error of a walk over a slot's keys that was not begun: a wrong number, or a transaction.
fn walk_error(slot: &[u8], count: &[u8]) -> String {
    let (slot_number, count) = (kv::parse_integer(slot), kv::parse_integer(count));
    match (slot_number, count) {
        (Some(_), Some(count)) if parse_slot(slot).is_none() || count < 0 => {
            "ERR Invalid slot or number of keys".into()
        }
        (Some(_), Some(_)) => "ERR the keys of a slot are not walked within a transaction".into(),
        _ => NOT_AN_INTEGER.into(),
    }
}
