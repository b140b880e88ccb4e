//! Entries of a log that another leader's entries may still replace.

use std::collections::VecDeque;

use crate::Index;

/// The contents of entries above some index, by index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pending<T>(VecDeque<(Index, T)>);

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending(VecDeque::new())
    }
}

impl<T> Pending<T> {
    /// An entry was appended to the log.
    pub(crate) fn append(&mut self, index: Index, said: T) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last < index), "indexes ascend");
        self.0.push_back((index, said));
    }

    /// The log's entries from `first` on were replaced.
    pub(crate) fn truncate(&mut self, first: Index) {
        self.0.retain(|(index, _)| *index < first);
    }

    /// Takes the first entry, if it is at or below `upto`.
    pub(crate) fn take(&mut self, upto: Index) -> Option<(Index, T)> {
        if self.0.front()?.0 <= upto { self.0.pop_front() } else { None }
    }

    /// Takes the entry at `index` out.
    pub(crate) fn remove(&mut self, index: Index) {
        self.0.retain(|(pending, _)| *pending != index);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The contents, in the log's order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.iter().map(|(_, said)| said)
    }
}
