//! When a log goes over several zones, and where it takes them from.

use std::sync::Arc;

use crate::metadata::state::State;
use crate::wal::parallel::inner::Inner;
use crate::wal::parallel::sync::Ordering;

impl Inner {
    /// There are several writers: from now on as many zones as there may be.
    pub(super) fn spread_out(&self) {
        let spread = &self.spread;
        if spread.width.load(Ordering::Relaxed) == spread.most {
            return;
        }
        {
            // Under the lock, as what a close takes back.
            let mut state = self.shared().state.lock();
            let closed = self.closed.load(Ordering::Acquire);
            if closed || spread.width.swap(spread.most, Ordering::AcqRel) == spread.most {
                return;
            }
            state.places.wide += spread.most - 1;
        }
        self.shared().kick_cleaner();
        self.widen(&mut self.switch.lock());
        self.work.notify();
    }

    /// Whether a segment is to be fetched for one zone more: there is one ready, and nobody has to make room for it. Where there
    /// is not, the keeper is told when that changes.
    pub(super) fn wants_side(self: &Arc<Inner>) -> bool {
        let closed = self.is_dead() || self.closed.load(Ordering::Acquire);
        let starved = self.starved.lock().why.is_some();
        if !self.spread.is_narrow() || closed || starved || self.switch.lock().next.is_some() {
            return false;
        }
        let shared = self.shared();
        let seen = shared.space.version();
        let ready = !(self.spare && self.check_spare().is_err()) && shared.state.lock().has_zone_beside();
        if !ready && !self.spread.waits.swap(true, Ordering::AcqRel) {
            let (me, space) = (Arc::downgrade(self), shared.space.clone());
            self.driver().drive(Box::pin(async move {
                space.changed_since(seen).await;
                if let Some(log) = me.upgrade() {
                    log.spread.waits.store(false, Ordering::Release);
                    log.work.notify();
                }
            }));
        }
        ready
    }

    /// Whether a zone beside the newest one has little left.
    pub(super) fn side_is_nearly_full(&self) -> bool {
        self.spread.sides.load().iter().any(|zone| self.is_nearly_full(zone))
    }
}

impl State {
    /// Whether a log can have one zone more, beside those that it has, at once and without want for anybody.
    fn has_zone_beside(&self) -> bool {
        let places = &self.places;
        self.has_plenty()
            && self.lease_allowed()
            && !places.reserved.is_empty()
            && !places.generations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::parallel::spread::{MOST, SLOTS, Spread};

    #[test]
    fn zones_at_a_time_are_those_asked_for_or_some_where_the_drive_has_open_zones_to_spare() {
        let of = |asked, slots, zones, volatile| {
            let spread = Spread::new(asked, slots, zones, volatile);
            (spread.most, spread.width.load(Ordering::Relaxed))
        };
        assert_eq!(of(0, SLOTS, 1000, false), (MOST, 1));
        assert_eq!((of(0, SLOTS, 20, false), of(0, SLOTS, 4, false)), ((2, 1), (1, 1)));
        assert_eq!((of(0, SLOTS - 1, 1000, false), of(0, SLOTS, 1000, true)), ((1, 1), (1, 1)));
        assert_eq!((of(3, 4, 4, false), of(1, SLOTS, 1000, false)), ((3, 3), (1, 1)));
        assert_eq!(of(3, SLOTS, 1000, true), (1, 1));
    }
}
