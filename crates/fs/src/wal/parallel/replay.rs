//! The records of a parallel log, in ticket order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::shared::Handle;
use crate::wal::index::Check;
use crate::wal::ordered::stream::{LogStream, stream};
use crate::wal::parallel::known::{KNOWN_LENGTH, MAX_KNOWN, known_length};
use crate::wal::parallel::payload::{COUNT_BYTES, MAX_RECORD};
use crate::wal::parallel::recover::{KeptEntry, RecoveredEntries, Voids};
use crate::wal::parallel::ticket::Ticket;

/// The records that recovery found in a parallel log, one after the other. Reads ahead with large reads, in
/// bounded memory.
pub struct Replay {
    stream: LogStream,
    entries: VecDeque<KeptEntry>,
    /// The next ticket of the entry that is being read, and the number of its records still to come.
    current: Option<(u64, u32)>,
    voids: Voids,
    retired: u64,
}

impl Replay {
    pub(super) fn new(handle: &Arc<Handle>, recovered: RecoveredEntries, retired: u64) -> Replay {
        let shared = &handle.shared;
        let check = Check { uuid: shared.superblock.uuid, log: handle.file.ino };
        let (stream, mut filler) = stream(shared.device.purpose(Purpose::Log), check, &shared.background);
        let RecoveredEntries { index, kept, voids, .. } = recovered;
        let handle = Arc::clone(handle);
        shared.driver.spawn(
            "log-reader",
            Box::pin(async move {
                let ended = filler.follow(&index).await;
                drop(handle);
                filler.end(ended);
            }),
        );
        Replay { stream, entries: kept.into(), current: None, voids, retired }
    }

    /// The next record with its ticket; `None` at the end. Records with retired or void tickets are skipped.
    ///
    /// # Errors
    /// The device's errors, and `Corrupt` where the medium lost bytes since the recovery.
    pub async fn next(&mut self) -> Result<Option<(Ticket, Vec<u8>)>> {
        loop {
            let Some((ticket, left)) = self.current.take().filter(|(_, left)| *left > 0) else {
                let Some(kept) = self.entries.pop_front() else { return Ok(None) };
                if self.read_u32(kept.ticket).await? != kept.count {
                    return Err(corrupt_record_error(kept.ticket));
                }
                if kept.lists_known {
                    self.skip_known(kept.ticket).await?;
                }
                self.current = Some((kept.ticket, kept.count));
                continue;
            };
            let len = self.read_u32(ticket).await?;
            if u64::from(len) > MAX_RECORD.0 {
                return Err(corrupt_record_error(ticket));
            }
            let mut record = vec![0; len as usize];
            self.fill(ticket, &mut record).await?;
            self.current = Some((ticket + 1, left - 1));
            if ticket >= self.retired && !self.voids.has(ticket) {
                return Ok(Some((Ticket(ticket), record)));
            }
        }
    }

    async fn read_u32(&mut self, ticket: u64) -> Result<u32> {
        let mut bytes = [0; COUNT_BYTES];
        self.fill(ticket, &mut bytes).await?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Skips the entry's list of known tickets, which the recovery has used.
    async fn skip_known(&mut self, ticket: u64) -> Result<()> {
        let mut list = [0; MAX_KNOWN];
        let (length, rest) = list.split_at_mut(KNOWN_LENGTH);
        self.fill(ticket, length).await?;
        let rest = known_length(length)
            .and_then(|len| rest.get_mut(..len))
            .ok_or_else(|| corrupt_record_error(ticket))?;
        self.fill(ticket, rest).await
    }

    async fn fill(&mut self, ticket: u64, into: &mut [u8]) -> Result<()> {
        if self.stream.read(into).await? == into.len() { Ok(()) } else { Err(corrupt_record_error(ticket)) }
    }
}

fn corrupt_record_error(ticket: u64) -> Error {
    let why =
        format!("the records of the entry with ticket {ticket} do not fit its header; restore a backup");
    Error::new(ErrorKind::Corrupt, "reading a parallel log").because(why)
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replay with {} entries left", self.entries.len())
    }
}
