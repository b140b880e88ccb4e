//! Closing a parallel log: its zones are given back to the file system.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::Blocks;

use crate::error::Result;
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::wal::parallel::parts::Parts;
use crate::wal::parallel::segments::{SegmentTickets, Segments};
use crate::wal::parallel::zone::LogZone;
use crate::zones::table::Phase;

/// See [`ParallelLog::close`](crate::ParallelLog::close). Does nothing the second time; a close that was dropped half way is
/// done again.
pub(super) async fn close(parts: &Parts) -> Result<()> {
    let _turn = parts.closing.acquire().await;
    if parts.settled.load(Ordering::Acquire) {
        return Ok(());
    }
    let replacement = &parts.replacement;
    parts.health.close();
    parts.maintenance.room_was_freed();
    // The close waits until the log's operations in flight end, and maintenance has written the void entries
    // for those that failed.
    let quiet = || parts.voids.is_empty() || parts.health.is_poisoned() || replacement.is_short();
    wait_until(parts, || replacement.all().iter().all(|zone| zone.gate.is_idle()) && quiet()).await;
    parts.maintenance.stop();
    wait_until(parts, || parts.maintenance.has_ended()).await;
    let active = replacement.active.load_full();
    for zone in replacement.all() {
        let _drained = zone.gate.close();
    }
    // The close waits for all operations after a failure too: none may reach the device after the log is
    // opened again.
    wait_until(parts, || replacement.all().iter().all(|zone| zone.gate.is_drained())).await;
    let result = match parts.health.check() {
        Ok(()) => return_zones(parts, active.as_ref()).await,
        Err(error) => {
            abandon_zones(parts, active.as_ref());
            Err(error)
        }
    };
    let shared = &parts.handle.shared;
    {
        let mut state = shared.state.lock();
        if let Some(node) = state.file_node(parts.handle.file.ino) {
            node.writing = false;
        }
        state.allocator.wide -= replacement.stripe.extra();
    }
    parts.settled.store(true, Ordering::Release);
    shared.kick_cleaner();
    shared.space.notify();
    result
}

async fn wait_until(parts: &Parts, done: impl Fn() -> bool) {
    loop {
        let seen = parts.replacement.changed.version();
        parts.work.notify();
        if done() {
            return;
        }
        parts.replacement.changed.changed_since(seen).await;
    }
}

/// Gives the unused rest of each zone back to the file system, after a close without a failure.
async fn return_zones(parts: &Parts, active: Option<&Arc<LogZone>>) -> Result<()> {
    let replacement = &parts.replacement;
    let (left, neighbours) = {
        let mut spare = replacement.spare.lock();
        (std::mem::take(&mut spare.left), replacement.stripe.take())
    };
    for zone in &left {
        parts.maintenance.leave(zone).await;
    }
    for zone in &neighbours {
        return_neighbour(parts, zone)?;
    }
    let next = replacement.spare.lock().next.take();
    if next.is_some()
        && let Some(active) = active
    {
        // The log's open-zone slot already belongs to the next zone.
        parts.maintenance.leave(active).await;
    }
    let ino = parts.handle.file.ino;
    if let Some(last) = next.as_ref().or(active) {
        let pointer = Blocks(last.segment.start.0 + last.gate.used());
        let known = !last.has_failed();
        // Lock order: the list of segments first, then the file system's state. A concurrent retirement uses
        // the same order.
        let mut list = parts.segments.lock();
        let mut state = parts.handle.shared.state.lock();
        if known {
            let segment = u32::try_from(list.len().saturating_sub(1)).expect("few");
            state.commit(Record::Trim { ino, segment, end: pointer })?;
            if pointer == last.segment.start {
                list.pop();
            }
        }
        end_tickets(parts, list.last_mut());
        drop(list);
        state.allocator.end_lease(ino, known.then_some(pointer.0));
    }
    if parts.segments.free_retired(parts.segments.has_retired())? {
        parts.maintenance.room_was_freed();
    }
    Ok(())
}

/// Notes that no entry is added to the segment any more.
fn end_tickets(parts: &Parts, segment: Option<&mut SegmentTickets>) {
    if let Some(segment) = segment {
        segment.end = segment.end.or(Some(parts.order.next()));
    }
}

/// Ends the segment of a zone beside the newest one at its last entry. The cleaner finishes the zone.
fn return_neighbour(parts: &Parts, zone: &Arc<LogZone>) -> Result<()> {
    let mut list = parts.segments.lock();
    let Some(at) = Segments::position(&list, zone) else { return Ok(()) };
    let mut state = parts.handle.shared.state.lock();
    if !zone.has_failed() {
        let end = Blocks(zone.segment.start.0 + zone.gate.used());
        let segment = u32::try_from(at).expect("few");
        state.commit(Record::Trim { ino: parts.handle.file.ino, segment, end })?;
        if end == zone.segment.start {
            list.remove(at);
        }
    }
    if let Some(at) = Segments::position(&list, zone) {
        end_tickets(parts, list.get_mut(at));
    }
    finish_later(&mut state, zone);
    Ok(())
}

/// Has the cleaner finish the zones after a failure, when the ends of their entries are unknown.
fn abandon_zones(parts: &Parts, active: Option<&Arc<LogZone>>) {
    let mut spare = parts.replacement.spare.lock();
    let mut zones = std::mem::take(&mut spare.left);
    zones.extend(parts.replacement.stripe.take());
    zones.extend(active.cloned());
    drop(spare);
    let mut state = parts.handle.shared.state.lock();
    state.allocator.end_lease(parts.handle.file.ino, None);
    for zone in zones {
        finish_later(&mut state, &zone);
    }
}

/// Has the cleaner finish a zone, unless the zone is filled already or waits for the cleaner.
fn finish_later(state: &mut State, zone: &LogZone) {
    let id = zone.segment.zone;
    if zone.begin_fill() && !state.allocator.finishing.contains(&id) {
        state.allocator.table.set(id, Phase::Log, ZoneRole::Log);
        state.allocator.finishing.push(id);
    }
}
