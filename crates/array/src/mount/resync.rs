//! Resync: makes the parity of a zone match its data at a mount.
//!
//! Data on the drives below the pointer stays as it is. The parity of stripes that may have been in flight is
//! computed anew and compared. Blocks of a missing drive are reconstructed first, each from the record of partial
//! parity that was written for the block: the data of later writes may be garbage. Stale rows are read from their
//! relocated content.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Durability, Error, ErrorKind, Io, Result, ZoneId};

use crate::degraded::equation::{Equations, Unit};
use crate::layout::gf256::add_products;
use crate::layout::placement::Place;
use crate::layout::row_set::RowSet;
use crate::layout::running_parity::{RunningParity, add_to, extend_to_whole_stripe};
use crate::layout::{Layout, Parity, Role, Slot, Stripe};
use crate::member::bad_rows;
use crate::member::log_contents::Partial;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::mount::decide::{Decision, PartState, Verdict, best_partial_for, best_partial_for_others};
use crate::mount::errors::{FromDrive, MountError};
use crate::rules::Rules;
use crate::zone::stale_rows::{RelocatedParities, RelocatedParity, StaleRows};
use crate::zone::torn_end::TornEnd;

/// The resync of one zone, with everything that drives and logs say of the zone.
pub(crate) struct Resync {
    pub layout: Layout,
    pub block_size: u32,
    pub zone: ZoneId,
    /// The drives of the zone's parts, by role; `None` if the drive is missing.
    pub devices: Vec<Option<MemberDrive>>,
    /// The places of the zone's parts, by role.
    pub places: Vec<Place>,
    /// The states of the zone's parts, by role.
    pub parts: Vec<PartState>,
    /// Relocated parity.
    pub relocated: RelocatedParities,
    /// Stale rows of the zone, and their relocated content.
    pub stale: StaleRows,
    /// The first block that is not there. The zone may end below: what lies between is read for equations only.
    pub first_missing: Blocks,
    /// Partial parity that the logs hold of the zone, by stripe.
    pub partials: BTreeMap<Stripe, Vec<Partial>>,
    /// Blocks at which a write is known to begin or end; `None` if the array's writes are not atomic.
    pub ends_of_writes: Option<BTreeSet<Blocks>>,
    /// Bad rows of the zone's parts, by role.
    pub bad_rows: Vec<RowSet>,
    /// True if the zone's end is recorded: the zone takes no more writes, and all data below its end is durable.
    pub has_recorded_end: bool,
    pub rules: Rules,
}

/// The zone after the resync.
pub(crate) struct Resynced {
    /// The parities of the stripe at the pointer, if the zone is open.
    pub parity: RunningParity,
    /// Relocated parity.
    pub relocated: RelocatedParities,
    /// Stale rows of the zone, and their relocated content.
    pub stale: StaleRows,
    /// The states of the zone's parts, by role.
    pub parts: Vec<PartState>,
    /// Bad rows of the zone's parts, by role.
    pub bad_rows: Vec<RowSet>,
    /// The final verdict: a zone is open only if the parity of its last stripe is known.
    pub verdict: Verdict,
    /// Where the zone may end because of a torn stripe; `None` if the zone has none, or takes writes, or its end is recorded.
    pub torn: Option<TornEnd>,
}

