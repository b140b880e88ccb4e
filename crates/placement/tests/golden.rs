//! The values in etcd, byte for byte.

use placement::{Drain, Epoch, GroupPlan, Liveness, Meta, Node, Seen, Slot, SlotMap};
use replica::ClusterId;
use replica::{Index, ReplicaId, Role, Term};

const META: &[u8] = include_bytes!("golden/meta-v1.json");
const NODE: &[u8] = include_bytes!("golden/node-v1.json");
const ALIVE: &[u8] = include_bytes!("golden/alive-v1.json");
const DRAINING: &[u8] = include_bytes!("golden/draining-v1.json");
const WANT: &[u8] = include_bytes!("golden/want-v1.json");
const SEEN: &[u8] = include_bytes!("golden/seen-v1.json");
const SLOTS: &[u8] = include_bytes!("golden/slots-v1.json");

#[test]
fn every_value_of_format_1_is_decoded_and_encoded_byte_for_byte() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let golden = |bytes: &[u8]| text(bytes.to_vec());
    let meta = Meta::decode(META).unwrap();
    assert_eq!((meta.epoch(), meta.copies(), meta.groups()), (Epoch(2), 2, 64));
    assert_eq!(meta.cluster(), ClusterId(uuid::uuid!("7c1f0a52-3d7e-4b0e-9a2b-5d0d3b6f8e11")));
    assert_eq!(text(meta.encode()), golden(META));

    let node = Node::decode(NODE).unwrap();
    assert_eq!((node.client.to_string().as_str(), node.starts), ("[fd00::7]:6379", 12));
    assert_eq!(text(node.encode()), golden(NODE));

    let alive = Liveness::decode(ALIVE).unwrap();
    assert_eq!(alive.starts, 12);
    assert_eq!(text(alive.encode()), golden(ALIVE));

    let draining = Drain::decode(DRAINING).unwrap();
    assert!(draining.is_last);
    assert_eq!(text(draining.encode()), golden(DRAINING));

    let plan = GroupPlan::decode(WANT).unwrap();
    assert_eq!((plan.copies(), plan.last_replica(), plan.leaving().len()), (2, ReplicaId(6), 1));
    assert_eq!(text(plan.encode()), golden(WANT));

    let seen = Seen::decode(SEEN).unwrap();
    assert_eq!((seen.index, seen.term), (Index(u64::MAX), Term(4)));
    assert_eq!(seen.configuration.role(ReplicaId(5)), Some(Role::Backup));
    assert_eq!(text(seen.encode()), golden(SEEN));

    let slots = SlotMap::decode(SLOTS).unwrap();
    assert_eq!(slots.group(Slot::new(12_182).unwrap()).0, 2);
    assert_eq!(SlotMap::even(3), slots);
    assert_eq!(text(slots.encode()), golden(SLOTS));
}
