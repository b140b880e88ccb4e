//! When a parallel log writes more zones side by side, and whether the file system has a zone for that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::sync::Event;

use crate::metadata::state::State;
use crate::shared::Handle;
use crate::wal::parallel::health::Health;
use crate::wal::parallel::replacement::Replacement;

/// The stripe width that a log wants, and the zones that the file system can spare.
#[derive(Debug)]
pub(super) struct Striping {
    handle: Arc<Handle>,
    replacement: Arc<Replacement>,
    health: Arc<Health>,
    /// Wakes maintenance.
    work: Event,
}

impl Striping {
    pub(super) fn new(
        handle: Arc<Handle>,
        replacement: Arc<Replacement>,
        health: Arc<Health>,
        work: Event,
    ) -> Striping {
        Striping { handle, replacement, health, work }
    }

    /// Notes that the log has several writers: from now on its stripe has the largest width.
    pub(super) fn widen(&self) {
        let stripe = &self.replacement.stripe;
        if stripe.width.load(Ordering::Relaxed) == stripe.max_width {
            return;
        }
        let shared = &self.handle.shared;
        {
            // This lock is also held while a close gives the stripe's zones back.
            let mut state = shared.state.lock();
            let closed = self.health.is_closed();
            if closed || stripe.width.swap(stripe.max_width, Ordering::AcqRel) == stripe.max_width {
                return;
            }
            state.allocator.wide += stripe.max_width - 1;
        }
        shared.kick_cleaner();
        self.replacement.widen_now();
        self.work.notify();
    }

    /// True if a segment should be fetched for one more zone of the stripe: a zone is ready, and no other use
    /// needs it. If none is ready, maintenance is woken when the space changes. `has_room`: tells whether the
    /// log may take a further zone.
    pub(super) fn wants_zone(self: &Arc<Striping>, has_room: impl FnOnce() -> bool) -> bool {
        let replacement = &self.replacement;
        let ended = self.health.is_poisoned() || self.health.is_closed();
        let short = replacement.is_short();
        if !replacement.stripe.is_narrow() || ended || short || replacement.spare.lock().next.is_some() {
            return false;
        }
        let shared = &self.handle.shared;
        let seen = shared.space.version();
        let ready = has_room() && has_spare_zone(&shared.state.lock());
        if !ready && !replacement.stripe.waiting.swap(true, Ordering::AcqRel) {
            // The task never references the mount or its device, not even for a moment: it may run after the unmount.
            let (waiting, work) = (Arc::clone(&replacement.stripe.waiting), replacement.work.clone());
            let space = shared.space.clone();
            shared.driver.drive(Box::pin(async move {
                space.changed_since(seen).await;
                waiting.store(false, Ordering::Release);
                work.notify();
            }));
        }
        ready
    }

    /// True if a neighbour of the log's newest zone is nearly full.
    pub(super) fn is_nearly_full(&self) -> bool {
        let replacement = &self.replacement;
        replacement.stripe.neighbours.load().iter().any(|zone| zone.is_nearly_full(replacement.longest))
    }
}

/// True if a log can have one zone more at once, with enough left for everything else.
fn has_spare_zone(state: &State) -> bool {
    let allocator = &state.allocator;
    allocator.has_plenty()
        && allocator.lease_allowed()
        && !allocator.ahead.is_empty()
        && !allocator.generations.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::parallel::stripe::{MANY_OPEN_ZONES, MAX_STRIPE_ZONES, Stripe};

    #[test]
    fn the_width_is_the_one_asked_for_or_several_where_the_drive_has_open_zones_to_spare() {
        let of = |asked, slots, zones, volatile| {
            let stripe = Stripe::new(asked, slots, zones, volatile);
            (stripe.max_width, stripe.width.load(Ordering::Relaxed))
        };
        assert_eq!(of(0, MANY_OPEN_ZONES, 1000, false), (MAX_STRIPE_ZONES, 1));
        assert_eq!((of(0, MANY_OPEN_ZONES, 20, false), of(0, MANY_OPEN_ZONES, 4, false)), ((2, 1), (1, 1)));
        assert_eq!(
            (of(0, MANY_OPEN_ZONES - 1, 1000, false), of(0, MANY_OPEN_ZONES, 1000, true)),
            ((1, 1), (1, 1))
        );
        assert_eq!((of(3, 4, 4, false), of(1, MANY_OPEN_ZONES, 1000, false)), ((3, 3), (1, 1)));
        assert_eq!(of(3, MANY_OPEN_ZONES, 1000, true), (1, 1));
    }
}