impl Resync {
    pub(crate) async fn run(
        mut self,
        decision: &Decision,
        mut verdict: Verdict,
    ) -> Result<Resynced, MountError> {
        let (layout, pointer) = (self.layout, decision.pointer);
        let mut running = RunningParity::new(&layout);
        let last = layout.stripe_of(pointer);
        let uncertain_parity = self.stale.uncertain_parity(&layout, &self.relocated);
        let mut stripes: BTreeSet<Stripe> = uncertain_parity.into_iter().map(|(stripe, _)| stripe).collect();
        // Stripes with bad parity are resynced too, because this mount may be able to read all their data.
        stripes.extend(self.stripes_with_bad_parity());
        stripes.retain(|stripe| layout.end(*stripe) <= pointer);
        stripes.extend((decision.from.0..=last.0).map(Stripe));
        self.forget_parity_above_pointer(decision);
        let mut torn = None;
        for stripe in stripes {
            if layout.start(stripe) >= pointer {
                break;
            }
            let (units, unknown) = self.read_units(stripe, pointer).await?;
            if !unknown.is_empty() {
                let rows = unknown.len();
                tracing::error!(
                    zone = self.zone.0,
                    stripe = stripe.0,
                    rows,
                    "too many drives lack these rows: their content is lost"
                );
            }
            let is_whole = layout.end(stripe) <= pointer;
            if !is_whole && verdict.is_open() && !unknown.is_empty() {
                verdict = Verdict::Full;
            }
            for parity in layout.parities() {
                let mut sum = self.parity_of(parity, stripe, &units);
                let role = layout.parity(stripe, parity);
                let rows = layout.row(stripe)..layout.row(stripe) + layout.unit_of(stripe);
                let was_bad = self.is_bad(role, rows.clone());
                if self.device(role).is_some()
                    && let Some(bad) = self.bad_rows.get_mut(role.index())
                {
                    // Parity rows whose value is known are not bad: they are written or relocated below.
                    bad.remove(&rows);
                }
                if is_whole {
                    // Bad parity matches no data, and does not make a stripe torn.
                    let may_be_filled = self.may_be_filled(decision, stripe);
                    let is_torn =
                        self.resync_whole_stripe((stripe, parity), sum, &unknown, may_be_filled).await?;
                    if is_torn && !was_bad && torn.is_none() {
                        torn = Some(stripe);
                    }
                    self.add_bad_parity((stripe, parity), &unknown);
                } else if verdict.is_open() {
                    self.resync_partial_stripe((stripe, parity), &sum, pointer).await?;
                    sum.truncate(self.bytes(layout.filled(stripe, 0, pointer)));
                    running.set(parity, sum);
                } else if self.device(role).is_some()
                    && !self.has_last_parity_in_place((stripe, parity), &sum, &unknown, pointer).await?
                {
                    let unit = RelocatedParity { end: pointer, unit: sum.freeze() };
                    self.relocated.insert((stripe, parity), unit);
                    self.add_bad_parity((stripe, parity), &unknown);
                }
            }
        }
        // A recorded end was recorded when all blocks below were durable, so that no stripe below is torn.
        let torn = torn.filter(|_| !verdict.is_open() && decision.verdict != Verdict::Known);
        let torn = match torn {
            Some(stripe) => Some(self.torn_end(stripe, pointer).await?),
            None => None,
        };
        if decision.verdict != Verdict::Known {
            self.relocated.retain(|_, parity| parity.end <= pointer);
        }
        if verdict.is_open() {
            // The parity of the stripe at the pointer stays in memory, because it still changes.
            self.relocated.retain(|(stripe, _), _| layout.end(*stripe) <= pointer);
        }
        let Resync { relocated, stale, parts, bad_rows, .. } = self;
        Ok(Resynced { parity: running, relocated, stale, parts, bad_rows, verdict, torn })
    }

    /// Where the zone, whose content ends at `pointer`, may end because of the torn stripe `torn`.
    async fn torn_end(&self, torn: Stripe, pointer: Blocks) -> Result<TornEnd, MountError> {
        let layout = &self.layout;
        let mut end = layout.end(torn);
        if let Some(ends) = &self.ends_of_writes {
            // The logs know the ends of all writes that may not be durable: below the first known end all blocks are durable.
            let known = ends.range(..=end).next_back().or(ends.first()).copied();
            end = known.unwrap_or(end).min(pointer);
        }
        let (last, mut parities) = (layout.stripe_of(end), RelocatedParities::new());
        if end > layout.start(last) {
            let (units, _) = self.read_units(last, end).await?;
            for parity in layout.parities().filter(|of| self.device(layout.parity(last, *of)).is_some()) {
                let unit = self.parity_of(parity, last, &units).freeze();
                parities.insert((last, parity), RelocatedParity { end, unit });
            }
        }
        Ok(TornEnd { end, parities })
    }

