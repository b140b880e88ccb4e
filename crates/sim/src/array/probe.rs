//! Judges a crash state of the target `array`: mounts the images, compares, reads again, writes on, rebuilds, cuts again.

use std::sync::Arc;
use std::time::Duration;

use ::array::{Array, Health, Layout, MemberInfo, OpenOptions, Pace, Role, Slot, Superblock};
use parking_lot::Mutex;
use units::{Bytes, Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, Latency};
use zoned::{Blocks, ZoneId, ZoneState, ZonedDevice};

use super::drive_failure::DriveFailure;
use super::model::{ShownZone, WorkloadEvent, WornZone, ZonesModel};
use super::record::{STEPS_PER_TASK, replace};
use super::shape::{LOGICAL_ZONES, MissingDrive, Shape, WearTime, Worn, latency};
use super::unreadable::{LostZones, UnreadableBlocks, UnreadableDrive};
use super::workload::{Task, read_all_zones, zones_of_task};
use crate::choose::Sample;
use crate::model::{Fault, fault};
use crate::oracle::SECOND_CUT_EVERY;
use crate::report::FailureKind;
use crate::second_cut::Images;
use crate::{BrokenRules, Rng};

/// The workload and the drive failure that a crash state belongs to.
pub(super) struct State<'a> {
    pub shape: &'a Shape,
    pub failure: DriveFailure,
    pub model: &'a ZonesModel,
    pub broken: BrokenRules,
}

/// Judges one crash state of the target `array`.
pub(super) struct Probe<'a> {
    state: &'a State<'a>,
    rng: Rng,
}

