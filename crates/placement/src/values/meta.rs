//! A cluster's identity and numbers: the value of the key `meta`.

use serde::{Deserialize, Serialize};

use super::json;
use crate::error::{PlaceError, StaleError};
use crate::names::{Epoch, MAX_GROUPS, Revision, parse_uuid};
use crate::value_error::ValueError;
use replica::{ClusterId, TooOld, Version};

/// The format of all values of a cluster that this version reads and writes.
pub const FORMAT: u32 = 1;

/// The most copies K: a group has 2K + 1 replicas.
pub const MAX_COPIES: usize = 7;

/// A cluster's identity and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    cluster: ClusterId,
    epoch: Epoch,
    copies: usize,
    groups: u32,
    version: Version,
}

/// The fields in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: u32,
    cluster: String,
    epoch: u64,
    copies: usize,
    groups: u32,
    version: u16,
}

/// The fields that the values of all versions of a format have.
#[derive(Deserialize)]
struct FirstFields {
    format: u32,
    #[serde(default)]
    version: u16,
}

impl Meta {
    /// A new cluster, at the newest version that this program speaks: `copies` is K, the number of replicas of a group that may be lost.
    ///
    /// # Errors
    /// [`PlaceError::Limit`]: K is 1 to 7, the number of groups 1 to 1,024.
    pub fn new(cluster: ClusterId, copies: usize, groups: u32) -> Result<Meta, PlaceError> {
        let limit = |what, most: u64, found: u64| {
            if (1..=most).contains(&found) {
                return Ok(());
            }
            Err(PlaceError::Limit { what, least: 1, most, found })
        };
        limit("K", MAX_COPIES as u64, copies as u64)?;
        limit("the number of groups", MAX_GROUPS.into(), groups.into())?;
        Ok(Meta { cluster, epoch: Epoch(1), copies, groups, version: Version::NEWEST })
    }

    /// The meta of a later epoch.
    #[must_use]
    pub fn with_epoch(self, epoch: Epoch) -> Meta {
        Meta { epoch, ..self }
    }