    /// A parity of the data units of a stripe.
    fn parity_of(&self, parity: Parity, stripe: Stripe, units: &[BufMut]) -> BufMut {
        let mut sum = BufMut::zeroed(self.bytes(self.layout.unit_of(stripe)));
        for unit in units {
            add_to(parity, sum.get_mut(..unit.len()).unwrap_or_default(), unit);
        }
        sum
    }

    /// The stripes of the zone with bad parity rows.
    fn stripes_with_bad_parity(&self) -> BTreeSet<Stripe> {
        let layout = self.layout;
        let of = |(role, bad): (Role, &RowSet)| {
            let ours = |stripe: &Stripe| layout.parity_on(*stripe, role).is_some();
            bad.stripes(layout.unit).filter(ours).collect::<Vec<_>>()
        };
        (0..).map(Role).zip(&self.bad_rows).flat_map(of).collect()
    }

    /// Marks a parity of unknown rows as bad.
    fn add_bad_parity(&mut self, (stripe, parity): (Stripe, Parity), unknown: &BTreeSet<u64>) {
        let (role, first) = (self.layout.parity(stripe, parity), self.layout.row(stripe));
        if self.device(role).is_some()
            && let Some(bad) = self.bad_rows.get_mut(role.index())
        {
            unknown.iter().for_each(|row| bad.insert(first + row..first + row + 1));
        }
    }

    /// Forgets relocated parity of stripes that end above the pointer: these stripes never became whole, and
    /// new writes do not match their old parity. Above a recorded end there are zeros only.
    fn forget_parity_above_pointer(&mut self, decision: &Decision) {
        if decision.verdict != Verdict::Known {
            self.relocated.retain(|_, parity| parity.end <= self.first_missing);
        }
    }

    fn bytes(&self, blocks: u64) -> usize {
        usize::try_from(blocks * u64::from(self.block_size)).expect("fits memory")
    }

    /// The place of a part.
    fn place(&self, role: Role) -> Place {
        self.places.get(role.index()).copied().unwrap_or_default()
    }

    /// The drive of a part.
    fn slot(&self, role: Role) -> Slot {
        self.place(role).slot
    }

    fn device(&self, role: Role) -> Option<&MemberDrive> {
        let lost = self.parts.get(role.index()) == Some(&PartState::Missing);
        self.devices.get(role.index())?.as_ref().filter(|_| !lost)
    }

    /// Reads rows of a part.
    async fn read(&self, role: Role, row: u64, count: u64) -> Result<BufMut> {
        if count == 0 {
            return Ok(BufMut::default());
        }
        self.submit_read(role, row, count)?.await
    }

    /// Submits a read of rows of a part.
    fn submit_read(&self, role: Role, row: u64, count: u64) -> Result<Io<BufMut>> {
        let Some(device) = self.device(role) else {
            let name: Arc<str> = Arc::from("array");
            let error = Error::new(ErrorKind::Gone, &name, "open").in_zone(self.zone);
            return Err(error.because(format!(
                "the content of drive {} is needed, and the drive is missing",
                self.slot(role).0
            )));
        };
        let part = PhysicalZone::with_part(&**device, self.place(role));
        if self.is_bad(role, row..row + count) {
            return Err(bad_rows::error(device, part.address(row)));
        }
        Ok(part.read(row, BufMut::zeroed(self.bytes(count))))
    }

    fn is_bad(&self, role: Role, rows: Range<u64>) -> bool {
        self.bad_rows.get(role.index()).is_some_and(|bad| bad.intersects(&rows))
    }

