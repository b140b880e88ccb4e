//! Converts paths, byte strings and lifetime hints from C++'s form.

use std::borrow::Cow;
use std::ffi::c_char;
use std::slice;

use fs::{IoClass, Lifetime};

use crate::status::{Failure, StatusCode};

/// The `len` bytes at `data` as a slice.
///
/// # Safety
/// `data` points to `len` readable bytes that do not change during `'a`. Null with length 0 is allowed.
pub unsafe fn bytes<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees that the bytes at `data` live unchanged during `'a`.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// The path at `data`, of `len` bytes, in the file system's form.
///
/// # Safety
/// `data` points to `len` readable bytes that do not change during `'a`. Null with length 0 is allowed.
pub unsafe fn path<'a>(data: *const c_char, len: usize) -> Result<Cow<'a, str>, Failure> {
    // SAFETY: the caller guarantees that `data` has `len` readable bytes.
    let raw = unsafe { bytes(data, len) };
    let text = std::str::from_utf8(raw).map_err(|_| {
        let shown = String::from_utf8_lossy(raw);
        Failure::new(StatusCode::Invalid, format!("path '{shown}' is not UTF-8: rename it"))
    })?;
    Ok(normalise_path(text))
}

/// Normalises a path. Engines concatenate directories and names, so `//`, `/./` and trailing slashes are removed,
/// and a relative path begins at the root. A path in normal form, the usual case, is borrowed.
fn normalise_path(path: &str) -> Cow<'_, str> {
    let fine = path.starts_with('/')
        && (path.len() == 1
            || path.get(1..).is_some_and(|rest| rest.split('/').all(|part| !part.is_empty() && part != ".")));
    if fine {
        return Cow::Borrowed(path);
    }
    let mut result = String::with_capacity(path.len() + 1);
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        result.push('/');
        result.push_str(part);
    }
    if result.is_empty() {
        result.push('/');
    }
    Cow::Owned(result)
}

/// The file system's lifetime hint for a value of RocksDB's WriteLifeTimeHint.
pub(crate) fn lifetime_from_hint(hint: u8) -> Lifetime {
    match hint {
        1 => Lifetime::None,
        2 => Lifetime::Short,
        3 => Lifetime::Medium,
        4 => Lifetime::Long,
        5 => Lifetime::Extreme,
        _ => Lifetime::NotSet,
    }
}

/// The class of writes with a value of RocksDB's Env::IOPriority; `None` where RocksDB gives none.
pub(crate) fn class_from_priority(priority: u8) -> Option<IoClass> {
    match priority {
        0 | 1 => Some(IoClass::Compaction),
        2 => Some(IoClass::Flush),
        3 => Some(IoClass::Read),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_an_engine_joined_are_normalised() {
        for (given, wanted) in [
            ("/db/000001.log", "/db/000001.log"),
            ("/db//LOCK", "/db/LOCK"),
            ("/db/", "/db"),
            ("db/./x", "/db/x"),
            ("/", "/"),
            ("", "/"),
            ("//", "/"),
        ] {
            assert_eq!(normalise_path(given), wanted, "{given}");
        }
        assert!(matches!(normalise_path("/db/000001.log"), Cow::Borrowed(_)), "the usual path is not copied");
    }
}
