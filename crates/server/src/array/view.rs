//! How an array is, as programs read it: what `GET /array` answers and `furrow array status --json` prints.

use std::collections::BTreeMap;

use array::{Event, EventKind, Health, MemberState, Progress, ScrubReport, Status};
use serde::{Deserialize, Serialize};
use zoned::ZoneState;

/// An array and its drives. Sizes are in bytes, times in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrayView {
    /// Its UUID.
    pub array: String,
    /// Its name for people.
    pub label: String,
    /// `clean`, `degraded` or `failed`.
    pub health: String,
    /// Logical zones.
    pub zones: u32,
    /// Bytes in a stripe unit.
    pub stripe_unit: u64,
    /// Bytes that the array holds when it is full.
    pub capacity: u64,
    /// By slot.
    pub members: Vec<MemberView>,
    /// The rebuild under way.
    pub rebuild: Option<ProgressView>,
    /// How the last rebuild ended, of an array that is in use.
    pub last_rebuild: Option<EndView>,
    /// The scrub under way.
    pub scrub: Option<ProgressView>,
    /// How the last scrub ended, of an array that is in use.
    pub last_scrub: Option<EndView>,
    /// Physical zones that are read-only or offline.
    pub worn: Vec<WornView>,
    /// What to do, in sentences.
    pub advice: Vec<String>,
    /// What was counted since the array was opened, where it is in use.
    pub counters: BTreeMap<String, u64>,
    /// When the array was opened, in milliseconds since 1970, where it is in use.
    pub opened_ms: u64,
    /// The last events since then, oldest first.
    pub events: Vec<EventView>,
}

/// A member.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberView {
    /// Its place.
    pub slot: u32,
    /// `good`, `failed`, `missing` or `rebuilding`.
    pub state: String,
    /// The drive's name, where it is there.
    pub drive: Option<String>,
    /// Its identity in the array.
    pub uuid: String,
    /// Reads that gave errors of the medium since the array was opened.
    pub media_errors: u64,
}

/// How far something is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressView {
    /// The slot that is rebuilt.
    pub slot: Option<u32>,
    /// Zones that are done.
    pub zones_done: u32,
    /// Zones in all that hold something.
    pub zones: u32,
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes in all.
    pub total: u64,
    /// Since it began, or went on after a restart.
    pub seconds: f64,
    /// Until its end, where that can be told.
    pub eta_seconds: Option<f64>,
}

/// How a rebuild or a scrub ended.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EndView {
    /// How far it came.
    pub progress: ProgressView,
    /// What went wrong, if anything.
    pub error: Option<String>,
    /// What a scrub found, where it came to its end.
    pub found: Option<ScrubView>,
}

/// What a scrub found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubView {
    /// Zones that hold something.
    pub zones: u32,
    /// Stripes compared.
    pub stripes: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Stripe units that a drive could not read.
    pub read_errors: u64,
    /// Of these, how many follow from the others and are recorded.
    pub repaired: u64,
    /// Of these, how many follow from nothing: another unit of the stripe is unreadable too.
    pub lost: u64,
    /// Stripes whose parity does not fit.
    pub mismatches: u64,
    /// Of these, how many had their parity made to fit.
    pub parity_rewritten: u64,
}

/// A worn physical zone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WornView {
    /// Whose.
    pub slot: u32,
    /// The logical zone that it is a part of.
    pub zone: u32,
    /// `read-only` or `offline`.
    pub state: String,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventView {
    /// Counts the events since the array was opened, from 1 on.
    pub number: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// A short name: `drive-failed`, say.
    pub event: String,
    /// The drive that it is about.
    pub slot: Option<u32>,
    /// In words.
    pub text: String,
}

impl From<&Status> for ArrayView {
    fn from(status: &Status) -> ArrayView {
        let superblock = &status.superblock;
        let block = u64::from(superblock.block_size);
        let data = superblock.members.len().saturating_sub(1) as u64;
        let zone = superblock.zone_capacity.bytes(superblock.block_size).0;
        ArrayView {
            array: superblock.uuid.to_string(),
            label: superblock.label.clone(),
            health: health(status.health()).to_owned(),
            zones: superblock.zones,
            stripe_unit: u64::from(superblock.unit) * block,
            capacity: zone * data * u64::from(superblock.zones),
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
    /// The event with this number.
    pub(super) fn new(number: u64, event: &Event) -> EventView {
        EventView {
            number,
            unix_ms: event.unix_ms,
            event: event.kind.name().to_owned(),
            slot: slot_of(&event.kind),
            text: event.kind.to_string(),
        }
    }
}

impl ProgressView {
    /// For people: `43 %, 1204.2 of 2800.0 MiB, 8 s left`.
    pub fn words(&self) -> String {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let share = self.bytes as f64 * 100.0 / self.total.max(1) as f64;
        let left = self.eta_seconds.map_or(String::new(), |eta| format!(", {} s left", eta.ceil()));
        format!("{share:.0} %, {:.1} of {:.1} MiB{left}", mebibytes(self.bytes), mebibytes(self.total))
    }
}

/// The drive that an event is about.
fn slot_of(kind: &EventKind) -> Option<u32> {
    match kind {
        EventKind::DriveFailed { slot, .. }
        | EventKind::SecondFailure { slot, .. }
        | EventKind::RebuildStarted { slot, .. }
        | EventKind::RebuildEnded { slot, .. }
        | EventKind::Repaired { slot, .. }
        | EventKind::BlocksLost { slot, .. }
        | EventKind::ZoneWorn { slot, .. }
        | EventKind::ManyErrors { slot, .. } => Some(slot.0),
        _ => None,
    }
}

/// The health in a word.
fn health(health: Health) -> &'static str {
    match health {
        Health::Clean => "clean",
        Health::Degraded => "degraded",
        Health::Failed => "failed",
    }
}

/// A member's state in a word.
fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Good => "good",
        MemberState::Failed => "failed",
        MemberState::Missing => "missing",
        MemberState::Rebuilding => "rebuilding",
    }
}
