//! Scrub: everything valid is read, and parity compared with data.
//!
//! Rows of whole, acknowledged stripes are read from all drives at once: their XOR is zero, whatever lies where. The
//! blocks of a stripe that is not whole are read as a client would. What a drive cannot read is put together from the
//! others and recorded. Where parity does not fit, nobody can tell which of the drives is wrong: that is reported,
//! and only where the options say so the data is believed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zoned::{Blocks, BufMut, Bytes, Done, Error, ErrorKind, Io, Op, Result, ZoneId, join_all};

use crate::background::jobs::{Job, Scrub};
use crate::background::runner::Runner;
use crate::core::Core;
use crate::degraded::failure::fails_the_drive;
use crate::events::EventKind;
use crate::layout::xor::xor;
use crate::layout::{Piece, Slot, Stripe};
use crate::metrics::add;
use crate::{Array, ScrubOptions};

/// Stripes that a report names.
const NAMED: usize = 256;

/// A stripe whose parity does not fit its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mismatch {
    /// The logical zone.
    pub zone: ZoneId,
    /// The stripe.
    pub stripe: Stripe,
}

/// What a scrub found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Logical zones that held something.
    pub zones: u32,
    /// Of these, how many were reset meanwhile: what they hold now was not looked at.
    pub changed: u32,
    /// Bytes read, of data and of parity.
    pub bytes: Bytes,
    /// Stripes compared.
    pub stripes: u64,
    /// Stripe units of which a drive could not read something.
    pub read_errors: u64,
    /// Of these, how many follow from the others and are recorded.
    pub repaired: u64,
    /// Of these, how many follow from nothing: another unit of the stripe is unreadable too.
    pub lost: u64,
    /// Stripes whose parity does not fit.
    pub mismatch_count: u64,
    /// The first 256 of them.
    pub mismatches: Vec<Mismatch>,
    /// Parity that was made to fit, because the options said so.
    pub parity_rewritten: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Array {
    /// Scrubs, to the end: see [`Array::start_scrub`].
    pub async fn scrub(&self, options: ScrubOptions) -> Result<ScrubReport> {
        self.start_scrub(options)?.wait().await
    }

    /// Begins to read everything that the array holds and to compare parity with data, beside the clients. Units that
    /// a drive cannot read are put together from the others and recorded (section 4.3.2).
    ///
    /// Errors: [`ErrorKind::Invalid`] where a scrub runs, [`ErrorKind::Gone`] where a drive is lacking: there is nothing to
    /// compare then. A drive that fails meanwhile ends it.
    pub fn start_scrub(&self, options: ScrubOptions) -> Result<Scrub> {
        let core = &self.core;
        core.whole_array()?;
        let handle = {
            let mut scrub = core.jobs.scrub.lock();
            if scrub.as_ref().is_some_and(|job| !job.is_over()) {
                let error = core.error(ErrorKind::Invalid, "scrub");
                return Err(error.because("a scrub runs already: wait for it, or cancel it"));
            }
            let handle = Scrub::new(Job::new(None, &core.driver));
            *scrub = Some(handle.clone());
            handle
        };
        core.tell(EventKind::ScrubStarted);
        let (core, ours) = (Arc::clone(core), handle.clone());
        let task = async move {
            let runner = Runner::new(&core, &ours.job, options.pace);
            let mut walk = Walk { runner, options, report: ScrubReport::default() };
            let result = walk.run().await;
            let Walk { mut report, runner, .. } = walk;
            drop(runner);
            report.elapsed = ours.progress().elapsed;
            let (errors, mismatches) = (report.read_errors, report.mismatch_count);
            core.tell(EventKind::ScrubEnded { errors, mismatches });
            ours.end(result.map(|()| report));
        };
        drop(units::spawn(&*self.core.driver, "scrub", task));
        Ok(handle)
    }

    /// The scrub that runs, or the last one.
    pub fn scrubbing(&self) -> Option<Scrub> {
        self.core.jobs.scrub.lock().clone()
    }
}

impl Core {
    /// Refuses an array without all its drives.
    fn whole_array(&self) -> Result<()> {
        let Some(lacking) = self.members.iter().find(|member| !member.is_good()) else { return Ok(()) };
        let why = format!(
            "drive {} is lacking, so that there is nothing to compare parity with: rebuild it first",
            lacking.slot.0
        );
        Err(self.error(ErrorKind::Gone, "scrub").because(why))
    }
}

