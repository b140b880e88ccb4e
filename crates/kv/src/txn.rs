//! The state that a command reads and changes: the store, overlaid by the writes of the group so far.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

#[cfg(debug_assertions)]
use crate::Claims;
use crate::cursor::CursorCache;
use crate::once::{OnceId, OnceIds, OnceRecord, OnceTable, RecordId};
use crate::overlay::Savepoint;
use crate::watch::{Watch, Watches};
use crate::{Error, Expiry, Overlay, Record, RecordRef, Result, Store, View};

/// Bounds on the lengths of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest key in bytes.
    pub key: usize,
    /// Longest value in bytes.
    pub value: usize,
}

impl Default for Limits {
    /// The default bounds: keys of 1 MiB, values of 64 MiB.
    fn default() -> Limits {
        Limits { key: 1 << 20, value: 64 << 20 }
    }
}

/// Why the engine refuses writes at the moment.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The text of the error reply.
    pub text: Arc<str>,
    /// Whether only commands that grow the data are refused.
    pub growth_only: bool,
}

/// State that all transactions of an engine share.
#[derive(Debug, Default)]
pub(crate) struct TxnShared {
    pub limits: Limits,
    pub cursors: CursorCache,
    pub watches: Arc<Watches>,
    /// The number of the last id that was made ([`OnceId::number`]).
    pub once_numbers: AtomicU64,
}

/// The state that the commands of a group see: the store, overlaid by the writes of the group's commands so far. The
/// time of day is the same for the whole transaction.
#[derive(Debug)]
pub struct Txn<'a> {
    store: &'a dyn Store,
    overlay: Option<&'a mut Overlay>,
    shared: &'a TxnShared,
    now_ms: u64,
    refusal: Option<Refusal>,
    /// The view of the store in which the commands run.
    view: View,
    /// The records whose values are on other replicas only.
    missing: RefCell<Vec<RecordId>>,
    /// The keys that count as expired, and that the store has until a write deletes them ([`Store::expires_by_writes`]).
    expired: RefCell<Vec<Bytes>>,
    /// The keys that the running pipeline claimed.
    #[cfg(debug_assertions)]
    claims: Option<Claims>,
}

