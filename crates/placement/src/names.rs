//! Names and numbers of a cluster's parts.

use std::fmt;

use replica::NodeId;
use uuid::Uuid;

use crate::value_error::ValueError;

/// The most groups that a cluster has.
pub const MAX_GROUPS: u32 = 1024;

/// A cluster's name: 1 to 32 lower-case letters, digits and hyphens. Every key of the cluster in etcd has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterName(String);

impl ClusterName {
    /// The name in `text`.
    ///
    /// # Errors
    /// [`ValueError::Rule`] for other characters and lengths.
    pub fn parse(text: &str) -> Result<ClusterName, ValueError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=32).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(ClusterName(text.to_owned()));
        }
        Err(ValueError::rule(format!(
            "{text:?} is no name of a cluster: 1 to 32 lower-case letters, digits and hyphens"
        )))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The node's UUID in `text`: 36 characters, lower case.
///
/// # Errors
/// [`ValueError::Rule`] for any other form.
pub(crate) fn parse_node(text: &str) -> Result<NodeId, ValueError> {
    parse_uuid(text).map(NodeId)
}

/// A UUID in its one form: 36 characters, lower case, with hyphens.
pub(crate) fn parse_uuid(text: &str) -> Result<Uuid, ValueError> {
    let uuid = Uuid::try_parse(text).ok().filter(|uuid| uuid.hyphenated().to_string() == text);
    uuid.ok_or_else(|| {
        ValueError::rule(format!("{text:?} is no UUID of 36 lower-case characters with hyphens"))
    })
}

/// A revision of etcd's store: each change of any key raises the store's revision by 1, and the changed key gets the new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub i64);

/// A number that an operator raises after etcd was restored from a backup, to let the nodes take the older values. The first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_s_name_is_1_to_32_small_letters_digits_and_hyphens() {
        for good in ["a", "barn-2", &"x".repeat(32)] {
            assert_eq!(ClusterName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "Barn", "a/b", "a b", "\u{e4}", &"x".repeat(33)] {
            assert!(ClusterName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_uuid_has_one_form() {
        let text = "00000000-0000-4000-8000-0000000000ab";
        assert_eq!(parse_node(text).unwrap().to_string(), text);
        for other in [&text.to_uppercase(), &text.replace('-', ""), &format!("{{{text}}}"), ""] {
            assert!(parse_node(other).is_err(), "{other}");
        }
    }
}
