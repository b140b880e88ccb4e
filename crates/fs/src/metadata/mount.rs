//! The mount: reads the superblock and the metadata log, recovers logs that were open, and decides the use of each zone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use units::sync::{Event, Turnstile};
use units::{Blocks, ZoneId};
use zoned::{Action, ZoneInfo, ZoneState, ZonedDevice};

use crate::background::BackgroundTasks;
use crate::cache::{PageCache, check_cache_size};
use crate::device::{self, Device, Purpose};
use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::files::stat::{Superblock, ZoneRole};
use crate::metadata::format::record::Record;
use crate::metadata::format::superblock;
use crate::metadata::log::{MetadataLog, MetadataLogEnd};
use crate::metadata::mkfs::{check_geometry, check_slots, read_superblock};
use crate::metadata::replay::{Replayed, replay};
use crate::metadata::state::State;
use crate::options::{CacheMode, FileKind, MountOptions};
use crate::shared::Shared;
use crate::wal::options::LogZones;
use crate::wal::ordered::read;
use crate::wal::ordered::recover::recover_with;
use crate::wal::segment::Segment;
use crate::writeback::dirty::DirtyBytes;
use crate::writeback::tasks;
use crate::zones::open_zone::{DataKind, DataSource, OpenZone};
use crate::zones::pins::Pins;
use crate::zones::pool::ReadBufferPool;
use crate::zones::slots::{OpenZoneShares, kept_for_reclaim};
use crate::zones::table::Phase;
use crate::zones::{ahead, cleaner, lease};

/// Mounts the file system, and starts its background tasks.
pub(crate) async fn mount(device: Arc<dyn ZonedDevice>, options: &MountOptions) -> Result<Arc<Shared>> {
    check_cache_size(options.cache)?;
    let device = Device::new(device);
    let dev = device.purpose(Purpose::Metadata);
    let geometry = dev.geometry().clone();
    let report = dev.report(0..geometry.zones).await.map_err(|e| Error::device("mounting", e))?;
    let (superblock, problems) = read_superblock(dev, &report).await?;
    for problem in problems {
        tracing::warn!(device = %geometry.name, problem, "mounting with the other copy");
    }
    check_geometry(&superblock, &geometry)?;
    if !options.read_only {
        superblock::check_writable(&superblock)?;
        check_slots(&geometry, "mounting for writing")?;
    }
    let mut replayed = replay(dev, &superblock, &report, &mut |_, _| {}).await?;
    if !options.read_only {
        prefer_conventional_zones(&superblock, &mut replayed.state, options.log.zones)?;
        // Writes of a killed process may still be in the device's cache. The mount relies on them, so it
        // flushes the cache.
        device::flush(dev, "mounting").await?;
    }
    recover_logs(device.purpose(Purpose::Log), &superblock, &mut replayed.state, options).await?;
    if !options.read_only {
        trim_parallel_logs(&mut replayed.state, &report)?;
    }
    let torn = replayed.torn && !options.rules().writes_behind_torn_tails();
    let shared = shared_state(device, superblock, options, replayed, &report);
    if options.read_only {
        return Ok(shared);
    }
    shared.close_opened(&report).await?;
    finish_active_zones(&shared, &report).await;
    if torn {
        // A metadata log with a torn tail is rolled before the mount's first commit: a later mount would not
        // find records behind the torn tail.
        let epoch = shared.metadata.chain().epoch();
        shared.metadata.roll(epoch).await?;
    }
    reset_active_dead_zones(&shared, &report).await?;
    let (me, work) = (Arc::downgrade(&shared), &shared.work);
    let begin = || shared.background.begin();
    if let Some(dirty) = &shared.dirty {
        let task = tasks::run(begin(), me.clone(), dirty.work.clone(), Arc::clone(&shared.driver));
        shared.driver.spawn("write-back", Box::pin(task));
    }
    shared.driver.spawn("cleaner", Box::pin(cleaner::run(begin(), me.clone(), work.clone())));
    shared.driver.spawn("open-ahead", Box::pin(ahead::run(begin(), me.clone(), work.clone())));
    shared.driver.spawn("committer", Box::pin(ahead::commit_soon(begin(), me, work.clone())));
    shared.kick_cleaner();
    Ok(shared)
}

