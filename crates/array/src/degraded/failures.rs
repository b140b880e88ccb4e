//! Judges failed reads and writes of drives: a fault of the drive, of one zone, of one block, or of the array.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Error, ErrorKind, Result, ZoneId, ZoneState};

use crate::context::Context;
use crate::degraded::errors::{is_array_fault, worn_state};
use crate::events::EventKind;
use crate::layout::slots::Slots;
use crate::layout::{Role, Slot};
use crate::membership::Membership;
use crate::metrics::add;
use crate::zone::zone_table::ZoneTable;

/// Media errors after which a drive should be replaced. One or two are normal.
pub const MANY_ERRORS: u64 = 16;

/// Judges the errors of drives.
pub(crate) struct Failures {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
}

impl Failures {
    /// Handles all failed operations of a write to zone `id`. Ok: the write is redundant enough without them.
    pub(crate) async fn judge_writes(&self, id: ZoneId, failures: Vec<(Slot, Error)>) -> Result<()> {
        let mut refused = Ok(());
        let mut worn = Slots::default();
        for (slot, error) in failures {
            // A late error of a drive that the slot had before says nothing of the drive that has its place now.
            let is_of_this_drive = !self.members.member(slot).had_drive(error.device());
            let is_good = || is_of_this_drive && self.members.member(slot).is_good();
            if let Some(state) = worn_state(&error).filter(|_| is_good()) {
                // The zone wore out, not the drive. Acknowledged blocks stay readable.
                self.zones.mark_worn(id, slot, state, &error);
                worn.add(slot);
                refused = refused.and(Err(error));
                continue;
            }
            if is_array_fault(error.kind()) {
                // A drive refuses the writes behind a failed write. The failed write is judged first.
                drop(self.members.persisting.acquire().await);
                if is_good() {
                    if !worn.has(slot) {
                        tracing::error!(slot = slot.0, zone = id.0, %error, "a drive refused an operation of the array");
                    }
                    refused = refused.and(Err(error));
                    continue;
                }
            }
            // All failures are judged, also after one that breaks the array.
            refused = self.members.fail(slot, &error).await.and(refused);
        }
        self.members.failures_persisted("write").await.and(refused)
    }

    /// Counts a failed read. True if the medium failed, so that read repair is due: not that of a drive that the slot had before.
    pub(crate) fn count_read_error(&self, id: ZoneId, role: Role, rows: Range<u64>, error: &Error) -> bool {
        let Some(part) = self.members.part(id, role) else { return false };
        let (member, slot) = (part.member(), part.slot());
        if part.has_bad_rows(&rows) {
            // The error came from the array's own list of bad rows, not from the drive.
            return true;
        }
        add(&self.ctx.metrics.read_errors, 1);
        if member.had_drive(error.device()) {
            return false;
        }
        match error.kind() {
            ErrorKind::ZoneOffline => {
                self.zones.report_worn(id, slot, ZoneState::Offline);
                false
            }
            ErrorKind::Media => {
                let errors = member.media_errors.fetch_add(1, Ordering::Relaxed) + 1;
                if errors == MANY_ERRORS {
                    tracing::warn!(slot = slot.0, errors, "many errors of the medium: replace the drive");
                    self.ctx.publish(EventKind::ManyErrors { slot, errors });
                }
                true
            }
            _ => false,
        }
    }
}
