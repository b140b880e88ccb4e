//! The lead of each group goes back to the primary that the plan prefers, once that is alive and caught up: after kills and restarts each process leads its share again.

use std::sync::Arc;
use std::time::Duration;

use replica::Event;

use crate::members::Members;
use crate::replicas::Replicas;

/// The pause between two looks for a group whose preferred primary is back.
const SPREAD_PAUSE: Duration = Duration::from_secs(1);
/// Looks for which a process hands over no group after it has handed one over: a new primary gets the values that it lacks from the backups.
const RESTS: u32 = 5;
/// The time for which a replica leads before it hands over to the preferred one: a node that dies again and again takes the lead from a healthy one no more often.
const LEADS_FOR: Duration = Duration::from_secs(10);

/// Hands groups over to their preferred primaries, one after the other, as long as the process lives.
pub(crate) async fn spread_leaders(members: Arc<Members>, replicas: Arc<Replicas>) {
    loop {
        let pause = if hand_one_over(&members, &replicas) { RESTS * SPREAD_PAUSE } else { SPREAD_PAUSE };
        tokio::time::sleep(pause).await;
    }
}

/// True if a group is handed over.
fn hand_one_over(members: &Members, replicas: &Replicas) -> bool {
    replicas.all().into_iter().any(|local| {
        let group = local.group.place().group;
        let successor = members.preferred(group);
        let Some(successor) = successor.filter(|to| local.group.could_hand_over_to(*to, LEADS_FOR)) else {
            return false;
        };
        tracing::info!(%group, successor = successor.0, "the preferred primary is back: it takes the lead");
        local.group.tell(Event::HandOverTo(successor));
        true
    })
}
