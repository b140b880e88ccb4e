//! A snapshot: the tables of another replica are got, a part after the other.

use replica::{Event, Index, ReplicaId};
use units::sleep_until;

use super::Group;
use crate::Result;
use crate::peer::{Answer, Request};
use crate::tables::Rows;

/// How often a replica is asked for one part of its tables: messages are lost, and its tables may not hold enough yet.
const ATTEMPTS: u32 = 10;

impl Group {
    /// Gets the tables of `sources`: each part from whoever has it. False if one part could not be got.
    pub(super) async fn install(
        &self,
        index: Index,
        sources: &[ReplicaId],
        values_above: Index,
    ) -> Result<bool> {
        let mut from = Vec::new();
        let mut sources = sources.to_vec();
        loop {
            let mut found = None;
            for place in 0..sources.len() {
                let Some(source) = sources.get(place).copied() else { break };
                found = self.part_of(source, &from, (index, values_above)).await;
                if found.is_some() {
                    // The next part comes from the same replica.
                    sources.swap(0, place);
                    break;
                }
            }
            let Some(rows) = found.filter(|_| !self.has_ended()) else { return Ok(false) };
            let next = rows.to.clone();
            self.parts.tables.merge(rows, index)?;
            let Some(next) = next else { break };
            from = next;
        }
        let flushed = self.parts.tables.flush()?;
        self.handle(Event::Flushed(flushed));
        Ok(true)
    }

    /// The part of another replica's tables that begins at a key, once these hold the log up to `index`. `None` if it does not come, or not as asked for.
    async fn part_of(
        &self,
        source: ReplicaId,
        from: &[u8],
        (index, values_above): (Index, Index),
    ) -> Option<Rows> {
        let driver = &*self.parts.driver;
        for _ in 0..ATTEMPTS {
            match self.ask(source, Request::Rows { from: from.to_vec(), applied: index }).await {
                Some(Answer::Rows(mut rows)) => {
                    let lacks =
                        rows.rows.iter().any(|(_, row)| row.index > values_above && row.value.is_none());
                    if lacks || rows.from != from || !rows.is_sound() {
                        return None;
                    }
                    for (_, row) in rows.rows.iter_mut().filter(|(_, row)| row.index <= values_above) {
                        row.value = None;
                    }
                    return Some(rows);
                }
                Some(Answer::NotNow) => {
                    sleep_until(driver, driver.now().after(self.options.settings.heartbeat)).await;
                }
                Some(Answer::Values(_) | Answer::Members(_)) => return None,
                None if self.has_ended() => return None,
                None => {}
            }
        }
        None
    }
}
