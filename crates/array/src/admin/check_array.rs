//! Checks an array that is not assembled: what a mount would find, and on request whether all parity matches its
//! data. Reads only.

use std::sync::Arc;

use zoned::{Blocks, BufMut, ErrorKind, Result, ZoneId, ZoneState, ZonedDevice};

use crate::admin::status::{MemberState, status};
use crate::degraded::whole_stripes::WholeStripes;
use crate::layout::Slot;
use crate::member::log_reader;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::mount::decide::{PartState, Verdict};
use crate::mount::gather::Mount;
use crate::zone::stale_rows::apply_relocated;
use crate::{OpenOptions, Status};

/// Settings of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// True if the check also reads all data and parity of the array and compares them. Default false.
    pub deep: bool,
}

/// The severity of a problem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// A warning: the next mount handles the problem, or no data is lost.
    Warning,
    /// An error: data of the array is lost or wrong.
    Error,
}

/// A problem of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The slot of the drive that the problem concerns, if any.
    pub slot: Option<Slot>,
    /// The logical zone that the problem concerns, if any.
    pub zone: Option<ZoneId>,
    /// A description.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    /// The array and its members.
    pub status: Status,
    /// Number of logical zones with content.
    pub zones: u32,
    /// All problems that the check found, errors first.
    pub problems: Vec<Problem>,
}

/// Most problems of one kind that a check lists one by one; it only counts further ones.
const MAX_LISTED_PROBLEMS: usize = 64;
/// Bytes that a deep check reads from each drive at a time.
const READ_CHUNK_BYTES: u64 = 512 << 10;

/// Checks the array that `devices` are members of. The array must not be in use. Reads only.
///
/// Errors: those of [`status`](crate::status()). A reason that makes a mount impossible is a problem in the report.
pub async fn check(devices: &[Arc<dyn ZonedDevice>], options: CheckOptions) -> Result<CheckReport> {
    let status = status(devices).await?;
    let claims = log_reader::claims(MemberDrive::all(devices)).await?;
    let mut report = CheckReport { status, zones: 0, problems: Vec::new() };
    report.check_members();
    if let Some(error) = report.status.mount_error.clone() {
        report.add(Severity::Error, None, None, error);
    }
    match Mount::gather(claims, OpenOptions::default(), &[]).await.map_err(|stopped| stopped.error) {
        Ok(mount) => report.check_zones(&mount, options).await?,
        Err(e) if e.kind() == ErrorKind::Host => return Err(e),
        Err(e) if report.status.mount_error.is_none() => {
            report.add(Severity::Error, None, None, e.to_string());
        }
        Err(_) => {}
    }
    report.problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    Ok(report)
}