impl Probe<'_> {
    pub(super) fn new<'a>(state: &'a State<'a>, seed: u64) -> Probe<'a> {
        Probe { state, rng: Rng::at(seed, &[1]) }
    }

    /// Mounts the array, compares its zones with the model, writes on or rebuilds. Gives the faults.
    pub(super) fn run(mut self, mut images: Images) -> Vec<Fault> {
        let (shape, failure, model) = (self.state.shape, self.state.failure, self.state.model);
        // Some mounts are cut by a second power failure, a few of them several times.
        let mut cut_in_mount = false;
        while self.rng.below(SECOND_CUT_EVERY) == 0 {
            let drives = ImageDrives::on_own_clock(images, self.rng.draw(), latency());
            drives.wear(shape.worn().filter(|worn| worn.when == WearTime::At));
            let time = Duration::from_micros(self.rng.below(1_500));
            let open = Array::open(drives.devices_without(&[]), self.open(drives.seed));
            block_on(&*drives.driver, async {
                drop(spawn(&*drives.driver, "mount", async move { drop(open.await) }));
                sleep_until(&*drives.driver, drives.driver.now().after(time)).await;
            });
            images = drives.cut(&mut self.rng);
            cut_in_mount = true;
        }
        let after = failure.after();
        let lacking = shape.drives.saturating_sub(images.len());
        let goes_on = after.is_empty() && self.rng.below(SECOND_CUT_EVERY) == 0;
        let kept =
            ((shape.spare_drives > 0 || cut_in_mount) && shape.worn().is_none()).then(|| images.clone());
        // The drives' operations take time only if a later cut must find them in flight.
        let drives = ImageDrives::on_own_clock(
            images,
            self.rng.draw(),
            if goes_on { latency() } else { Latency::NONE },
        );
        drives.wear(shape.worn().filter(|worn| worn.when == WearTime::At));
        let found = self.worn(&drives, lacking, model);
        let (array, shown) = match self.mount(&drives, &[]) {
            Ok(mounted) => mounted,
            Err(fault) => return vec![fault],
        };
        let faults = model.judge(&shown, failure.leaves_whole(shape), found);
        if !faults.is_empty() {
            return faults;
        }
        if let Some(kept) = kept
            && lacks_nothing(&array.superblock())
            && let Some(fault) = self.mount_without_another(kept, cut_in_mount)
        {
            return vec![fault];
        }
        if shape.spare_drives > 0
            && !goes_on
            && let Some(fault) = self.restore(&drives, &array, &shown)
        {
            return vec![fault];
        }
        let is_after = |worn: &Worn| {
            worn.when == WearTime::After
                && (shape.zone_with_wear(*worn).is_none() || !is_of_another_zone(&array, *worn))
        };
        drives.wear(shape.worn().filter(is_after));
        let worn = shape.worn().filter(|worn| drives.is_worn(*worn));
        if after.is_empty() {
            return if goes_on { self.write_on(&drives, &array, &shown) } else { Vec::new() };
        }
        // Parts of the first array may be moving: the second one has drives of its own.
        let again = drives.copies();
        drop(array);
        match self.mount(&again, &after) {
            Ok((_, again)) => {
                let worn = worn.map(|worn| WornZone {
                    zone: shape.zone_with_wear(worn),
                    offline: worn.state == ZoneState::Offline
                        && !after.contains(&worn.slot)
                        && lacking + after.len() >= shape.parities as usize,
                    filled: false,
                });
                let stripe = shape.unit * (shape.width as u64 - u64::from(shape.parities));
                // The lost part may have been rebuilt, or have moved to spare room, between the two mounts.
                let is_restored =
                    shape.spare_drives > 0 || matches!(shape.missing, MissingDrive::Replaced(_));
                ZonesModel::judge_again(&shown, &again, worn, is_restored.then_some(stripe))
            }
            Err(fault) => vec![fault],
        }
    }

    /// Waits until the parts of drives that are gone lie on other drives, and reads all zones again. Where the array lacks nothing then,
    /// another drive is lost with the power: the next mount must show all content.
    fn restore(&mut self, drives: &ImageDrives, array: &Arc<Array>, shown: &[ShownZone]) -> Option<Fault> {
        let again = block_on(&*drives.driver, async {
            // No part moves beside a rebuild, which the mount goes on with, or begins on a spare once parts have moved.
            for _ in 0..2 {
                if let Some(rebuild) = array.rebuild() {
                    let _failed_or_not = rebuild.wait().await;
                }
                let restored = array.restore_parts(Pace::UNBOUNDED).await;
                restored.map_err(|e| fault(FailureKind::Check, format!("moves to spare room: {e}")))?;
            }
            let lost = array.status().lost_parts;
            let is_lacking = |member: &&MemberInfo| member.failed || member.rebuilding;
            let superblock = array.superblock();
            let lacking = superblock.members.iter().filter(is_lacking).count();
            // Moves of parts that nothing asked for may have filled the only drive that a lost part can go to. A part on a drive that is
            // gone cannot move where the stripes lack a part in a worn physical zone too.
            let shape = self.state.shape;
            if lost > 0 && !shape.moves && shape.worn().is_none() && lacking <= shape.spare_drives {
                return Err(fault(FailureKind::Check, format!("{lost} parts have not moved to spare room")));
            }
            let device: Arc<dyn ZonedDevice> = Arc::clone(array) as Arc<dyn ZonedDevice>;
            read_all_zones(&device, &|_, _| false).await.map_err(|what| fault(FailureKind::Lost, what))
        });
        let faults = match again {
            Ok(again) => ZonesModel::judge_again(shown, &again, None, None),
            Err(fault) => vec![fault],
        };
        let first = faults.into_iter().next().map(|mut fault| {
            fault.what += " (after lost parts moved to spare room)";
            fault
        });
        first.or_else(|| self.lose_another_drive(drives, array, shown))
    }

    /// Mounts the images of a cut again, without one more drive, or without `each` in turn, if all members' drives are there, or vacated,
    /// and each drive's superblock said so before the cut.
    fn mount_without_another(&mut self, images: Images, each: bool) -> Option<Fault> {
        let seed = self.rng.draw();
        let drives = ImageDrives::on_own_clock(images, seed, Latency::NONE);
        let devices = drives.devices_without(&[]);
        let whole = block_on(&*drives.driver, ::array::status(&devices)).ok()?;
        if whole.health() != Health::Clean {
            return None;
        }
        for device in devices {
            let own = block_on(&*drives.driver, ::array::status(&[device])).ok()?;
            if !lacks_nothing(&own.superblock) {
                return None;
            }
        }
        let present: Vec<usize> = drives.emus.iter().map(|(drive, _)| *drive).collect();
        let one = present.get(self.rng.index(present.len())).copied()?;
        let lost = if each { present } else { vec![one] };
        lost.into_iter().find_map(|lost| {
            let faults = match self.mount(&drives.copies(), &[lost]) {
                Ok((_, shown)) => self.state.model.judge(&shown, false, None),
                Err(fault) => vec![fault],
            };
            faults.into_iter().next().map(|mut fault| {
                fault.what += &format!(" (drive {lost} lost too, of an array that lacks nothing)");
                fault
            })
        })
    }

    /// Loses one more drive of an array that lacks nothing of those that are gone, and mounts again.
    fn lose_another_drive(
        &mut self,
        drives: &ImageDrives,
        array: &Arc<Array>,
        shown: &[ShownZone],
    ) -> Option<Fault> {
        let shape = self.state.shape;
        if !lacks_nothing_of_failed_drives(&array.superblock()) || shape.worn().is_some() {
            return None;
        }
        let (images, seed) = (drives.cut(&mut self.rng), self.rng.draw());
        let again = ImageDrives::on_own_clock(images, seed, Latency::NONE);
        let present: Vec<usize> = again.emus.iter().map(|(drive, _)| *drive).collect();
        let lost = present.get(self.rng.index(present.len())).copied()?;
        let faults = match self.mount(&again, &[lost]) {
            Ok((_, after)) => ZonesModel::shown(shown, shape.atomic).judge(&after, false, None),
            Err(fault) => vec![fault],
        };
        faults.into_iter().next().map(|mut fault| {
            fault.what += &format!(" (after lost parts moved to spare room, then drive {lost} was lost)");
            fault
        })
    }

    /// The logical zone whose worn physical zone is on a present drive of an array that lacks `lacking` drives. `model`: what clients
    /// wrote before the mount.
    fn worn(&self, drives: &ImageDrives, lacking: usize, model: &ZonesModel) -> Option<WornZone> {
        let shape = self.state.shape;
        let worn = shape.worn().filter(|worn| drives.is_worn(*worn))?;
        let offline = worn.state == ZoneState::Offline && lacking >= shape.parities as usize;
        let zone = shape.zone_with_wear(worn);
        let submitted = zone.map_or(0, |zone| model.submitted(zone));
        let is_filled = |section: &Worn| {
            drives
                .emus
                .iter()
                .any(|(_, emu)| drives.physical_zone_state(emu, *section) == Some(ZoneState::Full))
        };
        // A section that clients have written to its end is full anyway.
        let filled =
            zone.is_none() || shape.sections_with_wear(worn, submitted).any(|section| is_filled(&section));
        Some(WornZone { zone, offline, filled })
    }

    /// Options of the array's mount. Half of all mounts rewrite every zone with stale rows; the rest relocate writes to stale
    /// rows.
    fn open(&self, seed: u64) -> OpenOptions {
        let rebuild_above = Bytes(if seed.is_multiple_of(2) { 0 } else { 1 << 20 });
        let options = self.state.shape.with_appends(OpenOptions { rebuild_above, ..OpenOptions::default() });
        self.state.broken.array_options_with_broken_rule(options)
    }

    fn mount(&self, drives: &ImageDrives, without: &[usize]) -> Result<(Arc<Array>, Vec<ShownZone>), Fault> {
        block_on(&*drives.driver, async {
            let array = Array::open(drives.devices_without(without), self.open(drives.seed))
                .await
                .map_err(|e| fault(FailureKind::Mount, format!("the mount: {e}")))?;
            let device: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
            let superblock = array.superblock();
            let layout = Layout {
                width: u32::try_from(self.state.shape.width).expect("a few"),
                parities: self.state.shape.parities,
                unit: u64::from(superblock.unit),
                part_rows: superblock.part_rows().0,
            };
            // A row with one unreadable block may lack a second drive's block too: then every block of the row may read as a
            // media error.
            let may = |zone: ZoneId, n: u64| {
                let (zone, offset) = array.locate(zone, Blocks(n));
                let piece = layout.locate(offset);
                drives.bad.was(zone, layout.row(piece.stripe) + piece.row)
            };
            let shown = read_all_zones(&device, &may).await.map_err(|what| fault(FailureKind::Lost, what))?;
            Ok((array, shown))
        })
    }

    /// Writes to the array after a mount, beside a rebuild in half of the degraded arrays, cuts the power again, fails a drive
    /// in half of the whole arrays, and mounts again.
    fn write_on(&mut self, drives: &ImageDrives, array: &Arc<Array>, shown: &[ShownZone]) -> Vec<Fault> {
        let shape = self.state.shape;
        // The worn zone's state is read before any task starts, because a zone report advances the virtual clock.
        let gone = shape.worn().filter(|worn| worn.state == ZoneState::Offline && drives.is_worn(*worn));
        let device: Arc<dyn ZonedDevice> = Arc::clone(array) as Arc<dyn ZonedDevice>;
        let model = Arc::new(Mutex::new(ZonesModel::shown(shown, shape.atomic)));
        let time = Duration::from_micros(self.rng.below(3_000));
        let error = Arc::new(Mutex::new(None));
        let lacks = |member: &MemberInfo| member.failed || member.rebuilding;
        let missing = array.superblock().members.iter().position(lacks);
        let first_lacking = array.superblock().members.iter().filter(|member| lacks(member)).count();
        let rebuilt = missing.filter(|_| self.rng.chance(50));
        // A rebuild that the power cut interrupted resumes by itself, and the mount begins a rebuild onto a spare.
        let resumed = array.rebuild();
        let new = rebuilt
            .filter(|_| resumed.is_none())
            .map(|_| Emu::memory(shape.drive(shape.recorded(), latency()), Arc::clone(&drives.driver)));
        if new.is_some() && self.rng.chance(40) {
            drives.make_unreadable(&mut self.rng, missing, array, shown);
        }
        let replaced = Arc::new(Mutex::new(false));
        let rng = &mut self.rng;
        block_on(&*drives.driver, async {
            for task in 0..2_u32 {
                let sink = Arc::clone(&model);
                let sink = Arc::new(move |event: WorkloadEvent| sink.lock().apply(&event));
                let zones = zones_of_task(task, &device);
                let task =
                    Task::new(&device, sink, rng.draw(), zones, shown, STEPS_PER_TASK).allow_wear(shape);
                let error = Arc::clone(&error);
                drop(spawn(&*drives.driver, "more", async move {
                    if let Err(why) = task.run().await {
                        *error.lock() = Some(why);
                    }
                }));
            }
            if let Some(slot) = rebuilt {
                let (array, new) = (Arc::clone(array), new.clone());
                let (error, replaced) = (Arc::clone(&error), Arc::clone(&replaced));
                drop(spawn(&*drives.driver, "rebuild", async move {
                    let result = match (resumed, new) {
                        (Some(resumed), _) => resumed.wait().await,
                        (None, Some(new)) => replace(&array, slot, new).await,
                        (None, None) => Ok(()),
                    };
                    match result {
                        Ok(()) => *replaced.lock() = true,
                        Err(e) => *error.lock() = Some(format!("a rebuild: {e}")),
                    }
                }));
            }
            let time = if rebuilt.is_some() { time * 4 } else { time };
            sleep_until(&*drives.driver, drives.driver.now().after(time)).await;
        });
        if let Some(why) = error.lock().take() {
            return vec![fault(FailureKind::Check, format!("after the mount: {why}"))];
        }
        let model = model.lock().clone();
        let replaced = *replaced.lock();
        let mut images = drives.cut(&mut self.rng);
        let bad = drives.bad.clone();
        if let Some(new) = &new {
            images.push((shape.recorded(), new.power_cut(&mut Sample::new(Rng::new(self.rng.draw())))));
        }
        let lacking = first_lacking - usize::from(replaced);
        let fails_drive = lacking < shape.parities as usize && self.rng.chance(50);
        if fails_drive {
            let drive = self.rng.index(images.len());
            images.remove(drive);
        }
        let mut drives = ImageDrives::on_own_clock(images, self.rng.draw(), Latency::NONE);
        drives.bad = bad;
        let mut worn = self.worn(&drives, lacking + usize::from(fails_drive), &model);
        if let Some(gone) = gone.filter(|_| first_lacking >= shape.parities as usize) {
            // The array may have declared the zone lost while other drives were missing, whether the worn drive is present now or
            // not.
            drives.bad.lose(match shape.zone_with_wear(gone) {
                Some(_) => LostZones::One(ZoneId(u32::try_from(gone.zone).expect("a few"))),
                None => LostZones::Any,
            });
            worn.get_or_insert(WornZone { zone: shape.zone_with_wear(gone), offline: true, filled: false })
                .offline = true;
        }
        let mut faults = match self.mount(&drives, &[]) {
            Ok((_, shown)) => {
                let strict = missing.is_none() && !fails_drive && shape.worn().is_none();
                model.judge(&shown, strict, worn)
            }
            Err(fault) => vec![fault],
        };
        for fault in &mut faults {
            let how = match (rebuilt, replaced) {
                (None, _) => "",
                (Some(_), false) => ", during a rebuild",
                (Some(_), true) => ", after a rebuild",
            };
            fault.what +=
                &format!(" (a second cut after {time:?}{how}, then one drive failed: {fails_drive})");
        }
        faults
    }
}

