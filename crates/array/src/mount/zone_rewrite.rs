//! Zone rewrites: a zone with too much relocated content gets it back in place, at the end of a mount (RAIZN, section
//! 4.3.2).
//!
//! Every checkpoint contains the relocated content, so that its size is bounded first: at most a quarter of a metadata zone on each
//! drive. A full zone that a power cut tore drops blocks that were never durable (`end_torn_zones`), and zones that still
//! have too much are rewritten (`rewrite_zones`).
//!
//! A physical zone is copied to the drive's free metadata zone, reset, and written back with the relocated content in
//! place. All drives of a logical zone do so at once:
//!
//! 1. The rows are copied to the metadata zone, durable.
//! 2. A record says where the copy is, durable. From here on the copy holds the content of the physical zone.
//! 3. The physical zone is reset, durable, and written from the copy, durable.
//! 4. A record of no stale rows, marked as rewritten, says so, durable. From here on the physical zone holds the
//!    content.
//! 5. The metadata zone is reset, durable, before anything else is done.
//!
//! A mount that finds the record of step 2 without the record of step 4 repeats step 3 first. Every drive holds a
//! whole copy of its part at any moment, so that another drive may fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use zoned::{Action, Buf, BufMut, Bytes, Durability, ErrorKind, Result, ZoneId, ZoneState};

use crate::core::Core;
use crate::degraded::read_repair::max_relocated;
use crate::format::record::Body;
use crate::layout::placement::{Place, next_metadata_zone};
use crate::layout::row_set::RowSet;
use crate::layout::running_parity::extend_to_whole_stripe;
use crate::layout::{Layout, Role, Slot};
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::mount::errors::{FromDrive, MountError, is_drive_fault, one_failure_too_many};
use crate::zone::Zone;
use crate::zone::shared_zones::SharedZones;
use crate::zone::stale_rows::RelocatedParity;

/// Bytes that a zone rewrite copies at a time.
const COPY_CHUNK_BYTES: u64 = 1 << 20;
/// Blocks of the two records of a zone rewrite.
const REWRITE_RECORD_BLOCKS: u64 = 2;

/// Ends full zones behind their torn stripes if the relocated content of the zones that take no writes does not fit the logs:
/// zones with the most relocated content first. The dropped blocks were never durable. Called before the checkpoint that
/// contains the relocated content.
pub(crate) fn end_torn_zones(core: &Core) {
    let (ctx, zones) = (&core.ctx, &core.zones);
    let ids = || zones.ids().filter(|id| !zones.zone(*id).state.is_active());
    for member in core.members.working_members() {
        let role = |id: ZoneId| ctx.places.role(id, member.slot);
        let cost = |id: ZoneId| role(id).map_or(0, |role| zones.zone(id).relocated_cost(&ctx.layout, role));
        let mut total: u64 = ids().map(cost).sum();
        let mut costs: Vec<(u64, ZoneId)> = ids().map(|id| (cost(id), id)).collect();
        costs.sort_unstable();
        while total > max_relocated(ctx, member)
            && let Some((before, id)) = costs.pop().filter(|(before, _)| *before > 0)
        {
            if zones.zone(id).end_at_torn(&ctx.layout, ctx.bytes(1)) {
                tracing::warn!(
                    zone = id.0,
                    "torn by the power cut: the zone ends behind its first torn stripe"
                );
                total = (total + cost(id)).saturating_sub(before);
            }
        }
    }
}

/// Rewrites open and full zones whose relocated content does not fit the logs, and with the fixed placement open zones with more than
/// `above` relocated bytes. A worn zone stays as it is until its worn part moves, or until a reset.
pub(crate) async fn rewrite_zones(core: &Arc<Core>, above: Bytes) -> Result<()> {
    let block = u64::from(core.ctx.geometry.block_size);
    let mut taken = vec![0; core.ctx.places.drives() as usize];
    let (mut full, mut open) = (Vec::new(), Vec::new());
    for id in core.zones.ids() {
        let zone = core.zones.zone(id);
        let rows = zone.relocated_rows(&core.ctx.layout);
        match zone.state {
            _ if rows == 0 => {}
            state if state.is_active() => open.push((rows, id)),
            ZoneState::Full => full.push((rows, id)),
            _ => add_relocated_cost(core, &mut taken, &zone, id),
        }
    }
    // The full zones with the least relocated content stay as they are.
    full.sort_unstable();
    open.sort_unstable();
    // With stored maps, parts with much relocated content move while the array is in use (`background::moves::evacuation`).
    let is_fixed = core.ctx.places.stored().is_none();
    let most_rows = |full: bool| if full || !is_fixed { u64::MAX } else { above.0 / block };
    let zones = full.into_iter().map(|zone| (zone, true)).chain(open.into_iter().map(|zone| (zone, false)));
    for ((rows, id), is_full) in zones {
        let mut with = taken.clone();
        let slots = {
            let zone = core.zones.zone(id);
            add_relocated_cost(core, &mut with, &zone, id);
            let roles = zone.roles_with_relocated(&core.ctx.layout);
            roles.into_iter().filter_map(|role| core.ctx.places.slot(id, role)).collect::<BTreeSet<Slot>>()
        };
        let room = with
            .iter()
            .zip(core.members.iter())
            .all(|(blocks, member)| *blocks <= max_relocated(&core.ctx, member));
        if rows <= most_rows(is_full) && room {
            taken = with;
            continue;
        }
        tracing::info!(zone = id.0, rows, "rewriting the zone: too much of its content is relocated");
        let part =
            |slot| {
                let core_of = Arc::clone(core);
                units::spawn(&*core.ctx.driver, "zone rewrite", async move {
                    rewrite_part(&core_of, id, slot).await
                })
            };
        // Waits for the rewrites of all parts of the zone, also after a failure.
        let (parts, mut done) = (slots.into_iter().map(part).collect::<Vec<_>>(), Ok(()));
        for part in parts {
            let part = part.await;
            done = done.and(go_on_without(core, part).await);
        }
        done?;
    }
    Ok(())
}

