//! The version of a group: what its members write into the log and into snapshots.

use crate::Index;
use crate::pending::Pending;

/// A version of what the members of a group write. Each group begins in [`Version::FIRST`], and a committed entry raises it once every member speaks the next one: until then a member may go back to an older program.
///
/// New parts of entries and snapshots are written in groups of the version that adds them, and of later ones, alone. Programs of all versions know the entry that raises the version (kind 6 in `entry.rs`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u16);

impl Version {
    /// The version in which each group begins.
    pub const FIRST: Version = Version(1);
    /// From this version on a group's state has the highest number that a replica of the group has had since, and no later replica gets a number up to there.
    pub const LAST_REPLICA: Version = Version(2);
    /// The newest version that this program speaks.
    #[cfg(not(feature = "version-1"))]
    pub const NEWEST: Version = Version::LAST_REPLICA;
    /// The newest version that this program speaks: that of the programs before.
    #[cfg(feature = "version-1")]
    pub const NEWEST: Version = Version::FIRST;
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The reason why a program takes no part in a group, or in a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "version {version} is in use here, and this program speaks versions up to {speaks} only: start the newer program again"
)]
pub struct TooOld {
    /// The version that is in use, or that of an entry that would raise it.
    pub version: Version,
    /// The newest version that the program speaks.
    pub speaks: Version,
}

impl TooOld {
    /// Checks that a program which speaks versions up to `speaks` takes part where `version` is in use.
    ///
    /// # Errors
    /// The version in use is newer.
    pub fn check(version: Version, speaks: Version) -> Result<(), TooOld> {
        if version > speaks { Err(TooOld { version, speaks }) } else { Ok(()) }
    }
}

/// The version of a group, by the log of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupVersion {
    applied: Version,
    /// The versions of entries that are not applied yet.
    pending: Pending<Version>,
}

impl GroupVersion {
    /// The version at a base.
    pub(crate) fn new(applied: Version) -> GroupVersion {
        GroupVersion { applied, pending: Pending::default() }
    }

    /// The version by the last entry that is applied.
    pub(crate) fn get(&self) -> Version {
        self.applied
    }

    /// The highest version that the log names.
    pub(crate) fn of_log(&self) -> Version {
        self.pending.iter().copied().fold(self.applied, Version::max)
    }

    /// An entry that raises the version was appended to the log.
    pub(crate) fn append(&mut self, index: Index, version: Version) {
        self.pending.append(index, version);
    }

    /// The log's entries from `first` on were replaced by those of another leader.
    pub(crate) fn truncate(&mut self, first: Index) {
        self.pending.truncate(first);
    }

    /// Everything up to `index` is applied.
    pub(crate) fn apply(&mut self, index: Index) {
        while let Some((_, version)) = self.pending.take(index) {
            self.applied = self.applied.max(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_counts_once_its_entry_is_applied_and_never_goes_back() {
        let mut version = GroupVersion::new(Version::FIRST);
        version.append(Index(5), Version(2));
        version.append(Index(7), Version(4));
        assert_eq!((version.get(), version.of_log()), (Version(1), Version(4)));
        version.truncate(Index(6));
        version.append(Index(6), Version(3));
        version.append(Index(7), Version(2));
        version.apply(Index(5));
        assert_eq!((version.get(), version.of_log()), (Version(2), Version(3)));
        version.apply(Index(9));
        assert_eq!((version.get(), version.of_log()), (Version(3), Version(3)));
    }

    #[test]
    fn a_program_takes_part_in_groups_up_to_its_newest_version() {
        assert_eq!(TooOld::check(Version(2), Version(2)), Ok(()));
        let refused = TooOld::check(Version(3), Version(2)).expect_err("newer");
        assert!(
            refused
                .to_string()
                .contains("version 3 is in use here, and this program speaks versions up to 2")
        );
    }
}
