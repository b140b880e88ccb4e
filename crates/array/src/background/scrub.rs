//! Scrub: reads all content, and compares parity with data.
//!
//! Rows of whole, acknowledged stripes are read from all drives at once: their XOR is zero. Blocks of a stripe that
//! is not whole are read like a client's read. Unreadable content is reconstructed and relocated. If parity does not
//! match, either may be wrong: the mismatch is reported, and on request the parity is rewritten.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Blocks, BufMut, Bytes, Done, Error, ErrorKind, Io, Op, Result, ZoneId, join_all};

use crate::ScrubOptions;
use crate::array::Array;
use crate::background::job_runner::Runner;
use crate::background::jobs::{Job, Scrub};
use crate::background::scrub_report::{Mismatch, ScrubReport};
use crate::core::Core;
use crate::degraded::errors::fails_the_drive;
use crate::events::EventKind;
use crate::layout::xor::xor;
use crate::layout::{Piece, Role, Slot, Stripe};
use crate::metrics::add;

/// Most mismatching stripes that a scrub's report lists.
const MAX_LISTED_MISMATCHES: usize = 256;

impl Array {
    /// Scrubs to the end: see [`Array::start_scrub`].
    pub async fn scrub(&self, options: ScrubOptions) -> Result<ScrubReport> {
        self.start_scrub(options)?.wait().await
    }

    /// Begins to read all content and to compare parity with data, beside clients. Unreadable units are reconstructed
    /// and relocated (RAIZN, section 4.3.2).
    ///
    /// Errors: [`ErrorKind::Invalid`] if a scrub runs, [`ErrorKind::Gone`] if a drive has failed or is missing: there
    /// is nothing to compare then. A drive that fails meanwhile ends the scrub.
    pub fn start_scrub(&self, options: ScrubOptions) -> Result<Scrub> {
        let core = &self.core;
        refuse_degraded_array(core)?;
        let handle = core.jobs.begin_scrub(Job::new(None, &core.ctx.driver)).ok_or_else(|| {
            let error = core.ctx.error(ErrorKind::Invalid, "scrub");
            error.because("a scrub runs already: wait for it, or cancel it")
        })?;
        core.ctx.publish(EventKind::ScrubStarted);
        let (core, ours) = (Arc::clone(core), handle.clone());
        let task = async move {
            let runner = Runner::new(&core, &ours.job, options.pace);
            let mut walk = RunningScrub { runner, options, report: ScrubReport::default() };
            let result = walk.run().await;
            let RunningScrub { mut report, runner, .. } = walk;
            drop(runner);
            report.elapsed = ours.progress().elapsed;
            let (errors, mismatches) = (report.read_errors, report.mismatch_count);
            core.ctx.publish(EventKind::ScrubEnded { errors, mismatches });
            ours.end(result.map(|()| report));
        };
        drop(units::spawn(&*self.core.ctx.driver, "scrub", task));
        Ok(handle)
    }

    /// The scrub that runs, or the last one that ran.
    pub fn scrubbing(&self) -> Option<Scrub> {
        self.core.jobs.scrub.lock().clone()
    }
}

/// Refuses to scrub an array that lacks a drive.
fn refuse_degraded_array(core: &Core) -> Result<()> {
    let Some(lacking) = core.members.iter().find(|member| !member.is_good()) else { return Ok(()) };
    let why = format!(
        "drive {} is lacking, so that there is nothing to compare parity with: rebuild it first",
        lacking.slot.0
    );
    Err(core.ctx.error(ErrorKind::Gone, "scrub").because(why))
}

/// The parts of a zone, in the order of their drives.
fn roles_by_slot(core: &Core, id: ZoneId) -> Vec<Role> {
    core.ctx.placement.slots().map(|slot| core.ctx.placement.role(id, slot)).collect()
}

/// Rows that a scrub is reading from all drives.
struct ScrubChunk {
    row: u64,
    count: u64,
    /// The reads of a chunk, by slot; `None` if the drive has failed.
    ios: Vec<Option<Io<BufMut>>>,
}

/// A scrub that runs.
struct RunningScrub {
    runner: Runner,
    options: ScrubOptions,
    report: ScrubReport,
}

