//! A row of a figure: a number and the published one.

use std::fmt;

use serde::{Serialize, Serializer};

/// A measured number of a figure, and the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure, or one of its panels: `fig2a`.
    pub figure: &'static str,
    /// The series of the row: a line, or bars of one colour.
    pub series: String,
    /// The place of the row on the horizontal axis.
    pub x: X,
    /// The unit of both the measured and the published number.
    pub unit: Unit,
    /// Whether higher or lower numbers are better.
    pub better: Better,
    /// The published number. `None` if the paper has only a bar without a number, or nothing.
    pub paper: Option<f64>,
    /// The measured number.
    #[serde(serialize_with = "as_written")]
    pub ours: f64,
    /// Conditions of the measurement that matter to a comparison.
    pub note: String,
}

impl Row {
    /// A row without a published number and without a note.
    pub fn new(
        figure: &'static str,
        series: impl Into<String>,
        x: impl Into<X>,
        unit: Unit,
        ours: f64,
    ) -> Row {
        let (series, x, better) = (series.into(), x.into(), unit.better());
        Row { figure, series, x, unit, better, paper: None, ours, note: String::new() }
    }

    /// Sets the published number of the row.
    pub fn paper(self, paper: impl Into<Option<f64>>) -> Row {
        Row { paper: paper.into(), ..self }
    }

    /// Adds a sentence to the note of the row.
    pub fn note(mut self, note: impl AsRef<str>) -> Row {
        if !self.note.is_empty() && !note.as_ref().is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// The measured number over the published one.
    pub fn ratio(&self) -> Option<f64> {
        self.paper.filter(|paper| *paper != 0.0).map(|paper| self.ours / paper)
    }
}

/// Formats a number with six significant digits.
pub(super) fn written(value: f64) -> String {
    format!("{value:.5e}").parse::<f64>().map_or_else(|_| value.to_string(), |short| short.to_string())
}

fn as_written<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let text = written(*value);
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => serializer.serialize_i64(whole),
        (_, Ok(short)) => serializer.serialize_f64(short),
        _ => serializer.serialize_f64(*value),
    }
}

/// A place on a figure's horizontal axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum X {
    /// A quantity; the axis' title names it.
    #[serde(serialize_with = "as_written")]
    Number(f64),
    /// A name, such as that of a workload.
    Name(String),
}

impl fmt::Display for X {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            X::Number(number) => write!(f, "{number}"),
            X::Name(name) => f.write_str(name),
        }
    }
}

impl From<u32> for X {
    fn from(number: u32) -> X {
        X::Number(f64::from(number))
    }
}

impl From<f64> for X {
    fn from(number: f64) -> X {
        X::Number(number)
    }
}

impl From<&str> for X {
    fn from(name: &str) -> X {
        X::Name(name.to_owned())
    }
}

impl From<String> for X {
    fn from(name: String) -> X {
        X::Name(name)
    }
}

/// Whether higher or lower numbers are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Higher numbers are better, as of rates.
    Higher,
    /// Lower numbers are better, as of times.
    Lower,
}

/// The unit of a figure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Thousand operations a second.
    Kiops,
    /// MiB a second.
    MibPerS,
    /// KiB of memory.
    Kib,
    /// MiB read or moved.
    Mib,
    /// A ratio: one rate over another.
    Times,
    /// A number of things: servers, snapshots, blocks.
    Count,
}

impl Unit {
    /// All units of numbers.
    pub const ALL: [Unit; 9] = [
        Unit::Us,
        Unit::Ms,
        Unit::Seconds,
        Unit::Kiops,
        Unit::MibPerS,
        Unit::Kib,
        Unit::Mib,
        Unit::Times,
        Unit::Count,
    ];

    /// The unit's symbol.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Us => "us",
            Unit::Ms => "ms",
            Unit::Seconds => "s",
            Unit::Kiops => "kIOPS",
            Unit::MibPerS => "MiB/s",
            Unit::Kib => "KiB",
            Unit::Mib => "MiB",
            Unit::Times => "x",
            Unit::Count => "count",
        }
    }

    /// Whether higher or lower numbers of the unit are better: times, memory, transferred bytes and counts (of lost blocks, say) are better low, rates high.
    pub fn better(self) -> Better {
        match self {
            Unit::Us | Unit::Ms | Unit::Seconds | Unit::Kib | Unit::Mib | Unit::Count => Better::Lower,
            Unit::Kiops | Unit::MibPerS | Unit::Times => Better::Higher,
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