    /// Reads rows of a part; empty if the rows are unreadable.
    async fn readable_rows(&self, role: Role, row: u64, count: u64) -> Result<BufMut, MountError> {
        match self.read(role, row, count).await {
            Err(e) if e.kind() == ErrorKind::Media => Ok(BufMut::default()),
            found => found.of(self.slot(role)),
        }
    }

    /// Reads the first `count` blocks of a stripe in one part: see [`readable_blocks`](Resync::readable_blocks).
    async fn read_blocks(
        &self,
        role: Role,
        stripe: Stripe,
        count: u64,
    ) -> Result<(BufMut, Vec<u64>), MountError> {
        let read = match self.device(role) {
            Some(_) => Some(self.read(role, self.layout.row(stripe), count).await),
            None => None,
        };
        self.readable_blocks(role, stripe, count, read).await
    }

    /// The first `count` blocks of a stripe in one part, and the rows that are missing or unreadable.
    /// Missing and unreadable rows are zeros in the result. `read`: the outcome of a read of all these blocks; `None` if the drive is
    /// missing.
    async fn readable_blocks(
        &self,
        role: Role,
        stripe: Stripe,
        count: u64,
        read: Option<Result<BufMut>>,
    ) -> Result<(BufMut, Vec<u64>), MountError> {
        let (row, size) = (self.layout.row(stripe), self.bytes(1));
        let mut blocks = BufMut::zeroed(self.bytes(count));
        let Some(read) = read else { return Ok((blocks, (0..count).collect())) };
        match read {
            Ok(mut blocks) => {
                self.stale.overlay(size, role, row, count).apply(&mut blocks);
                return Ok((blocks, Vec::new()));
            }
            Err(e) if e.kind() != ErrorKind::Media => return Err(e).of(self.slot(role)),
            Err(e) => {
                tracing::warn!(zone = self.zone.0, stripe = stripe.0, error = %e, "a unit is unreadable")
            }
        }
        let mut lacking = Vec::new();
        for (place, at) in blocks.chunks_mut(size).zip(0..) {
            if let Some(held) = self.stale.overlay_if_all_relocated(size, role, row + at, 1) {
                held.apply(place);
                continue;
            }
            match self.read(role, row + at, 1).await {
                Ok(block) => place.copy_from_slice(&block),
                Err(e) if e.kind() != ErrorKind::Media => return Err(e).of(self.slot(role)),
                Err(_) => lacking.push(at),
            }
        }
        Ok((blocks, lacking))
    }

    /// The data units of a stripe below the pointer, and the rows that two drives lack, which are zeros.
    pub(crate) async fn read_units(
        &self,
        stripe: Stripe,
        pointer: Blocks,
    ) -> Result<(Vec<BufMut>, BTreeSet<u64>), MountError> {
        let (mut units, unknown) = self.read_present_units(stripe, pointer.max(self.first_missing)).await?;
        for (unit, index) in units.iter_mut().zip(0..) {
            unit.truncate(self.bytes(self.layout.filled(stripe, index, pointer)));
        }
        Ok((units, unknown))
    }

    /// Reads the first blocks of units of a stripe from all their drives at once; `None` for a drive that is missing. `reads`: number,
    /// part and blocks of each unit.
    async fn read_all(&self, stripe: Stripe, reads: &[(u64, Role, u64)]) -> Vec<Option<Result<BufMut>>> {
        let row = self.layout.row(stripe);
        let submit = |(_, role, count): &(u64, Role, u64)| {
            self.device(*role).map(|_| self.submit_read(*role, row, *count))
        };
        let submitted: Vec<Option<Result<Io<BufMut>>>> = reads.iter().map(submit).collect();
        let mut read = Vec::with_capacity(submitted.len());
        for io in submitted {
            read.push(match io {
                Some(Ok(io)) => Some(io.await),
                Some(Err(error)) => Some(Err(error)),
                None => None,
            });
        }
        read
    }

