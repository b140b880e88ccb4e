//! The options of SET and GETEX, and the expiries in a command's words.

use super::call::{Failure, NOT_AN_INTEGER, SYNTAX};
use crate::{Args, Expiry, parse_integer};

/// The expiry that a client named in a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenExpiry {
    /// Index of the word with the number.
    word: usize,
    unit: i64,
    absolute: bool,
}

impl GivenExpiry {
    /// Whether the command names an expiry.
    pub fn is_given(self) -> bool {
        self.word > 0
    }

    /// Whether the expiry is a point in time rather than a time to live.
    pub fn is_absolute(self) -> bool {
        self.absolute
    }

    /// The expiry, if the command names one. It must lie after 1970; it may lie in the past.
    pub fn resolve(self, args: Args<'_>, now_ms: u64, name: &str) -> Result<Option<Expiry>, Failure> {
        match self.is_given() {
            false => Ok(None),
            true if self.absolute => parse_expiry(args.get(self.word), self.unit, 0, name).map(Some),
            true => from_now(args.get(self.word), self.unit, now_ms, name).map(Some),
        }
    }
}

/// The expiry that lies as many units of `unit` milliseconds after `now_ms` as `word` says.
pub(super) fn from_now(word: &[u8], unit: i64, now_ms: u64, name: &str) -> Result<Expiry, Failure> {
    parse_expiry(word, unit, i64::try_from(now_ms).unwrap_or(i64::MAX), name)
}

fn parse_expiry(word: &[u8], unit: i64, base: i64, name: &str) -> Result<Expiry, Failure> {
    let value = parse_integer(word).ok_or(NOT_AN_INTEGER)?;
    let at = value.checked_mul(unit).and_then(|ms| ms.checked_add(base));
    match at {
        Some(at) if value > 0 => Ok(Expiry::at(at)),
        _ => Err(format!("ERR invalid expire time in '{name}' command").into()),
    }
}

/// The options of SET and of GETEX; GETEX has only times and PERSIST.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetOptions {
    pub only_new: bool,
    pub only_old: bool,
    pub get: bool,
    pub keep_ttl: bool,
    pub persist: bool,
    pub expiry: GivenExpiry,
}

impl SetOptions {
    /// Reads the options of SET, or with `getex` of GETEX, from the `from`th word on.
    pub fn parse(args: Args<'_>, from: usize, getex: bool) -> Result<SetOptions, Failure> {
        let mut options = SetOptions::default();
        let mut n = from;
        while n < args.len() {
            let word = args.get(n);
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let timed = options.expiry.is_given();
            let given_as = |options: &SetOptions, unit, absolute| {
                !options.expiry.is_given()
                    || (options.expiry.unit == unit && options.expiry.absolute == absolute)
            };
            let time = [("EX", 1000, false), ("PX", 1, false), ("EXAT", 1000, true), ("PXAT", 1, true)]
                .into_iter()
                .find(|(name, ..)| is(name));
            if is("NX") && !options.only_old && !getex {
                options.only_new = true;
            } else if is("XX") && !options.only_new && !getex {
                options.only_old = true;
            } else if is("GET") && !getex {
                options.get = true;
            } else if is("KEEPTTL") && !timed && !getex {
                options.keep_ttl = true;
            } else if is("PERSIST") && !timed && getex {
                options.persist = true;
            } else if let Some((_, unit, absolute)) = time
                && n + 1 < args.len()
                && !options.keep_ttl
                && !options.persist
                && given_as(&options, unit, absolute)
            {
                options.expiry = GivenExpiry { word: n + 1, unit, absolute };
                n += 1;
            } else {
                return Err(SYNTAX.into());
            }
            n += 1;
        }
        Ok(options)
    }
}
