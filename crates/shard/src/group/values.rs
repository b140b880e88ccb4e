//! A leader in office gets the values that its tables lack, all of them, so that earlier holders of the office are relieved.

use std::sync::Arc;

use replica::{Event, Index, Role, Term};
use units::sleep_until;

use super::Group;
use crate::Result;
use crate::peer::RecordName;

impl Group {
    /// The task that looks now and then whether the replica leads and lacks values.
    pub(super) async fn get_all_values(self: Arc<Self>) {
        let driver = &*self.parts.driver;
        while !self.has_ended() && self.place.role == Role::Witness {
            sleep_until(driver, driver.now().after(self.options.settings.election_timeout / 2)).await;
            let me = self.place.replica;
            let term = self.with_replica(|replica| {
                let lacks = replica.leader() == Some(me) && !replica.is_whole();
                lacks.then(|| replica.term())
            });
            if let Some(term) = term
                && let Err(error) = self.get_values_in(term).await
            {
                self.end(error.to_string());
            }
        }
    }

    async fn get_values_in(&self, term: Term) -> Result<()> {
        // Values that were to be dropped before the replica took the office are dropped before others come.
        if self.table_work_before().await.is_none() {
            return Ok(());
        }
        let Some(upto) = self.pull_lacking().await? else { return Ok(()) };
        let flushed = self.parts.tables.flush()?;
        self.handle(Event::Flushed(flushed));
        self.handle(Event::Whole { term, upto });
        Ok(())
    }

    /// Pulls the value of each record that lacks it. Returns the index that was applied before; `None` if a value is missing.
    async fn pull_lacking(&self) -> Result<Option<Index>> {
        let upto = self.parts.tables.applied();
        let mut from = Vec::new();
        loop {
            let rows = self.parts.tables.rows(&from)?;
            let lacking = rows.rows.into_iter().filter(|(_, row)| row.value.is_none());
            let named = lacking.map(|(key, row)| (RecordName { key, index: row.index, term: row.term }, row));
            let named: Vec<_> = named.collect();
            if self.has_ended() || !named.is_empty() && !self.pull(named).await? {
                return Ok(None);
            }
            match rows.to {
                Some(to) => from = to,
                None => return Ok(Some(upto)),
            }
        }
    }
}
