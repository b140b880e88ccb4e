//! Flushes of the drives.

use std::sync::Arc;

use zoned::Result;

use super::Membership;
use crate::layout::slots::Slots;
use crate::member::drive_ios::DriveIos;
use crate::metrics::add;

impl Membership {
    /// Flushes every drive that works; a drive whose flush fails is failed.
    pub(crate) async fn flush_members(self: &Arc<Self>) -> Result<()> {
        self.flush_slots(Slots::ALL).await
    }

    /// Flushes the drives in `slots`; a drive whose flush fails is failed.
    pub(crate) async fn flush_slots(self: &Arc<Self>, slots: Slots) -> Result<()> {
        let mut ios = DriveIos::default();
        let mut numbers = Vec::new();
        for member in self.working_members() {
            if !slots.has(member.slot) {
                let spared = u64::from(self.ctx.geometry.volatile_cache);
                add(&self.ctx.metrics.flushes_spared, spared);
                continue;
            }
            if let Some((number, io)) = member.flush_numbered() {
                add(&self.ctx.metrics.flushes, 1);
                numbers.push((member.slot, number));
                ios.push(member.slot, Some(io));
            }
        }
        let failures = ios.join().await;
        for (slot, number) in numbers {
            if !failures.iter().any(|(failed, _)| *failed == slot) {
                self.member(slot).flushed_up_to(number);
            }
        }
        for (slot, error) in failures {
            self.fail(slot, &error).await?;
        }
        self.failures_persisted("flush").await
    }
}
