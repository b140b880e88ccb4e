//! Making the parity of a zone fit its data at a mount.
//!
//! Data is the truth: what lies on the drives below the pointer stays as it is. Parity of stripes that may have been
//! in flight is computed anew and compared. What a missing drive held of them is put together first, block by block,
//! from the record that was written for it: the data of later writes may be garbage. Hidden rows are read from what
//! the logs have for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Durability, Error, ErrorKind, Lba, Result, ZoneId, ZonedDevice};

use crate::Sabotage;
use crate::layout::xor::xor;
use crate::layout::{Layout, Slot, Stripe};
use crate::member::bad_rows;
use crate::member::{METADATA_ZONES, Member};
use crate::mount::decide::{Child, Decision, Verdict, best};
use crate::mount::log_contents::Partial;
use crate::mount::unusable::{OfDrive, Stopped};
use crate::zone::Relocated;
use crate::zone::stale_rows::{self, Patches};

/// A zone to be looked at.
pub(crate) struct Repair {
    pub layout: Layout,
    pub block_size: u32,
    pub zone: ZoneId,
    /// By slot; `None` where a drive is missing.
    pub devices: Vec<Option<Arc<dyn ZonedDevice>>>,
    pub children: Vec<Child>,
    /// Parity that is known to lie in the logs.
    pub relocated: BTreeMap<Stripe, Relocated>,
    /// Hidden rows, and the data that belongs there.
    pub patches: Patches,
    /// Partial parity that was logged of the zone.
    pub partials: BTreeMap<Stripe, Vec<Partial>>,
    /// Lost rows of each drive's physical zone.
    pub lost: Vec<Vec<Range<u64>>>,
    pub sabotage: Option<Sabotage>,
}

/// What came of it.
pub(crate) struct Repaired {
    /// The parity of the stripe at the pointer of a zone that goes on.
    pub parity: BufMut,
    /// Parity that belongs in the logs.
    pub relocated: BTreeMap<Stripe, Relocated>,
    /// Hidden rows, and the data that belongs there.
    pub patches: Patches,
    /// Rows of each physical zone that are written.
    pub children: Vec<Child>,
    /// Lost rows of each drive's physical zone.
    pub lost: Vec<Vec<Range<u64>>>,
    /// What becomes of the zone: one goes on only if the parity of its last stripe is known.
    pub verdict: Verdict,
    /// The first whole stripe whose parity was not written for its data: see [`Zone::torn`](crate::zone::Zone::torn).
    pub torn: Option<Stripe>,
}

impl Repair {
    pub(crate) async fn run(
        mut self,
        decision: &Decision,
        mut verdict: Verdict,
    ) -> Result<Repaired, Stopped> {
        let (layout, pointer) = (self.layout, decision.pointer);
        let mut parity = BufMut::default();
        let last = layout.stripe_of(pointer);
        let mut stripes = self.patches.suspects(&layout, self.zone, &self.relocated);
        // And those whose parity is lost: this mount may be able to read all that it follows from.
        stripes.extend(self.lost_parity());
        stripes.retain(|stripe| layout.end(*stripe) <= pointer);
        stripes.extend((decision.from.0..=last.0).map(Stripe));
        self.forget_above(decision);
        let mut torn = None;
        for stripe in stripes {
            if layout.start(stripe) >= pointer {
                break;
            }
            let (units, unknown) = self.units(stripe, pointer).await?;
            let mut sum = BufMut::zeroed(self.bytes(layout.unit_of(stripe)));
            units.iter().for_each(|unit| xor(&mut sum, unit));
            let slot = layout.parity(self.zone, stripe);
            if !unknown.is_empty() {
                let rows = unknown.len();
                tracing::error!(
                    zone = self.zone.0,
                    stripe = stripe.0,
                    rows,
                    "two drives lack these: they are lost"
                );
            }
            let rows = layout.row(stripe)..layout.row(stripe) + layout.unit_of(stripe);
            let rebuilt = self.is_lost(slot, rows.clone());
            if self.device(slot).is_some()
                && let Some(lost) = self.lost.get_mut(slot.index())
            {
                // Parity that is known is written anew where it does not lie there.
                stale_rows::remove(lost, &rows);
            }
            if layout.end(stripe) <= pointer {
                // Where a rebuild gave parity up, nothing follows from what lies in its place.
                if self.whole(stripe, sum, &unknown).await? && !rebuilt && torn.is_none() {
                    torn = Some(stripe);
                }
                self.lose(stripe, &unknown);
                continue;
            }
            if matches!(verdict, Verdict::Open | Verdict::Hide) {
                if unknown.is_empty() {
                    self.partly(stripe, &sum, pointer).await?;
                    sum.truncate(self.bytes(layout.filled(stripe, 0, pointer)));
                    parity = sum;
                    continue;
                }
                verdict = Verdict::Full;
            }
            if self.device(slot).is_some() && !self.lies_in_place(stripe, &sum, &unknown).await? {
                self.relocated.insert(stripe, Relocated { end: pointer, unit: sum.freeze() });
                self.lose(stripe, &unknown);
            }
        }
        if matches!(verdict, Verdict::Open | Verdict::Hide) {
            // The stripe at the pointer changes still: its parity is in memory.
            self.relocated.retain(|stripe, _| layout.end(*stripe) <= pointer);
        }
        let Repair { relocated, patches, children, lost, .. } = self;
        Ok(Repaired { parity, relocated, patches, children, lost, verdict, torn })
    }