/// True if drives have failed, and the array lacks nothing of any of them.
fn lacks_nothing_of_failed_drives(superblock: &Superblock) -> bool {
    superblock.members.iter().any(|member| member.vacated) && lacks_nothing(superblock)
}

/// True if each member works, or is vacated.
fn lacks_nothing(superblock: &Superblock) -> bool {
    !superblock.members.iter().any(|member| member.is_lacking() || member.rebuilding)
}

/// True if the physical zone that is to wear out holds a part of another logical zone, which moved there after the mount.
fn is_of_another_zone(array: &Array, worn: Worn) -> bool {
    let slot = Slot(u32::try_from(worn.slot).expect("a few"));
    let drives = u32::try_from(array.superblock().members.len()).expect("a few");
    let zones = (0..LOGICAL_ZONES * array.superblock().sections).map(ZoneId);
    let zones = zones.filter(|zone| zone.index() != worn.zone);
    let mut parts = zones.flat_map(|zone| (0..drives).map(move |role| (zone, Role(role))));
    parts.any(|(zone, role)| array.place(zone, role) == Some((slot, worn.part(0))))
}

/// Emulated drives made from the images of an array's drives.
pub(super) struct ImageDrives {
    pub driver: Arc<dyn Driver>,
    emus: Vec<(usize, Arc<Emu>)>,
    seed: u64,
    /// The blocks that one of the array's drives cannot read.
    bad: UnreadableBlocks,
    /// The virtual clock that the drives made for themselves; `None` if they run on a given one.
    clock: Option<Arc<VirtualDriver>>,
}

