//! Commands that set, remove or show a key's expiry.

use super::call::{Call, Failure, NOT_AN_INTEGER, Outcome};
use super::options::SetOptions;
use super::strings;
use crate::{Expiry, parse_integer};

pub(super) fn expire(call: &mut Call<'_, '_>) -> Outcome {
    change_expiry(call, 1000, false, "expire")
}

pub(super) fn pexpire(call: &mut Call<'_, '_>) -> Outcome {
    change_expiry(call, 1, false, "pexpire")
}

pub(super) fn expireat(call: &mut Call<'_, '_>) -> Outcome {
    change_expiry(call, 1000, true, "expireat")
}

pub(super) fn pexpireat(call: &mut Call<'_, '_>) -> Outcome {
    change_expiry(call, 1, true, "pexpireat")
}

/// The conditions NX, XX, GT and LT of EXPIRE, under which a key's expiry is changed.
#[derive(Default)]
struct ExpiryConditions {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl ExpiryConditions {
    fn parse(call: &Call<'_, '_>) -> Result<ExpiryConditions, Failure> {
        let mut only = ExpiryConditions::default();
        for word in call.args.rest(3) {
            let flag = match word.to_ascii_uppercase().as_slice() {
                b"NX" => &mut only.without,
                b"XX" => &mut only.with,
                b"GT" => &mut only.later,
                b"LT" => &mut only.earlier,
                _ => {
                    let shown: String = String::from_utf8_lossy(word).chars().take(128).collect();
                    return Err(format!("ERR Unsupported option {shown}").into());
                }
            };
            *flag = true;
        }
        if only.without && (only.with || only.later || only.earlier) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if only.later && only.earlier {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(only)
    }

    /// Whether the conditions let the expiry `old` become `new_ms`. A key without an expiry compares as later
    /// than every expiry.
    fn allows(&self, old: Expiry, new_ms: i64) -> bool {
        let old = old.unix_ms().map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let at = old.unwrap_or(i64::MAX);
        !(self.without && old.is_some()
            || self.with && old.is_none()
            || self.later && (old.is_none() || new_ms <= at)
            || self.earlier && old.is_some() && new_ms >= at)
    }
}

fn change_expiry(call: &mut Call<'_, '_>, unit: i64, absolute: bool, name: &str) -> Outcome {
    let only = ExpiryConditions::parse(call)?;
    let now = i64::try_from(call.txn.now_ms()).unwrap_or(i64::MAX);
    let value = parse_integer(call.args.get(2)).ok_or(NOT_AN_INTEGER)?;
    let base = if absolute { 0 } else { now };
    let at = value
        .checked_mul(unit)
        .and_then(|ms| ms.checked_add(base))
        .ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    let changed = match call.txn.value(call.args.get(1))? {
        Some(record) if only.allows(record.expires, at) => {
            let key = call.args.bytes(1);
            if at <= now {
                call.txn.delete(key);
            } else {
                call.txn.put(key, record.value, Expiry::at(at));
            }
            true
        }
        _ => false,
    };
    call.out.integer(i64::from(changed));
    Ok(())
}

pub(super) fn persist(call: &mut Call<'_, '_>) -> Outcome {
    let changed = match call.txn.value(call.args.get(1))? {
        Some(record) if record.expires != Expiry::NEVER => {
            call.txn.put(call.args.bytes(1), record.value, Expiry::NEVER);
            true
        }
        _ => false,
    };
    call.out.integer(i64::from(changed));
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_, '_>) -> Outcome {
    let options = SetOptions::parse(call.args, 2, true)?;
    let now = call.txn.now_ms();
    let Some(record) = call.txn.value(call.args.get(1))? else {
        call.out.null();
        return Ok(());
    };
    let expires = options.expiry.resolve(call.args, now, "getex")?;
    strings::get(call)?;
    let key = call.args.bytes(1);
    match expires {
        Some(at) if options.expiry.is_absolute() && at.is_past(now) => call.txn.delete(key),
        Some(at) => call.txn.put(key, record.value, at),
        None if options.persist && record.expires != Expiry::NEVER => {
            call.txn.put(key, record.value, Expiry::NEVER);
        }
        None => {}
    }
    Ok(())
}

pub(super) fn ttl(call: &mut Call<'_, '_>) -> Outcome {
    reply_expiry(call, |at, now| (at.saturating_sub(now).saturating_add(500)) / 1000)
}

pub(super) fn pttl(call: &mut Call<'_, '_>) -> Outcome {
    reply_expiry(call, |at, now| at.saturating_sub(now))
}

pub(super) fn expiretime(call: &mut Call<'_, '_>) -> Outcome {
    reply_expiry(call, |at, _| at.saturating_add(500) / 1000)
}

pub(super) fn pexpiretime(call: &mut Call<'_, '_>) -> Outcome {
    reply_expiry(call, |at, _| at)
}

/// The reply of TTL, PTTL, EXPIRETIME and PEXPIRETIME: -2 if the key does not exist, -1 if it has no expiry.
fn reply_expiry(call: &mut Call<'_, '_>, form: impl Fn(u64, u64) -> u64) -> Outcome {
    let now = call.txn.now_ms();
    call.out.integer(match call.txn.expiry(call.args.get(1))? {
        None => -2,
        Some(expires) => match expires.unix_ms() {
            None => -1,
            Some(at) => i64::try_from(form(at, now)).unwrap_or(i64::MAX),
        },
    });
    Ok(())
}