    /// The data units of a stripe below `pointer`, at or below which all blocks are there.
    async fn read_present_units(
        &self,
        stripe: Stripe,
        pointer: Blocks,
    ) -> Result<(Vec<BufMut>, BTreeSet<u64>), MountError> {
        let layout = &self.layout;
        let (mut units, mut lacking) = (Vec::new(), Vec::new());
        let mut reads = Vec::new();
        for index in 0..layout.data_units() {
            let role = layout.data(stripe, index);
            let count = layout.filled(stripe, index, pointer);
            let mut unit = BufMut::zeroed(self.bytes(count));
            let held = self.stale.overlay_if_all_relocated(self.bytes(1), role, layout.row(stripe), count);
            match held {
                Some(held) => held.apply(&mut unit),
                None if count > 0 => reads.push((index, role, count)),
                None => {}
            }
            units.push(unit);
        }
        for ((index, role, count), read) in reads.iter().zip(self.read_all(stripe, &reads).await) {
            let (unit, rows) = self.readable_blocks(*role, stripe, *count, read).await?;
            lacking.extend(rows.into_iter().map(|row| (row, *index)));
            if let Some(place) = units.get_mut(usize::try_from(*index).expect("a small number")) {
                *place = unit;
            }
        }
        let mut by_row: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (row, index) in lacking {
            by_row.entry(row).or_default().push(index);
        }
        let (mut unknown, mut in_place) = (BTreeSet::new(), BTreeMap::new());
        for (row, lacking) in by_row {
            if lacking.len() > layout.parities as usize {
                unknown.insert(row);
                continue;
            }
            let mut blocks = Vec::new();
            for index in &lacking {
                let lacking = (*index, lacking.as_slice());
                blocks.push(self.reconstruct(stripe, row, lacking, pointer, &units, &mut in_place).await?);
            }
            for (index, block) in lacking.iter().zip(blocks) {
                let unit = units.get_mut(usize::try_from(*index).expect("a small number"));
                let place = unit.and_then(|unit| unit.get_mut(self.bytes(row)..self.bytes(row + 1)));
                match block.zip(place) {
                    Some((block, place)) => place.copy_from_slice(&block),
                    None => drop(unknown.insert(row)),
                }
            }
        }
        Ok((units, unknown))
    }

    /// Reconstructs a block of unit `index` that its drive lacks, as the drives of the units `lacking` do; `None` if the parities
    /// cannot be read either. `units`: all data units of the stripe; the lacking blocks are not read from them. `in_place`: caches the
    /// parities that are read from their places.
    async fn reconstruct(
        &self,
        stripe: Stripe,
        row: u64,
        (index, lacking): (u64, &[u64]),
        pointer: Blocks,
        units: &[BufMut],
        in_place: &mut BTreeMap<Parity, (Buf, Vec<u64>)>,
    ) -> Result<Option<BufMut>, MountError> {
        let layout = &self.layout;
        let (mut known, mut ends) = (BTreeMap::new(), [None; 2]);
        // A parity with a record that was written for the block comes before a parity in its place. Parity in its place covers later
        // writes too, and the data of later writes may be lost. The second parity is read only if the first one is not enough.
        let at = layout.unit_start(stripe, index).plus(Blocks(row));
        let partials = self.partials.get(&stripe).map_or(&[][..], Vec::as_slice);
        let record_end = |parity| best_partial_for(partials, parity, at, pointer).map(|partial| partial.end);
        let mut parities: Vec<(Parity, usize)> = layout.parities().zip(0..).collect();
        parities.sort_by_key(|(parity, _)| record_end(*parity).unwrap_or(layout.capacity()));
        for (parity, end) in parities {
            if let Some((content, below)) =
                self.parity_row((stripe, parity), row, (index, lacking), pointer, in_place).await?
                && let Some(end) = ends.get_mut(end)
            {
                *end = Some(below);
                known.insert(parity, content);
            }
            let equations = Equations { layout, stripe, limit: pointer, ends, lacking };
            let terms = equations.terms(row..row + 1, Unit::Data(index));
            let Some(terms) = terms.filter(|_| !known.is_empty()) else { continue };
            let place = self.bytes(row)..self.bytes(row + 1);
            let mut block = BufMut::zeroed(self.bytes(1));
            for term in terms {
                let content = match term.unit {
                    Unit::Parity(parity) => known.get(&parity).map(|content: &Buf| &**content),
                    Unit::Data(index) => {
                        let unit = units.get(usize::try_from(index).expect("a small number"));
                        unit.and_then(|unit| unit.get(place.clone()))
                    }
                };
                add_products(&mut block, &[(term.factor, content.unwrap_or_default())]);
            }
            return Ok(Some(block));
        }
        Ok(None)
    }

