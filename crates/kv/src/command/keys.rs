//! Commands on keys with values of any kind: DEL, EXISTS, TYPE, FLUSHALL.

use super::call::{Call, Outcome, SYNTAX};

pub(super) fn del(call: &mut Call<'_, '_>) -> Outcome {
    // All reads come before the first delete, so that a failed read leaves no key deleted. A key named twice
    // counts once.
    let mut there = Vec::with_capacity(call.args.len());
    for n in 1..call.args.len() {
        let key = call.args.get(n);
        if call.txn.exists(key)? {
            there.push(n);
        }
    }
    let mut count = 0;
    for n in there {
        if call.txn.exists(call.args.get(n))? {
            call.txn.delete(call.args.bytes(n));
            count += 1;
        }
    }
    call.out.integer(count);
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_, '_>) -> Outcome {
    let keys: Vec<&[u8]> = call.args.rest(1).collect();
    let mut count = 0;
    call.txn.read_many(&keys, |_, record| count += i64::from(record.is_some()))?;
    call.out.integer(count);
    Ok(())
}

pub(super) fn key_type(call: &mut Call<'_, '_>) -> Outcome {
    let there = call.txn.exists(call.args.get(1))?;
    call.out.simple(if there { "string" } else { "none" });
    Ok(())
}

/// FLUSHDB and FLUSHALL do the same, since there is one database. ASYNC is accepted; both modes are one range
/// delete.
pub(super) fn flush_all(call: &mut Call<'_, '_>) -> Outcome {
    let how = call.args.get(1);
    let plain = how.eq_ignore_ascii_case(b"async") || how.eq_ignore_ascii_case(b"sync");
    if call.args.len() > 2 || call.args.len() == 2 && !plain {
        return Err(SYNTAX.into());
    }
    call.txn.clear();
    call.out.simple("OK");
    Ok(())
}
