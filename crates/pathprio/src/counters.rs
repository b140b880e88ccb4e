//! Counters of one process by the class of its files, as a line of JSON.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::glob::Glob;
use crate::matched::MatchedGlobs;
use crate::rules::{FileClass, Rules};

/// The I/O priority of a thread while it made a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effective {
    /// Real-time.
    RealTime,
    /// Best effort.
    BestEffort,
    /// Idle.
    Idle,
    /// The thread's own: for a write into the page cache or a request without a priority, or because setting another one failed.
    Unchanged,
}

/// Names of [`Effective`] in the order of its values.
const PRIORITIES: [&str; 4] = ["real_time", "best_effort", "idle", "unchanged"];

/// Counters of one class.
#[derive(Debug)]
pub struct ClassCounters {
    /// Files opened for writing, and files whose descriptor was inherited.
    pub files: AtomicU64,
    /// Calls that wrote.
    pub writes: AtomicU64,
    /// Bytes that were written.
    pub bytes: AtomicU64,
    /// Calls that synced, and writes that were synced by a flag.
    pub syncs: AtomicU64,
    /// Nanoseconds for which writes were held.
    pub held_ns: AtomicU64,
    /// Pieces whose write-back was begun.
    pub pieces: AtomicU64,
    by_priority: [AtomicU64; 4],
}

/// Counters of one process.
#[derive(Debug)]
pub struct Counters {
    classes: [ClassCounters; FileClass::ALL.len()],
    /// Priorities that the kernel refused.
    pub refused: AtomicU64,
    /// Files that patterns of both classes match.
    pub in_both: AtomicU64,
}

impl ClassCounters {
    const fn new() -> ClassCounters {
        ClassCounters {
            files: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            by_priority: [const { AtomicU64::new(0) }; 4],
        }
    }

    fn fields(&self) -> [(&'static str, &AtomicU64); 6] {
        [
            ("files", &self.files),
            ("writes", &self.writes),
            ("bytes", &self.bytes),
            ("syncs", &self.syncs),
            ("held_ns", &self.held_ns),
            ("pieces", &self.pieces),
        ]
    }

    /// Counts a call that was made at that priority.
    pub fn count_priority(&self, priority: Effective) {
        if let Some(count) = self.by_priority.get(priority as usize) {
            count.fetch_add(1, Relaxed);
        }
    }
}

impl Counters {
    /// Counters at zero.
    pub const fn new() -> Counters {
        Counters {
            classes: [const { ClassCounters::new() }; FileClass::ALL.len()],
            refused: AtomicU64::new(0),
            in_both: AtomicU64::new(0),
        }
    }

    /// The counters of a class.
    pub fn of(&self, class: FileClass) -> &ClassCounters {
        let [log, bulk] = &self.classes;
        match class {
            FileClass::Log => log,
            FileClass::Bulk => bulk,
        }
    }

    /// True if no file of a class was opened or used.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().flat_map(ClassCounters::fields).all(|(_, count)| count.load(Relaxed) == 0)
    }

    /// Sets all counters to zero, in the child of a fork.
    pub fn clear(&self) {
        for class in &self.classes {
            class.fields().iter().for_each(|(_, count)| count.store(0, Relaxed));
            class.by_priority.iter().for_each(|count| count.store(0, Relaxed));
        }
        self.refused.store(0, Relaxed);
        self.in_both.store(0, Relaxed);
    }

    /// Most bytes of [`write_line`](Self::write_line).
    pub fn line_bytes(rules: &Rules) -> usize {
        // A control character is six bytes of JSON.
        let glob = |glob: &Glob| glob.as_str().len() * 6 + 3;
        2048 + rules.log.iter().chain(&rules.bulk).map(glob).sum::<usize>()
    }

    /// Writes one line of JSON. `program` is the process's name: bytes of it that JSON would have to escape become `?`. `matched`: the globs of the run, if it is known which of them matched
    /// a file.
    pub fn write_line(
        &self,
        to: &mut impl Write,
        pid: u32,
        program: &[u8],
        matched: Option<&MatchedGlobs<'_>>,
    ) -> fmt::Result {
        write!(to, "{{\"pid\":{pid},\"program\":\"")?;
        for byte in program {
            let plain = (byte.is_ascii_graphic() || *byte == b' ') && !matches!(byte, b'"' | b'\\');
            to.write_char(if plain { char::from(*byte) } else { '?' })?;
        }
        to.write_char('"')?;
        for class in FileClass::ALL {
            write!(to, ",\"{}\":{{", class.name())?;
            for (name, count) in self.of(class).fields() {
                write!(to, "\"{name}\":{},", count.load(Relaxed))?;
            }
            to.write_str("\"by_priority\":{")?;
            for (index, (name, count)) in PRIORITIES.iter().zip(&self.of(class).by_priority).enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(to, "{comma}\"{name}\":{}", count.load(Relaxed))?;
            }
            to.write_str("}}")?;
        }
        let (refused, in_both) = (self.refused.load(Relaxed), self.in_both.load(Relaxed));
        write!(to, ",\"refused_priorities\":{refused},\"in_both\":{in_both}")?;
        if let Some(matched) = matched {
            write_unmatched(to, matched)?;
        }
        to.write_str("}\n")
    }
}

