//! The column families that a batch may name.

use std::collections::HashMap;

use parking_lot::{RwLock, RwLockReadGuard};

use super::batch::Family;

/// Facts about a column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyInfo {
    /// It has a merge operator.
    pub merges: bool,
    /// Its comparator may call different bytes equal: all its keys share one stripe.
    pub one_stripe: bool,
}

/// The families of a database, by their numbers.
#[derive(Debug)]
pub(super) struct Families(RwLock<HashMap<Family, FamilyInfo>>);

impl Families {
    /// The families at the opening.
    pub fn new(all: impl IntoIterator<Item = (Family, FamilyInfo)>) -> Families {
        Families(RwLock::new(all.into_iter().collect()))
    }

    /// The families now.
    pub fn read(&self) -> RwLockReadGuard<'_, HashMap<Family, FamilyInfo>> {
        self.0.read()
    }

    /// Adds a family, or changes its facts.
    pub fn insert(&self, family: Family, info: FamilyInfo) {
        self.0.write().insert(family, info);
    }

    /// Removes a family that was dropped.
    pub fn remove(&self, family: Family) {
        self.0.write().remove(&family);
    }
}