impl CheckReport {
    /// True if the check found no problem of severity error; warnings do not count.
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity < Severity::Error)
    }

    fn add(&mut self, severity: Severity, slot: Option<Slot>, zone: Option<ZoneId>, what: impl Into<String>) {
        self.problems.push(Problem { severity, slot, zone, what: what.into() });
    }

    fn check_members(&mut self) {
        for member in self.status.members.clone() {
            let what = match member.state {
                MemberState::Good => continue,
                MemberState::Failed => "the drive failed, and the array does without it",
                MemberState::Vacated => "the drive failed, and all its parts lie on other drives",
                MemberState::Missing => {
                    "the drive is missing: a mount makes the array do without it for good"
                }
                MemberState::Rebuilding => "the drive's rebuild is not done: a mount goes on with it",
            };
            self.add(Severity::Warning, Some(member.slot), None, what);
        }
        for spare in self.status.spares.clone().iter().filter(|spare| spare.device.is_none()) {
            let what = format!("idle spare {} is missing: it takes no failed drive's place", spare.uuid);
            self.add(Severity::Warning, None, None, what);
        }
    }

    async fn check_zones(&mut self, mount: &Mount, options: CheckOptions) -> Result<()> {
        for (slot, present) in (0..).map(Slot).zip(&mount.present) {
            let Some(present) = present else { continue };
            if present.log.epochs.last_key_value().is_some_and(|(epoch, _)| *epoch > mount.epoch) {
                let what = "a power cut ended the last mount: its records do not count";
                self.add(Severity::Warning, Some(slot), None, what);
            }
            if present.log.unsound > 0 {
                let what = format!("{} records of the log are implausible, and ignored", present.log.unsound);
                self.add(Severity::Warning, Some(slot), None, what);
            }
            for info in &present.zones {
                if matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline) {
                    let zone = present.device.own_zone(info.zone);
                    let what = format!("metadata zone {zone} is {:?}: replace the drive", info.state);
                    self.add(Severity::Warning, Some(slot), None, what);
                }
            }
        }
        for (slot, why) in &mount.unusable {
            self.add(Severity::Warning, Some(*slot), None, why.reason_and_remedy());
        }
        for (slot, info) in mount.worn_zones_without_part() {
            let zone = mount.present(slot).map_or(info.zone, |present| present.device.own_zone(info.zone));
            let what =
                format!("physical zone {zone} is {:?}: the drive's reserve is smaller by one", info.state);
            self.add(Severity::Warning, Some(slot), None, what);
        }
        for id in &mount.contested_maps {
            let what =
                "the zone's map names a physical zone of another zone, and is passed over: the zone is lost";
            self.add(Severity::Error, None, Some(*id), what);
        }
        for worn in mount.worn_zones() {
            let what = format!("the zone is {:?}: it takes no more writes", worn.state);
            self.add(Severity::Warning, Some(worn.slot), Some(worn.zone), what);
        }
        let whole = mount.present.iter().all(Option::is_some);
        if options.deep && !whole {
            let what = "a drive is missing: everything is read, and nothing can be compared";
            self.add(Severity::Warning, None, None, what);
        }
        for id in (0..mount.superblock.zones).map(ZoneId) {
            self.check_zone(mount, id, options.deep).await?;
        }
        Ok(())
    }

    async fn check_zone(&mut self, mount: &Mount, id: ZoneId, deep: bool) -> Result<()> {
        let (entry, decision) = mount.decide(id);
        if mount.has_failed(id, &entry, &decision) {
            let what = "too many drives lack their part of the zone: it is lost, until it is reset";
            self.add(Severity::Error, None, Some(id), what);
            return Ok(());
        }
        let decision = mount.decide_section(id, decision);
        match decision.verdict {
            Verdict::Empty => return Ok(()),
            Verdict::Reset => {
                let what = "a reset was begun, or nothing of the zone counts: a mount empties it";
                self.add(Severity::Warning, None, Some(id), what);
                return Ok(());
            }
            Verdict::OpenAboveStale => {
                let what = "some drives hold blocks above the pointer: a mount makes these rows stale";
                self.add(Severity::Warning, None, Some(id), what);
            }
            Verdict::FullWithoutContent => {
                let what = "the section before it may end inside its last stripe: a mount empties this one and makes the joined zone full";
                self.add(Severity::Warning, None, Some(id), what);
                return Ok(());
            }
            Verdict::Open | Verdict::Full | Verdict::Known => {}
        }
        self.zones += u32::from(decision.pointer > Blocks::ZERO);
        let lost = mount.bad_rows_of(id, entry.generation);
        for (slot, ranges) in (0..).map(Slot).zip(&lost).filter(|(_, ranges)| !ranges.is_empty()) {
            let blocks = ranges.len();
            let what = format!("{blocks} blocks were lost when the drive was rebuilt");
            self.add(Severity::Error, Some(slot), Some(id), what);
        }
        if !deep {
            return Ok(());
        }
        // A mount recomputes the parity of stripes that may have been in flight: the check does not compare
        // these stripes.
        let layout = &mount.layout;
        let sure = match decision.verdict {
            Verdict::Known => layout.stripe_of(decision.pointer),
            _ => decision.from.min(layout.stripe_of(decision.pointer)),
        };
        let rows = |stripe| layout.row(stripe).min(layout.part_rows);
        let (sure, all) = (rows(sure), rows(layout.stripe_of(decision.pointer)));
        let (stale, relocated) = mount.relocated_content(id, entry.generation);
        let block = u64::from(mount.superblock.block_size);
        let there = mount.present.iter().flatten();
        let most = there.map(|present| present.device.geometry().max_transfer.0).min().unwrap_or(u64::MAX);
        let chunk = ((READ_CHUNK_BYTES / block).min(most) / layout.unit).max(1) * layout.unit;
        let (mut row, mut wrong) = (0, 0);
        while row < all {
            let end = (row + chunk).min(if row < sure { sure } else { all });
            let bytes = usize::try_from((end - row) * block).expect("a chunk");
            let mut parts: Vec<Option<BufMut>> = layout.roles().map(|_| None).collect();
            let mut compare = row < sure;
            for role in mount.places.slots().filter_map(|slot| mount.places.role(id, slot)) {
                let there = mount.physical_zone(id, role);
                let there = there.filter(|_| mount.part(id, role) != PartState::Missing);
                let Some(((slot, present, _), place)) = there.zip(mount.places.place(id, role)) else {
                    compare = false;
                    continue;
                };
                // A stripe with bad rows has lost content, so its parity is not compared.
                compare &= !lost.get(slot.index()).is_some_and(|bad| bad.intersects(&(row..end)));
                match PhysicalZone::with_part(&*present.device, place).read(row, BufMut::zeroed(bytes)).await
                {
                    Ok(mut data) => {
                        apply_relocated(
                            layout,
                            mount.superblock.block_size as usize,
                            (&stale, &relocated),
                            role,
                            row,
                            &mut data,
                        );
                        if let Some(part) = parts.get_mut(role.index()) {
                            *part = Some(data);
                        }
                    }
                    Err(e) => {
                        compare = false;
                        let held = e.kind() == ErrorKind::Media && !stale.of(role).is_empty();
                        let severity = if held { Severity::Warning } else { Severity::Error };
                        self.add(severity, Some(slot), Some(id), format!("rows {row} to {end}: {e}"));
                    }
                }
            }
            let block = mount.superblock.block_size as usize;
            let stripes = WholeStripes { layout, block, rows: row..end, parts: &parts };
            let mismatches = if compare { stripes.mismatches() } else { Vec::new() };
            for stripe in mismatches {
                wrong += 1;
                if wrong <= MAX_LISTED_PROBLEMS {
                    let what = format!("the parity of stripe {} does not fit its data", stripe.0);
                    self.add(Severity::Error, None, Some(id), what);
                }
            }
            row = end;
        }
        if wrong > MAX_LISTED_PROBLEMS {
            let what = format!("the parity of {} more stripes does not fit", wrong - MAX_LISTED_PROBLEMS);
            self.add(Severity::Error, None, Some(id), what);
        }
        Ok(())
    }
}
