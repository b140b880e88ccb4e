//! The kernel's trace of the requests that it hands to drives (`block_rq_issue`), which prints their priorities since Linux 6.11.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::mount::MountFlags;
use sys::Priority;

use super::drives::Drive;
use crate::text;

const TRACEFS: &str = "/sys/kernel/tracing";
const EVENT: &str = "/sys/kernel/tracing/events/block/block_rq_issue";
/// The file by which programs write words into the trace.
pub(super) const MARKER: &str = "/sys/kernel/tracing/trace_marker";
/// Size of the trace, for each processor: no event may be lost.
const BUFFER_KIB: u32 = 8192;

/// A trace that is being recorded. Recording ends when the value is dropped.
pub(super) struct Trace(());

/// A write that the kernel handed to a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Write {
    /// The first sector, of 512 bytes.
    pub(super) sector: u64,
    /// The request's priority.
    pub(super) priority: Priority,
    /// The name of the thread that handed the request over.
    pub(super) thread: String,
}

/// A line of the trace.
#[derive(PartialEq, Eq, Debug)]
enum Line {
    Write { drive: String, write: Write },
    Mark,
}

impl Trace {
    /// Begins to record.
    pub(super) fn begin() -> Result<Trace> {
        if !Path::new(MARKER).exists() {
            // Programs of all users write marks.
            rustix::mount::mount(c"tracefs", TRACEFS, c"tracefs", MountFlags::empty(), c"mode=755")
                .context("mounting tracefs")?;
            fs::set_permissions(MARKER, fs::Permissions::from_mode(0o222))?;
        }
        let format =
            text::get(format!("{EVENT}/format")).context("the kernel has no event block_rq_issue")?;
        let kernel = text::get("/proc/sys/kernel/osrelease").unwrap_or_default();
        ensure!(
            format.contains("ioprio"),
            "NO PRIORITY CAN BE SEEN: block_rq_issue of Linux {kernel} prints none, as it does since 6.11"
        );
        let tracing = Path::new(TRACEFS);
        // One clock for all processors: lines of two of them are in the order of their time.
        text::put(tracing.join("trace_clock"), "mono")?;
        text::put(tracing.join("buffer_size_kb"), BUFFER_KIB)?;
        // The machine's kernel has the event on since its boot: see `Machine::traces_requests`.
        let enabled = text::get(format!("{EVENT}/enable"));
        ensure!(enabled.as_deref() == Some("1"), "block_rq_issue is not on: {enabled:?}");
        text::put(tracing.join("trace"), "")?;
        text::put(tracing.join("tracing_on"), 1)?;
        Ok(Trace(()))
    }

    /// Ends the recording. Returns the writes to a drive before and after the last mark; all of them are before if there is none.
    pub(super) fn end(self, drive: &Drive) -> Result<(Vec<Write>, Vec<Write>)> {
        pause()?;
        let trace = fs::read_to_string(Path::new(TRACEFS).join("trace"))?;
        let kept = trace.lines().find_map(|line| line.split_once("entries-in-buffer/entries-written: "));
        let kept = kept.and_then(|(_, rest)| rest.split_whitespace().next()?.split_once('/'));
        ensure!(kept.is_some_and(|(kept, written)| kept == written), "the trace lost events: {kept:?}");
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for line in trace.lines().filter_map(parse) {
            match line {
                Line::Mark => before.append(&mut after),
                Line::Write { drive: number, write } if number == drive.number => after.push(write),
                Line::Write { .. } => {}
            }
        }
        let marked = trace.lines().any(|line| parse(line) == Some(Line::Mark));
        if marked { Ok((before, after)) } else { Ok((after, Vec::new())) }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        pause().ok();
    }
}

fn pause() -> Result<()> {
    text::put(Path::new(TRACEFS).join("tracing_on"), 0)
}

/// A write of data, or a mark. `None` for any other line.
fn parse(line: &str) -> Option<Line> {
    if line.contains(": tracing_mark_write: ") {
        return Some(Line::Mark);
    }
    // DRIVE OPERATION BYTES (COMMAND) SECTOR + SECTORS CLASS,HINT,LEVEL [THREAD]
    let (_, event) = line.split_once(": block_rq_issue: ")?;
    let (head, tail) = event.split_once(") ")?;
    let mut head = head.split(' ');
    let (drive, operation) = (head.next()?, head.next()?);
    let (place, thread) = tail.split_once(" [")?;
    let words: Vec<&str> = place.split(' ').collect();
    let [sector, "+", sectors, priority] = words.as_slice() else { return None };
    if !operation.contains('W') || *sectors == "0" {
        return None;
    }
    let mut priority = priority.split(',');
    let (class, _hint, level) = (priority.next()?, priority.next()?, priority.next()?.parse().ok()?);
    let priority = match class {
        "rt" => Priority::RealTime(level),
        "be" => Priority::BestEffort(level),
        "idle" => Priority::Idle,
        _ => Priority::Unset,
    };
    let thread = thread.trim_end_matches(']').to_owned();
    let write = Write { sector: sector.parse().ok()?, priority, thread };
    Some(Line::Write { drive: drive.to_owned(), write })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_and_its_priority_are_read_from_a_line_of_the_trace() {
        let line = "  dd-71  [000] .....  3.1: block_rq_issue: 252,0 WFS 4096 () 2048 + 8 rt,0,4 [a b]";
        let write = Write { sector: 2048, priority: Priority::RealTime(4), thread: "a b".into() };
        assert_eq!(parse(line), Some(Line::Write { drive: "252,0".into(), write }));
        assert_eq!(parse(&line.replace("WFS", "RA")), None);
        assert_eq!(parse(&line.replace("WFS", "FF").replace("+ 8", "+ 0")), None);
        assert_eq!(parse("x-7 [001] ..... 3.1: tracing_mark_write: entries"), Some(Line::Mark));
        assert_eq!(parse("# tracer: nop"), None);
    }
}
