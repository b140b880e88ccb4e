//! Commands on string values: GET, SET, MGET, APPEND and their kin.

use bytes::{Bytes, BytesMut};

use super::call::{Call, NOT_AN_INTEGER, Outcome};
use super::options::SetOptions;
use crate::{Expiry, parse_integer};

pub(super) fn get(call: &mut Call<'_, '_>) -> Outcome {
    let Call { args, txn, out } = call;
    txn.read(args.get(1), |record| match record {
        Some(record) => out.bulk(record.value),
        None => out.null(),
    })?;
    Ok(())
}

pub(super) fn mget(call: &mut Call<'_, '_>) -> Outcome {
    let Call { args, txn, out } = call;
    let keys: Vec<&[u8]> = args.rest(1).collect();
    out.array(keys.len());
    txn.read_many(&keys, |_, record| match record {
        Some(record) => out.bulk(record.value),
        None => out.null(),
    })?;
    Ok(())
}

pub(super) fn strlen(call: &mut Call<'_, '_>) -> Outcome {
    let len = call.txn.read(call.args.get(1), |record| record.map_or(0, |r| r.value.len()))?;
    call.out.integer(len as i64);
    Ok(())
}

pub(super) fn getrange(call: &mut Call<'_, '_>) -> Outcome {
    let Call { args, txn, out } = call;
    let (Some(start), Some(end)) = (parse_integer(args.get(2)), parse_integer(args.get(3))) else {
        return Err(NOT_AN_INTEGER.into());
    };
    txn.read(args.get(1), |record| {
        let value = record.map_or(&[][..], |r| r.value);
        let len = value.len() as i64;
        let place = |n: i64| if n < 0 { n.saturating_add(len).max(0) } else { n };
        let backwards = start < 0 && end < 0 && start > end;
        let (from, to) = (place(start), place(end).min(len - 1));
        let wanted = if backwards || from > to { 0..0 } else { from as usize..to as usize + 1 };
        out.bulk(value.get(wanted).unwrap_or_default());
    })?;
    Ok(())
}

pub(super) fn set(call: &mut Call<'_, '_>) -> Outcome {
    let Call { args, txn, out } = call;
    if args.len() == 3 {
        txn.put(args.bytes(1), args.bytes(2), Expiry::NEVER);
        out.simple("OK");
        return Ok(());
    }
    let options = SetOptions::parse(*args, 3, false)?;
    let expires = options.expiry.resolve(*args, txn.now_ms(), "set")?;
    let key = args.get(1);
    let needs_old = options.get || options.keep_ttl || options.only_new || options.only_old;
    let old = match needs_old {
        true if options.get => txn.value(key)?.map(|r| (r.expires, r.value)),
        true => txn.expiry(key)?.map(|expires| (expires, Bytes::new())),
        false => None,
    };
    let wanted = !(options.only_new && old.is_some() || options.only_old && old.is_none());
    if options.get {
        match &old {
            Some((_, value)) => out.bulk(value),
            None => out.null(),
        }
    } else if wanted {
        out.simple("OK");
    } else {
        out.null();
    }
    if wanted {
        let kept = if options.keep_ttl { old.map(|(expires, _)| expires) } else { None };
        txn.put(args.bytes(1), args.bytes(2), expires.or(kept).unwrap_or(Expiry::NEVER));
    }
    Ok(())
}

pub(super) fn setnx(call: &mut Call<'_, '_>) -> Outcome {
    let fresh = !call.txn.exists(call.args.get(1))?;
    if fresh {
        call.txn.put(call.args.bytes(1), call.args.bytes(2), Expiry::NEVER);
    }
    call.out.integer(i64::from(fresh));
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_, '_>) -> Outcome {
    set_with_ttl(call, 1000, "setex")
}

pub(super) fn psetex(call: &mut Call<'_, '_>) -> Outcome {
    set_with_ttl(call, 1, "psetex")
}

fn set_with_ttl(call: &mut Call<'_, '_>, unit: i64, name: &str) -> Outcome {
    let expires = super::options::from_now(call.args.get(2), unit, call.txn.now_ms(), name)?;
    call.txn.put(call.args.bytes(1), call.args.bytes(3), expires);
    call.out.simple("OK");
    Ok(())
}

pub(super) fn getset(call: &mut Call<'_, '_>) -> Outcome {
    get(call)?;
    call.txn.put(call.args.bytes(1), call.args.bytes(2), Expiry::NEVER);
    Ok(())
}

pub(super) fn getdel(call: &mut Call<'_, '_>) -> Outcome {
    get(call)?;
    if call.txn.exists(call.args.get(1))? {
        call.txn.delete(call.args.bytes(1));
    }
    Ok(())
}

pub(super) fn mset(call: &mut Call<'_, '_>) -> Outcome {
    check_pairs(call, "mset")?;
    call.out.simple("OK");
    put_pairs(call);
    Ok(())
}

pub(super) fn msetnx(call: &mut Call<'_, '_>) -> Outcome {
    check_pairs(call, "msetnx")?;
    for n in (1..call.args.len()).step_by(2) {
        if call.txn.exists(call.args.get(n))? {
            call.out.integer(0);
            return Ok(());
        }
    }
    call.out.integer(1);
    put_pairs(call);
    Ok(())
}

fn check_pairs(call: &Call<'_, '_>, name: &str) -> Outcome {
    match call.args.len() % 2 {
        1 => Ok(()),
        _ => Err(format!("ERR wrong number of arguments for '{name}' command").into()),
    }
}

fn put_pairs(call: &mut Call<'_, '_>) {
    for n in (1..call.args.len()).step_by(2) {
        call.txn.put(call.args.bytes(n), call.args.bytes(n + 1), Expiry::NEVER);
    }
}

pub(super) fn append(call: &mut Call<'_, '_>) -> Outcome {
    let Call { args, txn, out } = call;
    let (limit, tail) = (txn.limits().value, args.get(2));
    let joined = txn.read(args.get(1), |record| {
        let (head, expires) = record.map_or((&[][..], Expiry::NEVER), |r| (r.value, r.expires));
        let len = head.len() + tail.len();
        (len <= limit).then(|| {
            let mut value = BytesMut::with_capacity(len);
            value.extend_from_slice(head);
            value.extend_from_slice(tail);
            (value.freeze(), expires)
        })
    })?;
    let Some((value, expires)) = joined else {
        let size = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        return Err(format!("{size}: the limit is {limit} bytes, set by --max-value").into());
    };
    out.integer(value.len() as i64);
    txn.put(args.bytes(1), value, expires);
    Ok(())
}
