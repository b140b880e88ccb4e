//! Resync: makes the parity of a zone match its data at a mount.
//!
//! Data on the drives below the pointer stays as it is. The parity of stripes that may have been in flight is
//! computed anew and compared. Blocks of a missing drive are reconstructed first, each from the record of partial
//! parity that was written for the block: the data of later writes may be garbage. Stale rows are read from their
//! relocated content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Durability, Error, ErrorKind, Result, ZoneId};

use crate::degraded::equation::{Equation, Term};
use crate::layout::placement::Placement;
use crate::layout::row_set::RowSet;
use crate::layout::xor::xor;
use crate::layout::{Layout, Role, Slot, Stripe};
use crate::member::bad_rows;
use crate::member::log_contents::Partial;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::mount::decide::{Decision, PartState, Verdict, best_partial_for};
use crate::mount::errors::{FromDrive, MountError};
use crate::rules::Rules;
use crate::zone::stale_rows::RelocatedParity;
use crate::zone::stale_rows::StaleRows;

/// The resync of one zone, with everything that drives and logs say of the zone.
pub(crate) struct Resync {
    pub layout: Layout,
    pub placement: Placement,
    pub block_size: u32,
    pub zone: ZoneId,
    /// The drives of the zone's parts, by role; `None` if the drive is missing.
    pub devices: Vec<Option<MemberDrive>>,
    /// The states of the zone's parts, by role.
    pub parts: Vec<PartState>,
    /// Relocated parity.
    pub relocated: BTreeMap<Stripe, RelocatedParity>,
    /// Stale rows of the zone, and their relocated content.
    pub stale: StaleRows,
    /// Partial parity that the logs hold of the zone, by stripe.
    pub partials: BTreeMap<Stripe, Vec<Partial>>,
    /// Bad rows of the zone's parts, by role.
    pub bad_rows: Vec<RowSet>,
    pub rules: Rules,
}

/// The zone after the resync.
pub(crate) struct Resynced {
    /// The parity of the stripe at the pointer, if the zone is open.
    pub parity: BufMut,
    /// Relocated parity.
    pub relocated: BTreeMap<Stripe, RelocatedParity>,
    /// Stale rows of the zone, and their relocated content.
    pub stale: StaleRows,
    /// The states of the zone's parts, by role.
    pub parts: Vec<PartState>,
    /// Bad rows of the zone's parts, by role.
    pub bad_rows: Vec<RowSet>,
    /// The final verdict: a zone is open only if the parity of its last stripe is known.
    pub verdict: Verdict,
    /// The first whole stripe whose parity was not written for its data: see [`Zone::torn`](crate::zone::Zone::torn).
    pub torn: Option<Stripe>,
}

