//! Scrub: reads all content, and compares parity with data.
//!
//! Rows of whole, acknowledged stripes are read from all drives at once, and each parity is compared with the data. Blocks of a stripe that
//! is not whole are read like a client's read. Unreadable content is reconstructed and relocated. If parity does not
//! match, either may be wrong: the mismatch is reported, and on request the parity is rewritten.
//!
//! An array that lacks fewer drives than it has parities is scrubbed too. A data unit of the missing drive is put together with one
//! parity and compared with the other one; of such a stripe no parity is rewritten, as the unit itself may be wrong.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Blocks, BufMut, Bytes, Done, Error, ErrorKind, Io, IoClass, Op, Result, ZoneId, join_all};

use crate::ScrubOptions;
use crate::array::Array;
use crate::background::job_runner::Runner;
use crate::background::jobs::{Job, Scrub};
use crate::background::scrub_report::{Mismatch, ScrubReport};
use crate::core::Core;
use crate::degraded::errors::fails_the_drive;
use crate::degraded::whole_stripes::WholeStripes;
use crate::events::EventKind;
use crate::layout::{Parity, Piece, Role, Slot, Stripe};
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
    /// Errors: [`ErrorKind::Invalid`] if a scrub runs, [`ErrorKind::Gone`] if as many drives as there are parities have failed or are
    /// missing: there is nothing to compare then. A scrub during which the last of these drives fails ends with this error.
    pub fn start_scrub(&self, options: ScrubOptions) -> Result<Scrub> {
        let core = &self.core;
        options.pace.check(&core.ctx.geometry.name)?;
        refuse_without_parity(core)?;
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

/// Refuses to scrub an array that lacks as many drives as it has parities.
fn refuse_without_parity(core: &Core) -> Result<()> {
    let lacking: Vec<String> =
        core.members.lacking().iter().map(|member| member.slot.0.to_string()).collect();
    if lacking.len() < core.ctx.layout.parities as usize {
        return Ok(());
    }
    let drives = if lacking.len() == 1 { "drive" } else { "drives" };
    let verb = if lacking.len() == 1 { "is" } else { "are" };
    let again = if lacking.len() == 1 { "it" } else { "one of them" };
    let why = format!(
        "{drives} {} {verb} lacking, so that there is nothing to compare parity with: rebuild {again} first",
        lacking.join(" and ")
    );
    Err(core.ctx.error(ErrorKind::Gone, "scrub").because(why))
}

/// The parts of a zone whose drives work, in the order of their drives.
fn roles_by_slot(core: &Core, id: ZoneId) -> Vec<Role> {
    let roles = core.ctx.places.slots().filter_map(|slot| core.ctx.places.role(id, slot));
    roles.filter(|role| core.members.has_part(id, *role)).collect()
}

/// Rows that a scrub is reading from all drives that work.
struct ScrubChunk {
    row: u64,
    count: u64,
    /// The parts that are read.
    roles: Vec<Role>,
    /// The reads of the parts.
    ios: Vec<Io<BufMut>>,
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
        let lacking = core.members.lacking().len() as u64;
        let parts = u64::from(core.ctx.layout.width).saturating_sub(lacking);
        job.total.store(core.ctx.bytes(total) as u64 * parts, Ordering::Relaxed);
        for id in zones {
            self.report.zones += 1;
            self.zone(&core, id).await?;
            job.zones_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn zone(&mut self, core: &Arc<Core>, id: ZoneId) -> Result<()> {
        let places_stay = core.jobs.places.acquire().await;
        let (generation, end) = {
            let zone = core.zones.zone(id);
            (zone.generation, zone.acknowledged().min(zone.readable()))
        };
        let whole = core.ctx.layout.stripe_of(end);
        let rows = core.ctx.layout.row(whole).min(core.ctx.layout.part_rows);
        let mut reads: VecDeque<ScrubChunk> = VecDeque::new();
        let mut next = 0;
        while next < rows || !reads.is_empty() {
            while next < rows && reads.len() < self.runner.chunks_in_flight() {
                let chunk = self.runner.next_chunk_rows();
                // A chunk holds whole stripes only, so that a mismatch names a stripe.
                let unit = core.ctx.layout.unit;
                let count = (chunk / unit).max(1).saturating_mul(unit).min(rows - next);
                if !self.runner.wait_for_turn(count * roles_by_slot(core, id).len() as u64).await {
                    return Err(core.ctx.error(ErrorKind::Cancelled, "scrub"));
                }
                refuse_without_parity(core)?;
                let read = |role: Role| {
                    Some((role, core.reconstruct.read_rows(IoClass::Scrub, id, role, next, count)?))
                };
                let (roles, ios) = roles_by_slot(core, id).into_iter().filter_map(read).unzip();
                reads.push_back(ScrubChunk { row: next, count, roles, ios });
                next += count;
            }
            let Some(ScrubChunk { row, count, roles, ios }) = reads.pop_front() else { continue };
            let mut parts: Vec<Option<BufMut>> = core.ctx.layout.roles().map(|_| None).collect();
            let mut count_read_error = false;
            for (role, read) in roles.iter().zip(join_all(ios).await) {
                match read {
                    Ok(mut data) => {
                        core.reconstruct.apply_relocated_content(id, *role, row, &mut data);
                        if let Some(part) = parts.get_mut(role.index()) {
                            *part = Some(data);
                        }
                    }
                    Err(e) => {
                        count_read_error |=
                            !self.drive_failed(core, core.ctx.places.slot(id, *role), e).await?;
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
            self.compare_stripes(core, id, generation, row..row + count, &parts, count_read_error).await?;
        }
        // The reads of the last stripe queue like a client's: behind a first write, for example, that waits for a reclaim, which needs the
        // lock of the places.
        drop(places_stay);
        self.scrub_partial_stripe(core, id, end).await
    }

    /// True if a failed read fails its drive; an error if the array then lacks too many drives for a scrub.
    async fn drive_failed(&mut self, core: &Arc<Core>, slot: Option<Slot>, error: Error) -> Result<bool> {
        let Some(slot) = slot.filter(|_| fails_the_drive(error.kind())) else { return Ok(false) };
        core.members.fail(slot, &error).await?;
        refuse_without_parity(core)?;
        Ok(true)
    }

    /// Compares the stripes of a chunk. `parts`: what was read, by role.
    async fn compare_stripes(
        &mut self,
        core: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        rows: Range<u64>,
        parts: &[Option<BufMut>],
        count_read_error: bool,
    ) -> Result<()> {
        let (layout, block) = (&core.ctx.layout, core.ctx.bytes(1));
        let stripes = rows.start / layout.unit..rows.end.div_ceil(layout.unit);
        self.report.stripes += stripes.end - stripes.start;
        if count_read_error {
            // A scrub reads the stripes of a failed chunk one by one to find the unreadable units.
            for stripe in stripes.map(Stripe) {
                self.scrub_stripe(core, id, generation, stripe).await?;
            }
            return Ok(());
        }
        for stripe in (WholeStripes { layout, block, rows, parts }).mismatches() {
            self.report_mismatch(core, id, generation, stripe).await?;
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
        let (layout, block) = (&core.ctx.layout, core.ctx.bytes(1));
        let (row, rows) = (layout.row(stripe), layout.unit_of(stripe));
        let mut parts: Vec<Option<BufMut>> = layout.roles().map(|_| None).collect();
        let mut bad = Vec::new();
        let mut of_the_medium = true;
        for role in roles_by_slot(core, id) {
            match (
                core.reconstruct.rows_of_whole_stripes(id, role, row, rows).await,
                parts.get_mut(role.index()),
            ) {
                (Ok(data), Some(part)) => *part = Some(data),
                (Ok(_), None) => {}
                (Err(_), _) if core.zones.was_reset(id, generation) => return Ok(()),
                (Err(e), _) => {
                    let medium = core.failures.count_read_error(id, role, row..row + rows, &e);
                    if !self.drive_failed(core, core.ctx.places.slot(id, role), e).await? {
                        of_the_medium &= medium;
                        bad.push(role);
                    }
                }
            }
        }
        add(&core.ctx.metrics.scrub_errors, bad.len() as u64);
        self.report.read_errors += bad.len() as u64;
        if core.zones.was_reset(id, generation) {
            return Ok(());
        }
        let stripes = WholeStripes { layout, block, rows: row..row + rows, parts: &parts };
        if bad.is_empty() {
            return match stripes.mismatches().is_empty() {
                true => Ok(()),
                false => self.report_mismatch(core, id, generation, stripe).await,
            };
        }
        let lacking = layout.roles().filter(|role| !core.members.has_part(id, *role)).count();
        if bad.len() + lacking > layout.parities as usize {
            self.report.lost += bad.len() as u64;
            return Ok(());
        }
        if !of_the_medium {
            // A scrub does not repair worn zones, and a transient error needs no repair.
            return Ok(());
        }
        for role in bad {
            let Some(content) = stripes.part(role).map(BufMut::freeze) else { continue };
            let parity = layout.parity_on(stripe, role);
            let relocated = match (parity, layout.index_on(stripe, role)) {
                (Some(parity), _) => {
                    core.repair.relocate_parity(id, generation, (stripe, parity), content).await?
                }
                (None, index) => {
                    let index = index.expect("a part holds data or parity");
                    let offset = layout.unit_start(stripe, index);
                    let piece = Piece { role, stripe, index, row: 0, offset, len: rows };
                    core.repair.relocate(id, generation, piece, content).await?
                }
            };
            self.report.repaired += u64::from(relocated);
            let slot = core.ctx.places.slot(id, role).unwrap_or_default();
            let block = layout.start(stripe);
            core.ctx.publish(EventKind::Repaired { slot, zone: id, block, blocks: rows, relocated });
        }
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
        let (layout, block) = (&core.ctx.layout, core.ctx.bytes(1));
        let (row, rows) = (layout.row(stripe), layout.unit_of(stripe));
        let mut parts: Vec<Option<BufMut>> = layout.roles().map(|_| None).collect();
        for role in roles_by_slot(core, id) {
            let data = core.reconstruct.rows_of_whole_stripes(id, role, row, rows).await?;
            if let Some(part) = parts.get_mut(role.index()) {
                *part = Some(data);
            }
        }
        let stripes = WholeStripes { layout, block, rows: row..row + rows, parts: &parts };
        let wrong: Vec<(Parity, BufMut)> = stripes.wrong_parities_of_first();
        if core.zones.was_reset(id, generation) || wrong.is_empty() {
            return Ok(());
        }
        tracing::warn!(zone = id.0, stripe = stripe.0, "parity does not fit its data");
        add(&core.ctx.metrics.scrub_mismatches, 1);
        self.report.mismatch_count += 1;
        if self.report.mismatches.len() < MAX_LISTED_MISMATCHES {
            self.report.mismatches.push(Mismatch { zone: id, stripe });
        }
        if self.options.repair_parity && stripes.has_data_of_first() {
            let mut all = true;
            for (parity, sum) in wrong {
                all &= core.repair.relocate_parity(id, generation, (stripe, parity), sum.freeze()).await?;
            }
            self.report.parity_rewritten += u64::from(all);
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
        let read: Result<Done> = core.route(IoClass::Scrub, Op::Read { at, into }).await;
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
