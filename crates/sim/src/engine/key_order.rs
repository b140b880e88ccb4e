//! The order of batches that share a key, for writes under which the parallel WAL takes no key locks. The server's schedule
//! does the same.

use std::collections::BTreeSet;

use kv::parallel_wal::{BatchError, RecordKind, parse};
use parking_lot::Mutex;
use units::sync::Event;

/// Orders batches: of two that share a key, the second begins after the end of the first.
#[derive(Default)]
pub(super) struct KeyOrder {
    queue: Mutex<ClaimQueue>,
    left: Event,
}

#[derive(Default)]
struct ClaimQueue {
    next: u64,
    /// The waiting and the running batches, in the order of their arrival.
    claims: Vec<(u64, KeyClaim)>,
}

/// The keys that a batch writes, which later batches with one of them wait for.
#[derive(PartialEq, Eq, Debug)]
enum KeyClaim {
    Keys(BTreeSet<(u32, Vec<u8>)>),
    /// The batch deletes a range, which counts as all keys.
    All,
}

impl KeyClaim {
    fn of(batch: &[u8]) -> Result<KeyClaim, BatchError> {
        let mut keys = BTreeSet::new();
        for record in parse(batch)? {
            let record = record?;
            match record.kind {
                RecordKind::DeleteRange => return Ok(KeyClaim::All),
                RecordKind::LogData => {}
                _ => drop(keys.insert((record.family.0, record.key.to_vec()))),
            }
        }
        Ok(KeyClaim::Keys(keys))
    }

    fn conflicts_with(&self, other: &KeyClaim) -> bool {
        match (self, other) {
            (KeyClaim::Keys(one), KeyClaim::Keys(other)) => !one.is_disjoint(other),
            _ => true,
        }
    }
}

/// The right of a batch to run. Dropping the turn ends the batch.
pub(super) struct BatchTurn<'a> {
    order: &'a KeyOrder,
    number: u64,
}

impl KeyOrder {
    /// Waits until the batch may begin, then gives its turn.
    pub(super) async fn turn(&self, batch: &[u8]) -> Result<BatchTurn<'_>, BatchError> {
        let claim = KeyClaim::of(batch)?;
        let number = {
            let mut queue = self.queue.lock();
            queue.next += 1;
            let number = queue.next;
            queue.claims.push((number, claim));
            number
        };
        let turn = BatchTurn { order: self, number };
        loop {
            let seen = self.left.version();
            if self.queue.lock().may_begin(number) {
                return Ok(turn);
            }
            self.left.changed_since(seen).await;
        }
    }
}

impl ClaimQueue {
    fn may_begin(&self, number: u64) -> bool {
        let Some((_, mine)) = self.claims.iter().find(|(other, _)| *other == number) else { return false };
        !self
            .claims
            .iter()
            .take_while(|(other, _)| *other < number)
            .any(|(_, other)| other.conflicts_with(mine))
    }
}

impl Drop for BatchTurn<'_> {
    fn drop(&mut self) {
        self.order.queue.lock().claims.retain(|(number, _)| *number != self.number);
        self.order.left.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use kv::parallel_wal::{BatchBuilder, Family};

    use super::*;

    #[test]
    fn a_batch_waits_for_earlier_batches_that_share_a_key_and_for_no_others() {
        let order = KeyOrder::default();
        let put = |keys: &[&[u8]]| {
            keys.iter().fold(BatchBuilder::new(), |b, key| b.put(Family(0), key, b"")).build()
        };
        let (ab, bc, c, d) = (put(&[b"a", b"b"]), put(&[b"b", b"c"]), put(&[b"c"]), put(&[b"d"]));
        let all = BatchBuilder::new().delete_range(Family(1), b"x", b"y").build();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = pin!(order.turn(&ab));
        let Poll::Ready(Ok(first)) = first.as_mut().poll(&mut cx) else { panic!("no batch came before") };
        let mut second = pin!(order.turn(&bc));
        let mut third = pin!(order.turn(&c));
        let mut apart = pin!(order.turn(&d));
        let mut last = pin!(order.turn(&all));
        assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(Ok(apart)) = apart.as_mut().poll(&mut cx) else {
            panic!("no earlier batch has the key")
        };
        assert!(last.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(third.as_mut().poll(&mut cx).is_pending(), "the second batch came earlier");
        let Poll::Ready(Ok(second)) = second.as_mut().poll(&mut cx) else {
            panic!("the earlier batches have ended")
        };
        drop(second);
        let Poll::Ready(Ok(third)) = third.as_mut().poll(&mut cx) else {
            panic!("the earlier batches have ended")
        };
        drop(third);
        assert!(last.as_mut().poll(&mut cx).is_pending());
        drop(apart);
        assert!(last.as_mut().poll(&mut cx).is_ready());
    }
}