/// Adds the blocks that the relocated content of a zone takes in each log.
fn add_relocated_cost(core: &Core, taken: &mut [u64], zone: &Zone, id: ZoneId) {
    for (slot, taken) in (0..).map(Slot).zip(taken) {
        if let Some(role) = core.ctx.places.role(id, slot)
            && core.members.member(slot).is_good()
        {
            *taken += zone.relocated_cost(&core.ctx.layout, role);
        }
    }
}

/// A drive that stops a zone rewrite is failed: the array is assembled, and works without the drive.
async fn go_on_without(core: &Arc<Core>, done: Result<(), MountError>) -> Result<()> {
    let Err(MountError { slot, error }) = done else { return Ok(()) };
    let Some(slot) = slot.filter(|_| is_drive_fault(error.kind())) else { return Err(error) };
    match core.members.last_failure_beside(Some(slot)) {
        Some(lacking) => {
            let (name, parities) = (&core.ctx.geometry.name, core.ctx.layout.parities);
            Err(one_failure_too_many(name, parities, lacking.slot, slot, &error))
        }
        None => core.members.fail(slot, &error).await,
    }
}

/// Rewrites one drive's part of a logical zone.
async fn rewrite_part(core: &Arc<Core>, id: ZoneId, slot: Slot) -> Result<(), MountError> {
    let member = core.members.member(slot);
    let block = core.ctx.geometry.block_size;
    // A log without room for the rewrite's two records rolls first: later, the copy occupies the zone that
    // the log would move to.
    core.members.reserve(&[(slot, REWRITE_RECORD_BLOCKS)]).await;
    let Some(device) = member.device() else { return Ok(()) };
    let place =
        core.ctx.places.role(id, slot).and_then(|role| Some((role, core.ctx.places.place(id, role)?.zone)));
    let Some((role, physical)) = place else { return Ok(()) };
    if !has_physical_zone_alone(core, id, slot) {
        // The parts of other zones are in the same physical zone: the relocated content stays in the log.
        member.unreserve(REWRITE_RECORD_BLOCKS);
        return Ok(());
    }
    let (generation, rows, full, copy) = {
        let mut zone = core.zones.zone(id);
        let log = member.log.lock();
        // The log rolls to the next metadata zone, so the copy goes to the zone after it.
        let copy = next_metadata_zone(next_metadata_zone(log.zone));
        let (layout, end, full) = (&core.ctx.layout, zone.readable(), zone.state == ZoneState::Full);
        let rows = if full { layout.used_by_full_zone(role, end) } else { layout.used(role, end) };
        if full {
            extend_last_parity(&mut zone, layout, role, core.ctx.bytes(1));
        }
        (zone.generation, rows, full, copy)
    };
    let (part, copy_zone) = (PhysicalZone::at(&*device, physical), PhysicalZone::at(&*device, copy));
    // Rows of relocated parity units may be missing on the drive.
    let there = part.info().await.of(slot)?.map_or(0, |info| info.pointer.0).min(rows);
    let mask = core.ctx.driver.random();
    let mut row = 0;
    while row < rows {
        let count = chunk_blocks(&device, block).min(if row < there { there - row } else { rows - row });
        let mut data = if row < there {
            match rows_to_copy(core, id, (slot, role), row, count).await {
                Err(e) if e.kind() == ErrorKind::Media => {
                    // The content of the part cannot be reconstructed, because the other parts are being
                    // rewritten too. The part stays as it is.
                    tracing::warn!(slot = slot.0, zone = id.0, error = %e, "the part is not rewritten: it cannot be read in full");
                    member.unreserve(REWRITE_RECORD_BLOCKS);
                    copy_zone.act(Action::Reset).await.of(slot)?;
                    return device.flush().await.of(slot);
                }
                data => data.of(slot)?,
            }
        } else {
            let mut data = BufMut::zeroed(core.ctx.bytes(count));
            core.reconstruct.apply_memory(id, role, row, &mut data);
            data
        };
        apply_mask(&mut data, block, mask);
        copy_zone.write(row, data.freeze(), Durability::Cached).await.of(slot)?;
        row += count;
    }
    device.flush().await.of(slot)?;
    let record = async |body: &Body| match member.append_reserved(body, block, Durability::Durable) {
        Some(io) => io.await.of(slot),
        None => Ok(()),
    };
    if core.ctx.rules.records_zone_copies() {
        record(&Body::ZoneCopy { zone: id, generation, rows, copy, mask }).await?;
    } else {
        member.unreserve(1);
    }
    copy_back(&device, block, physical, rows, copy, mask).await.of(slot)?;
    let place = Place::whole(slot, physical);
    // A physical zone with another slot stays as it is, unless it takes no part any more.
    let takes_no_part = |shared: &SharedZones| shared.is_last_slot(place) || shared.ends_full_zone(id, place);
    if full && rows < device.geometry().zone_capacity.0 && core.zones.shared().is_none_or(takes_no_part) {
        part.act(Action::Finish).await.of(slot)?;
    }
    let (placed_by, rows) = (core.ctx.places.placed_by(id, role), RowSet::default());
    record(&Body::StaleRows { zone: id, generation, placed_by, rows, rewritten: true }).await?;
    {
        let mut zone = core.zones.zone(id);
        zone.stale.forget(role);
        zone.relocated.retain(|(stripe, parity), _| core.ctx.layout.parity(*stripe, *parity) != role);
    }
    copy_zone.act(Action::Reset).await.of(slot)?;
    device.flush().await.of(slot)
}

