//! The report of a crash exploration.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::StateId;

/// The counts of a crash exploration, and its failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Distinct images mounted and checked.
    pub states: u64,
    /// Images that lack promised content.
    pub lost: u64,
    /// Images that hold content of no attempted step.
    pub invented: u64,
    /// Number of crash images that do not mount.
    pub mount_failures: u64,
    /// Images that mount, and in which `check` finds problems.
    pub check_failures: u64,
    /// Of the distinct images: the number of each kind. An image may be of several kinds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<StateKind, u64>,
    /// The first described failures of the exploration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// A kind of crash state: most are of arrays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// The last mount lacks two drives, each missing before, since or after the cut.
    TwoDrivesLost,
    /// A rebuild was under way at the cut.
    CutInRebuild,
    /// A part of a zone was on its way to another physical zone at the cut.
    CutInMove,
    /// The power was cut while a reclaim freed physical zones.
    CutInReclaim,
    /// Lost parts were on their way to the spare room of other drives at the cut.
    CutInRestore,
    /// Appends that went to the drives as appends were in flight at the cut.
    CutInAppends,
    /// A client's reset of a logical zone was in flight at the cut.
    CutInReset,
    /// The array leaves room on other drives for the parts of lost drives.
    SpareRoom,
    /// The array has two parities.
    TwoParities,
    /// The array has stored maps.
    StoredMaps,
    /// Several logical zones of the array share a physical zone.
    SharedZones,
    /// Several zones of the array make one.
    JoinedZones,
    /// The array's writes are atomic.
    AtomicWrites,
    /// The drive has conventional zones, in which logs lie.
    ConventionalZones,
    /// Appended bytes of files were in memory only before or after the workload's last step before the cut.
    DirtyPages,
    /// The drive has a scheduler, which holds operations back beside logs.
    Scheduler,
    /// A physical zone wears out before the cut, at the cut or after the mount.
    WornZone,
}

/// One failure that a crash exploration found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Failure {
    /// The rule that the crash state breaks.
    pub kind: FailureKind,
    /// The name of the crash state.
    #[serde(serialize_with = "as_text")]
    pub state: StateId,
    /// The content found and the content expected.
    pub what: String,
    /// The command that replays the crash state.
    pub replay_command: String,
}

/// The kind of rule that a crash state breaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Promised content is missing.
    Lost,
    /// Content of no attempted step is present.
    Invented,
    /// The mount of an image fails.
    Mount,
    /// The file system's check finds a problem.
    Check,
}

fn as_text<S: serde::Serializer>(state: &StateId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(state)
}

impl Report {
    /// Whether no image of the exploration failed.
    pub fn is_clean(&self) -> bool {
        (self.lost, self.invented, self.mount_failures, self.check_failures) == (0, 0, 0, 0)
    }

    /// Adds the counts and failures of another report.
    pub fn add(&mut self, other: Report) {
        self.states += other.states;
        self.lost += other.lost;
        self.invented += other.invented;
        self.mount_failures += other.mount_failures;
        self.check_failures += other.check_failures;
        for (kind, states) in other.kinds {
            *self.kinds.entry(kind).or_default() += states;
        }
        self.failures.extend(other.failures);
    }

    pub(crate) fn count(&mut self, kind: FailureKind) {
        match kind {
            FailureKind::Lost => self.lost += 1,
            FailureKind::Invented => self.invented += 1,
            FailureKind::Mount => self.mount_failures += 1,
            FailureKind::Check => self.check_failures += 1,
        }
    }
}
