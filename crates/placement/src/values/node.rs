//! A node of a cluster: the value of a key `nodes/UUID`.

use replica::Version;
use serde::{Deserialize, Serialize};

use super::json;
use crate::address::Address;
use crate::value_error::ValueError;

/// The roles that a node takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offers {
    /// Holds the office of primary, as a witness replica: keeps all values while it does.
    pub primary: bool,
    /// Takes backups, which keep all values.
    pub backup: bool,
    /// Takes witnesses that are not the preferred first primary.
    pub witness: bool,
}

impl Offers {
    /// Every role.
    pub const ALL: Offers = Offers { primary: true, backup: true, witness: true };

    /// True if the node takes a witness replica.
    pub fn takes_witness(self) -> bool {
        self.primary || self.witness
    }
}

/// One role of a list of offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Offer {
    Primary,
    Backup,
    Witness,
}

/// The name of the rack, or of whatever else fails as a whole, in which a node stands: 1 to 64 letters, digits, points, hyphens and underscores.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rack(String);

impl Rack {
    /// The name in `text`.
    ///
    /// # Errors
    /// [`ValueError::Rule`] for other characters and lengths.
    pub fn parse(text: &str) -> Result<Rack, ValueError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(Rack(text.to_owned()));
        }
        Err(ValueError::rule(format!(
            "{text:?} is no name of a rack: 1 to 64 letters, digits, points, hyphens and underscores"
        )))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The address for other nodes.
    pub peer: Address,
    /// The address for clients.
    pub client: Address,
    /// The roles that the node takes; one at least.
    pub offers: Offers,
    /// The node's rack.
    pub rack: Rack,
    /// The number of the node's starts, this one included: the node counts on its drive. From 1.
    pub starts: u64,
    /// The newest version that the node's program speaks.
    pub speaks: Version,
}

/// The fields in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    peer: String,
    client: String,
    offers: Vec<Offer>,
    rack: String,
    starts: u64,
    speaks: u16,
}

impl Node {
    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError`]: no such fields, an unknown role or one named twice, no role at all, an address that nobody can connect to, one address for peers and clients.
    pub fn decode(bytes: &[u8]) -> Result<Node, ValueError> {
        let fields: Fields = json::decode(bytes)?;
        let mut offers = Offers::default();
        for offer in &fields.offers {
            let flag = match offer {
                Offer::Primary => &mut offers.primary,
                Offer::Backup => &mut offers.backup,
                Offer::Witness => &mut offers.witness,
            };
            if std::mem::replace(flag, true) {
                return Err(ValueError::rule("a role is offered twice"));
            }
        }
        let node = Node {
            peer: Address::parse(&fields.peer)?,
            client: Address::parse(&fields.client)?,
            offers,
            rack: Rack::parse(&fields.rack)?,
            starts: fields.starts,
            speaks: Version(fields.speaks),
        };
        node.check()?;
        Ok(node)
    }

    /// Checks the rules of a node.
    ///
    /// # Errors
    /// [`ValueError::Rule`].
    pub fn check(&self) -> Result<(), ValueError> {
        if self.offers == Offers::default() {
            return Err(ValueError::rule("the node offers no role"));
        }
        if self.peer == self.client {
            return Err(ValueError::rule(format!("{} is the address for peers and for clients", self.peer)));
        }
        if self.speaks < Version::FIRST {
            return Err(ValueError::rule("the first version is 1"));
        }
        if self.starts == 0 {
            return Err(ValueError::rule("the first start of a node is number 1"));
        }
        Ok(())
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let all = [
            (self.offers.primary, Offer::Primary),
            (self.offers.backup, Offer::Backup),
            (self.offers.witness, Offer::Witness),
        ];
        json::encode(&Fields {
            peer: self.peer.to_string(),
            client: self.client.to_string(),
            offers: all.into_iter().filter_map(|(offered, offer)| offered.then_some(offer)).collect(),
            rack: self.rack.as_str().to_owned(),
            starts: self.starts,
            speaks: self.speaks.0,
        })
    }

    /// The address that both nodes name, if there is one.
    pub fn shared_address(&self, other: &Node) -> Option<&Address> {
        [&self.peer, &self.client].into_iter().find(|own| **own == other.peer || **own == other.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = r#"{"peer":"10.0.0.1:7000","client":"10.0.0.1:6379","offers":["primary","witness"],"rack":"r1","starts":3,"speaks":1}"#;

    #[test]
    fn a_node_is_decoded() {
        let node = Node::decode(NODE.as_bytes()).unwrap();
        assert_eq!(node.offers, Offers { primary: true, backup: false, witness: true });
        assert_eq!(String::from_utf8(node.encode()).unwrap(), NODE);
    }

    #[test]
    fn unknown_and_contradicting_fields_are_refused() {
        for (from, to, why) in [
            ("witness", "arbiter", "unknown variant `arbiter`"),
            ("witness", "primary", "a role is offered twice"),
            (r#""primary","witness""#, "", "the node offers no role"),
            (":6379", ":7000", "is the address for peers and for clients"),
            ("10.0.0.1:6379", "0.0.0.0:6379", "means every interface"),
            ("r1", "r 1", "is no name of a rack"),
            (":3,", ":0,", "number 1"),
            ("speaks\":1", "speaks\":0", "the first version is 1"),
            (":1}", ":1,\"disk\":1}", "unknown field `disk`"),
        ] {
            let error = Node::decode(NODE.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn two_nodes_share_an_address_of_either_kind() {
        let node = Node::decode(NODE.as_bytes()).unwrap();
        let mut other = node.clone();
        other.client = Address::parse("10.0.0.2:6379").unwrap();
        other.peer = node.client.clone();
        assert_eq!(node.shared_address(&other), Some(&node.client));
        other.peer = Address::parse("10.0.0.2:7000").unwrap();
        assert_eq!(node.shared_address(&other), None);
    }
}
