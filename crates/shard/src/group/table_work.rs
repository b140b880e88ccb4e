//! The work on a group's tables, one piece after the other.

use std::sync::Arc;

use replica::{Command, Event, Index, Term};

use super::Group;
use super::table_queue::TableWork;
use crate::Result;
use crate::tables::Entry;

impl Group {
    /// The task that works on the tables.
    pub(super) async fn work_on_tables(self: Arc<Self>) {
        while !self.has_ended() {
            let version = self.table_work.version();
            let work = self.state.lock().tables.pop_front();
            let done = match work {
                Some(work) => self.do_table_work(work).await,
                None => {
                    self.table_work.changed_since(version).await;
                    continue;
                }
            };
            if let Err(error) = done {
                self.end(error.to_string());
            }
        }
    }

    async fn do_table_work(&self, work: TableWork) -> Result<()> {
        match work {
            TableWork::Apply(entries) => self.apply(&entries),
            TableWork::DropValues(upto) => self.parts.tables.drop_values(upto),
            TableWork::Reached(sender) => {
                sender.send(()).ok();
                Ok(())
            }
            TableWork::Flush => {
                let flushed = self.parts.tables.flush()?;
                self.handle(Event::Flushed(flushed));
                self.flushed_for_room();
                Ok(())
            }
            TableWork::Install { index, sources, values_above } => {
                let event = if self.install(index, &sources, values_above).await? {
                    Event::Installed(index)
                } else {
                    Event::NotInstalled(index)
                };
                self.handle(event);
                Ok(())
            }
        }
    }

    fn apply(&self, entries: &[(Index, Term, Option<Command>)]) -> Result<()> {
        let entry = |(index, term, command): &(Index, Term, Option<Command>)| {
            Ok((*index, *term, self.batch(command.as_ref(), *index)?))
        };
        let entries = entries.iter().map(entry).collect::<Result<Vec<Entry>>>()?;
        self.parts.tables.apply(&entries)?;
        self.update_room();
        if let Some((last, ..)) = entries.last() {
            self.handle(Event::Applied(*last));
        }
        self.applied.notify();
        Ok(())
    }
}
