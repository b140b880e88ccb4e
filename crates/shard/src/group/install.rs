//! A snapshot: the tables of another replica are got, a part after the other.

use replica::{Event, Index, ReplicaId};
use units::sleep_until;

use super::Group;
use crate::Result;
use crate::peer::{Answer, Request};
use crate::tables::Rows;

/// How often a replica is asked whose tables do not hold enough yet.
const ATTEMPTS: u32 = 20;

impl Group {
    /// Gets the tables of one of `sources`. False if none had them.
    pub(super) async fn install(
        &self,
        index: Index,
        sources: &[ReplicaId],
        values_above: Index,
    ) -> Result<bool> {
        for source in sources {
            if self.install_from(*source, index, values_above).await? {
                let flushed = self.parts.tables.flush()?;
                self.handle(Event::Flushed(flushed));
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn install_from(&self, source: ReplicaId, index: Index, values_above: Index) -> Result<bool> {
        let mut from = Vec::new();
        loop {
            let Some(mut rows) = self.rows_of(source, &from, index).await else { return Ok(false) };
            for (_, row) in &mut rows.rows {
                if row.index > values_above && row.value.is_none() {
                    return Ok(false);
                }
                if row.index <= values_above {
                    row.value = None;
                }
            }
            let next = rows.to.clone();
            self.parts.tables.merge(rows, index)?;
            match next {
                // A source that does not get on is none.
                Some(next) if next > from => from = next,
                Some(_) => return Ok(false),
                None => return Ok(true),
            }
        }
    }

    /// The part of another replica's tables that begins at a key, once these hold the log up to `index`.
    async fn rows_of(&self, source: ReplicaId, from: &[u8], index: Index) -> Option<Rows> {
        let driver = &*self.parts.driver;
        for _ in 0..ATTEMPTS {
            match self.ask(source, Request::Rows { from: from.to_vec(), applied: index }).await? {
                Answer::Rows(rows) => return Some(rows).filter(|rows| rows.from == from),
                Answer::NotNow => {
                    sleep_until(driver, driver.now().after(self.options.settings.heartbeat)).await
                }
                Answer::Values(_) => return None,
            }
        }
        None
    }
}