impl Resync {
    pub(crate) async fn run(
        mut self,
        decision: &Decision,
        mut verdict: Verdict,
    ) -> Result<Resynced, MountError> {
        let (layout, pointer) = (self.layout, decision.pointer);
        let mut parity = BufMut::default();
        let last = layout.stripe_of(pointer);
        let mut stripes = self.stale.stale_parity(&layout, &self.relocated);
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
            let mut sum = BufMut::zeroed(self.bytes(layout.unit_of(stripe)));
            units.iter().for_each(|unit| xor(&mut sum, unit));
            let role = layout.parity(stripe);
            if !unknown.is_empty() {
                let rows = unknown.len();
                tracing::error!(
                    zone = self.zone.0,
                    stripe = stripe.0,
                    rows,
                    "two drives lack these rows: their content is lost"
                );
            }
            let rows = layout.row(stripe)..layout.row(stripe) + layout.unit_of(stripe);
            let was_bad = self.is_bad(role, rows.clone());
            if self.device(role).is_some()
                && let Some(bad) = self.bad_rows.get_mut(role.index())
            {
                // Parity rows whose value is known are not bad: they are written or relocated below.
                bad.remove(&rows);
            }
            if layout.end(stripe) <= pointer {
                // Bad parity matches no data, and does not make a stripe torn.
                if self.resync_whole_stripe(stripe, sum, &unknown).await? && !was_bad && torn.is_none() {
                    torn = Some(stripe);
                }
                self.add_bad_parity(stripe, &unknown);
                continue;
            }
            if verdict.is_open() {
                if unknown.is_empty() {
                    self.resync_partial_stripe(stripe, &sum, pointer).await?;
                    sum.truncate(self.bytes(layout.filled(stripe, 0, pointer)));
                    parity = sum;
                    continue;
                }
                verdict = Verdict::Full;
            }
            if self.device(role).is_some() {
                // The parity is relocated even if the same rows are in place: the pointer of a zone that
                // becomes read-only does not show which rows are.
                self.relocated.insert(stripe, RelocatedParity { end: pointer, unit: sum.freeze() });
                self.add_bad_parity(stripe, &unknown);
            }
        }
        if verdict.is_open() {
            // The parity of the stripe at the pointer stays in memory, because it still changes.
            self.relocated.retain(|stripe, _| layout.end(*stripe) <= pointer);
        }
        let Resync { relocated, stale, parts, bad_rows, .. } = self;
        Ok(Resynced { parity, relocated, stale, parts, bad_rows, verdict, torn })
    }

    /// The stripes of the zone with bad parity rows.
    fn stripes_with_bad_parity(&self) -> BTreeSet<Stripe> {
        let layout = self.layout;
        let of = |(role, bad): (Role, &RowSet)| {
            let ours = |stripe: &Stripe| layout.parity(*stripe) == role;
            bad.stripes(layout.unit).filter(ours).collect::<Vec<_>>()
        };
        (0..).map(Role).zip(&self.bad_rows).flat_map(of).collect()
    }

    /// Marks the parity of unknown rows as bad.
    fn add_bad_parity(&mut self, stripe: Stripe, unknown: &BTreeSet<u64>) {
        let (role, first) = (self.layout.parity(stripe), self.layout.row(stripe));
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
            self.relocated.retain(|_, parity| parity.end <= decision.pointer);
        }
    }

    fn bytes(&self, blocks: u64) -> usize {
        usize::try_from(blocks * u64::from(self.block_size)).expect("fits memory")
    }

    /// The drive of a part.
    fn slot(&self, role: Role) -> Slot {
        self.placement.slot(self.zone, role)
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
        let Some(device) = self.device(role) else {
            let name: Arc<str> = Arc::from("array");
            let error = Error::new(ErrorKind::Gone, &name, "open").in_zone(self.zone);
            return Err(error.because(format!(
                "the content of drive {} is needed, and the drive is missing",
                self.slot(role).0
            )));
        };
        let part = PhysicalZone::part(&**device, self.zone);
        if self.is_bad(role, row..row + count) {
            return Err(bad_rows::error(device, part.address(row)));
        }
        part.read(row, BufMut::zeroed(self.bytes(count))).await
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

    /// The first `count` blocks of a stripe in one part, and the rows that are missing or unreadable.
    /// Missing and unreadable rows are zeros in the result.
    async fn read_blocks(
        &self,
        role: Role,
        stripe: Stripe,
        count: u64,
    ) -> Result<(BufMut, Vec<u64>), MountError> {
        let (row, size) = (self.layout.row(stripe), self.bytes(1));
        let mut blocks = BufMut::zeroed(self.bytes(count));
        if self.device(role).is_none() {
            return Ok((blocks, (0..count).collect()));
        }
        match self.read(role, row, count).await {
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
    async fn read_units(
        &self,
        stripe: Stripe,
        pointer: Blocks,
    ) -> Result<(Vec<BufMut>, BTreeSet<u64>), MountError> {
        let layout = &self.layout;
        let (mut units, mut lacking) = (Vec::new(), Vec::new());
        for index in 0..layout.data_units() {
            let role = layout.data(stripe, index);
            let count = layout.filled(stripe, index, pointer);
            if let Some(held) =
                self.stale.overlay_if_all_relocated(self.bytes(1), role, layout.row(stripe), count)
            {
                let mut unit = BufMut::zeroed(self.bytes(count));
                held.apply(&mut unit);
                units.push(unit);
            } else if count > 0 {
                let (unit, rows) = self.read_blocks(role, stripe, count).await?;
                lacking.extend(rows.into_iter().map(|row| (row, index)));
                units.push(unit);
            } else {
                units.push(BufMut::default());
            }
        }
        lacking.sort_unstable();
        let (mut unknown, mut in_place) = (BTreeSet::new(), None);
        for (n, (row, index)) in lacking.iter().enumerate() {
            let twice =
                |n: Option<usize>| n.and_then(|n| lacking.get(n)).is_some_and(|(other, _)| other == row);
            let block = match twice(n.checked_sub(1)) || twice(n.checked_add(1)) {
                true => None,
                false => self.reconstruct(stripe, *index, *row, pointer, &units, &mut in_place).await?,
            };
            let unit = units.get_mut(usize::try_from(*index).expect("a small number"));
            let place = unit.and_then(|unit| unit.get_mut(self.bytes(*row)..self.bytes(row + 1)));
            match block.zip(place) {
                Some((block, place)) => place.copy_from_slice(&block),
                None => drop(unknown.insert(*row)),
            }
        }
        Ok((units, unknown))
    }

    /// Reconstructs a block that its drive lacks; `None` if the parity cannot be read either. `units`: all
    /// data units of the stripe; the block to reconstruct is not read from them. `in_place`: caches the
    /// parity that is read from its place.
    async fn reconstruct(
        &self,
        stripe: Stripe,
        index: u64,
        row: u64,
        pointer: Blocks,
        units: &[BufMut],
        in_place: &mut Option<(Buf, Vec<u64>)>,
    ) -> Result<Option<BufMut>, MountError> {
        let layout = &self.layout;
        let role = layout.parity(stripe);
        let partials = self.partials.get(&stripe).map_or(&[][..], Vec::as_slice);
        let at = layout.unit_start(stripe, index).plus(Blocks(row));
        let place = self.bytes(row)..self.bytes(row + 1);
        let (source, limit) = match (self.relocated.get(&stripe), best_partial_for(partials, at, pointer)) {
            (_, Some(partial)) => (self.partial_parity_row(stripe, partial, row).of_array()?, partial.end),
            _ if self.is_bad(role, layout.row(stripe) + row..layout.row(stripe) + row + 1) => {
                return Ok(None);
            }
            // The relocated parity was written for a whole stripe, or by a mount, so that no partial parity
            // exists.
            (Some(relocated), None) => (relocated.unit.slice(place.clone()), relocated.end),
            (None, None) => {
                if in_place.is_none() {
                    let written = match self.parts.get(role.index()) {
                        Some(PartState::Written(row)) => row.saturating_sub(layout.row(stripe)),
                        _ => u64::MAX,
                    };
                    let rows = layout.unit_of(stripe).min(written);
                    let (parity, lacking) = self.read_blocks(role, stripe, rows).await?;
                    *in_place = Some((parity.freeze(), lacking));
                }
                match in_place {
                    Some((parity, lacking)) if !lacking.contains(&row) && place.end <= parity.len() => {
                        (parity.slice(place.clone()), layout.end(stripe))
                    }
                    _ => return Ok(None),
                }
            }
        };
        let mut block = BufMut::zeroed(self.bytes(1));
        xor(&mut block, &source);
        let equation = Equation { stripe, rows: row..row + 1, end: limit };
        for Term { index, .. } in equation.terms(layout, Some(index)) {
            let unit = units.get(usize::try_from(index).expect("a small number"));
            xor(&mut block, unit.and_then(|unit| unit.get(place.clone())).unwrap_or_default());
        }
        Ok(Some(block))
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
        match PhysicalZone::part(&**device, self.zone).write(row, rows, Durability::Cached).await {
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

    /// Makes the final parity rows of a stripe that is not whole match the stripe's data.
    async fn resync_partial_stripe(
        &mut self,
        stripe: Stripe,
        sum: &BufMut,
        pointer: Blocks,
    ) -> Result<(), MountError> {
        let layout = self.layout;
        let role = layout.parity(stripe);
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

    /// Makes the parity of a whole stripe match the data, apart from unknown rows. True if the stripe is torn: its parity was
    /// written for other data, or was never written and has no place any more.
    async fn resync_whole_stripe(
        &mut self,
        stripe: Stripe,
        mut sum: BufMut,
        unknown: &BTreeSet<u64>,
    ) -> Result<bool, MountError> {
        let layout = self.layout;
        let role = layout.parity(stripe);
        if self.device(role).is_none() {
            self.relocated.remove(&stripe);
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
        // If the physical zone wore out, the parity is relocated.
        if self.write_at_pointer(role, row + there, sum.slice(self.bytes(there)..)).await? && fits {
            self.relocated.remove(&stripe);
            self.stale.remove(role, &(row..row + unit));
            return Ok(false);
        }
        let end = layout.end(stripe);
        let readable = found.len() == self.bytes(there);
        let logged = self.relocated.get(&stripe).is_some_and(|known| known.end == end && known.unit == sum);
        self.relocated.insert(stripe, RelocatedParity { end, unit: sum });
        Ok(readable && !logged && unknown.is_empty())
    }
}
