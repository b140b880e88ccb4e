//! The state of an array as JSON: the answer to `GET /array` and the output of `furrow array status --json`.

use std::collections::BTreeMap;

use array::{Event, EventKind, Health, MemberState, Progress, ScrubReport, Status};
use serde::{Deserialize, Serialize};
use zoned::ZoneState;

/// The state of an array and its drives. Sizes are in bytes, times in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrayView {
    /// The array's UUID.
    pub array: String,
    /// The array's name for people.
    pub label: String,
    /// The array's health: `clean`, `degraded` or `failed`.
    pub health: String,
    /// Number of drives that may still fail without loss of data.
    pub failures_left: u32,
    /// Why no mount takes the array, the cause first; `None` for an array that a process has open, and for one that a mount
    /// takes.
    pub mount_error: Option<String>,
    /// Number of logical zones.
    pub zones: u32,
    /// Bytes in a stripe unit.
    pub stripe_unit: u64,
    /// Units of a stripe, parities included. Each zone takes as many of the drives.
    pub width: u32,
    /// Number of logical zones that share a physical zone: 1, or more with zones of a fraction of the drives'.
    pub zone_shares: u32,
    /// Sections of a joined zone: 1 where each zone is for itself. Zones in events and problems are sections: S of zone Z is
    /// `Z * zone_sections + S`.
    pub zone_sections: u32,
    /// True if the stripes of the sections of a joined zone take turns.
    pub interleaved: bool,
    /// Number of drives whose capacity stays free for the parts of drives that fail.
    pub spare_drives: u32,
    /// Bytes that the array holds when it is full.
    pub capacity: u64,
    /// The array's memory; `None` if no mount takes the array.
    pub memory: Option<MemoryView>,
    /// The space of the drives; `None` with the fixed placement, or if no mount takes the array.
    pub space: Option<SpaceView>,
    /// The array's members, in the order of their slots.
    pub members: Vec<MemberView>,
    /// The idle spares, in the order in which they are taken.
    pub spares: Vec<SpareView>,
    /// The running rebuild.
    pub rebuild: Option<ProgressView>,
    /// The outcome of the last rebuild since the array was opened.
    pub last_rebuild: Option<EndView>,
    /// The running scrub.
    pub scrub: Option<ProgressView>,
    /// The outcome of the last scrub since the array was opened.
    pub last_scrub: Option<EndView>,
    /// Physical zones that are read-only or offline.
    pub worn: Vec<WornView>,
    /// Advice for the operator about the array, in sentences.
    pub advice: Vec<String>,
    /// The array's counters since it was opened; empty for an array that no process has open.
    pub counters: BTreeMap<String, u64>,
    /// Time when the array was opened, in milliseconds since 1970; 0 for an array that no process has open.
    pub opened_ms: u64,
    /// The last array events since the array was opened, oldest first.
    pub events: Vec<EventView>,
}

/// The memory of an array in bytes, beside the data of clients' operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryView {
    /// Tables of zones and places.
    pub tables: u64,
    /// Parity of stripes that are partly written: at most a stripe unit for each parity and open zone.
    pub parity: u64,
    /// Content that the metadata logs hold because its place does not take it.
    pub relocated: u64,
}

/// The space of the physical zones of an array's drives, parities included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceView {
    /// Bytes of parts with content.
    pub live: u64,
    /// Bytes of physical zones with content, reset parts and room behind parts included.
    pub committed: u64,
    /// Bytes of all physical zones that take writes.
    pub usable: u64,
    /// Empty physical zones of the drive with the fewest.
    pub empty_zones: u32,
    /// Physical zones of each drive beside those that the parts of all logical zones fill.
    pub reserve_zones: u32,
    /// True while parts move, or a reclaim is ordered.
    pub moving: bool,
}

/// The state of an array's member.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberView {
    /// The member's slot.
    pub slot: u32,
    /// The member's state: `good`, `failed`, `missing` or `rebuilding`.
    pub state: String,
    /// The name of the member's drive, if the drive is present.
    pub drive: Option<String>,
    /// The member's UUID.
    pub uuid: String,
    /// Number of the member's reads that gave medium errors since the array was opened.
    pub media_errors: u64,
}

/// An idle spare of an array.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpareView {
    /// The spare's UUID, which becomes the member's when the spare is taken.
    pub uuid: String,
    /// The spare's state: `spare`, or `missing` if its drive is not present.
    pub state: String,
    /// The name of the spare's drive, if the drive is present.
    pub drive: Option<String>,
}

