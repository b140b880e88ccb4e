//! The Redis commands on keys: what each reads and writes in a [`Txn`](crate::Txn), and its reply.

mod call;
mod counters;
mod execute;
mod expire;
mod keys;
mod once;
mod options;
mod scan;
mod spec;
mod strings;
mod table;
#[cfg(test)]
mod tests;

pub use execute::execute;
pub use once::{claim, key_places};
pub use spec::{Keys, Spec};
pub use table::{COMMANDS, Command, find};