impl Drop for ImageDrives {
    fn drop(&mut self) {
        if let Some(clock) = &self.clock {
            clock.drop_all_tasks();
        }
    }
}

impl ImageDrives {
    pub(super) fn on_own_clock(images: Images, seed: u64, latency: Latency) -> ImageDrives {
        let clock = VirtualDriver::new(seed);
        let mut drives = ImageDrives::on(Arc::clone(&clock) as Arc<dyn Driver>, images, seed, latency);
        drives.clock = Some(clock);
        drives
    }

    /// Emulated drives over images, on a given clock.
    pub(super) fn on(driver: Arc<dyn Driver>, images: Images, seed: u64, latency: Latency) -> ImageDrives {
        let emu = |(n, image)| (n, Emu::from_media(image, &format!("emu:{n}"), latency, Arc::clone(&driver)));
        let emus: Vec<(usize, Arc<Emu>)> = images.into_iter().map(emu).collect();
        let bad = emus.get(seed as usize % emus.len().max(1));
        let bad = bad.map_or_else(UnreadableBlocks::default, |(drive, emu)| {
            UnreadableBlocks::of(*drive, emu.geometry())
        });
        ImageDrives { emus, driver, seed, bad, clock: None }
    }

    /// New emulated drives with the content that the drives of `self` have now.
    fn copies(&self) -> ImageDrives {
        let images = self.emus.iter().map(|(drive, emu)| (*drive, emu.media())).collect();
        let mut drives = ImageDrives::on_own_clock(images, self.seed, Latency::NONE);
        drives.bad = self.bad.clone();
        drives
    }

