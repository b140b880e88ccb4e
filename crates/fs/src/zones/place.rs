//! Placement: writes file data to the zones that the allocator chooses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::{Blocks, ZoneId};
use zoned::{Buf, BufMut, Durability, Io, IoClass, ZoneState};

use crate::device::Purpose;
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::zones::allocator::{OwnZone, PlaceFor, ZoneChoice};
use crate::zones::job_class::JobClass;
use crate::zones::open_zone::{DataKind, OpenZone};
use crate::zones::table::Phase;

/// Blocks of file data on the device that no file refers to yet. Until this is dropped, their zones do not
/// count as dead.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    shared: &'a Shared,
    /// Runs of placed blocks (zone, first block within the zone, number of blocks), in the order of the data.
    pub runs: Vec<(ZoneId, Blocks, u64)>,
    /// Number of blocks of zeros behind the placed data.
    pub padding: u64,
    held: Vec<Arc<OpenZone>>,
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        for zone in std::mem::take(&mut self.held) {
            self.shared.end_write(&zone);
        }
    }
}

/// How much of a writer's data to place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceAmount {
    /// All data is placed, followed by up to `padding` blocks of zeros if the zeros end one of the device's
    /// optimal writes.
    All { padding: u64 },
    /// The front of the data that ends with one of the device's optimal writes is placed, at least one block.
    /// The caller keeps the rest and places it with its next data.
    Whole,
}

/// How many of `blocks` blocks to write at block `at` of a zone with room for `room` blocks: up to the last
/// end of an optimal write within them.
fn blocks_to_last_optimal_end(at: u64, blocks: u64, room: u64, optimal: u64) -> u64 {
    let over = (at + blocks) % optimal.max(1);
    if blocks == room || over >= blocks { blocks } else { blocks - over }
}

/// How many blocks of padding to add behind `blocks` blocks at block `at`, so that an optimal write or the
/// zone ends behind the padding.
fn padding_to_optimal_end(at: u64, blocks: u64, room: u64, optimal: u64) -> u64 {
    let end = at + blocks;
    (end.next_multiple_of(optimal.max(1)) - end).min(room - blocks)
}

/// `data` followed by `behind` blocks of zeros.
fn with_zeros_behind(data: Buf, behind: u64, block: usize) -> Buf {
    if behind == 0 {
        return data;
    }
    let len = data.len() + usize::try_from(behind).expect("no longer than a transfer") * block;
    let mut longer = BufMut::with_capacity(len);
    longer.extend_from_slice(&data);
    longer.resize(len, 0);
    longer.freeze()
}

