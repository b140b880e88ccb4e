//! Rebuilding zones of which too much is relocated (section 4.3.2), when the array is opened.
//!
//! Relocated units are in every checkpoint, so that they are bounded before one is written: at most a quarter of a metadata
//! zone on a drive. Full zones that a power cut tore leave out what was never durable (`end_torn_zones`); what is too much
//! still is rebuilt in its place (`rebuild_zones`).
//!
//! Drive by drive, and on all drives of a zone at once, a physical zone's content is copied to the drive's free
//! metadata zone, the zone is reset, and the content is written back, with the relocated units in their places:
//!
//! 1. the rows that count are in the swap zone, durable;
//! 2. a swap record says so, durable: from here on the physical zone's content is what the copy says;
//! 3. the physical zone is reset, durable, written from the copy, durable;
//! 4. a hidden record without ranges says so, durable: from here on the physical zone counts again;
//! 5. the swap zone is reset, durable, before anything else is done.
//!
//! A mount that finds the record of step 2 and not that of step 4 does step 3 again before it looks at the zone. At
//! no moment does less than a whole copy of what each drive holds exist on that drive, so that another may be lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use zoned::{
    Action, Blocks, BufMut, Bytes, Durability, ErrorKind, Lba, Result, ZoneId, ZoneState, ZonedDevice,
};

use crate::Sabotage;
use crate::core::Core;
use crate::format::record::Body;
use crate::layout::{Layout, Slot, Stripe};
use crate::member::{METADATA_ZONES, Member};
use crate::mount::unusable::{OfDrive, Stopped};
use crate::zone::stale_rows::Patches;
use crate::zone::{Relocated, Zone};

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;
/// The most relocated bytes of one drive, over all zones.
const MOST_RELOCATED: u64 = 16 << 20;
/// And no more than one in so many blocks of a metadata zone.
const SHARE: u64 = 4;

/// Blocks of the two records of a physical zone that is rebuilt.
const RECORDS: u64 = 2;

/// Ends full zones behind their torn stripes, where the relocated units of the zones that take no writes would not fit the logs:
/// the zones with most of them first. What is dropped was never durable. At a mount, before the checkpoint that carries
/// the units.
pub(crate) fn end_torn_zones(core: &Core) {
    let ids = || (0..core.geometry.zones).map(ZoneId).filter(|id| !core.zone(*id).state.is_active());
    for member in core.good() {
        let cost = |id: ZoneId| core.zone(id).relocated_cost(&core.layout, id, member.slot);
        let mut total: u64 = ids().map(cost).sum();
        let mut costs: Vec<(u64, ZoneId)> = ids().map(|id| (cost(id), id)).collect();
        costs.sort_unstable();
        while total > most(core, member)
            && let Some((before, id)) = costs.pop()
        {
            if core.zone(id).end_at_torn(&core.layout, core.bytes(1), id) {
                tracing::warn!(
                    zone = id.0,
                    "torn by the power cut: the zone ends behind its first torn stripe"
                );
                total -= before - cost(id);
            }
        }
    }
}

/// Rebuilds the open zones of which more than `above` is relocated, and those, full ones too, for which there is no room in the
/// logs. A worn zone stays as it is until it is reset.
pub(crate) async fn rebuild_zones(core: &Arc<Core>, above: Bytes) -> Result<()> {
    let block = u64::from(core.geometry.block_size);
    let mut taken = vec![0; core.members.len()];
    let (mut full, mut open) = (Vec::new(), Vec::new());
    for id in (0..core.geometry.zones).map(ZoneId) {
        let zone = core.zone(id);
        let rows = zone.relocated_rows(&core.layout, id);
        match zone.state {
            _ if rows == 0 => {}
            state if state.is_active() => open.push((rows, id)),
            ZoneState::Full => full.push((rows, id)),
            _ => take(core, &mut taken, &zone, id),
        }
    }
    // Small ones first: these stay.
    full.sort_unstable();
    open.sort_unstable();
    let most_rows = |full: bool| if full { u64::MAX } else { above.0 / block };
    let zones = full.into_iter().map(|zone| (zone, true)).chain(open.into_iter().map(|zone| (zone, false)));
    for ((rows, id), is_full) in zones {
        let mut with = taken.clone();
        let slots = {
            let zone = core.zone(id);
            take(core, &mut with, &zone, id);
            zone.relocates(&core.layout, id)
        };
        let room = with.iter().zip(&*core.members).all(|(blocks, member)| *blocks <= most(core, member));
        if rows <= most_rows(is_full) && room {
            taken = with;
            continue;
        }
        tracing::info!(zone = id.0, rows, "rebuilding: too much of it is relocated");
        let part = |slot| {
            let core_of = Arc::clone(core);
            units::spawn(&*core.driver, "swap", async move { rebuild_physical(&core_of, id, slot).await })
        };
        // All of them, whatever becomes of one.
        let (parts, mut done) = (slots.into_iter().map(part).collect::<Vec<_>>(), Ok(()));
        for part in parts {
            let part = part.await;
            done = done.and(core.goes_on(part).await);
        }
        done?;
    }
    Ok(())
}

