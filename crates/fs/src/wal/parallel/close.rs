//! Closing a parallel log, and what becomes of its zones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::wal::parallel::inner::Inner;
use crate::wal::parallel::zone::{Top, Zone};
use crate::zones::table::Phase;

impl Inner {
    /// See [`ParallelLog::close`](super::ParallelLog::close). Done once; one that was dropped half way is done again.
    pub(super) async fn close(self: &Arc<Inner>) -> Result<()> {
        let _turn = self.closing.acquire().await;
        if self.settled.load(Ordering::Acquire) {
            return Ok(());
        }
        self.closed.store(true, Ordering::Release);
        let zones = || {
            let switch = self.switch.lock();
            let (old, sides, active) = (switch.old.clone(), self.spread.sides(), self.active.load_full());
            drop(switch);
            old.into_iter().chain(sides).chain(active).collect::<Vec<_>>()
        };
        self.may_pay();
        // What is in flight lands, and the keeper writes what voids that takes.
        let quiet = || self.voids.lock().is_empty() || self.is_dead() || self.starved.lock().why.is_some();
        self.until(|| zones().iter().all(|zone| zone.gate.is_idle()) && quiet()).await;
        self.stopping.store(true, Ordering::Release);
        self.until(|| self.keeper_gone.load(Ordering::Acquire)).await;
        let active = self.active.load_full();
        for zone in zones() {
            let _drained = zone.gate.close();
        }
        // After a failure too: what still lands is not to surprise who opens the log again.
        self.until(|| zones().iter().all(|zone| zone.gate.is_drained())).await;
        let result = match self.check() {
            Ok(()) => self.let_go(active.as_ref()).await,
            Err(error) => {
                self.give_up(active.as_ref());
                Err(error)
            }
        };
        let shared = self.shared();
        {
            let mut state = shared.state.lock();
            if let Some(node) = state.file_node(self.identity.log) {
                node.writing = false;
            }
            state.places.wide -= self.spread.more();
        }
        self.settled.store(true, Ordering::Release);
        shared.kick_cleaner();
        shared.space.notify();
        result
    }

    async fn until(&self, done: impl Fn() -> bool) {
        loop {
            let seen = self.switched.version();
            self.work.notify();
            if done() {
                return;
            }
            self.switched.changed_since(seen).await;
        }
    }

    /// Nothing failed: what was not used goes back.
    async fn let_go(&self, active: Option<&Arc<Zone>>) -> Result<()> {
        let (old, sides) = {
            let mut switch = self.switch.lock();
            (std::mem::take(&mut switch.old), self.spread.take())
        };
        for zone in &old {
            self.leave(zone).await;
        }
        for zone in &sides {
            self.let_side_go(zone)?;
        }
        let next = self.switch.lock().next.take();
        if next.is_some()
            && let Some(active) = active
        {
            // The log's slot is the next one's by now.
            self.leave(active).await;
        }
        let ino = self.identity.log;
        let shared = self.shared();
        if let Some(last) = next.as_ref().or(active) {
            let pointer = units::Blocks(last.segment.start.0 + last.gate.used());
            let known = !last.is_broken();
            // In the order in which a retirement beside this takes them.
            let mut tops = self.tops.0.lock();
            let mut state = shared.state.lock();
            if known {
                let segment = u32::try_from(tops.len().saturating_sub(1)).expect("few");
                state.commit(Record::Trim { ino, segment, end: pointer })?;
                if pointer == last.segment.start {
                    tops.pop();
                }
            }
            if let Some(top) = tops.last_mut() {
                top.top = top.top.or(Some(self.tickets.next()));
            }
            drop(tops);
            state.end_lease(ino, known.then_some(pointer.0));
        }
        self.retire_now(self.retired.load(Ordering::Acquire) > 0)
    }

    /// What a zone beside the newest one has left goes back when the zone is finished, in the background.
    fn let_side_go(&self, zone: &Arc<Zone>) -> Result<()> {
        let mut tops = self.tops.0.lock();
        let mine = |top: &Top| top.zone.as_ref().is_some_and(|z| Arc::ptr_eq(z, zone));
        let Some(at) = tops.iter().position(mine) else { return Ok(()) };
        let mut state = self.shared().state.lock();
        if !zone.is_broken() {
            let end = units::Blocks(zone.segment.start.0 + zone.gate.used());
            let segment = u32::try_from(at).expect("few");
            state.commit(Record::Trim { ino: self.identity.log, segment, end })?;
            if end == zone.segment.start {
                tops.remove(at);
            }
        }
        if let Some(top) = tops.iter_mut().find(|top| mine(top)) {
            top.top = top.top.or(Some(self.tickets.next()));
        }
        finish_later(&mut state, zone);
        Ok(())
    }

    /// Something failed: the zones hold what nobody knows, and are finished in the background.
    fn give_up(&self, active: Option<&Arc<Zone>>) {
        let mut switch = self.switch.lock();
        let mut zones = std::mem::take(&mut switch.old);
        zones.extend(self.spread.take());
        zones.extend(active.cloned());
        drop(switch);
        let ino = self.identity.log;
        let mut state = self.shared().state.lock();
        state.end_lease(ino, None);
        for zone in zones {
            finish_later(&mut state, &zone);
        }
    }
}

/// Has the cleaner finish a zone, unless that is done or waits to be.
fn finish_later(state: &mut State, zone: &Zone) {
    let id = zone.segment.zone;
    if zone.fill() && !state.places.finishing.contains(&id) {
        state.zones.set(id, Phase::Log, ZoneRole::Log);
        state.places.finishing.push(id);
    }
}