    /// The known value of a row of a parity from which the block of unit `index` may follow together with the other parity, and the end
    /// of the data that the value covers. `lacking`: the units whose drives lack the row.
    async fn parity_row(
        &self,
        (stripe, parity): (Stripe, Parity),
        row: u64,
        (index, lacking): (u64, &[u64]),
        pointer: Blocks,
        in_place: &mut BTreeMap<Parity, (Buf, Vec<u64>)>,
    ) -> Result<Option<(Buf, Blocks)>, MountError> {
        let layout = &self.layout;
        let role = layout.parity(stripe, parity);
        let partials = self.partials.get(&stripe).map_or(&[][..], Vec::as_slice);
        let place = self.bytes(row)..self.bytes(row + 1);
        let block = |index| layout.unit_start(stripe, index).plus(Blocks(row));
        if let Some(partial) = best_partial_for(partials, parity, block(index), pointer) {
            return Ok(Some((self.partial_parity_row(stripe, partial, row).of_array()?, partial.end)));
        }
        let mut in_its_place = None;
        if !self.is_bad(role, layout.row(stripe) + row..layout.row(stripe) + row + 1) {
            // The relocated parity was written for a whole stripe, or by a mount, so that no partial parity exists.
            match self.relocated.get(&(stripe, parity)) {
                Some(relocated) if block(index) < relocated.end => {
                    return Ok(Some((relocated.unit.slice(place), relocated.end)));
                }
                Some(_) => {}
                None => {
                    let content = self.parity_row_in_place((stripe, parity), row, pointer, in_place).await?;
                    in_its_place = content.map(|content| (content, layout.end(stripe)));
                }
            }
        }
        let last = layout.data_units() - 1;
        if in_its_place.is_some() && (index == last || block(last) < pointer) {
            return Ok(in_its_place);
        }
        let others = lacking.iter().map(|of| block(*of));
        match best_partial_for_others(partials, parity, others, pointer) {
            Some(partial) => {
                Ok(Some((self.partial_parity_row(stripe, partial, row).of_array()?, partial.end)))
            }
            // Rows that a full physical zone has above the content's end: they are zeros.
            None => Ok(in_its_place),
        }
    }

    /// A row of a parity of the whole stripe, read from its place; `None` if the row is not there.
    async fn parity_row_in_place(
        &self,
        (stripe, parity): (Stripe, Parity),
        row: u64,
        pointer: Blocks,
        in_place: &mut BTreeMap<Parity, (Buf, Vec<u64>)>,
    ) -> Result<Option<Buf>, MountError> {
        let (layout, role) = (&self.layout, self.layout.parity(stripe, parity));
        if let Entry::Vacant(unread) = in_place.entry(parity) {
            let written = match self.parts.get(role.index()) {
                Some(PartState::Written(row)) => row.saturating_sub(layout.row(stripe)),
                _ => u64::MAX,
            };
            let rows = layout.unit_of(stripe).min(written);
            let (mut content, lacking) = self.read_blocks(role, stripe, rows).await?;
            if self.has_recorded_end && layout.end(stripe) > pointer {
                // An earlier mount found this parity in its place, in a full physical zone. The zone became
                // read-only since, and its pointer does not count the rows that its finish filled with zeros.
                content.resize(self.bytes(layout.unit_of(stripe)), 0);
            }
            unread.insert((content.freeze(), lacking));
        }
        let place = self.bytes(row)..self.bytes(row + 1);
        Ok(match in_place.get(&parity) {
            Some((content, lacking)) if !lacking.contains(&row) && place.end <= content.len() => {
                Some(content.slice(place))
            }
            _ => None,
        })
    }

