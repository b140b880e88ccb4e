//! The column families that the batches of a database may name.

use std::collections::HashMap;

use parking_lot::{RwLock, RwLockReadGuard};

use super::batch::Family;

/// What the parallel WAL knows of a column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyInfo {
    /// The family has a merge operator.
    pub merges: bool,
    /// The family's comparator may call different bytes equal, so all its keys share one stripe.
    pub one_stripe: bool,
}

/// The column families of a database, by their numbers.
#[derive(Debug)]
pub(super) struct Families(RwLock<HashMap<Family, FamilyInfo>>);

impl Families {
    /// The column families of a database at its opening.
    pub fn new(all: impl IntoIterator<Item = (Family, FamilyInfo)>) -> Families {
        Families(RwLock::new(all.into_iter().collect()))
    }

    /// A read lock on the present column families.
    pub fn read(&self) -> RwLockReadGuard<'_, HashMap<Family, FamilyInfo>> {
        self.0.read()
    }

    /// Adds a column family, or changes its entry.
    pub fn insert(&self, family: Family, info: FamilyInfo) {
        self.0.write().insert(family, info);
    }

    /// Removes a column family that was dropped.
    pub fn remove(&self, family: Family) {
        self.0.write().remove(&family);
    }
}
