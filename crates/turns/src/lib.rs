//! Turns for heavy work, such as snapshots, in a replicated group: one leader grants them, so that a majority of the group always has drives without such work. Paper: "Mitigating Write-ahead Log Contention on Shared Storage Devices", section 3.
//!
//! ```text
//!   leader                                      every node, the leader's own among them
//!   Leader::step --Ping (leader's time)-------> Node::report
//!        ^                                           |
//!        '------Report (status, turn held) <---------'
//!   Leader::step --Grant (lease, rate)--------> Node::granted --> Node::rate: may the node write now, and how fast
//!                --Revoke--------------------->      ^
//!                --HandOver--> the group's consensus  '-- Node::durable: the work is on the drive, the turn ends
//! ```
//!
//! The crate does no I/O and has no clock: the caller carries the messages, which may be late, lost, repeated or out of order, and gives the time
//! of the machine that it runs on. Two machines' clocks may show different times and differ in speed by [`Options::drift`].
//!
//! # What holds
//!
//! - **A turn is a lease.** It ends, by the holder's clock, [`Options::lease`] after the holder sent the report that the grant answers. The leader
//!   received that report later, and waits longer than the lease by the drift of two clocks.
//! - **A grant rests on fresh reports**: of each node that counts as undisturbed, one that answers a ping of at most [`Options::report_age`] ago, by the
//!   leader's own clock.
//! - **A new leader grants nothing** for one lease and one report age. A leader that was deposed without knowing hears of no majority any more
//!   after one report age, because a majority has voted in the new term, and its last grant ends one lease later.
//! - **A turn ends when its work is durable**, not when it is written: until then the drive has the work in its queue. Only a lease that ends, because the leader does not renew it,
//!   ends a turn while the last bytes may still be on their way to the drive.
//! - A node at its hard limit ([`Status::room`] is zero) goes without a turn, and counts that ([`Node::forced`]). The leader gives such a node a turn as soon as enough others are undisturbed.
#![forbid(unsafe_code)]

mod leader;
mod members;
mod message;
mod node;
mod options;
mod rate;
mod rules;

pub use leader::{Action, Event, Leader};
pub use members::Members;
pub use message::{Grant, NodeId, Ping, Report, ReportId, Revoke, Status, Term, TurnKind};
pub use node::Node;
pub use options::Options;
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
