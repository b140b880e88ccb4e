//! The interface through which a demonstration shows its progress.

use std::time::Duration;

/// Shows what a demonstration does. Loads call it from several threads.
pub trait Report: Sync {
    /// Shows a sentence about a step that is done.
    fn say(&self, sentence: &str);
    /// Shows that a load of `length` records begins.
    fn begin(&self, load: &'static str, length: u64);
    /// Shows that one record of the load is done.
    fn advance(&self);
    /// Shows that the load has ended.
    fn end(&self);
}

/// A time and a rate as text: `1.2 s (34567/s)`
pub fn rate(count: usize, time: Duration) -> String {
    format!("{} ({:.0}/s)", seconds(time), count as f64 / time.as_secs_f64().max(1e-6))
}

/// A time as text: `1.2 s`
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A size as text: `64.0 MiB`
pub fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}
