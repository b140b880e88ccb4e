//! Fuzz target for the values that a cluster has in etcd.

use placement::{
    ClusterName, ClusterView, Drain, GroupPlan, Liveness, Meta, Node, RawValue, Revision, Seen, Slot,
    SlotMap, ValueError,
};

/// The longest message that is one line on a screen or a few.
const MAX_MESSAGE: usize = 1000;

/// Decodes the bytes as a value of each kind, and as the keys and values of a cluster: a key and its value a line, with a tab between them.
pub(crate) fn value(bytes: &[u8]) {
    again(bytes, Meta::decode, Meta::encode);
    again(bytes, Node::decode, Node::encode);
    again(bytes, Liveness::decode, Liveness::encode);
    again(bytes, GroupPlan::decode, GroupPlan::encode);
    again(bytes, Drain::decode, Drain::encode);
    again(bytes, Seen::decode, Seen::encode);
    again(bytes, SlotMap::decode, SlotMap::encode);
    if let Ok(slots) = SlotMap::decode(bytes) {
        let first = slots.ranges().first().expect("a map has no gap");
        assert_eq!(slots.group(first.last), first.group);
        for slot in (0..placement::SLOTS).filter_map(Slot::new) {
            let _group = slots.group(slot);
        }
    }
    let cluster = ClusterName::parse("barn").expect("a name");
    let pairs = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'\t')?;
        let (key, value) = line.split_at(at);
        Some((key, value.get(1..)?))
    });
    let raw = pairs.map(|(key, value)| RawValue { key, value, changed: Revision(1) });
    if let Err(error) = ClusterView::decode(&cluster, Revision(1), raw) {
        check_message(&error.to_string());
    }
}

/// Fails if a value that was decoded is another one after it was encoded and decoded again.
fn again<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, ValueError>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    match decode(bytes) {
        Ok(value) => assert_eq!(decode(&encode(&value)).as_ref(), Ok(&value)),
        Err(error) => check_message(&error.to_string()),
    }
}

/// Fails for a message that would disturb a terminal: foreign text is part of it.
fn check_message(message: &str) {
    assert!(message.len() <= MAX_MESSAGE, "a message of {} bytes", message.len());
    assert!(!message.chars().any(char::is_control), "a control character in {message:?}");
}
