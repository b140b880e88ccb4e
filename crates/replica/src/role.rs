//! The names of a group's parts.

/// A replica of a group. No two replicas that a group ever had share a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaId(pub u64);

/// A Raft term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

/// The index of an entry in a group's log. The first entry has index 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Index(pub u64);

/// The part that a replica has in its group. The primary is the witness that holds the office ([`crate::Offices`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Keeps every value, on a cheap drive.
    Backup,
    /// Keeps keys and timestamps, and values until they are stable. Can take the office, and keeps every value from then on.
    Witness,
}

impl Role {
    /// The role in a word.
    pub fn name(self) -> &'static str {
        match self {
            Role::Backup => "backup",
            Role::Witness => "witness",
        }
    }
}
