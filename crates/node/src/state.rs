//! The node's own state on its drive: its name, its cluster, its replicas, and what etcd said last.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 16 | the node's UUID |
//! | 17 | 8 | times that the node has started; little-endian, like all numbers |
//! | 25 | 1 | 1 if the node belongs to a cluster, else 0; then: |
//! | | 16 | the cluster's UUID |
//! | | 8 | the highest epoch of the cluster that the node has seen |
//! | | 8 | the highest revision of etcd in that epoch |
//! | | 4 | number of replicas; of each: |
//! | | 17 | group, 8; replica, 8; role: 0 backup, 1 witness |
//! | | 4 | number of etcd's values; of each: |
//! | | | bytes of the key, 4; the key; revision of its last change, 8; bytes of the value, 4; the value |
//!
//! The file around it ([`shard::read_state`]) has magic and checksum. Without this file a node is a new one: it never takes part as a replica that it does not know it is.

use std::collections::BTreeMap;

use fs::Fs;
use placement::{Epoch, Remembered, Revision};
use replica::{ClusterId, NodeId, ReplicaId, Role};
use shard::GroupId;
use uuid::Uuid;

use crate::error::{Error, Result};

/// The file's path.
const PATH: &str = "/node";
const VERSION: u8 = 1;
const BACKUP: u8 = 0;
const WITNESS: u8 = 1;

/// A value of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredValue {
    /// The key.
    pub key: Vec<u8>,
    /// The revision of its last change.
    pub changed: Revision,
    /// The value.
    pub value: Vec<u8>,
}

/// The node's part in a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Belonging {
    /// The cluster, and the state of etcd that the node has seen.
    pub remembered: Remembered,
    /// The node's replicas. The groups' log has each of them.
    pub replicas: BTreeMap<GroupId, (ReplicaId, Role)>,
    /// The cluster's values in etcd.
    pub values: Vec<StoredValue>,
}

/// The node's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeState {
    /// The node.
    pub node: NodeId,
    /// Times that the node has started, this time included.
    pub starts: u64,
    /// `None` before the node has seen its cluster.
    pub belonging: Option<Belonging>,
}

impl NodeState {
    /// Reads the state of the drive's node, a new one if the drive has none, and counts the start, durably.
    ///
    /// # Errors
    /// The file system's; `State` for a state of another version.
    pub async fn start(fs: &Fs, random: impl Fn() -> u64) -> Result<NodeState> {
        let stored = shard::read_state(fs, PATH).await?;
        let mut state = match stored {
            Some(bytes) => NodeState::decode(&bytes)
                .ok_or_else(|| Error::State(format!("{PATH} is none that this version wrote")))?,
            None => {
                let number = u128::from(random()) << 64 | u128::from(random());
                let node = NodeId(uuid::Builder::from_random_bytes(number.to_le_bytes()).into_uuid());
                NodeState { node, starts: 0, belonging: None }
            }
        };
        state.starts += 1;
        state.save(fs).await?;
        Ok(state)
    }

    /// Makes the state durable.
    ///
    /// # Errors
    /// The file system's.
    pub async fn save(&self, fs: &Fs) -> Result<()> {
        Ok(shard::replace_state(fs, PATH, &self.encode()).await?)
    }