    /// The stripes whose parity is lost, or a part of it.
    fn lost_parity(&self) -> BTreeSet<Stripe> {
        let layout = self.layout;
        let of = |(slot, ranges): (Slot, &Vec<Range<u64>>)| {
            let rows =
                ranges.iter().flat_map(|range| range.start / layout.unit..range.end.div_ceil(layout.unit));
            rows.map(Stripe)
                .filter(move |stripe| layout.parity(self.zone, *stripe) == slot)
                .collect::<Vec<_>>()
        };
        (0..).map(Slot).zip(&self.lost).flat_map(of).collect()
    }

    /// Parity of what nobody knows is lost.
    fn lose(&mut self, stripe: Stripe, unknown: &BTreeSet<u64>) {
        let (slot, first) = (self.layout.parity(self.zone, stripe), self.layout.row(stripe));
        if self.device(slot).is_some()
            && let Some(lost) = self.lost.get_mut(slot.index())
        {
            unknown.iter().for_each(|row| stale_rows::insert(lost, first + row..first + row + 1));
        }
    }

    /// Parity in the logs that was written for data above the pointer is of a stripe that never became whole: what is
    /// written there from now on has nothing to do with it. Above a recorded end there are zeros only.
    fn forget_above(&mut self, decision: &Decision) {
        if decision.verdict != Verdict::Known {
            self.relocated.retain(|_, parity| parity.end <= decision.pointer);
        }
    }

    fn bytes(&self, blocks: u64) -> usize {
        usize::try_from(blocks * u64::from(self.block_size)).expect("fits memory")
    }

    fn device(&self, slot: Slot) -> Option<&Arc<dyn ZonedDevice>> {
        let lost = self.children.get(slot.index()) == Some(&Child::Missing);
        self.devices.get(slot.index())?.as_ref().filter(|_| !lost)
    }

    fn at(&self, device: &Arc<dyn ZonedDevice>, row: u64) -> Lba {
        Member::address(&**device, self.zone, row)
    }

    /// Reads rows of a physical zone.
    async fn read(&self, slot: Slot, row: u64, count: u64) -> Result<BufMut> {
        if count == 0 {
            return Ok(BufMut::default());
        }
        let Some(device) = self.device(slot) else {
            let name: Arc<str> = Arc::from("array");
            let error = Error::new(ErrorKind::Gone, &name, "open").in_zone(self.zone);
            return Err(error.because(format!("what drive {} holds is needed, and it is missing", slot.0)));
        };
        if self.is_lost(slot, row..row + count) {
            return Err(bad_rows::error(&**device, self.at(device, row)));
        }
        device.read(self.at(device, row), BufMut::zeroed(self.bytes(count))).await
    }

    fn is_lost(&self, slot: Slot, rows: Range<u64>) -> bool {
        self.lost.get(slot.index()).is_some_and(|lost| bad_rows::hits(lost, &rows))
    }

    /// The same; nothing where that cannot be read.
    async fn found(&self, slot: Slot, row: u64, count: u64) -> Result<BufMut, Stopped> {
        match self.read(slot, row, count).await {
            Err(e) if e.kind() == ErrorKind::Media => Ok(BufMut::default()),
            found => found.of(slot),
        }
    }

