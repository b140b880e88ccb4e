//! The share of the bytes written that the array adds, as the plug-in counts bytes in a run of `db_bench`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Better, Error, Result, Row, Unit};

/// The environment variable by which the plug-in gets the name of the file for its counters.
pub(super) fn environment(dir: &Path) -> (&'static str, String) {
    ("FURROW_COUNTERS", file(dir).display().to_string())
}

fn file(dir: &Path) -> PathBuf {
    dir.join("counters.json")
}

/// Bytes that an array wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BytesWritten {
    all: u64,
    metadata: u64,
    partial_parity: u64,
}

/// The array's counters of the last run of db_bench.
pub(super) fn read_counters(dir: &Path) -> Result<BytesWritten> {
    let file = file(dir);
    let failed = || format!("what the array counted, in {}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| Error::new(failed(), e))?;
    std::fs::remove_file(&file).map_err(|e| Error::new(failed(), e))?;
    of(&text).map_err(|why| Error::new(failed(), why))
}

fn of(text: &str) -> std::result::Result<BytesWritten, String> {
    let [line] = text.lines().collect::<Vec<_>>()[..] else {
        return Err(format!("one mount is one line, not {text:?}"));
    };
    let counted: Value = serde_json::from_str(line).map_err(|error| format!("{error} in {line:?}"))?;
    let bytes = |name: &str| {
        counted.get(name).and_then(Value::as_u64).ok_or_else(|| format!("no {name} in {line:?}"))
    };
    let (metadata, partial_parity) = (bytes("metadata_bytes")?, bytes("partial_parity_bytes")?);
    let all = bytes("data_bytes")? + bytes("parity_bytes")? + partial_parity + metadata;
    match all {
        0 => Err(format!("nothing was written: {line:?}")),
        all => Ok(BytesWritten { all, metadata, partial_parity }),
    }
}

/// The shares of the bytes written as bars of a panel.
pub(super) fn rows(figure: &'static str, name: &'static str, of: &BytesWritten, how: &str) -> [Row; 2] {
    let share = |series: &str, bytes: u64, note: &str| Row {
        better: Better::Lower,
        ..Row::new(figure, series, name, Unit::Times, bytes as f64 / of.all as f64)
            .note(format!("{how}; {} bytes in all; {note}", of.all))
    };
    [
        share(
            "metadata of all bytes written",
            of.metadata,
            "published: below 0.001, whether with partial parity is not said",
        ),
        share(
            "partial parity of all bytes written",
            of.partial_parity,
            "logged for stripes that were not full when a write ended",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "{\"data_bytes\":800,\"parity_bytes\":150,\"partial_parity_bytes\":40,\"metadata_bytes\":10,\"flushes\":3}\n";

    #[test]
    fn shares_are_of_data_parity_and_metadata_together() {
        let written = of(LINE).unwrap();
        assert_eq!(written, BytesWritten { all: 1000, metadata: 10, partial_parity: 40 });
        assert_eq!(rows("p", "fillseq", &written, "").map(|row| row.ours), [0.01, 0.04]);
    }

    #[test]
    fn what_does_not_count_one_run_is_refused() {
        let nothing = LINE.replace("800", "0").replace("150", "0").replace("40", "0").replace("10", "0");
        for text in ["", "{}", "no JSON", &LINE.repeat(2), &nothing] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