/// Adds what is relocated of a zone.
fn take(core: &Core, taken: &mut [u64], zone: &Zone, id: ZoneId) {
    for (slot, taken) in (0..).map(Slot).zip(taken) {
        if core.member(slot).is_good() {
            *taken += zone.relocated_cost(&core.layout, id, slot);
        }
    }
}

/// Blocks that relocated units may take in the log of a member.
pub(crate) fn most(core: &Core, member: &Member) -> u64 {
    let capacity = member.log.lock().capacity;
    (capacity / SHARE).min(MOST_RELOCATED / u64::from(core.geometry.block_size))
}

/// Rebuilds one physical zone.
async fn rebuild_physical(core: &Arc<Core>, id: ZoneId, slot: Slot) -> Result<(), Stopped> {
    let member = core.member(slot);
    let block = core.geometry.block_size;
    // A log that has no room for the two records moves first: once the copy lies in the swap zone it has no other to go to.
    core.reserve(&[(slot, RECORDS)]).await;
    let Some(device) = member.device() else { return Ok(()) };
    let (generation, rows, full, swap) = {
        let zone = core.zone(id);
        let log = member.log.lock();
        // The one after the next: a log that moves goes to the next.
        let swap = ZoneId((log.zone.0 + METADATA_ZONES - 1) % METADATA_ZONES);
        let used = core.layout.used(id, slot, zone.readable());
        // In a full zone the parity of the last stripe has its place too, with zeros above the zone's end.
        let last = core.layout.stripe_of(zone.readable());
        let ours = core.layout.parity(id, last) == slot && zone.relocated.contains_key(&last);
        let rows = if ours { core.layout.row(last) + core.layout.unit_of(last) } else { used };
        (zone.generation, rows, zone.state == ZoneState::Full, swap)
    };
    let physical = id.0 + METADATA_ZONES;
    let report = device.report(physical..physical + 1).await.of(slot)?;
    // Rows of parity that were relocated with a whole unit are not there.
    let there = report.first().map_or(0, |info| info.pointer.0).min(rows);
    let mask = core.driver.random();
    let mut row = 0;
    while row < rows {
        let count = chunk(&device, block).min(if row < there { there - row } else { rows - row });
        let mut data = if row < there {
            match copied(core, id, slot, row, count).await {
                Err(e) if e.kind() == ErrorKind::Media => {
                    // The others cannot be asked: their parts are being rebuilt too. This one stays as it is.
                    tracing::warn!(slot = slot.0, zone = id.0, error = %e, "not rebuilt: it cannot be read in full");
                    member.unreserve(RECORDS);
                    device.zone(swap, Action::Reset).await.of(slot)?;
                    return device.flush().await.of(slot);
                }
                data => data.of(slot)?,
            }
        } else {
            let mut data = BufMut::zeroed(core.bytes(count));
            content(core, id, slot, row, &mut data);
            data
        };
        cover(&mut data, block, mask);
        let at = Lba(device.geometry().start(swap).0 + row);
        device.write(at, data.freeze(), Durability::Cached).await.of(slot)?;
        row += count;
    }
    device.flush().await.of(slot)?;
    let record = async |body: &Body| match member.append_reserved_as(body, block, Durability::Durable) {
        Some(io) => io.await.of(slot),
        None => Ok(()),
    };
    if core.sabotage != Some(Sabotage::Swap) {
        record(&Body::Swap { zone: id, generation, rows, swap, mask }).await?;
    } else {
        member.unreserve(1);
    }
    copy_back(&device, block, id, rows, swap, mask).await.of(slot)?;
    if full && rows < device.geometry().zone_capacity.0 {
        device.zone(ZoneId(physical), Action::Finish).await.of(slot)?;
    }
    record(&Body::Hidden { zone: id, generation, ranges: Vec::new(), rebuilt: true }).await?;
    {
        let mut zone = core.zone(id);
        zone.patches.forget(slot);
        zone.relocated.retain(|stripe, _| core.layout.parity(id, *stripe) != slot);
    }
    device.zone(swap, Action::Reset).await.of(slot)?;
    device.flush().await.of(slot)
}