impl<'a> Txn<'a> {
    /// A transaction that reads only.
    pub(crate) fn reading(store: &'a dyn Store, shared: &'a TxnShared, now_ms: u64) -> Txn<'a> {
        Txn {
            store,
            overlay: None,
            shared,
            now_ms,
            refusal: None,
            view: View::default(),
            missing: RefCell::default(),
            expired: RefCell::default(),
            #[cfg(debug_assertions)]
            claims: None,
        }
    }

    /// A transaction whose writes go to `overlay`. The caller holds the claims on every key that the commands touch.
    pub(crate) fn writing(
        store: &'a dyn Store,
        overlay: &'a mut Overlay,
        shared: &'a TxnShared,
        now_ms: u64,
        refusal: Option<Refusal>,
    ) -> Txn<'a> {
        Txn { overlay: Some(overlay), refusal, ..Txn::reading(store, shared, now_ms) }
    }

    /// Sets the view of the store in which the commands run.
    pub(crate) fn in_view(self, view: View) -> Txn<'a> {
        Txn { view, ..self }
    }

    /// Sets the claims, which must cover every key that a command touches from here on.
    #[cfg(debug_assertions)]
    pub(crate) fn claim(&mut self, claims: Claims) {
        self.claims = Some(claims);
    }

    /// Checks in tests that the claims cover `_key`, or with none all keys.
    fn touch(&self, _key: Option<&[u8]>) {
        #[cfg(debug_assertions)]
        if let Some(claims) = &self.claims {
            let claimed = _key.map_or(claims.covers_all_keys(), |key| claims.covers(key));
            assert!(claimed, "a command touches key {_key:?}, which its pipeline has not claimed");
        }
    }

    /// Milliseconds since 1970, the same for the whole transaction.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The bounds on the lengths of keys and values.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Why writes are refused at the moment; `None` if they are not.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// The cache of SCAN's cursors.
    pub(crate) fn cursors(&self) -> &'a CursorCache {
        &self.shared.cursors
    }

    /// Begins to watch `key`, for WATCH. The transaction is a writing one whose work claims the key, so that every
    /// write decided before is visible to the client when the work is done, and every later one changes the watch.
    pub fn watch(&self, key: Bytes) -> Result<Watch> {
        assert!(self.overlay.is_some(), "a key is watched in a writing transaction");
        let expires = self.expiry(&key)?;
        Ok(self.shared.watches.watch(key, expires, self.view))
    }

    /// Whether a watched key was written since its watch began, by any client, or has expired: EXEC then runs nothing.
    /// The work claims the key. The first answer holds for all runs of a work in one view. In another view of a
    /// replicated store the key counts as written: another replica may have led meanwhile.
    pub fn has_changed(&self, watch: &Watch) -> bool {
        self.touch(Some(watch.key()));
        watch.has_changed(self.now_ms, self.view)
    }

    /// Calls `then` with the live record of `key`, or with nothing.
    pub fn read<R>(&self, key: &[u8], then: impl FnOnce(Option<RecordRef<'_>>) -> R) -> Result<R> {
        self.touch(Some(key));
        if let Some(entry) = self.overlay.as_ref().and_then(|o| o.get(key)) {
            return Ok(then(entry.map(Record::as_ref).filter(|r| !r.expires.is_past(self.now_ms))));
        }
        let mut then = Some(then);
        let mut result = None;
        let read = self.store.get(key, &mut |stored| {
            if let Some(then) = then.take() {
                result = Some(self.live(key, stored).map(then));
            }
        });
        self.note_missing(read, &[key])?;
        result.expect("a store answers a get once")
    }

    /// Calls `each` with the live records of `keys`, in order and from one state of the store.
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<RecordRef<'_>>),
    ) -> Result<()> {
        if self.overlay.is_some() {
            // The claims keep other writers from `keys` while this transaction lives.
            for (n, key) in keys.iter().enumerate() {
                self.read(key, |record| each(n, record))?;
            }
            return Ok(());
        }
        let mut result = Ok(());
        let read = self.store.multi_get(keys, &mut |n, stored| {
            if result.is_ok() {
                let key = keys.get(n).copied().unwrap_or_default();
                result = self.live(key, stored).map(|record| each(n, record));
            }
        });
        self.note_missing(read, keys)?;
        result
    }

    /// Notes the keys of a read whose values are on other replicas: the pipeline runs again once they are here.
    fn note_missing(&self, read: Result<()>, keys: &[&[u8]]) -> Result<()> {
        if let Err(Error::Missing(_)) = read {
            let missing = keys.iter().map(|key| RecordId::Key(Bytes::copy_from_slice(key)));
            self.missing.borrow_mut().extend(missing);
        }
        read
    }

    /// The stored record of `key`, unless its time is past.
    fn live<'r>(&self, key: &[u8], stored: Option<&'r [u8]>) -> Result<Option<RecordRef<'r>>> {
        let record = live_record(key, stored, 0)?;
        let live = record.filter(|record| !record.expires.is_past(self.now_ms));
        if record.is_some() && live.is_none() && self.store.expires_by_writes() {
            self.expired.borrow_mut().push(Bytes::copy_from_slice(key));
        }
        Ok(live)
    }

    /// Takes the keys that count as expired, and that a write is to delete before the replies count.
    pub fn take_expired(&mut self) -> Vec<Bytes> {
        self.expired.take()
    }

    /// Takes the records whose values were not here. If there are any, the replies do not count.
    pub fn take_missing(&mut self) -> Vec<RecordId> {
        self.missing.take()
    }

    /// A copy of the live record of `key`.
    pub fn value(&self, key: &[u8]) -> Result<Option<Record>> {
        self.read(key, |record| {
            record.map(|r| Record { expires: r.expires, value: Bytes::copy_from_slice(r.value) })
        })
    }

    /// The expiry of `key`, if `key` exists.
    pub fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>> {
        self.read(key, |record| record.map(|r| r.expires))
    }

    /// Whether `key` exists.
    pub fn exists(&self, key: &[u8]) -> Result<bool> {
        self.read(key, |record| record.is_some())
    }

    /// Whether the store has `key` with an expiry that is past.
    pub(crate) fn is_past(&self, key: &[u8]) -> Result<bool> {
        self.touch(Some(key));
        let past = |record: RecordRef<'_>| record.expires.is_past(self.now_ms);
        if let Some(entry) = self.overlay.as_ref().and_then(|o| o.get(key)) {
            return Ok(entry.map(Record::as_ref).is_some_and(past));
        }
        let mut found = Ok(false);
        let read = self.store.get(key, &mut |stored| {
            // At the time 0 (1970) no expiry is past, so that expired records are read too.
            found = live_record(key, stored, 0).map(|record| record.is_some_and(past));
        });
        self.note_missing(read, &[key])?;
        found
    }

    /// Visits the keys at and after `from` in their order; an expired key comes without a record.
    pub fn scan(
        &self,
        from: &[u8],
        mut visit: impl FnMut(&[u8], Option<RecordRef<'_>>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.touch(None);
        let now = self.now_ms;
        let empty = Overlay::default();
        let overlay: &Overlay = self.overlay.as_deref().unwrap_or(&empty);
        let mut over = overlay.entries_from(from).peekable();
        let mut result = Ok(());
        let mut stopped = false;
        let mut pass =
            |key: &[u8], record: RecordRef<'_>| visit(key, Some(record).filter(|r| !r.expires.is_past(now)));
        if !overlay.is_cleared() {
            self.store.scan(from, &mut |key, stored| {
                while let Some((mine, record)) = over.next_if(|(mine, _)| mine[..] <= *key) {
                    let same = mine[..] == *key;
                    if let Some(record) = record
                        && pass(mine, record.as_ref()).is_break()
                    {
                        stopped = true;
                        return ControlFlow::Break(());
                    }
                    if same {
                        return ControlFlow::Continue(());
                    }
                }
                match RecordRef::decode(stored) {
                    Ok(record) => {
                        let flow = pass(key, record);
                        stopped = flow.is_break();
                        flow
                    }
                    Err(detail) => {
                        result = Err(Error::corrupt(key, detail));
                        stopped = true;
                        ControlFlow::Break(())
                    }
                }
            })?;
        }
        if !stopped {
            for (key, record) in over {
                if let Some(record) = record
                    && pass(key, record.as_ref()).is_break()
                {
                    break;
                }
            }
        }
        result
    }

    /// Sets `key` to `value` with an expiry.
    pub fn put(&mut self, key: Bytes, value: Bytes, expires: Expiry) {
        self.touch(Some(&key));
        self.shared.watches.note_write(&key);
        self.overlay().put(key, Record { expires, value });
    }

    /// Deletes `key`, whether it exists or not.
    pub fn delete(&mut self, key: Bytes) {
        self.touch(Some(&key));
        self.shared.watches.note_write(&key);
        self.overlay().delete(key);
    }

    /// Deletes an expired key. Watches of the key do not count it as a change: they compare the expiry themselves.
    pub(crate) fn delete_expired(&mut self, key: Bytes) {
        self.touch(Some(&key));
        self.overlay().delete(key);
    }

    /// Deletes all keys.
    pub fn clear(&mut self) {
        self.touch(None);
        self.shared.watches.note_write_of_all_keys();
        self.overlay().clear();
    }

    /// The group that the ids of the store's table name; `None` if the store has no table of ids.
    pub fn once_group(&self) -> Option<u64> {
        self.store.once().map(OnceTable::group)
    }

    /// The record of an id; `None` if the table has no such id.
    pub(crate) fn once_record(&self, id: OnceId) -> Result<Option<OnceRecord>> {
        self.touch(Some(&id.to_bytes()));
        let decode = |stored: Option<&[u8]>| {
            let damaged = |why| Error::corrupt(id.to_string().as_bytes(), why);
            stored.map(OnceRecord::decode).transpose().map_err(damaged)
        };
        if let Some(record) = self.overlay.as_ref().and_then(|overlay| overlay.once().get(id)) {
            return decode(record.map(|record| &record[..]));
        }
        let Some(table) = self.store.once() else { return Ok(None) };
        let mut found = Ok(None);
        let read = table.record(id, &mut |stored| found = decode(stored));
        if let Err(Error::Missing(_)) = read {
            self.missing.borrow_mut().push(RecordId::Once(id));
        }
        read?;
        found
    }

    /// Sets the record of an id that the table has.
    pub(crate) fn put_once(&mut self, id: OnceId, record: &OnceRecord) {
        self.touch(Some(&id.to_bytes()));
        self.overlay().put_once(id, record.encode().into());
    }

    /// Makes an id that was never made before. Where the table has `most` ids the longest idle one expires; `None` if the batch uses each of them.
    pub(crate) fn make_once(&mut self, group: u64, most: usize) -> Result<Option<OnceId>> {
        self.touch(None);
        let changed = self.overlay().once().len();
        let table = self.store.once();
        let ids = table.map_or(Ok(OnceIds::default()), |table| table.ids(changed + 1))?;
        match self.overlay().once().to_expire(&ids, most) {
            None => {}
            Some(Some(idle)) => self.overlay().expire_once(idle),
            Some(None) => return Ok(None),
        }
        let number = self.shared.once_numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let id = OnceId { group, view: self.view.0, number };
        self.overlay().make_once(id, OnceRecord::default().encode().into());
        Ok(Some(id))
    }

    /// The batch's writes of `keys`, for [`restore`](Txn::restore).
    pub(crate) fn savepoint(&mut self, keys: impl Iterator<Item = Bytes>) -> Savepoint {
        self.overlay().savepoint(keys)
    }

    /// Takes back the writes of a savepoint's keys since then.
    pub(crate) fn restore(&mut self, savepoint: Savepoint) {
        self.overlay().restore(savepoint);
    }

    fn overlay(&mut self) -> &mut Overlay {
        self.overlay.as_deref_mut().expect("a pipeline with a writing command runs in a writing transaction")
    }
}

fn live_record<'r>(key: &[u8], stored: Option<&'r [u8]>, now_ms: u64) -> Result<Option<RecordRef<'r>>> {
    match stored.map(RecordRef::decode) {
        None => Ok(None),
        Some(Ok(record)) => Ok(Some(record).filter(|r| !r.expires.is_past(now_ms))),
        Some(Err(detail)) => Err(Error::corrupt(key, detail)),
    }
}