    /// Makes a few written blocks of one drive unreadable.
    fn make_unreadable(&self, rng: &mut Rng, missing: Option<usize>, array: &Array, shown: &[ShownZone]) {
        if missing == Some(self.bad.drive) {
            return;
        }
        for _ in 0..1 + rng.below(3) {
            let zone = rng.index(shown.len());
            let (mut id, mut blocks) = (
                ZoneId(u32::try_from(zone).expect("a few")),
                shown.get(zone).map_or(0, |shown| shown.blocks.len() as u64),
            );
            if array.superblock().sections > 1 && blocks > 0 {
                let (section, offset) = array.locate(id, Blocks(rng.below(blocks)));
                (id, blocks) = (section, offset.0);
            }
            let rows = blocks / self.emus.len() as u64;
            if rows > 0 {
                let row = rng.below(rows);
                if let Some((physical, first)) = self.place_of(array, id) {
                    self.bad.add(id, physical, (first, row));
                }
            }
        }
    }

    /// The physical zone of the drive with unreadable blocks that holds its part of a logical zone, and the part's first row there.
    fn place_of(&self, array: &Array, zone: ZoneId) -> Option<(ZoneId, u64)> {
        let name = format!("emu:{}", self.bad.drive);
        let members = array.status().members;
        let slot = members.iter().find(|member| member.device.as_deref() == Some(name.as_str()))?.slot;
        let drives = u32::try_from(members.len()).ok()?;
        (0..drives).map(Role).find_map(|role| {
            let (_, physical) = array.place(zone, role).filter(|(of, _)| *of == slot)?;
            Some((physical, array.first_row(zone, role)))
        })
    }