    /// The first `count` blocks of what a drive has of a stripe, and the rows of these that it cannot read, or has not: zeros.
    async fn blocks(&self, slot: Slot, stripe: Stripe, count: u64) -> Result<(BufMut, Vec<u64>), Stopped> {
        let (row, size) = (self.layout.row(stripe), self.bytes(1));
        let mut blocks = BufMut::zeroed(self.bytes(count));
        if self.device(slot).is_none() {
            return Ok((blocks, (0..count).collect()));
        }
        match self.read(slot, row, count).await {
            Ok(mut blocks) => {
                self.patches.over(size, slot, row, count).apply(&mut blocks);
                return Ok((blocks, Vec::new()));
            }
            Err(e) if e.kind() != ErrorKind::Media => return Err(e).of(slot),
            Err(e) => {
                tracing::warn!(zone = self.zone.0, stripe = stripe.0, error = %e, "a unit is unreadable")
            }
        }
        let mut lacking = Vec::new();
        for (place, at) in blocks.chunks_mut(size).zip(0..) {
            if let Some(held) = self.patches.held(size, slot, row + at, 1) {
                held.apply(place);
                continue;
            }
            match self.read(slot, row + at, 1).await {
                Ok(block) => place.copy_from_slice(&block),
                Err(e) if e.kind() != ErrorKind::Media => return Err(e).of(slot),
                Err(_) => lacking.push(at),
            }
        }
        Ok((blocks, lacking))
    }