    /// The meta at another version.
    #[must_use]
    pub fn with_version(self, version: Version) -> Meta {
        Meta { version, ..self }
    }

    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError::Format`] for another format, [`ValueError::TooOld`] for a version that this program does not speak, whatever the other fields are; else whatever is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Meta, ValueError> {
        let FirstFields { format, version } = json::decode(bytes)?;
        if format != FORMAT {
            return Err(ValueError::Format { found: format, known: FORMAT });
        }
        TooOld::check(Version(version), Version::NEWEST).map_err(ValueError::TooOld)?;
        let fields: Fields = json::decode(bytes)?;
        if fields.version == 0 {
            return Err(ValueError::rule("the first version is 1"));
        }
        let cluster = ClusterId(parse_uuid(&fields.cluster)?);
        let meta = Meta::new(cluster, fields.copies, fields.groups)
            .map_err(|error| ValueError::rule(error.to_string()))?;
        if fields.epoch == 0 {
            return Err(ValueError::rule("the first epoch is 1"));
        }
        Ok(meta.with_epoch(Epoch(fields.epoch)).with_version(Version(fields.version)))
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        json::encode(&Fields {
            format: FORMAT,
            cluster: self.cluster.to_string(),
            epoch: self.epoch.0,
            copies: self.copies,
            groups: self.groups,
            version: self.version.0,
        })
    }

    /// The cluster's UUID.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// K: the number of replicas of a group that may be lost.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// The version that the cluster is to have: its groups are raised to it.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Number of groups.
    pub fn groups(&self) -> u32 {
        self.groups
    }
}

/// The state of etcd that a node has seen. The node keeps it on its drive, and checks with it what it finds in etcd later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// The cluster that the node belongs to.
    pub cluster: ClusterId,
    /// The highest epoch.
    pub epoch: Epoch,
    /// The highest revision of etcd's store in that epoch.
    pub revision: Revision,
}

/// Checks what a node finds in etcd against what it remembers: a cluster that was restored from a backup older than that is refused until an operator raises the epoch.
/// `revision` is that of etcd's store when `found` was read. Gives what the node remembers from now on.
///
/// The check does not see a restored etcd whose revision has passed the remembered one before the node looks.
///
/// # Errors
/// [`StaleError`]: another cluster, an older epoch, or the same epoch at an earlier revision.
pub fn accepts(seen: &Remembered, found: &Meta, revision: Revision) -> Result<Remembered, StaleError> {
    if found.cluster != seen.cluster {
        return Err(StaleError::OtherCluster { remembered: seen.cluster, found: found.cluster });
    }
    if found.epoch < seen.epoch {
        return Err(StaleError::OldEpoch { remembered: seen.epoch, found: found.epoch });
    }
    if found.epoch == seen.epoch && revision < seen.revision {
        return Err(StaleError::OldRevision { remembered: seen.revision, found: revision });
    }
    Ok(Remembered { cluster: seen.cluster, epoch: found.epoch, revision })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn meta(cluster: u128) -> Meta {
        Meta::new(ClusterId(Uuid::from_u128(cluster)), 2, 8).unwrap()
    }

    #[test]
    fn a_cluster_restored_from_an_old_backup_is_refused_until_its_epoch_is_raised() {
        let seen = Remembered { cluster: meta(1).cluster(), epoch: Epoch(3), revision: Revision(100) };
        let found = |epoch, revision| accepts(&seen, &meta(1).with_epoch(Epoch(epoch)), Revision(revision));
        assert_eq!(found(3, 100).unwrap(), seen);
        assert_eq!(found(3, 101).unwrap().revision, Revision(101));
        assert!(matches!(found(3, 99), Err(StaleError::OldRevision { .. })));
        assert!(matches!(found(2, 500), Err(StaleError::OldEpoch { .. })));
        let raised = found(4, 7).unwrap();
        assert_eq!((raised.epoch, raised.revision), (Epoch(4), Revision(7)));
        let other = accepts(&seen, &meta(2).with_epoch(Epoch(9)), Revision(500));
        assert!(matches!(other, Err(StaleError::OtherCluster { .. })));
    }

    #[test]
    fn a_format_of_another_version_is_named_whatever_its_fields_are() {
        let error = Meta::decode(br#"{"format":2,"shards":7}"#).unwrap_err();
        assert_eq!(error, ValueError::Format { found: 2, known: 1 });
    }

    #[test]
    fn a_version_that_this_program_does_not_speak_is_named_whatever_its_fields_are() {
        let newer = Version(Version::NEWEST.0 + 1);
        let text = format!(r#"{{"format":1,"shards":7,"version":{}}}"#, newer.0);
        let too_old = TooOld { version: newer, speaks: Version::NEWEST };
        assert_eq!(Meta::decode(text.as_bytes()).unwrap_err(), ValueError::TooOld(too_old));
        let older = meta(1).with_version(Version(1));
        assert_eq!(Meta::decode(&older.encode()).unwrap(), older);
    }

    #[test]
    fn numbers_outside_their_limits_are_refused() {
        let text = String::from_utf8(meta(1).encode()).unwrap();
        for (from, to) in [
            ("\"copies\":2", "\"copies\":0"),
            ("\"copies\":2", "\"copies\":8"),
            ("\"groups\":8", "\"groups\":0"),
            ("\"groups\":8", "\"groups\":1025"),
            ("\"epoch\":1", "\"epoch\":0"),
            ("\"epoch\":1", "\"epoch\":1,\"more\":1"),
            ("\"epoch\":1", "\"epoch\":1,\"epoch\":2"),
            ("\"epoch\":1", "\"epoch\":-1"),
            ("\"version\":2", "\"version\":0"),
            (",\"version\":2", ""),
        ] {
            assert!(text.contains(from));
            assert!(Meta::decode(text.replace(from, to).as_bytes()).is_err(), "{to}");
        }
        assert!(Meta::decode(&vec![b' '; 1 << 20]).is_err());
    }
}