impl Shared {
    /// Writes whole blocks of file data to zones for data of `kind`, in operations of the class of `job`, and waits until the device has acknowledged
    /// the writes. Waits for reclaim before it fails with `NoSpace`.
    pub(crate) async fn place(
        &self,
        job: &JobClass,
        kind: DataKind,
        data: &Buf,
        amount: PlaceAmount,
        own: OwnZone,
        who: PlaceFor,
    ) -> Result<Placed<'_>> {
        let device =
            self.device.purpose(if who == PlaceFor::Reclaim { Purpose::Reclaim } else { Purpose::Write });
        let geometry = device.geometry();
        let optimal = geometry.optimal_write.0;
        let block = geometry.block_size as usize;
        let mut placed = Placed { shared: self, runs: Vec::new(), padding: 0, held: Vec::new() };
        let mut ios = Vec::new();
        let mut at = 0;
        let mut failed = None;
        while at < data.len() {
            let left = ((data.len() - at) / block) as u64;
            if amount == PlaceAmount::Whole && at > 0 && left < optimal {
                break;
            }
            let seen = self.space.version();
            let open = match self.choose_data_zone(job.get(), kind, own, who) {
                Ok(Some(open)) => open,
                Ok(None) if ios.is_empty() => {
                    self.hurry_cleaner();
                    self.space.changed_since(seen).await;
                    continue;
                }
                Ok(None) => {
                    // The writes in flight end before the wait for space, because another task may wait for
                    // their end.
                    failed = self.wait_for_writes(std::mem::take(&mut ios), &placed.held).await;
                    job.all_ended();
                    if failed.is_some() {
                        break;
                    }
                    continue;
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            let to = {
                let mut next = open.next.lock();
                let room = open.capacity.saturating_sub(*next);
                let mut n = left.min(room).min(geometry.max_transfer.0);
                if n == 0 {
                    continue;
                }
                let mut behind = 0;
                match amount {
                    PlaceAmount::All { padding } if n == left => {
                        let more = padding_to_optimal_end(*next, n, room, optimal);
                        let fits = more <= padding && n + more <= geometry.max_transfer.0;
                        behind = if fits { more } else { 0 };
                    }
                    _ => n = blocks_to_last_optimal_end(*next, n, room, optimal),
                }
                let to = at + usize::try_from(n).expect("no longer than the data") * block;
                open.in_flight.fetch_add(1, Ordering::AcqRel);
                open.writing.fetch_add(1, Ordering::AcqRel);
                let lba = geometry.start(open.zone).plus(Blocks(*next));
                let written = with_zeros_behind(data.slice(at..to), behind, block);
                ios.push(job.submit(&**device, lba..lba.plus(Blocks(n + behind)), |class| {
                    device.write_as(class, lba, written, Durability::Cached)
                }));
                placed.runs.push((open.zone, Blocks(*next), n));
                placed.padding = behind;
                *next += n + behind;
                open.hint.store(*next, Ordering::Release);
                to
            };
            placed.held.push(open);
            at = to;
        }
        let late = self.wait_for_writes(ios, &placed.held).await;
        job.all_ended();
        failed.or(late).map_or(Ok(placed), Err)
    }

    /// Waits for all of the writes `ios` to the last zones of `held`, also after a failure: afterwards the
    /// zones' write pointers are known. Returns the last error.
    async fn wait_for_writes(&self, ios: Vec<Io<()>>, held: &[Arc<OpenZone>]) -> Option<Error> {
        let mut failed = None;
        let held = held.get(held.len().saturating_sub(ios.len())..).unwrap_or_default();
        for (result, open) in zoned::join_all(ios).await.into_iter().zip(held) {
            if let Err(error) = result {
                open.failed.store(true, Ordering::Release);
                failed = Some(Error::device("writing file data", error));
            }
            if open.writing.fetch_sub(1, Ordering::AcqRel) == 1 && !open.has_room() {
                self.space.notify();
            }
        }
        failed
    }

    /// A zone for a write of file data in `class`; `None` if one may be found after the next change of `space`.
    fn choose_data_zone(
        &self,
        class: IoClass,
        kind: DataKind,
        own: OwnZone,
        who: PlaceFor,
    ) -> Result<Option<Arc<OpenZone>>> {
        let privileged = who == PlaceFor::Reclaim;
        self.check_open()?;
        // A write fails after a failed metadata write: the cleaner stops, and would not finish a zone for it.
        self.metadata.check()?;
        let mut state = self.state.lock();
        match state.allocator.choose_zone(kind, own, who) {
            ZoneChoice::Zone(zone) => return Ok(Some(zone)),
            ZoneChoice::Wait if !privileged => {}
            ZoneChoice::Starved if !privileged && !state.allocator.exhausted => state.allocator.want(class),
            // A reclaim's write waits only for writes in flight: the cleaner, which runs the reclaim, also
            // finishes zones.
            ZoneChoice::Wait if state.allocator.finishing.is_empty() => {}
            ZoneChoice::Starved if who == PlaceFor::AcceptedBytes => {
                let zone = state.allocator.any_zone_for_accepted_bytes(kind);
                return zone.map(Some).ok_or_else(|| state.allocator.no_space());
            }
            ZoneChoice::Wait | ZoneChoice::Starved => {
                // Before a write fails with `NoSpace`, data takes the zones opened ahead for logs.
                let allowed = privileged || state.allocator.data_leaves_reserve();
                let zone = if allowed { state.allocator.ahead.pop_back() } else { None };
                let zone = zone.ok_or_else(|| state.allocator.no_space())?;
                return Ok(Some(state.allocator.open_zone(zone, kind)));
            }
        }
        Ok(None)
    }

    /// Ends a write to the zone `open` whose blocks the metadata now refers to, or never will.
    fn end_write(&self, open: &Arc<OpenZone>) {
        let mut state = self.state.lock();
        let last = open.in_flight.fetch_sub(1, Ordering::AcqRel) == 1;
        state.allocator.table.note_state(open.zone, ZoneState::ImplicitOpen, open.pointer());
        if !last || open.has_room() {
            return;
        }
        let before = state.allocator.open.len();
        state.allocator.open.retain(|z| !Arc::ptr_eq(z, open));
        if state.allocator.open.len() == before {
            return;
        }
        if open.failed.load(Ordering::Acquire) {
            state.allocator.table.note_state(open.zone, ZoneState::Closed, open.capacity);
            state.allocator.finishing.push(open.zone);
        } else {
            state.allocator.table.note_state(open.zone, ZoneState::Full, open.capacity);
            state.allocator.table.set_phase(open.zone, Phase::Full);
        }
        // From here on the full zone's dead blocks can be reclaimed.
        state.allocator.note_reclaimable();
        drop(state);
        self.kick_cleaner();
        self.space.notify();
    }
}