    /// The units of data of a stripe, as far as they lie below the pointer, and the rows that two drives lack: zeros.
    async fn units(&self, stripe: Stripe, pointer: Blocks) -> Result<(Vec<BufMut>, BTreeSet<u64>), Stopped> {
        let layout = &self.layout;
        let (mut units, mut lacking) = (Vec::new(), Vec::new());
        for index in 0..layout.data_units() {
            let slot = layout.data(self.zone, stripe, index);
            let count = layout.filled(stripe, index, pointer);
            if let Some(held) = self.patches.held(self.bytes(1), slot, layout.row(stripe), count) {
                let mut unit = BufMut::zeroed(self.bytes(count));
                held.apply(&mut unit);
                units.push(unit);
            } else if count > 0 {
                let (unit, rows) = self.blocks(slot, stripe, count).await?;
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
                false => self.rebuild(stripe, *index, *row, pointer, &units, &mut in_place).await?,
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

    /// A block of a unit that its drive lacks; `None` where parity cannot be read either. `units` are all, with zeros in the
    /// place of this block. `in_place`: the parity where it belongs, once it is read.
    async fn rebuild(
        &self,
        stripe: Stripe,
        index: u64,
        row: u64,
        pointer: Blocks,
        units: &[BufMut],
        in_place: &mut Option<(Buf, Vec<u64>)>,
    ) -> Result<Option<BufMut>, Stopped> {
        let layout = &self.layout;
        let slot = layout.parity(self.zone, stripe);
        let partials = self.partials.get(&stripe).map_or(&[][..], Vec::as_slice);
        let at = layout.unit_start(stripe, index).plus(Blocks(row));
        let place = self.bytes(row)..self.bytes(row + 1);
        let (source, limit) = match (self.relocated.get(&stripe), best(partials, at, pointer)) {
            (_, Some(partial)) => (self.row_of(stripe, partial, row).of_none()?, partial.end),
            _ if self.is_lost(slot, layout.row(stripe) + row..layout.row(stripe) + row + 1) => {
                return Ok(None);
            }
            // Written as the stripe became whole, or by a mount: there is no partial parity then.
            (Some(relocated), None) => (relocated.unit.slice(place.clone()), relocated.end),
            (None, None) => {
                if in_place.is_none() {
                    let written = match self.children.get(slot.index()) {
                        Some(Child::At(row)) => row.saturating_sub(layout.row(stripe)),
                        _ => u64::MAX,
                    };
                    let rows = layout.unit_of(stripe).min(written);
                    let (parity, lacking) = self.blocks(slot, stripe, rows).await?;
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
        for (other, index) in units.iter().zip(0..) {
            let below = layout.unit_start(stripe, index).plus(Blocks(row)) < limit;
            if let Some(data) = other.get(place.clone()).filter(|_| below) {
                xor(&mut block, data);
            }
        }
        Ok(Some(block))
    }

    /// One row of logged parity.
    fn row_of(&self, stripe: Stripe, partial: &Partial, row: u64) -> Result<Buf> {
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

    /// Makes the rows of parity fit that change no more, of a stripe that is not whole.
    async fn partly(&mut self, stripe: Stripe, sum: &BufMut, pointer: Blocks) -> Result<(), Stopped> {
        let layout = self.layout;
        let slot = layout.parity(self.zone, stripe);
        let (first, unit) = (layout.row(stripe), layout.unit_of(stripe));
        let needed = layout.final_parity(stripe, pointer);
        let Some(device) = self.device(slot).cloned() else { return Ok(()) };
        let Some(Child::At(written)) = self.children.get(slot.index()).copied() else { return Ok(()) };
        if needed == 0 || self.patches.hides(slot, &(first..first + unit)) {
            // What is hidden is written once more, to the log, when the stripe is whole.
            return Ok(());
        }
        let there = written.saturating_sub(first).min(needed);
        let found = self.found(slot, first, there).await?;
        let mut fits = found.len() == self.bytes(there) && sum.get(..found.len()) == Some(&*found);
        fits |= self.sabotage == Some(Sabotage::Hole);
        if there < needed {
            let rest = sum.get(self.bytes(there)..self.bytes(needed)).unwrap_or_default();
            let at = self.at(&device, first + there);
            match device.write(at, Buf::copy_from(rest), Durability::Cached).await {
                Ok(()) => {
                    if let Some(Child::At(row)) = self.children.get_mut(slot.index()) {
                        *row = first + needed;
                    }
                }
                // It takes no writes any more: the log has these rows.
                Err(e) if matches!(e.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline) => {
                    fits = false
                }
                Err(e) => return Err(e).of(slot),
            }
        }
        if !fits {
            self.patches.hide(slot, first..written.max(first + needed));
        }
        Ok(())
    }

    /// Whether the parity of the last stripe of a full zone, with zeros above the zone's end, lies in its place: then the
    /// log need not have it.
    async fn lies_in_place(
        &mut self,
        stripe: Stripe,
        sum: &BufMut,
        unknown: &BTreeSet<u64>,
    ) -> Result<bool, Stopped> {
        let (row, unit) = (self.layout.row(stripe), self.layout.unit_of(stripe));
        let slot = self.layout.parity(self.zone, stripe);
        let written = match self.children.get(slot.index()) {
            Some(Child::At(at)) => *at >= row + unit,
            child => child == Some(&Child::Full),
        };
        if !written || !unknown.is_empty() {
            return Ok(false);
        }
        let fits = *self.found(slot, row, unit).await? == **sum;
        if fits {
            self.relocated.remove(&stripe);
            self.patches.show(slot, &(row..row + unit));
        }
        Ok(fits)
    }

    /// Makes the parity of a whole stripe fit, but for the rows that are not known. Says whether the stripe is torn: its parity
    /// was written for other data, or was never written and has no place any more.
    async fn whole(
        &mut self,
        stripe: Stripe,
        mut sum: BufMut,
        unknown: &BTreeSet<u64>,
    ) -> Result<bool, Stopped> {
        let layout = self.layout;
        let slot = layout.parity(self.zone, stripe);
        let Some(device) = self.device(slot).cloned() else {
            self.relocated.remove(&stripe);
            return Ok(false);
        };
        if self.sabotage == Some(Sabotage::Hole) {
            return Ok(false);
        }
        let (row, unit) = (layout.row(stripe), layout.unit_of(stripe));
        let there = match self.children.get(slot.index()) {
            Some(Child::At(at)) => at.saturating_sub(row).min(unit),
            _ => unit,
        };
        let found = self.found(slot, row, there).await?;
        for place in unknown.iter().map(|row| self.bytes(*row)..self.bytes(row + 1)) {
            // Whatever lies there is as good.
            if let Some((place, found)) = sum.get_mut(place.clone()).zip(found.get(place)) {
                place.copy_from_slice(found);
            }
        }
        let sum = sum.freeze();
        let fits = found.len() == self.bytes(there) && sum.get(..found.len()) == Some(&*found);
        let mut placed = true;
        if there < unit {
            let rest = sum.slice(self.bytes(there)..);
            match device.write(self.at(&device, row + there), rest, Durability::Cached).await {
                Ok(()) => {
                    if let Some(Child::At(at)) = self.children.get_mut(slot.index()) {
                        *at = row + unit;
                    }
                }
                // It takes no writes any more: the log has it then.
                Err(e) if matches!(e.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline) => {
                    placed = false
                }
                Err(e) => return Err(e).of(slot),
            }
        }
        if fits && placed {
            self.relocated.remove(&stripe);
            self.patches.show(slot, &(row..row + unit));
            return Ok(false);
        }
        let end = layout.end(stripe);
        let readable = found.len() == self.bytes(there);
        let logged = self.relocated.get(&stripe).is_some_and(|known| known.end == end && known.unit == sum);
        self.relocated.insert(stripe, Relocated { end, unit: sum });
        Ok(readable && !logged && unknown.is_empty())
    }
}

const _: () = assert!(METADATA_ZONES >= 3);