/// The progress of a rebuild or a scrub.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressView {
    /// The slot that is rebuilt; `None` for a scrub.
    pub slot: Option<u32>,
    /// Number of zones that are complete.
    pub zones_done: u32,
    /// Number of zones with data, complete or not.
    pub zones: u32,
    /// Bytes that the job has read or written so far.
    pub bytes: u64,
    /// Bytes that the job reads or writes in all.
    pub total: u64,
    /// Seconds since the job began, or was resumed after a restart.
    pub seconds: f64,
    /// Estimated seconds until the job's end.
    pub eta_seconds: Option<f64>,
}

/// The outcome of a rebuild or a scrub.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EndView {
    /// The progress when the job ended.
    pub progress: ProgressView,
    /// The error that ended the job.
    pub error: Option<String>,
    /// The findings of a scrub that ended without an error.
    pub found: Option<ScrubView>,
}

/// The findings of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubView {
    /// Number of zones with data that were compared.
    pub zones: u32,
    /// Number of stripes compared.
    pub stripes: u64,
    /// Bytes read by the scrub.
    pub bytes: u64,
    /// Number of stripe units that a drive could not read.
    pub read_errors: u64,
    /// Number of unreadable units that were reconstructed from the other drives and recorded.
    pub repaired: u64,
    /// Number of unreadable units that cannot be reconstructed, because another unit of the stripe is unreadable too.
    pub lost: u64,
    /// Number of stripes whose parity does not fit their data.
    pub mismatches: u64,
    /// Number of stripes whose parity was rewritten.
    pub parity_rewritten: u64,
}

/// A physical zone that is read-only or offline.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WornView {
    /// Slot of the drive with the zone.
    pub slot: u32,
    /// The logical zone that the physical zone is a part of.
    pub zone: u32,
    /// The zone's state: `read-only` or `offline`.
    pub state: String,
}

/// An event of an array.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventView {
    /// The event's number since the array was opened, from 1 on.
    pub number: u64,
    /// Time of the event in milliseconds since 1970.
    pub unix_ms: u64,
    /// The event's short name, such as `drive-failed`.
    pub event: String,
    /// The slot of the drive that the event concerns.
    pub slot: Option<u32>,
    /// The array's health after the event: `clean`, `degraded` or `failed`.
    pub health: String,
    /// The event in words.
    pub text: String,
}

impl From<&Status> for ArrayView {
    fn from(status: &Status) -> ArrayView {
        let superblock = &status.superblock;
        let block = u64::from(superblock.block_size);
        let data = u64::from(superblock.data_units());
        let zone = superblock.part_rows().bytes(superblock.block_size).0;
        ArrayView {
            array: superblock.uuid.to_string(),
            label: superblock.label.clone(),
            health: health(status.health()).to_owned(),
            failures_left: status.failures_left(),
            mount_error: status.mount_error.clone(),
            zones: superblock.shown_zones(),
            stripe_unit: u64::from(superblock.unit) * block,
            width: superblock.width,
            zone_shares: superblock.shares,
            zone_sections: superblock.sections,
            interleaved: superblock.interleaved,
            spare_drives: superblock.spare_drives,
            capacity: zone * data * u64::from(superblock.zones),
            memory: status.memory.map(|memory| MemoryView {
                tables: memory.tables.0,
                parity: memory.parity.0,
                relocated: memory.relocated.0,
            }),
            space: status.space.map(|space| SpaceView {
                live: space.live.0,
                committed: space.committed.0,
                usable: space.usable.0,
                empty_zones: space.empty_zones,
                reserve_zones: space.reserve_zones,
                moving: space.moving,
            }),
            members: status
                .members
                .iter()
                .map(|member| MemberView {
                    slot: member.slot.0,
                    state: state(member.state).to_owned(),
                    drive: member.device.as_deref().map(str::to_owned),
                    uuid: member.info.uuid.to_string(),
                    media_errors: member.media_errors,
                })
                .collect(),
            spares: status
                .spares
                .iter()
                .map(|spare| SpareView {
                    uuid: spare.uuid.to_string(),
                    state: if spare.device.is_some() { "spare" } else { "missing" }.to_owned(),
                    drive: spare.device.as_deref().map(str::to_owned),
                })
                .collect(),
            rebuild: status.rebuild.as_ref().map(ProgressView::from),
            scrub: status.scrub.as_ref().map(ProgressView::from),
            worn: status
                .worn
                .iter()
                .map(|worn| WornView {
                    slot: worn.slot.0,
                    zone: worn.zone.0,
                    state: if worn.state == ZoneState::Offline { "offline" } else { "read-only" }.to_owned(),
                })
                .collect(),
            advice: status.advice(),
            ..ArrayView::default()
        }
    }
}