/// Rows that are being read from all drives.
struct Chunk {
    row: u64,
    count: u64,
    /// By slot; `None` where a drive is lost.
    ios: Vec<Option<Io<BufMut>>>,
}

/// A scrub under way.
struct Walk {
    runner: Runner,
    options: ScrubOptions,
    report: ScrubReport,
}

impl Walk {
    async fn run(&mut self) -> Result<()> {
        let core = Arc::clone(&self.runner.core);
        let job = Arc::clone(&self.runner.job);
        let held = |id: &ZoneId| core.zone(*id).readable() > Blocks::ZERO;
        let zones: Vec<ZoneId> = (0..core.geometry.zones).map(ZoneId).filter(held).collect();
        let rows = |id: &ZoneId| core.layout.stripe_of(core.zone(*id).readable()).0 * core.layout.unit;
        let total: u64 = zones.iter().map(|id| rows(id).min(core.layout.zone_capacity)).sum();
        job.zones.store(u32::try_from(zones.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        job.total.store(core.bytes(total) as u64 * u64::from(core.layout.drives), Ordering::Relaxed);
        for id in zones {
            self.report.zones += 1;
            self.zone(&core, id).await?;
            job.zones_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn zone(&mut self, core: &Arc<Core>, id: ZoneId) -> Result<()> {
        let (generation, end) = {
            let zone = core.zone(id);
            (zone.generation, zone.acknowledged().min(zone.readable()))
        };
        let whole = core.layout.stripe_of(end);
        let rows = core.layout.row(whole).min(core.layout.zone_capacity);
        let slots: Vec<Slot> = (0..core.layout.drives).map(Slot).collect();
        let mut reads: VecDeque<Chunk> = VecDeque::new();
        let mut next = 0;
        while next < rows || !reads.is_empty() {
            loop {
                let (chunk, depth) = self.runner.window();
                if next >= rows || reads.len() >= depth {
                    break;
                }
                // Whole stripes, so that a chunk says which does not fit.
                let unit = core.layout.unit;
                let count = (chunk / unit).max(1).saturating_mul(unit).min(rows - next);
                if !self.runner.turn(count * slots.len() as u64).await {
                    return Err(core.error(ErrorKind::Gone, "scrub").because("it was cancelled"));
                }
                core.whole_array()?;
                let read = |slot: &Slot| core.read_rows(id, *slot, next, count);
                reads.push_back(Chunk { row: next, count, ios: slots.iter().map(read).collect() });
                next += count;
            }
            let Some(Chunk { row, count, ios }) = reads.pop_front() else { continue };
            let Some(ios) = ios.into_iter().collect::<Option<Vec<Io<BufMut>>>>() else {
                return core.whole_array();
            };
            let mut sum = BufMut::zeroed(core.bytes(count));
            let mut misread = false;
            for (slot, read) in slots.iter().zip(join_all(ios).await) {
                match read {
                    Ok(mut data) => {
                        core.settle(id, *slot, row, &mut data);
                        xor(&mut sum, &data);
                    }
                    Err(e) => {
                        self.failed(core, *slot, e).await?;
                        misread = true;
                    }
                }
            }
            let bytes = core.bytes(count) as u64 * slots.len() as u64;
            add(&core.tally.scrub_bytes, bytes);
            self.report.bytes = Bytes(self.report.bytes.0 + bytes);
            self.runner.job.add(bytes);
            if core.is_another(id, generation) {
                self.report.changed += 1;
                return Ok(());
            }
            self.compare(core, id, generation, row, &sum, misread).await?;
        }
        self.rest(core, id, end).await
    }

    /// Judges a failed read: an error where its drive is lost.
    async fn failed(&mut self, core: &Arc<Core>, slot: Slot, error: Error) -> Result<()> {
        if fails_the_drive(error.kind()) {
            core.fail(slot, &error).await?;
            return core.whole_array();
        }
        Ok(())
    }

    /// Looks at the stripes of a chunk, whose XOR over all drives is `sum`.
    async fn compare(
        &mut self,
        core: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        row: u64,
        sum: &[u8],
        misread: bool,
    ) -> Result<()> {
        let unit = core.bytes(core.layout.unit);
        for (part, stripe) in sum.chunks(unit).zip(row / core.layout.unit..) {
            let stripe = Stripe(stripe);
            self.report.stripes += 1;
            if misread {
                // One by one: which of the units it is, the chunk does not say.
                self.stripe(core, id, generation, stripe).await?;
            } else if part.iter().any(|byte| *byte != 0) {
                self.mismatch(core, id, generation, stripe).await?;
            }
        }
        Ok(())
    }

    /// Reads the units of one stripe, mends one that is unreadable, and compares.
    async fn stripe(&mut self, core: &Arc<Core>, id: ZoneId, generation: u64, stripe: Stripe) -> Result<()> {
        let (row, rows) = (core.layout.row(stripe), core.layout.unit_of(stripe));
        let mut sum = BufMut::zeroed(core.bytes(rows));
        let mut bad = Vec::new();
        let mut of_the_medium = true;
        for slot in (0..core.layout.drives).map(Slot) {
            match core.rows_of(id, slot, row, rows).await {
                Ok(data) => xor(&mut sum, &data),
                Err(_) if core.is_another(id, generation) => return Ok(()),
                Err(e) => {
                    of_the_medium &= core.misread(id, slot, row..row + rows, &e);
                    self.failed(core, slot, e).await?;
                    bad.push(slot);
                }
            }
        }
        add(&core.tally.scrub_errors, bad.len() as u64);
        self.report.read_errors += bad.len() as u64;
        if core.is_another(id, generation) {
            return Ok(());
        }
        let [slot] = bad.as_slice() else {
            self.report.lost += bad.len() as u64;
            if bad.is_empty() && sum.iter().any(|byte| *byte != 0) {
                self.mismatch(core, id, generation, stripe).await?;
            }
            return Ok(());
        };
        if !of_the_medium {
            // A whole zone that wore out stays so; what failed for a reason of the machine is there.
            return Ok(());
        }
        let slot = *slot;
        let mended = match core.layout.index_on(id, stripe, slot) {
            None => core.mend_parity(id, generation, stripe, sum.freeze()).await?,
            Some(index) => {
                let offset = core.layout.unit_start(stripe, index);
                let piece = Piece { slot, stripe, index, row: 0, offset, len: rows };
                core.mend(id, generation, piece, sum.freeze()).await?
            }
        };
        self.report.repaired += u64::from(mended);
        let block = core.layout.start(stripe);
        core.tell(EventKind::Repaired { slot, zone: id, block, blocks: rows, relocated: mended });
        Ok(())
    }

    async fn mismatch(
        &mut self,
        core: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        stripe: Stripe,
    ) -> Result<()> {
        // Once more: a unit may have been mended between the reads of two drives.
        let (row, rows) = (core.layout.row(stripe), core.layout.unit_of(stripe));
        let parity = core.layout.parity(id, stripe);
        let mut sum = BufMut::zeroed(core.bytes(rows));
        let mut found = BufMut::default();
        for slot in (0..core.layout.drives).map(Slot) {
            let data = core.rows_of(id, slot, row, rows).await?;
            match slot == parity {
                true => found = data,
                false => xor(&mut sum, &data),
            }
        }
        if core.is_another(id, generation) || found == sum {
            return Ok(());
        }
        tracing::warn!(zone = id.0, stripe = stripe.0, "parity does not fit its data");
        add(&core.tally.scrub_mismatches, 1);
        self.report.mismatch_count += 1;
        if self.report.mismatches.len() < NAMED {
            self.report.mismatches.push(Mismatch { zone: id, stripe });
        }
        if self.options.repair_parity {
            let mended = core.mend_parity(id, generation, stripe, sum.freeze()).await?;
            self.report.parity_rewritten += u64::from(mended);
        }
        Ok(())
    }

    /// Reads the blocks of a stripe that is not whole, as a client does: that mends what can be.
    async fn rest(&mut self, core: &Arc<Core>, id: ZoneId, end: Blocks) -> Result<()> {
        let start = core.layout.start(core.layout.stripe_of(end));
        if start >= end {
            return Ok(());
        }
        let before = core.tally.read_repairs.load(Ordering::Relaxed);
        let at = core.geometry.start(id).plus(start);
        let into = BufMut::zeroed(core.bytes(end.minus(start).0));
        let read: Result<Done> = core.route(Op::Read { at, into }).await;
        let repaired = core.tally.read_repairs.load(Ordering::Relaxed).saturating_sub(before);
        self.report.read_errors += repaired;
        self.report.repaired += repaired;
        if read.is_err() {
            self.report.read_errors += 1;
            self.report.lost += 1;
        }
        Ok(())
    }
}
