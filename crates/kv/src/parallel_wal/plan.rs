//! The plan of a batch: key stripes, column families, and the checks before the log has the batch.

use std::collections::HashMap;

use parking_lot::RwLock;

use super::batch::{BatchError, Family, RecordKind, parse};
use super::ledger::Needs;
use super::options::Applied;
use super::stripes::{StripeSet, Stripes};
use super::tables::{Mark, Sequence};

/// The properties of a column family that decide how the parallel WAL applies batches to the family.
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

    /// Adds a column family, or changes its entry.
    pub fn insert(&self, family: Family, info: FamilyInfo) {
        self.0.write().insert(family, info);
    }

    /// Removes a column family that was dropped.
    pub fn remove(&self, family: Family) {
        self.0.write().remove(&family);
    }
}

/// The stripes and the families of a batch, read before any lock is taken.
#[derive(Default)]
pub(super) struct Plan {
    /// The stripes of the batch's keys.
    pub stripes: StripeSet,
    /// Each family with the index of its last record among the batch's records that take a sequence.
    families: Vec<(Family, usize)>,
    /// The families of the batch's merge records.
    merged: Vec<Family>,
    /// Number of the batch's records that take a sequence.
    pub records: usize,
    /// Whether the batch has merges or single deletes, which change the data if they are applied twice.
    pub once_only: bool,
}

impl Plan {
    /// Plans a batch. Without `stripes`, for a caller that orders writes itself, the plan has only the stripes of range
    /// deletes.
    pub fn read(batch: &[u8], families: &Families, stripes: Option<&Stripes>) -> Result<Plan, BatchError> {
        let mut plan = Plan::default();
        let families = families.0.read();
        for record in parse(batch)? {
            let record = record?;
            if record.kind == RecordKind::LogData {
                continue;
            }
            match plan.families.iter_mut().find(|(family, _)| *family == record.family) {
                Some((_, last)) => *last = plan.records,
                None => plan.families.push((record.family, plan.records)),
            }
            plan.records += 1;
            match record.kind {
                RecordKind::DeleteRange => plan.stripes = StripeSet::ALL,
                RecordKind::Merge | RecordKind::SingleDelete => plan.once_only = true,
                RecordKind::Put | RecordKind::Delete | RecordKind::LogData => {}
            }
            if record.kind == RecordKind::Merge && !plan.merged.contains(&record.family) {
                plan.merged.push(record.family);
            }
            if let Some(stripes) = stripes {
                let one = families.get(&record.family).is_some_and(|info| info.one_stripe);
                stripes.add(&mut plan.stripes, record.family, (!one).then_some(record.key));
            }
        }
        Ok(plan)
    }

    /// Refuses a batch that names unknown families or merges without an operator. Called with the stripes held, so that
    /// the families stay as they are until the batch is applied.
    pub fn check(&self, families: &Families, ignore_missing: bool) -> Result<(), String> {
        let families = families.0.read();
        let missing = self.families.iter().find(|(family, _)| !families.contains_key(family));
        if let Some((Family(id), _)) = missing.filter(|_| !ignore_missing) {
            return Err(format!("the write batch names column family {id}, which does not exist (any more)"));
        }
        let merges = |family| families.get(family).is_none_or(|info| info.merges);
        if let Some(Family(id)) = self.merged.iter().find(|family| !merges(family)) {
            return Err(format!("the write batch merges in column family {id}, which has no merge operator"));
        }
        Ok(())
    }

    /// The families of the batch, each with the sequence up to which it must be flushed until the applied batch is in
    /// tables.
    ///
    /// A marked batch is in tables when its mark is: one atomic flush writes both, and a replay skips the batch from
    /// then on. The reports of the batch's own families may end below the batch, since a single delete and its put
    /// leave no record.
    pub fn needs(&self, families: &Families, applied: Applied, mark: Option<Mark>) -> Needs {
        if mark.is_some() {
            return Box::new([(Family::MARKS, Sequence(applied.last.0 + 1))]);
        }
        let families = families.0.read();
        let sequence = |at: &usize| Sequence(applied.last.0.saturating_sub((self.records - 1 - at) as u64));
        // RocksDB skipped the records of families that do not exist.
        let present = self.families.iter().filter(|(family, _)| families.contains_key(family));
        present.map(|(family, at)| (*family, sequence(at))).collect()
    }
}