    /// One parity row of a record of partial parity.
    fn partial_parity_row(&self, stripe: Stripe, partial: &Partial, row: u64) -> Result<Buf> {
        let mut before = 0;
        for range in self.layout.rows(stripe, partial.start, partial.end) {
            if range.contains(&row) {
                let at = self.bytes(before + row - range.start);
                let to = at + self.bytes(1);
                if to <= partial.rows.len() {
                    return Ok(partial.rows.slice(at..to));
                }
            }
            before += range.end - range.start;
        }
        let name: Arc<str> = Arc::from("array");
        let error = Error::new(ErrorKind::Damaged, &name, "open").in_zone(self.zone);
        Err(error.because("a record of partial parity is shorter than what it covers"))
    }

    /// Writes rows at the drive's own pointer in the zone. False if the physical zone wore out.
    async fn write_at_pointer(&mut self, role: Role, row: u64, rows: Buf) -> Result<bool, MountError> {
        let Some(device) = self.device(role).filter(|_| !rows.is_empty()) else { return Ok(true) };
        let end = row + (rows.len() / self.bytes(1)) as u64;
        match PhysicalZone::with_part(&**device, self.place(role)).write(row, rows, Durability::Cached).await
        {
            Ok(()) => {
                if let Some(PartState::Written(at)) = self.parts.get_mut(role.index()) {
                    *at = end;
                }
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline) => Ok(false),
            Err(e) => Err(e).of(self.slot(role)),
        }
    }

    /// Makes the final rows of a parity of a stripe that is not whole match the stripe's data.
    async fn resync_partial_stripe(
        &mut self,
        (stripe, parity): (Stripe, Parity),
        sum: &BufMut,
        pointer: Blocks,
    ) -> Result<(), MountError> {
        let layout = self.layout;
        let role = layout.parity(stripe, parity);
        let (first, unit) = (layout.row(stripe), layout.unit_of(stripe));
        let needed = layout.final_parity(stripe, pointer);
        let Some(PartState::Written(written)) = self.parts.get(role.index()).copied() else { return Ok(()) };
        if needed == 0 || self.device(role).is_none() {
            return Ok(());
        }
        if self.stale.has_stale(role, &(first..first + unit)) {
            // The whole unit is relocated when the stripe becomes whole, and rows above the stale ones are written then. Of such a
            // write that a power cut tore, the rows that landed cannot be written again.
            self.stale.add(role, first..written.min(first + unit));
            return Ok(());
        }
        let there = written.saturating_sub(first).min(needed);
        let found = self.readable_rows(role, first, there).await?;
        let mut fits = found.len() == self.bytes(there) && sum.get(..found.len()) == Some(&*found);
        fits |= !self.rules.resyncs();
        let rest = sum.get(self.bytes(there)..self.bytes(needed)).unwrap_or_default();
        // If the physical zone wore out, the parity rows are relocated later.
        if !(self.write_at_pointer(role, first + there, Buf::copy_from(rest)).await? && fits) {
            self.stale.add(role, first..written.max(first + needed));
        }
        Ok(())
    }

