//! Nodes without a sign of life, as the process that places sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use replica::NodeId;

use crate::view::ClusterView;

/// The nodes without a sign of life, and since when, by the clock of the process that places. A process that is elected counts from the beginning.
#[derive(Clone, Debug, Default)]
pub struct SilentNodes(BTreeMap<NodeId, Duration>);

impl SilentNodes {
    /// Forgets since when nodes are silent.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// The nodes of the view without a sign of life for `longest` or longer. `now`: the time since any moment that is the same in each call.
    pub fn dead(&mut self, view: &ClusterView, now: Duration, longest: Duration) -> BTreeSet<NodeId> {
        self.0.retain(|node, _| view.nodes.contains_key(node) && !view.alive.contains_key(node));
        for node in view.nodes.keys().filter(|node| !view.alive.contains_key(node)) {
            self.0.entry(*node).or_insert(now);
        }
        let is_dead = |since: Duration| now.saturating_sub(since) >= longest;
        self.0.iter().filter(|(_, since)| is_dead(**since)).map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use replica::ClusterId;
    use uuid::Uuid;

    use super::*;
    use crate::address::Address;
    use crate::names::Revision;
    use crate::values::liveness::Liveness;
    use crate::values::meta::Meta;
    use crate::values::node::{Node, Offers, Rack};
    use crate::values::slot_map::SlotMap;

    #[test]
    fn a_node_is_dead_once_it_was_silent_for_so_long_without_a_sign_between() {
        let id = NodeId(Uuid::from_u128(1));
        let address = |text| Address::parse(text).unwrap();
        let node = Node {
            peer: address("127.0.0.1:7000"),
            client: address("127.0.0.1:6000"),
            offers: Offers::ALL,
            rack: Rack::parse("r").unwrap(),
            starts: 1,
            speaks: replica::Version::NEWEST,
        };
        let mut view = ClusterView {
            revision: Revision(9),
            meta: Meta::new(ClusterId(Uuid::from_u128(77)), 1, 1).unwrap(),
            nodes: BTreeMap::from([(id, node)]),
            alive: BTreeMap::new(),
            draining: BTreeMap::new(),
            want: BTreeMap::new(),
            seen: BTreeMap::new(),
            slots: SlotMap::even(1),
            placer: None,
        };
        let mut silent = SilentNodes::default();
        let mut dead = |view: &ClusterView, now| {
            !silent.dead(view, Duration::from_secs(now), Duration::from_secs(10)).is_empty()
        };
        assert!(!dead(&view, 100), "silence counts from the first look");
        assert!(!dead(&view, 109));
        assert!(dead(&view, 110));
        view.alive.insert(id, Liveness { starts: 1 });
        assert!(!dead(&view, 111));
        view.alive.clear();
        assert!(!dead(&view, 112));
        assert!(dead(&view, 122));
        silent.forget();
        assert!(silent.dead(&view, Duration::from_secs(130), Duration::from_secs(10)).is_empty());
    }
}