fn write_unmatched(to: &mut impl Write, matched: &MatchedGlobs<'_>) -> fmt::Result {
    to.write_str(",\"unmatched_globs\":{")?;
    for (index, class) in FileClass::ALL.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(to, "{comma}\"{}\":[", class.name())?;
        for (index, glob) in matched.unmatched(class).enumerate() {
            to.write_str(if index == 0 { "" } else { "," })?;
            write_json_text(to, glob.as_str())?;
        }
        to.write_char(']')?;
    }
    to.write_char('}')
}

fn write_json_text(to: &mut impl Write, text: &str) -> fmt::Result {
    to.write_char('"')?;
    for char in text.chars() {
        match char {
            '"' | '\\' => write!(to, "\\{char}")?,
            char if u32::from(char) < 0x20 => write!(to, "\\u{:04x}", u32::from(char))?,
            char => to.write_char(char)?,
        }
    }
    to.write_char('"')
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

/// A text in a buffer of its own: what does not fit is left out, and an error.
#[derive(Debug)]
pub struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Line<N> {
    /// An empty text.
    pub const fn new() -> Line<N> {
        Line { bytes: [0; N], len: 0 }
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        let end = self.len.checked_add(bytes.len()).ok_or(fmt::Error)?;
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }
}

impl<const N: usize> Default for Line<N> {
    fn default() -> Line<N> {
        Line::new()
    }
}

impl<const N: usize> Write for Line<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    #[test]
    fn the_counters_are_one_line_of_json() {
        let counters = Counters::new();
        assert!(counters.is_empty());
        counters.of(FileClass::Bulk).bytes.fetch_add(77, Relaxed);
        counters.of(FileClass::Log).count_priority(Effective::RealTime);
        assert!(!counters.is_empty());
        let mut line = Line::<2048>::new();
        counters.write_line(&mut line, 12, b"a \"b\\\n", None).unwrap();
        assert_eq!(
            std::str::from_utf8(line.as_bytes()).unwrap(),
            "{\"pid\":12,\"program\":\"a ?b??\",\
             \"log\":{\"files\":0,\"writes\":0,\"bytes\":0,\"syncs\":0,\"held_ns\":0,\"pieces\":0,\
             \"by_priority\":{\"real_time\":1,\"best_effort\":0,\"idle\":0,\"unchanged\":0}},\
             \"bulk\":{\"files\":0,\"writes\":0,\"bytes\":77,\"syncs\":0,\"held_ns\":0,\"pieces\":0,\
             \"by_priority\":{\"real_time\":0,\"best_effort\":0,\"idle\":0,\"unchanged\":0}},\
             \"refused_priorities\":0,\"in_both\":0}\n"
        );
        counters.clear();
        assert!(counters.is_empty());
    }

    #[test]
    fn globs_that_matched_no_file_are_in_the_line() {
        let parse = |globs: &[&str]| globs.iter().map(|glob| Glob::parse(glob).unwrap()).collect();
        let rules = Rules { log: parse(&["*.log", "a\\\"\u{1}b"]), bulk: parse(&["*.x", "*.y"]) };
        let marks = [const { AtomicU8::new(0) }; 4];
        let matched = MatchedGlobs::new(&rules, &marks).unwrap();
        matched.mark(b"a.log");
        let mut line = String::new();
        Counters::new().write_line(&mut line, 1, b"", Some(&matched)).unwrap();
        let end = r#","in_both":0,"unmatched_globs":{"log":["a\\\"\u0001b"],"bulk":["*.x","*.y"]}}"#;
        assert!(line.ends_with(&format!("{end}\n")), "{line}");
    }

    #[test]
    fn the_longest_line_fits_its_buffer() {
        let counters = Counters::new();
        for class in FileClass::ALL {
            counters.of(class).fields().iter().for_each(|(_, count)| count.store(u64::MAX, Relaxed));
            counters.of(class).by_priority.iter().for_each(|count| count.store(u64::MAX, Relaxed));
        }
        let globs = vec![Glob::parse(&"\u{1}".repeat(500)).unwrap(); 10];
        let rules = Rules { log: globs.clone(), bulk: globs };
        let marks = [const { AtomicU8::new(0) }; 20];
        let mut line = String::new();
        let matched = MatchedGlobs::new(&rules, &marks);
        counters.write_line(&mut line, u32::MAX, &[b'x'; 16], matched.as_ref()).unwrap();
        assert!(line.len() <= Counters::line_bytes(&rules), "{}", line.len());
    }
}