    fn encode(&self) -> Vec<u8> {
        let length = |len: usize| u32::try_from(len).expect("a part is shorter than 4 GiB").to_le_bytes();
        let mut bytes = vec![VERSION];
        bytes.extend(self.node.0.as_bytes());
        bytes.extend(self.starts.to_le_bytes());
        bytes.push(u8::from(self.belonging.is_some()));
        let Some(Belonging { remembered, replicas, values }) = &self.belonging else { return bytes };
        bytes.extend(remembered.cluster.0.as_bytes());
        bytes.extend(remembered.epoch.0.to_le_bytes());
        bytes.extend(remembered.revision.0.to_le_bytes());
        bytes.extend(length(replicas.len()));
        for (group, (replica, role)) in replicas {
            bytes.extend(group.0.to_le_bytes());
            bytes.extend(replica.0.to_le_bytes());
            bytes.push(if *role == Role::Backup { BACKUP } else { WITNESS });
        }
        bytes.extend(length(values.len()));
        for StoredValue { key, changed, value } in values {
            bytes.extend(length(key.len()));
            bytes.extend_from_slice(key);
            bytes.extend(changed.0.to_le_bytes());
            bytes.extend(length(value.len()));
            bytes.extend_from_slice(value);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<NodeState> {
        let mut rest = bytes;
        if byte(&mut rest)? != VERSION {
            return None;
        }
        let node = NodeId(uuid(&mut rest)?);
        let starts = number(&mut rest)?;
        let belonging = match byte(&mut rest)? {
            0 => None,
            1 => Some(belonging(&mut rest)?),
            _ => return None,
        };
        rest.is_empty().then_some(NodeState { node, starts, belonging })
    }
}

fn belonging(rest: &mut &[u8]) -> Option<Belonging> {
    let cluster = ClusterId(uuid(rest)?);
    let (epoch, revision) = (Epoch(number(rest)?), Revision(number(rest)?.cast_signed()));
    let mut replicas = BTreeMap::new();
    for _ in 0..count(rest)? {
        let (group, replica) = (GroupId(number(rest)?), ReplicaId(number(rest)?));
        let role = match byte(rest)? {
            BACKUP => Role::Backup,
            WITNESS => Role::Witness,
            _ => return None,
        };
        let ascends = replicas.last_key_value().is_none_or(|(last, _)| *last < group);
        if !ascends {
            return None;
        }
        replicas.insert(group, (replica, role));
    }
    let mut values = Vec::new();
    for _ in 0..count(rest)? {
        let key = counted(rest)?.to_vec();
        let changed = Revision(number(rest)?.cast_signed());
        values.push(StoredValue { key, changed, value: counted(rest)?.to_vec() });
    }
    Some(Belonging { remembered: Remembered { cluster, epoch, revision }, replicas, values })
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, behind) = rest.split_first()?;
    *rest = behind;
    Some(*byte)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn count(rest: &mut &[u8]) -> Option<usize> {
    let (count, behind) = rest.split_first_chunk()?;
    *rest = behind;
    usize::try_from(u32::from_le_bytes(*count)).ok()
}

fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = count(rest)?;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(bytes)
}

fn uuid(rest: &mut &[u8]) -> Option<Uuid> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(Uuid::from_bytes(*bytes))
}

/// Bytes that decode to a state are the bytes of that state.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_state(bytes: &[u8]) {
    if let Some(state) = NodeState::decode(bytes) {
        assert_eq!(state.encode(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state() -> NodeState {
        let cluster = ClusterId(Uuid::from_u128(0x6675_7272_6f77));
        let remembered = Remembered { cluster, epoch: Epoch(2), revision: Revision(77) };
        let replicas = [(0, (ReplicaId(1), Role::Witness)), (3, (ReplicaId(5), Role::Backup))];
        let replicas = replicas.map(|(group, replica)| (GroupId(group), replica)).into();
        let value =
            StoredValue { key: b"/furrow/barn/meta".to_vec(), changed: Revision(9), value: b"{}".to_vec() };
        let belonging = Some(Belonging { remembered, replicas, values: vec![value] });
        NodeState { node: NodeId(Uuid::from_u128(7)), starts: 4, belonging }
    }

    #[test]
    fn a_state_is_the_bytes_of_the_golden_file() {
        let bytes = state().encode();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/node-v1.bin");
        if std::env::var_os("FURROW_BLESS").is_some() {
            std::fs::write(path, &bytes).expect("writes");
        }
        assert_eq!(std::fs::read(path).expect("reads"), bytes);
        assert_eq!(NodeState::decode(&bytes), Some(state()));
        let alone = NodeState { belonging: None, ..state() };
        assert_eq!(NodeState::decode(&alone.encode()), Some(alone));
    }

    #[test]
    fn a_cut_state_and_one_of_another_version_are_refused() {
        let bytes = state().encode();
        for len in 0..bytes.len() {
            assert_eq!(NodeState::decode(&bytes[..len]), None, "{len} bytes");
        }
        let other = [&[2][..], &bytes[1..]].concat();
        assert_eq!(NodeState::decode(&other), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state_or_none(bytes: Vec<u8>) {
            fuzz_state(&bytes);
            fuzz_state(&[&state().encode()[..25], &bytes].concat());
        }
    }
}