    /// True if a parity of the last stripe of a zone that takes no more writes is in its place, so that the log does not hold it:
    /// the logs have no room for a unit of each zone that was ever finished inside a stripe. Rows above the zone's end have no data
    /// and need no parity. `sum`: the parity of the data below `pointer`; in its place zeros count as the data above.
    async fn has_last_parity_in_place(
        &mut self,
        (stripe, parity): (Stripe, Parity),
        sum: &[u8],
        unknown: &BTreeSet<u64>,
        pointer: Blocks,
    ) -> Result<bool, MountError> {
        let role = self.layout.parity(stripe, parity);
        let first = self.layout.row(stripe);
        let end = self.layout.used_by_full_zone(role, pointer);
        let is_written = match self.parts.get(role.index()) {
            Some(PartState::Written(row)) => *row >= end,
            part => part == Some(&PartState::Full),
        };
        if !is_written || !unknown.is_empty() {
            return Ok(false);
        }
        let found = self.readable_rows(role, first, end - first).await?;
        let mut whole = sum.get(..self.bytes(end - first)).unwrap_or_default().to_vec();
        extend_to_whole_stripe(&self.layout, (stripe, parity), pointer, self.bytes(1), &mut whole);
        if *whole != *found {
            return Ok(false);
        }
        self.relocated.remove(&(stripe, parity));
        self.stale.remove(role, &(first..end));
        Ok(true)
    }

    /// True if the last blocks of a stripe at the zone's end may be what a drive filled its part with as it lost power. The zone is full
    /// then, which nothing but that part says until the mount's checkpoints are complete. The stripe may be the last one of the zone.
    fn may_be_filled(&self, decision: &Decision, stripe: Stripe) -> bool {
        decision.verdict == Verdict::Full
            && self.layout.end(stripe) == decision.pointer
            && self.parts.contains(&PartState::Full)
    }

    /// Makes a parity of a whole stripe match the data, apart from unknown rows. True if the stripe is torn: its parity was
    /// written for other data, or was never written and has no place any more.
    ///
    /// `may_be_filled`: the stripe may not be whole. Parity that is not in its place is relocated then: in its place it would make the
    /// stripe a whole one if the mount is interrupted and the drive that filled its part is lost.
    async fn resync_whole_stripe(
        &mut self,
        (stripe, parity): (Stripe, Parity),
        mut sum: BufMut,
        unknown: &BTreeSet<u64>,
        may_be_filled: bool,
    ) -> Result<bool, MountError> {
        let layout = self.layout;
        let role = layout.parity(stripe, parity);
        if self.device(role).is_none() {
            self.relocated.remove(&(stripe, parity));
            return Ok(false);
        }
        if !self.rules.resyncs() {
            return Ok(false);
        }
        let (row, unit) = (layout.row(stripe), layout.unit_of(stripe));
        let there = match self.parts.get(role.index()) {
            Some(PartState::Written(at)) => at.saturating_sub(row).min(unit),
            _ => unit,
        };
        let found = self.readable_rows(role, row, there).await?;
        for place in unknown.iter().map(|row| self.bytes(*row)..self.bytes(row + 1)) {
            // The parity of an unknown row has no right value, so that the old one stays.
            if let Some((place, found)) = sum.get_mut(place.clone()).zip(found.get(place)) {
                place.copy_from_slice(found);
            }
        }
        let sum = sum.freeze();
        let fits = found.len() == self.bytes(there) && sum.get(..found.len()) == Some(&*found);
        let end = layout.end(stripe);
        if may_be_filled && there < unit {
            if fits {
                self.relocated.insert((stripe, parity), RelocatedParity { end, unit: sum });
                return Ok(false);
            }
        } else if self.write_at_pointer(role, row + there, sum.slice(self.bytes(there)..)).await? && fits {
            self.relocated.remove(&(stripe, parity));
            self.stale.remove(role, &(row..row + unit));
            return Ok(false);
        }
        // Other parity is in the place, or the physical zone wore out: the parity is relocated.
        let readable = found.len() == self.bytes(there);
        let relocated = self.relocated.get(&(stripe, parity));
        let logged = relocated.is_some_and(|known| known.end == end && known.unit == sum);
        self.relocated.insert((stripe, parity), RelocatedParity { end, unit: sum });
        Ok(readable && !logged && unknown.is_empty())
    }
}