impl RunningScrub {
    async fn run(&mut self) -> Result<()> {
        let core = Arc::clone(&self.runner.core);
        let job = Arc::clone(&self.runner.job);
        let held = |id: &ZoneId| core.zones.zone(*id).readable() > Blocks::ZERO;
        let zones: Vec<ZoneId> = (0..core.ctx.geometry.zones).map(ZoneId).filter(held).collect();
        let rows =
            |id: &ZoneId| core.ctx.layout.stripe_of(core.zones.zone(*id).readable()).0 * core.ctx.layout.unit;
        let total: u64 = zones.iter().map(|id| rows(id).min(core.ctx.layout.part_rows)).sum();
        job.zones.store(u32::try_from(zones.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        job.total.store(core.ctx.bytes(total) as u64 * u64::from(core.ctx.layout.width), Ordering::Relaxed);
        for id in zones {
            self.report.zones += 1;
            self.zone(&core, id).await?;
            job.zones_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn zone(&mut self, core: &Arc<Core>, id: ZoneId) -> Result<()> {
        let (generation, end) = {
            let zone = core.zones.zone(id);
            (zone.generation, zone.acknowledged().min(zone.readable()))
        };
        let whole = core.ctx.layout.stripe_of(end);
        let rows = core.ctx.layout.row(whole).min(core.ctx.layout.part_rows);
        let roles = roles_by_slot(core, id);
        let mut reads: VecDeque<ScrubChunk> = VecDeque::new();
        let mut next = 0;
        while next < rows || !reads.is_empty() {
            loop {
                let (chunk, depth) = self.runner.next_chunk_rows();
                if next >= rows || reads.len() >= depth {
                    break;
                }
                // A chunk holds whole stripes only, so that a mismatch names a stripe.
                let unit = core.ctx.layout.unit;
                let count = (chunk / unit).max(1).saturating_mul(unit).min(rows - next);
                if !self.runner.wait_for_turn(count * roles.len() as u64).await {
                    return Err(core.ctx.error(ErrorKind::Cancelled, "scrub"));
                }
                refuse_degraded_array(core)?;
                let read = |role: &Role| core.reconstruct.read_rows(id, *role, next, count);
                reads.push_back(ScrubChunk { row: next, count, ios: roles.iter().map(read).collect() });
                next += count;
            }
            let Some(ScrubChunk { row, count, ios }) = reads.pop_front() else { continue };
            let Some(ios) = ios.into_iter().collect::<Option<Vec<Io<BufMut>>>>() else {
                return refuse_degraded_array(core);
            };
            let mut sum = BufMut::zeroed(core.ctx.bytes(count));
            let mut count_read_error = false;
            for (role, read) in roles.iter().zip(join_all(ios).await) {
                match read {
                    Ok(mut data) => {
                        core.reconstruct.apply_memory(id, *role, row, &mut data);
                        xor(&mut sum, &data);
                    }
                    Err(e) => {
                        self.judge_failed_read(core, core.ctx.placement.slot(id, *role), e).await?;
                        count_read_error = true;
                    }
                }
            }
            let bytes = core.ctx.bytes(count) as u64 * roles.len() as u64;
            add(&core.ctx.metrics.scrub_bytes, bytes);
            self.report.bytes = Bytes(self.report.bytes.0 + bytes);
            self.runner.job.add(bytes);
            if core.zones.was_reset(id, generation) {
                self.report.changed += 1;
                return Ok(());
            }
            self.compare_stripes(core, id, generation, row, &sum, count_read_error).await?;
        }
        self.scrub_partial_stripe(core, id, end).await
    }

    /// Handles a failed read of a scrub; returns an error if the drive has failed.
    async fn judge_failed_read(&mut self, core: &Arc<Core>, slot: Slot, error: Error) -> Result<()> {
        if fails_the_drive(error.kind()) {
            core.members.fail(slot, &error).await?;
            return refuse_degraded_array(core);
        }
        Ok(())
    }

    /// Compares the stripes of a chunk, whose XOR over all drives is `sum`.
    async fn compare_stripes(
        &mut self,
        core: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        row: u64,
        sum: &[u8],
        count_read_error: bool,
    ) -> Result<()> {
        let unit = core.ctx.bytes(core.ctx.layout.unit);
        for (part, stripe) in sum.chunks(unit).zip(row / core.ctx.layout.unit..) {
            let stripe = Stripe(stripe);
            self.report.stripes += 1;
            if count_read_error {
                // A scrub reads the stripes of a failed chunk one by one to find the unreadable unit.
                self.scrub_stripe(core, id, generation, stripe).await?;
            } else if part.iter().any(|byte| *byte != 0) {
                self.report_mismatch(core, id, generation, stripe).await?;
            }
        }
        Ok(())
    }

    /// Reads the units of one stripe, repairs an unreadable one, and compares.
    async fn scrub_stripe(
        &mut self,
        core: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        stripe: Stripe,
    ) -> Result<()> {
        let (row, rows) = (core.ctx.layout.row(stripe), core.ctx.layout.unit_of(stripe));
        let mut sum = BufMut::zeroed(core.ctx.bytes(rows));
        let mut bad = Vec::new();
        let mut of_the_medium = true;
        for role in roles_by_slot(core, id) {
            match core.reconstruct.rows_of(id, role, row, rows).await {
                Ok(data) => xor(&mut sum, &data),
                Err(_) if core.zones.was_reset(id, generation) => return Ok(()),
                Err(e) => {
                    of_the_medium &= core.failures.count_read_error(id, role, row..row + rows, &e);
                    self.judge_failed_read(core, core.ctx.placement.slot(id, role), e).await?;
                    bad.push(role);
                }
            }
        }
        add(&core.ctx.metrics.scrub_errors, bad.len() as u64);
        self.report.read_errors += bad.len() as u64;
        if core.zones.was_reset(id, generation) {
            return Ok(());
        }
        let [role] = bad.as_slice() else {
            self.report.lost += bad.len() as u64;
            if bad.is_empty() && sum.iter().any(|byte| *byte != 0) {
                self.report_mismatch(core, id, generation, stripe).await?;
            }
            return Ok(());
        };
        if !of_the_medium {
            // A scrub does not repair worn zones, and a transient error needs no repair.
            return Ok(());
        }
        let role = *role;
        let relocated = match core.ctx.layout.index_on(stripe, role) {
            None => core.repair.relocate_parity(id, generation, stripe, sum.freeze()).await?,
            Some(index) => {
                let offset = core.ctx.layout.unit_start(stripe, index);
                let piece = Piece { role, stripe, index, row: 0, offset, len: rows };
                core.repair.relocate(id, generation, piece, sum.freeze()).await?
            }
        };
        self.report.repaired += u64::from(relocated);
        let (slot, block) = (core.ctx.placement.slot(id, role), core.ctx.layout.start(stripe));
        core.ctx.publish(EventKind::Repaired { slot, zone: id, block, blocks: rows, relocated });
        Ok(())
    }

    async fn report_mismatch(
        &mut self,
        core: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        stripe: Stripe,
    ) -> Result<()> {
        // A mismatching stripe is read again: a read repair may have come between the reads of two drives.
        let (row, rows) = (core.ctx.layout.row(stripe), core.ctx.layout.unit_of(stripe));
        let parity = core.ctx.layout.parity(stripe);
        let mut sum = BufMut::zeroed(core.ctx.bytes(rows));
        let mut found = BufMut::default();
        for role in roles_by_slot(core, id) {
            let data = core.reconstruct.rows_of(id, role, row, rows).await?;
            match role == parity {
                true => found = data,
                false => xor(&mut sum, &data),
            }
        }
        if core.zones.was_reset(id, generation) || found == sum {
            return Ok(());
        }
        tracing::warn!(zone = id.0, stripe = stripe.0, "parity does not fit its data");
        add(&core.ctx.metrics.scrub_mismatches, 1);
        self.report.mismatch_count += 1;
        if self.report.mismatches.len() < MAX_LISTED_MISMATCHES {
            self.report.mismatches.push(Mismatch { zone: id, stripe });
        }
        if self.options.repair_parity {
            let relocated = core.repair.relocate_parity(id, generation, stripe, sum.freeze()).await?;
            self.report.parity_rewritten += u64::from(relocated);
        }
        Ok(())
    }

    /// Reads the blocks of a stripe that is not whole through the read path, which repairs them.
    async fn scrub_partial_stripe(&mut self, core: &Arc<Core>, id: ZoneId, end: Blocks) -> Result<()> {
        let start = core.ctx.layout.start(core.ctx.layout.stripe_of(end));
        if start >= end {
            return Ok(());
        }
        let before = core.ctx.metrics.read_repairs.load(Ordering::Relaxed);
        let at = core.ctx.geometry.start(id).plus(start);
        let into = BufMut::zeroed(core.ctx.bytes(end.minus(start).0));
        let read: Result<Done> = core.route(Op::Read { at, into }).await;
        let repaired = core.ctx.metrics.read_repairs.load(Ordering::Relaxed).saturating_sub(before);
        self.report.read_errors += repaired;
        self.report.repaired += repaired;
        if read.is_err() {
            self.report.read_errors += 1;
            self.report.lost += 1;
        }
        Ok(())
    }
}