/// Rows of a physical zone that is rebuilt. Lost ones stay lost: in their place zeros do.
async fn copied(core: &Arc<Core>, id: ZoneId, slot: Slot, row: u64, count: u64) -> Result<BufMut> {
    let lost = &core.member(slot).lost;
    if !lost.hits(id, &(row..row + count)) {
        return core.rows_of(id, slot, row, count).await;
    }
    let mut data = BufMut::with_capacity(core.bytes(count));
    for row in row..row + count {
        match lost.hits(id, &(row..row + 1)) {
            true => data.extend_from_slice(&BufMut::zeroed(core.bytes(1))),
            false => data.extend_from_slice(&core.rows_of(id, slot, row, 1).await?),
        }
    }
    Ok(data)
}

/// Puts relocated units over rows that were read from a drive.
pub(crate) fn content(core: &Core, id: ZoneId, slot: Slot, row: u64, data: &mut BufMut) {
    let zone = core.zone(id);
    let layout = &core.layout;
    lay_over(layout, core.bytes(1), id, (&zone.patches, &zone.relocated), slot, row, data);
    // Of the stripe at the pointer memory knows the parity: rows of it that are hidden are nowhere else.
    let Some(stripe) = zone.open_stripe(layout) else { return };
    let end = row + (data.len() / core.bytes(1)) as u64;
    let first = layout.row(stripe);
    let (from, to) = (first.max(row), (first + layout.unit_of(stripe)).min(end));
    if layout.parity(id, stripe) != slot || from >= to {
        return;
    }
    let place = data.get_mut(core.bytes(from - row)..core.bytes(to - row));
    let rows = zone.parity.get(core.bytes(from - first)..core.bytes(to - first));
    if let Some((place, rows)) = place.zip(rows) {
        place.copy_from_slice(rows);
    }
}

/// The same, of a zone that is no array's yet.
pub(crate) fn lay_over(
    layout: &Layout,
    block: usize,
    id: ZoneId,
    (patches, relocated): (&Patches, &BTreeMap<Stripe, Relocated>),
    slot: Slot,
    row: u64,
    data: &mut BufMut,
) {
    let bytes = |rows: u64| usize::try_from(rows).expect("fits memory") * block;
    let count = (data.len() / block) as u64;
    patches.over(block, slot, row, count).apply(data);
    for stripe in (row / layout.unit..(row + count).div_ceil(layout.unit)).map(Stripe) {
        let Some(relocated) = relocated.get(&stripe) else { continue };
        if layout.parity(id, stripe) != slot {
            continue;
        }
        let first = layout.row(stripe);
        let (from, to) = (first.max(row), (first + layout.unit_of(stripe)).min(row + count));
        let place = data.get_mut(bytes(from - row)..bytes(to - row));
        if let Some((place, unit)) = place.zip(relocated.unit.get(bytes(from - first)..bytes(to - first))) {
            place.copy_from_slice(unit);
        }
    }
}

fn chunk(device: &Arc<dyn ZonedDevice>, block: u32) -> u64 {
    (CHUNK / u64::from(block)).min(device.geometry().max_transfer.0).max(1)
}

/// Combines the mask with the first bytes of each block, or takes it away again: user data may look like a record.
fn cover(data: &mut [u8], block: u32, mask: u64) {
    for block in data.chunks_mut(block as usize) {
        if let Some(first) = block.first_chunk_mut::<8>() {
            *first = (u64::from_le_bytes(*first) ^ mask).to_le_bytes();
        }
    }
}

/// Writes a physical zone anew from its copy.
pub(crate) async fn copy_back(
    device: &Arc<dyn ZonedDevice>,
    block: u32,
    id: ZoneId,
    rows: u64,
    swap: ZoneId,
    mask: u64,
) -> Result<()> {
    let physical = ZoneId(id.0 + METADATA_ZONES);
    let report = device.report(physical.0..physical.0 + 1).await?;
    if report.first().is_none_or(|info| info.state != ZoneState::Empty) {
        device.zone(physical, Action::Reset).await?;
        // What it held must not come back between what is written now.
        device.flush().await?;
    }
    let mut row = 0;
    while row < rows {
        let count = chunk(device, block).min(rows - row);
        let from = device.geometry().start(swap).plus(Blocks(row));
        let bytes = usize::try_from(count * u64::from(block)).expect("a chunk");
        let mut data = device.read(from, BufMut::zeroed(bytes)).await?;
        cover(&mut data, block, mask);
        device.write(Member::address(&**device, id, row), data.freeze(), Durability::Cached).await?;
        row += count;
    }
    device.flush().await
}
