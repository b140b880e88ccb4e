//! What a whole cluster agrees on: its nodes, the members that each group is to have, and the slots of its groups. All of that lies in etcd.
#![forbid(unsafe_code)]

mod address;
mod error;
mod etcd;
mod keys;
mod names;
mod place;
mod slots;
mod value_error;
mod values;
mod view;

pub use address::Address;
pub use error::{Error, ErrorKind, PlaceError, StaleError};
pub use etcd::client::{Etcd, SeenOutcome};
pub use etcd::election::Elected;
pub use etcd::joined::{Joined, JoinedState};
pub use etcd::settings::{ClientCertificate, EtcdSettings};
pub use etcd::watch::ViewWatch;
pub use names::{ClusterId, ClusterName, Epoch, GroupId, MAX_GROUPS, NodeId, Revision};
pub use place::{Candidate, Replacements, place, replace};
pub use slots::{SLOTS, Slot, crc16, hash_tag};
pub use value_error::ValueError;
pub use values::liveness::Liveness;
pub use values::meta::{FORMAT, MAX_COPIES, Meta, Remembered, accepts};
pub use values::node::{Node, Offers, Rack};
pub use values::plan::{GroupPlan, Member};
pub use values::seen::Seen;
pub use values::slot_map::{SlotMap, SlotRange};
pub use view::{ClusterView, KeyError, MAX_NODES, RawValue, Want};
