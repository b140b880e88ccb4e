//! Commands that count: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use super::call::{Call, NOT_AN_INTEGER, Outcome};
use crate::{Expiry, parse_decimal, parse_integer};

pub(super) fn incr(call: &mut Call<'_, '_>) -> Outcome {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_, '_>) -> Outcome {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_, '_>) -> Outcome {
    let by = parse_integer(call.args.get(2)).ok_or(NOT_AN_INTEGER)?;
    add(call, by)
}

pub(super) fn decrby(call: &mut Call<'_, '_>) -> Outcome {
    let by = parse_integer(call.args.get(2)).ok_or(NOT_AN_INTEGER)?;
    add(call, by.checked_neg().ok_or("ERR decrement would overflow")?)
}

fn add(call: &mut Call<'_, '_>, by: i64) -> Outcome {
    let Call { args, txn, out } = call;
    let old = txn.read(args.get(1), |record| match record {
        Some(record) => parse_integer(record.value).map(|value| (value, record.expires)),
        None => Some((0, Expiry::NEVER)),
    })?;
    let (old, expires) = old.ok_or(NOT_AN_INTEGER)?;
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    out.integer(new);
    txn.put(args.bytes(1), new.to_string().into(), expires);
    Ok(())
}

pub(super) fn incrbyfloat(call: &mut Call<'_, '_>) -> Outcome {
    const NOT_A_FLOAT: &str = "ERR value is not a valid float";
    let Call { args, txn, out } = call;
    let old = txn.read(args.get(1), |record| match record {
        Some(record) => parse_decimal(record.value).map(|value| (value, record.expires)),
        None => parse_decimal(b"0").map(|zero| (zero, Expiry::NEVER)),
    })?;
    let (old, expires) = old.ok_or(NOT_A_FLOAT)?;
    let by = parse_decimal(args.get(2)).ok_or(NOT_A_FLOAT)?;
    let new = old.plus(&by).ok_or("ERR increment would produce NaN or Infinity")?.to_string();
    out.bulk(new.as_bytes());
    txn.put(args.bytes(1), new.into(), expires);
    Ok(())
}
