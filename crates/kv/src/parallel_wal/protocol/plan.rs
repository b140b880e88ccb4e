//! What a batch needs, and whether it can be written.

use std::sync::atomic::Ordering;

use super::ParallelWal;
use crate::parallel_wal::batch::{Family, Kind, parse};
use crate::parallel_wal::error::{LogError, LogErrorKind, WriteError};
use crate::parallel_wal::options::{FamilyInfo, How, Without};
use crate::parallel_wal::stripes::{Held, StripeSet};

/// What a batch needs, read before anything is held.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) stripes: StripeSet,
    /// Each with its last record's place among those that take a sequence.
    pub(super) families: Vec<(Family, usize)>,
    pub(super) merged: Vec<Family>,
    pub(super) records: usize,
    pub(super) exact: bool,
}

impl ParallelWal {
    /// `stripes`: those too; an owner who orders writes has no use for them.
    pub(super) fn plan(&self, batch: &[u8], stripes: bool) -> Result<Plan, crate::parallel_wal::BatchError> {
        let mut plan = Plan::default();
        let families = self.families.read();
        for record in parse(batch)? {
            let record = record?;
            if record.kind == Kind::LogData {
                continue;
            }
            match plan.families.iter_mut().find(|(family, _)| *family == record.family) {
                Some((_, last)) => *last = plan.records,
                None => plan.families.push((record.family, plan.records)),
            }
            plan.records += 1;
            match record.kind {
                Kind::DeleteRange => plan.stripes = StripeSet::ALL,
                Kind::Merge | Kind::SingleDelete => plan.exact = true,
                Kind::Put | Kind::Delete | Kind::LogData => {}
            }
            if record.kind == Kind::Merge && !plan.merged.contains(&record.family) {
                plan.merged.push(record.family);
            }
            if !stripes {
                continue;
            }
            let one = families.get(&record.family).is_some_and(|info| info.one_stripe);
            self.stripes.add(&mut plan.stripes, record.family, (!one).then_some(record.key));
        }
        Ok(plan)
    }

    pub(super) fn hold(&self, stripes: &StripeSet) -> Held<'_> {
        if self.options.without == Without::Stripes {
            return self.stripes.hold(&StripeSet::default());
        }
        self.stripes.hold(stripes)
    }

    pub(super) fn check_open(&self) -> Result<(), LogError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(LogError::new(LogErrorKind::Poisoned, "writing a batch: the database is closed"));
        }
        match self.log.failure() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// With the stripes held, so that it stays true.
    pub(super) fn check<E>(&self, plan: &Plan, how: How) -> Result<(), WriteError<E>> {
        self.check_open()?;
        self.tables.check_writable()?;
        let families = self.families.read();
        let missing = plan.families.iter().find(|(family, _)| !families.contains_key(family));
        if let Some((Family(id), _)) = missing.filter(|_| !how.ignore_missing) {
            return Err(WriteError::Invalid(format!(
                "the write batch names column family {id}, which does not exist (any more)"
            )));
        }
        let merges = |family| families.get(family).is_none_or(|info: &FamilyInfo| info.merges);
        if let Some(Family(id)) = plan.merged.iter().find(|family| !merges(family)) {
            return Err(WriteError::Invalid(format!(
                "the write batch merges in column family {id}, which has no merge operator"
            )));
        }
        Ok(())
    }
}