fn shared_state(
    device: Device,
    superblock: Superblock,
    options: &MountOptions,
    replayed: Replayed,
    report: &[ZoneInfo],
) -> Arc<Shared> {
    let Replayed { mut state, chain, spare, max_epoch, .. } = replayed;
    let dev = Arc::clone(device.purpose(Purpose::Metadata));
    let geometry = dev.geometry();
    let slots = OpenZoneShares::of(geometry);
    let slots = if options.open_ahead { slots } else { OpenZoneShares { ahead: 0, ..slots } };
    // The cache of a new mount is empty.
    state.released.clear();
    state.allocator.slots = Some(slots);
    state.allocator.zone_blocks = geometry.zone_capacity.0;
    state.allocator.kept = kept_for_reclaim(u64::from(geometry.zones));
    state.allocator.reserve.kept = options.recovery_reserve;
    let limited = geometry.max_open.is_some() || geometry.max_active.is_some();
    decide_zone_uses(&mut state, report, slots, limited);
    let (pins, pool) = (Pins::new(geometry.zones), ReadBufferPool::new(geometry.block_size as usize));
    let (state, work) = (Arc::new(Mutex::new(state)), Event::new());
    let cache = PageCache::new(options.cache, geometry.block_size as usize);
    let writes_back = cache.is_some() && options.cache_mode == CacheMode::Buffered && !options.read_only;
    let dirty = writes_back.then(|| DirtyBytes::new(options.cache, options.longest_in_memory));
    let driver = Arc::clone(dev.driver());
    let background = BackgroundTasks::default();
    let metadata = MetadataLog::new(
        dev,
        superblock.clone(),
        options.rules(),
        slots.metadata < 2,
        (Arc::clone(&state), work.clone(), background.clone()),
        MetadataLogEnd { chain, spare, max_epoch },
    );
    Arc::new(Shared {
        driver,
        superblock,
        options: options.clone(),
        state,
        metadata,
        pins,
        pool,
        cache,
        dirty,
        work,
        space: Event::new(),
        zone_turn: Turnstile::new(),
        background,
        log_waits: AtomicU64::new(0),
        locks: Arc::new(Mutex::new(BTreeSet::new())),
        device,
    })
}

/// Recovers the ordered logs that were not closed, and closes them.
async fn recover_logs(
    dev: &Arc<dyn ZonedDevice>,
    superblock: &Superblock,
    state: &mut State,
    options: &MountOptions,
) -> Result<()> {
    let open = |f: &Arc<File>| f.kind == FileKind::Log && f.content.read().log.sealed.is_none();
    let logs: Vec<Arc<File>> = state.files().map(|node| &node.file).filter(|f| open(f)).cloned().collect();
    for file in logs {
        let (cuts, segments, modified_ms) = {
            let content = file.content.read();
            (content.log.cuts.clone(), content.log.segments.clone(), content.modified_ms)
        };
        let (uuid, broken) = (superblock.uuid, options.rules());
        let found = recover_with(dev, uuid, file.ino, &cuts, &segments, broken).await?;
        let damage = read::damaged_log_error(file.ino, None, &found);
        if let Some(error) = &damage {
            tracing::error!(%error, "a log lost an entry");
        }
        // A damaged log is closed with its size before the damage: the log stays short, and every reader gets
        // the error.
        let size = found.size.saturating_add(read::least_lost_bytes(found.missing, found.dropped_bytes));
        let used: Vec<bool> = segments.iter().zip(&found.used).map(|(s, used)| *used > s.start).collect();
        let keep = used.iter().rposition(|used| *used).map_or(0, |at| at + 1);
        let last_end = keep.checked_sub(1).and_then(|at| found.used.get(at)).copied().unwrap_or(Blocks::ZERO);
        let seal = Record::Seal {
            ino: file.ino,
            size,
            next_sequence: found.next_sequence,
            last_end,
            modified_ms,
            segments: u32::try_from(keep).expect("segments are counted in 32 bits"),
        };
        if options.read_only {
            let mut content = file.content.write();
            content.log.sealed = Some((size, found.next_sequence));
            content.size = size;
        } else {
            state.commit(seal)?;
        }
        let log = &mut file.content.write().log;
        (log.index, log.damage) = (Some(Arc::new(found.index)), damage);
    }
    Ok(())
}

/// Frees the unwritten blocks in the segments of parallel logs that were not closed.
fn trim_parallel_logs(state: &mut State, report: &[ZoneInfo]) -> Result<()> {
    let parallel = |f: &Arc<File>| f.kind == FileKind::ParallelLog;
    let logs: Vec<Arc<File>> =
        state.files().map(|node| &node.file).filter(|f| parallel(f)).cloned().collect();
    for file in logs {
        let segments = file.content.read().log.segments.clone();
        // The segments of a parallel log are handled in reverse order: the removal of a segment changes the
        // numbers of the segments behind it.
        let numbered: Vec<(u32, &Segment)> = (0..).zip(&segments).collect();
        for (segment, s) in numbered.into_iter().rev() {
            let written = report.get(s.zone.index()).map_or(Blocks::ZERO, |info| info.pointer);
            if written < s.end {
                state.commit(Record::Trim { ino: file.ino, segment, end: written })?;
            }
        }
    }
    Ok(())
}

