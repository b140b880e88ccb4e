//! Fuzz targets for what `furrow prio` and its preloaded library read: the patterns of paths, and the page that other processes write.

use std::time::Duration;

use pathprio::FileClass;
use pathprio::admission::Admission;
use pathprio::page::{EVENTS, PAGE_BYTES, Page, SLOTS, check_file, processes_of_file};
use pathprio::rules::Classified;
use pathprio::settings::{decode_rules, encode_globs};
use units::Instant;
use zoned::share::{Kind, Sample};

use super::pattern;

/// The longest text and path: the reference takes time in proportion to their product.
const MAX_TEXT: usize = 512;
const MAX_PATH: usize = 256;

/// Decodes the rules that the environment has, and classes a path. The input is the patterns of logs, those of bulk, and the path, with a zero byte between.
pub(crate) fn rules(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (log, bulk, path) = (next(), next(), next());
    let (Ok(log), Ok(bulk)) = (std::str::from_utf8(log), std::str::from_utf8(bulk)) else { return };
    if log.len() + bulk.len() > MAX_TEXT || path.len() > MAX_PATH {
        return;
    }
    let Ok(rules) = decode_rules(log, bulk) else { return };
    let again = decode_rules(&encode_globs(&rules.log), &encode_globs(&rules.bulk));
    assert_eq!(again.as_ref(), Ok(&rules));
    let _usable = rules.check();
    let matches = |globs: &[pathprio::glob::Glob]| {
        let mut any = false;
        for glob in globs {
            let expected = pattern::matches(glob.as_str().as_bytes(), path);
            assert_eq!(glob.matches(path), expected, "{glob} and {:?}", path.escape_ascii().to_string());
            any |= expected;
        }
        any
    };
    let expected = match (matches(&rules.log), matches(&rules.bulk)) {
        (true, in_both) => Some(Classified { class: FileClass::Log, in_both }),
        (false, true) => Some(Classified { class: FileClass::Bulk, in_both: false }),
        (false, false) => None,
    };
    assert_eq!(rules.classify(path), expected);
}

/// Uses a page as the preloaded library does. The input is the time, the number of the next event to read, and the page's file, which may be cut short.
pub(crate) fn page(bytes: &[u8]) {
    let Some((now, rest)) = bytes.split_first_chunk() else { return };
    let Some((from, file)) = rest.split_first_chunk() else { return };
    // The monotonic clock never reaches its end.
    let (now, from) = (u64::from_le_bytes(*now) >> 1, u64::from_le_bytes(*from));
    let _processes = processes_of_file(file);
    let _usable = check_file(file);
    let mut file = file.to_vec();
    file.resize(PAGE_BYTES, 0);
    assert!(processes_of_file(&file).len() <= SLOTS);
    let page = Page::from_file(&file);
    let device = file.get(16..).and_then(|bytes| bytes.first_chunk().copied()).map_or(0, u64::from_ne_bytes);
    assert_eq!(check_file(&file), page.check(device), "a file and its mapping");

    let mut read = 0;
    let next = page.events_since(from, |_event| read += 1);
    assert!(read <= EVENTS / 2 && next <= page.head(), "{read} events, up to {next}");
    admit(&page, Instant(now));
}

/// The calls of a process with a log and bulk.
fn admit(page: &Page, mut now: Instant) {
    let mut admission = Admission::new(page, now);
    let pid = (now.0 >> 8) as u32 | 1;
    let slot = page.claim(pid, |other| other % 3 == 0);
    for step in 0..24_u64 {
        let submitted = now;
        let bulk = page.log_begins(now);
        match admission.wait_until(page, now) {
            // A time that has passed would be asked for in a loop.
            Some(until) => assert!(until > now, "{until:?} is not after {now:?}"),
            None => {
                if let Some(slot) = slot {
                    page.bulk_begins(slot, now);
                }
                admission.bulk_goes(now, 1 << (step % 24));
                if let Some(slot) = slot {
                    page.bulk_ended(slot, now);
                }
            }
        }
        now = now.after(Duration::from_micros(1 << step));
        let kind = if step % 2 == 0 { Kind::Flush } else { Kind::Write };
        page.log_ended(&Sample { kind, bytes: step << step, submitted, latency: now.since(submitted), bulk });
    }
    if let Some(slot) = slot {
        page.release(slot, pid);
    }
}
