//! A process that ends hands the lead of its groups over.

use std::sync::Arc;
use std::time::Duration;

use replica::{Event, ReplicaId};
use shard::Group;

/// The pause between two looks at the groups of a process that ends.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// Hands the groups that are led here over, each to its preferred successor where that could lead at once, else to any witness. Returns when none of the groups is led here and each knows its leader, or after `limit`.
pub(crate) async fn hand_over_all(groups: Vec<(Arc<Group>, Option<ReplicaId>)>, limit: Duration) {
    let leads = |group: &Group| group.stats().replica.leader == Some(group.place().replica);
    let led: Vec<_> = groups.into_iter().filter(|(group, _)| leads(group)).collect();
    for (group, successor) in &led {
        match successor.filter(|successor| group.could_hand_over_to(*successor, Duration::ZERO)) {
            Some(successor) => group.tell(Event::HandOverTo(successor)),
            None => group.tell(Event::HandOver),
        }
    }
    let is_done = |group: &Group| {
        let stats = group.stats();
        stats.has_ended || stats.replica.leader.is_some_and(|leader| leader != group.place().replica)
    };
    let handed_over = async {
        while !led.iter().all(|(group, _)| is_done(group)) {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    };
    let in_time = tokio::time::timeout(limit, handed_over).await.is_ok();
    let left = led.iter().filter(|(group, _)| !is_done(group)).count();
    let handed_over = led.len() - left;
    tracing::info!(handed_over, left, in_time, "the groups that this process led are handed over");
}