impl From<&Progress> for ProgressView {
    fn from(progress: &Progress) -> ProgressView {
        ProgressView {
            slot: progress.slot.map(|slot| slot.0),
            zones_done: progress.zones_done,
            zones: progress.zones,
            bytes: progress.bytes.0,
            total: progress.total.0,
            seconds: progress.elapsed.as_secs_f64(),
            eta_seconds: progress.eta.map(|eta| eta.as_secs_f64()),
        }
    }
}

impl From<&ScrubReport> for ScrubView {
    fn from(report: &ScrubReport) -> ScrubView {
        ScrubView {
            zones: report.zones,
            stripes: report.stripes,
            bytes: report.bytes.0,
            read_errors: report.read_errors,
            repaired: report.repaired,
            lost: report.lost,
            mismatches: report.mismatch_count,
            parity_rewritten: report.parity_rewritten,
        }
    }
}

impl EventView {
    /// The view of the event with this number; `before`: the array's health before the event.
    pub(super) fn new(number: u64, event: &Event, before: Health) -> EventView {
        EventView {
            number,
            health: health(health_after(&event.kind, before)).to_owned(),
            unix_ms: event.unix_ms,
            event: event.kind.name().to_owned(),
            slot: slot_of(&event.kind),
            text: event.kind.to_string(),
        }
    }
}

impl ProgressView {
    /// The progress in words: `43 %, 1204.2 of 2800.0 MiB, 8 s left`.
    pub fn words(&self) -> String {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let share = self.bytes as f64 * 100.0 / self.total.max(1) as f64;
        let left = self.eta_seconds.map_or(String::new(), |eta| format!(", {} s left", eta.ceil()));
        format!("{share:.0} %, {:.1} of {:.1} MiB{left}", mebibytes(self.bytes), mebibytes(self.total))
    }
}

/// The slot of the drive that an array event concerns.
fn slot_of(kind: &EventKind) -> Option<u32> {
    match kind {
        EventKind::DriveFailed { slot, .. }
        | EventKind::SecondFailure { slot, .. }
        | EventKind::SpareUsed { slot, .. }
        | EventKind::RebuildStarted { slot, .. }
        | EventKind::RebuildEnded { slot, .. }
        | EventKind::Repaired { slot, .. }
        | EventKind::BlocksLost { slot, .. }
        | EventKind::ZoneWorn { slot, .. }
        | EventKind::ManyErrors { slot, .. } => Some(slot.0),
        _ => None,
    }
}

/// The array's health after an event; `before`: the health before the event.
pub(super) fn health_after(kind: &EventKind, before: Health) -> Health {
    match kind {
        EventKind::DriveFailed { .. } => Health::Degraded,
        EventKind::SecondFailure { .. } => Health::Failed,
        EventKind::RebuildEnded { error: None, .. } => Health::Clean,
        _ => before,
    }
}

/// The name of an array's health: `clean`, `degraded` or `failed`.
fn health(health: Health) -> &'static str {
    match health {
        Health::Clean => "clean",
        Health::Degraded => "degraded",
        Health::Failed => "failed",
    }
}

/// The name of a member's state, such as `good`.
fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Good => "good",
        MemberState::Failed => "failed",
        MemberState::Vacated => "vacated",
        MemberState::Missing => "missing",
        MemberState::Rebuilding => "rebuilding",
    }
}

#[cfg(test)]
mod tests {
    use array::Slot;

    use super::*;

    #[test]
    fn each_event_carries_the_health_of_its_moment_however_fast_the_next_one_follows() {
        let (slot, why) = (Slot(1), "gone".to_owned());
        let ended = |error| EventKind::RebuildEnded { slot, error };
        let kinds = [
            (EventKind::ScrubStarted, "clean"),
            (EventKind::DriveFailed { slot, why: why.clone() }, "degraded"),
            (EventKind::RebuildStarted { slot, resumed: false }, "degraded"),
            (ended(Some(why.clone())), "degraded"),
            (ended(None), "clean"),
            (EventKind::DriveFailed { slot, why: why.clone() }, "degraded"),
            (EventKind::SecondFailure { slot, why }, "failed"),
            (EventKind::Dropped(1), "failed"),
        ];
        let mut now = Health::Clean;
        for (kind, expected) in kinds {
            let event = Event { unix_ms: 7, kind };
            assert_eq!(EventView::new(1, &event, now).health, expected, "{:?}", event.kind);
            now = health_after(&event.kind, now);
        }
    }
}
