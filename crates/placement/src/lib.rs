//! The things that a whole cluster agrees on, in etcd: its nodes, the members that each group is to have, the slots of its groups. Decision: ADR 0042.
//!
//! ```text
//!   etcd/    the client: create, join, load, watch, compare-and-swap, election      (tokio)
//!   place/   which nodes get which replicas, first and after nodes died             (pure)
//!   following  what nodes and leaders do by the plans                               (pure)
//!   view     everything in etcd at one revision, checked against each other         (pure)
//!   values/  one value each: total decoders and encoders; `accepts` for old backups (pure)
//!   keys, names, address, slots, errors
//! ```
//!
//! A process that places: [`Etcd::elect`], then for each view of [`Etcd::watch`] [`upkeep`], then [`Etcd::write_want`] and [`Etcd::remove_node`]. A process that has replicas: [`Etcd::join`], [`Etcd::watch`], and [`Etcd::write_seen`] where it
//! leads a group. Modules import downwards in this order.
#![forbid(unsafe_code)]

mod address;
mod error;
mod etcd;
mod following;
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
pub use following::{Step, configuration, members_to_ask, new_replica, next_step, without_deleted};
pub use keys::Key;
pub use names::{ClusterName, Epoch, MAX_GROUPS, Revision};
pub use place::{Candidate, Replacements, SilentNodes, Upkeep, place, replace, upkeep};
pub use slots::{SLOTS, Slot};
pub use value_error::ValueError;
pub use values::drain::Drain;
pub use values::liveness::Liveness;
pub use values::meta::{FORMAT, MAX_COPIES, Meta, Remembered, accepts};
pub use values::node::{Node, Offers, Rack};
pub use values::plan::{GroupPlan, Member};
pub use values::seen::Seen;
pub use values::slot_map::{SlotMap, SlotRange};
pub use view::{ClusterView, KeyError, MAX_NODES, RawValue, Want};
