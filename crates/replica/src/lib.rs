//! CANDStore: a group of replicas that stores each value on some of them only, and loses no acknowledged write when any K of 2K + 1 fail. Paper: "CANDStore", chapter 3 of the thesis; the rules differ from the
//! thesis's where those lose acknowledged writes (`tests/thesis.rs` shows each loss as a trace of a few steps).
//!
//! ```text
//!   role             values it keeps                                      stands for election
//!   Backup           all                                                  last: it leads only to bring a witness up
//!   Witness          those above the stable index; of older ones key      first
//!                    and timestamp
//!   ... in office    all from its election on; the rest it pulls          first
//! ```
//!
//! The primary is the witness that holds the office ([`Offices`]): a leader that wrote its office into the group's log. Consensus is Raft's: an entry is committed, and acknowledged, once a majority has it in its log.
//!
//! # What holds
//!
//! - A value at or below the [`StableIndex`] is with every voting backup and with a holder of an office that is not relieved: K + 1 copies. A value above it is with every replica that has its entry: a majority, K + 1 copies.
//! - Whoever wrote its office into its log keeps every value until it is relieved by a later holder that has them all.
//! - A removal leaves more whole copies than the new configuration may lose replicas ([`check_removal`]).
//! - Members change one set of voters at a time ([`Membership`]); who joins votes once it holds everything committed.
//! - A leader answers reads by itself only while no other replica can have been elected ([`LeaderLease`], [`VotePromise`]).
//! - What a newer program adds is written only once every member speaks it ([`Version`]); no two replicas of a group ever have one number, from version 2 on.
//! - A backup knows by how much its tables may be behind ([`Freshness`]).
//!
//! [`Replica`] is one replica: `step(now, event)` returns what it asks for. The crate does no I/O and has no clock: time and random numbers are inputs.
#![forbid(unsafe_code)]

mod base;
mod candidacy;
mod configuration;
mod entry;
mod event;
mod freshness;
mod lease;
mod log;
mod membership;
mod names;
mod office;
mod pending;
mod removal;
mod replica;
mod role;
mod rules;
mod settings;
mod stable;
mod stats;
mod version;

pub use base::{Base, BaseError, GroupState};
pub use candidacy::Candidacy;
pub use configuration::Configuration;
pub use entry::{Body, Command};
pub use event::{Action, Event, Message, ProposalId, ReadId};
pub use freshness::{Freshness, Inquiry};
pub use lease::{LeaderLease, VotePromise};
pub use membership::Membership;
pub use names::{ClusterId, GroupId, NodeId};
pub use office::{Office, OfficeEntry, Offices};
pub use removal::{ChangeRefused, RemovalRefused, check_change, check_removal};
pub use replica::{Recovered, Replica};
pub use role::{Index, ReplicaId, Role, Term};
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use settings::Settings;
pub use stable::StableIndex;
pub use stats::{GroupStats, ReplicaCounts, ReplicaStats};
pub use version::{TooOld, Version};