/// Decides whether logs take segments in conventional zones.
fn prefer_conventional_zones(superblock: &Superblock, state: &mut State, zones: LogZones) -> Result<()> {
    let known = superblock.features_incompat & superblock::CONVENTIONAL_LOGS != 0;
    let there = known && !state.allocator.conventional.is_empty();
    if zones == LogZones::Conventional && !there {
        let why = "logs are to lie in conventional zones, and the file system has none for logs: the drive needs more than two \
                   conventional zones when the file system is made";
        return Err(Error::new(ErrorKind::Unsupported, "mounting").because(why));
    }
    state.allocator.prefers_conventional = there && zones != LogZones::Sequential;
    Ok(())
}

/// Decides the use of each zone that is neither empty nor full.
fn decide_zone_uses(state: &mut State, report: &[ZoneInfo], slots: OpenZoneShares, limited: bool) {
    for info in report {
        let Some(zone) = state.allocator.table.get(info.zone).copied() else { continue };
        match zone.phase {
            // The metadata points into an empty zone: the medium lost the zone's content. Files do not use
            // such a zone.
            Phase::Free if zone.live > 0 => state.allocator.table.set_phase(info.zone, Phase::Full),
            Phase::Full => {
                let partial = info.state != ZoneState::Full && info.pointer < info.capacity && zone.live > 0;
                match zone.role {
                    ZoneRole::Data { lifetime } if partial => {
                        continue_data_zone(state, info, lifetime, slots, limited);
                    }
                    ZoneRole::Log if partial && state.allocator.slot_free() => {
                        lease::offer_rest(&mut state.allocator, info.zone, info.pointer.0, info.capacity.0);
                    }
                    _ if partial && limited => state.allocator.finishing.push(info.zone),
                    role => state.allocator.table.set(info.zone, Phase::Full, role),
                }
            }
            _ => {}
        }
    }
}

fn continue_data_zone(
    state: &mut State,
    info: &ZoneInfo,
    lifetime: crate::Lifetime,
    slots: OpenZoneShares,
    limited: bool,
) {
    let role = ZoneRole::Data { lifetime };
    if state.allocator.open.len() < slots.data && state.allocator.slot_free() {
        state.allocator.table.set(info.zone, Phase::Data, role);
        // The metadata do not record whether flushes or compactions wrote a zone. Of the zones of one lifetime, flushes go on with the first and compactions with the others.
        let has_flushes = state.allocator.open.iter().any(|zone| zone.lifetime == lifetime);
        let source = if has_flushes { DataSource::Compaction } else { DataSource::Flush };
        let kind = DataKind { lifetime, source };
        let open = OpenZone::new(info.zone, kind, info.capacity.0, info.pointer.0);
        state.allocator.open.push(open);
    } else if limited {
        state.allocator.table.set(info.zone, Phase::Data, role);
        state.allocator.finishing.push(info.zone);
    } else {
        state.allocator.table.set(info.zone, Phase::Full, role);
    }
}

/// Finishes the zones that the device counts as active and that the mount will not write to, before the first
/// write needs a zone. After a power cut, zones that were open may be closed, and a reset may not have
/// happened.
async fn finish_active_zones(shared: &Arc<Shared>, report: &[ZoneInfo]) {
    let geometry = shared.device.geometry();
    if geometry.max_open.is_none() && geometry.max_active.is_none() {
        return;
    }
    let last = shared.metadata.chain().last_zone();
    let first = shared.superblock.metadata_first.0;
    let metadata = first..first + shared.superblock.metadata_zones;
    let dead = shared.state.lock().allocator.table.dead();
    let left = |z: &&ZoneInfo| {
        let unused = if metadata.contains(&z.zone.0) { z.zone != last } else { dead.contains(&z.zone) };
        z.state.is_active() && unused
    };
    for info in report.iter().filter(left) {
        if let Err(error) = shared.device.purpose(Purpose::Metadata).zone(info.zone, Action::Finish).await {
            tracing::warn!(zone = %info.zone, %error, "finishing a zone at mount failed");
        }
    }
    shared.finish_zones().await;
}

/// A mount resets active zones without a live block at once: each would hold an open-zone slot.
async fn reset_active_dead_zones(shared: &Arc<Shared>, report: &[ZoneInfo]) -> Result<()> {
    let active = |zone: &ZoneId| report.get(zone.index()).is_some_and(|z| z.state.is_active());
    let (dead, upto) = {
        let state = shared.state.lock();
        let dead: Vec<ZoneId> = state.allocator.table.dead().into_iter().filter(active).collect();
        let upto =
            dead.iter().filter_map(|z| Some(state.allocator.table.get(*z)?.freed_by)).max().unwrap_or(0);
        (dead, upto)
    };
    // The durable metadata may still have a log's unwritten segment in this zone.
    shared.metadata.commit_upto(upto).await?;
    for zone in dead {
        let reset = shared.device.purpose(Purpose::Metadata).zone(zone, Action::Reset).await;
        reset.map_err(|e| Error::device("resetting a zone at mount", e))?;
        shared.state.lock().allocator.table.set_phase(zone, Phase::Free);
    }
    Ok(())
}