    /// Wears out a physical zone, if its drive is present.
    fn wear(&self, worn: Option<Worn>) {
        let Some(worn) = worn else { return };
        if let Some((_, emu)) = self.emus.iter().find(|(drive, _)| *drive == worn.slot) {
            emu.wear(worn.part(emu.geometry().conventional), worn.state);
        }
    }

    /// Whether a physical zone of the array has worn out.
    fn is_worn(&self, worn: Worn) -> bool {
        let drive = self.emus.iter().find(|(drive, _)| *drive == worn.slot);
        drive.is_some_and(|(_, emu)| self.physical_zone_state(emu, worn) == Some(worn.state))
    }

    /// The state of the physical zone that one drive holds for a worn logical zone.
    fn physical_zone_state(&self, emu: &Arc<Emu>, worn: Worn) -> Option<ZoneState> {
        let (number, device) = (worn.part(emu.geometry().conventional).0, &**emu as &dyn ZonedDevice);
        let report = block_on(&*self.driver, device.report(number..number + 1)).ok()?;
        report.first().map(|info| info.state)
    }

    /// All drives but some.
    pub(super) fn devices_without(&self, without: &[usize]) -> Vec<Arc<dyn ZonedDevice>> {
        let all = self.emus.iter().filter(|(drive, _)| !without.contains(drive));
        let device = |(drive, emu): &(usize, Arc<Emu>)| {
            let device = Arc::clone(emu) as Arc<dyn ZonedDevice>;
            if *drive == self.bad.drive { UnreadableDrive::over(device, &self.bad) } else { device }
        };
        all.map(device).collect()
    }

    pub(super) fn cut(&self, rng: &mut Rng) -> Images {
        let cut = |emu: &Emu, seed| emu.power_cut(&mut Sample::new(Rng::new(seed)));
        self.emus.iter().map(|(drive, emu)| (*drive, cut(emu, rng.draw()))).collect()
    }
}
