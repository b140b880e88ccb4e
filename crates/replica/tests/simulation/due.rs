//! The events of a simulated group that are to come.

use replica::{Index, Message, ReplicaId, Term};
use units::Instant;

use crate::tables::Record;

#[derive(Clone, Debug)]
pub enum What {
    Deliver(Box<Message>),
    Durable(u64),
    Apply,
    Tick,
    /// The tables of one of these are to be taken.
    Install {
        index: Index,
        sources: Vec<ReplicaId>,
        values_above: Index,
    },
    /// The values of records, in answer to a pull of a leader of that term.
    Pulled(Term, Vec<(u64, Record)>),
    Start,
    CutOff,
    Die,
}

#[derive(Clone, Debug)]
pub struct Due {
    pub at: Instant,
    pub number: u64,
    pub node: usize,
    pub life: u64,
    pub what: What,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