/// True if the part of a zone in `slot` begins its physical zone, and no other zone has content there.
fn has_physical_zone_alone(core: &Core, id: ZoneId, slot: Slot) -> bool {
    let role = core.ctx.places.role(id, slot);
    let place = role.and_then(|role| core.ctx.places.place(id, role));
    let is_alone = |place: Place| core.zones.shared().is_none_or(|shared| shared.is_alone(id, place));
    place.is_some_and(|place| place.row == 0 && is_alone(place))
}

/// Makes a relocated parity of the last stripe of a full zone the parity that goes to its place: that of the whole stripe, with
/// zeros above the zone's end.
fn extend_last_parity(zone: &mut Zone, layout: &Layout, role: Role, block: usize) {
    let last = layout.stripe_of(zone.readable());
    let Some(parity) = layout.parity_on(last, role) else { return };
    let Some(relocated) = zone.relocated.get_mut(&(last, parity)) else { return };
    let mut unit = relocated.unit.to_vec();
    extend_to_whole_stripe(layout, (last, parity), relocated.end, block, &mut unit);
    *relocated = RelocatedParity { end: layout.end(last), unit: Buf::copy_from(&unit) };
}

/// Rows of a part that is being rewritten. Bad rows stay bad: zeros take their place.
async fn rows_to_copy(
    core: &Arc<Core>,
    id: ZoneId,
    (slot, role): (Slot, Role),
    row: u64,
    count: u64,
) -> Result<BufMut> {
    let bad = &core.members.member(slot).bad_rows;
    if !bad.intersects(id, &(row..row + count)) {
        return core.reconstruct.rows_of(id, role, row, count).await;
    }
    let mut data = BufMut::with_capacity(core.ctx.bytes(count));
    for row in row..row + count {
        match bad.intersects(id, &(row..row + 1)) {
            true => data.extend_from_slice(&BufMut::zeroed(core.ctx.bytes(1))),
            false => data.extend_from_slice(&core.reconstruct.rows_of(id, role, row, 1).await?),
        }
    }
    Ok(data)
}

fn chunk_blocks(device: &MemberDrive, block: u32) -> u64 {
    (COPY_CHUNK_BYTES / u64::from(block)).min(device.geometry().max_transfer.0).max(1)
}

/// XORs the mask into the first bytes of each block, or removes it: user data may have a record's magic.
fn apply_mask(data: &mut [u8], block: u32, mask: u64) {
    for block in data.chunks_mut(block as usize) {
        if let Some(first) = block.first_chunk_mut::<8>() {
            *first = (u64::from_le_bytes(*first) ^ mask).to_le_bytes();
        }
    }
}

/// Writes physical zone `to` back from its copy in a metadata zone.
pub(crate) async fn copy_back(
    device: &MemberDrive,
    block: u32,
    to: ZoneId,
    rows: u64,
    copy: ZoneId,
    mask: u64,
) -> Result<()> {
    let (part, copy) = (PhysicalZone::at(&**device, to), PhysicalZone::at(&**device, copy));
    part.clear().await?;
    let mut row = 0;
    while row < rows {
        let count = chunk_blocks(device, block).min(rows - row);
        let bytes = usize::try_from(count * u64::from(block)).expect("a chunk");
        let mut data = copy.read(row, BufMut::zeroed(bytes)).await?;
        apply_mask(&mut data, block, mask);
        part.write(row, data.freeze(), Durability::Cached).await?;
        row += count;
    }
    device.flush().await
}
