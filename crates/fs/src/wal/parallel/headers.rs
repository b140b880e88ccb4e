//! The headers of a parallel log's entries.

use std::sync::Arc;

use uuid::Uuid;

use crate::wal::entry::EntryHeader;
use crate::wal::parallel::durability::Durability;
use crate::wal::parallel::order::Order;

/// Makes entry headers: the fields that all entries of one opening of the log share, and those that follow
/// from the tickets.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) uuid: Uuid,
    pub(super) log: u64,
    pub(super) epoch: u32,
    pub(super) order: Arc<Order>,
    pub(super) durability: Arc<Durability>,
}

impl Headers {
    /// The header of an entry whose first ticket is `ticket`. The caller sets zone, part and length.
    pub(super) fn of(&self, ticket: u64) -> EntryHeader {
        let low = self.order.low();
        let durable = self.durability.below(low);
        EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
            rewritten: false,
            log: self.log,
            generation: 0,
            sequence: ticket,
            needs: low.min(ticket),
            epoch: self.epoch,
            part: 0,
            parts: 1,
            length: 0,
            mask: 0,
            open: u32::try_from(ticket.saturating_sub(durable)).unwrap_or(u32::MAX),
            crc: 0,
        }
    }
}
