//! Commands that walk over the keys: DBSIZE, KEYS, SCAN.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::call::{Call, NOT_AN_INTEGER, Outcome, SYNTAX};
use crate::cursor::{cursor_of, is_beyond, lower_bound};
use crate::{Txn, glob, parse_integer};

/// Number of keys that one SCAN visits if it has no COUNT.
const DEFAULT_COUNT: i64 = 10;

/// Largest number of keys that one SCAN visits, whatever its COUNT: other clients wait meanwhile.
const COUNT_LIMIT: i64 = 10_000;

/// DBSIZE: exact, by a walk over the whole database, since RocksDB keeps only estimates.
pub(super) fn dbsize(call: &mut Call<'_, '_>) -> Outcome {
    let mut count = 0;
    call.txn.scan(b"", |_, record| {
        count += i64::from(record.is_some());
        ControlFlow::Continue(())
    })?;
    call.out.integer(count);
    Ok(())
}

pub(super) fn keys(call: &mut Call<'_, '_>) -> Outcome {
    let pattern = call.args.get(1);
    let mut found = Vec::new();
    call.txn.scan(b"", |key, record| {
        if record.is_some() && (pattern == b"*" || glob(pattern, key)) {
            found.push(Bytes::copy_from_slice(key));
        }
        ControlFlow::Continue(())
    })?;
    reply_page(call, &found);
    Ok(())
}

pub(super) fn scan(call: &mut Call<'_, '_>) -> Outcome {
    let Call { args, txn, .. } = call;
    let cursor = std::str::from_utf8(args.get(1)).ok().and_then(|c| c.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut wanted) = (None, DEFAULT_COUNT, true);
    for n in (2..args.len()).step_by(2) {
        let (name, value) = (args.get(n), args.get(n + 1));
        if n + 1 >= args.len() {
            return Err(SYNTAX.into());
        } else if name.eq_ignore_ascii_case(b"COUNT") {
            count = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
            if count < 1 {
                return Err(SYNTAX.into());
            }
        } else if name.eq_ignore_ascii_case(b"MATCH") {
            pattern = Some(value).filter(|p| *p != b"*");
        } else if name.eq_ignore_ascii_case(b"TYPE") {
            wanted = value.eq_ignore_ascii_case(b"string");
        } else {
            return Err(SYNTAX.into());
        }
    }
    let from = match cursor {
        0 => Bytes::new(),
        cursor => match txn.cursors().get(cursor) {
            Some(key) => key,
            None => named_key(txn, cursor)?,
        },
    };
    let (mut left, mut found) = (count.min(COUNT_LIMIT), Vec::new());
    let mut next = None;
    txn.scan(&from, |key, record| {
        if left == 0 {
            next = Some(Bytes::copy_from_slice(key));
            return ControlFlow::Break(());
        }
        left -= 1;
        let hit = wanted && record.is_some() && pattern.is_none_or(|p| glob(p, key));
        if hit {
            found.push(Bytes::copy_from_slice(key));
        }
        ControlFlow::Continue(())
    })?;
    let next = next.map_or(0, |key| txn.cursors().put(key));
    call.out.array(2);
    call.out.bulk(next.to_string().as_bytes());
    reply_page(call, &found);
    Ok(())
}

/// The key that a SCAN cursor names. If the key was deleted, the lower bound of the keys that the cursor may
/// name.
fn named_key(txn: &Txn<'_>, cursor: u64) -> crate::Result<Bytes> {
    let bound = lower_bound(cursor);
    let mut found = None;
    txn.scan(&bound, |key, _| {
        if is_beyond(cursor, key) {
            return ControlFlow::Break(());
        }
        if cursor_of(key) != cursor {
            return ControlFlow::Continue(());
        }
        found = Some(Bytes::copy_from_slice(key));
        ControlFlow::Break(())
    })?;
    Ok(found.unwrap_or(bound))
}

fn reply_page(call: &mut Call<'_, '_>, keys: &[Bytes]) {
    call.out.array(keys.len());
    for key in keys {
        call.out.bulk(key);
    }
}
