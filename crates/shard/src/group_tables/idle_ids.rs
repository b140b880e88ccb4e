//! The ids of a group's tables in the order in which their records were written last.

use std::collections::{BTreeMap, BTreeSet};

use kv::{OnceId, OnceIds};
use replica::Index;

/// The ids of a group's tables, in memory. A leader that makes an id needs them.
#[derive(Default)]
pub(super) struct IdleIds {
    indices: BTreeMap<OnceId, Index>,
    in_order: BTreeSet<(Index, OnceId)>,
}

impl IdleIds {
    /// The record of an id is of the entry at this index from now on; `None`: the id is gone.
    pub(super) fn note(&mut self, id: OnceId, index: Option<Index>) {
        let before = match index {
            Some(index) => self.indices.insert(id, index),
            None => self.indices.remove(&id),
        };
        before.into_iter().for_each(|before| {
            self.in_order.remove(&(before, id));
        });
        self.in_order.extend(index.map(|index| (index, id)));
    }

    /// The number of ids, and the `most` of them whose records are of the earliest entries.
    pub(super) fn longest_idle(&self, most: usize) -> OnceIds {
        let longest_idle = self.in_order.iter().take(most).map(|(_, id)| *id).collect();
        OnceIds { count: self.indices.len(), longest_idle }
    }
}
