//! Published figures beside ours: rows of numbers, as JSON, CSV and pictures.
//!
//! A [`Figure`] measures its rows; a failure of one does not concern the others. The `furrow figures` command runs
//! them and writes the files.

#![forbid(unsafe_code)]

pub mod closed_loop;
mod db_bench;
pub mod profiles;
pub mod raizn;
mod row;
pub mod svg;
pub mod table;
pub mod waltz;
pub mod zwal;

use std::error::Error as StdError;
use std::fmt;

pub use row::{Better, Row, Unit, X};
pub use svg::{Panel, Shape};

/// How a figure is to be measured.
pub struct Run<'a> {
    /// Less of everything. The rows' notes say so.
    pub quick: bool,
    /// Told what is being measured.
    pub progress: &'a dyn Fn(&str),
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("quick", &self.quick).finish_non_exhaustive()
    }
}

impl Run<'_> {
    /// One of two values.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A figure: its name is that of its files.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// `zwal-fig2`.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// What is drawn; rows whose `figure` no panel names are in the files only.
    pub panels: &'static [Panel],
    /// Measures the rows; they are named by [`Figure::rows`] as quick where they are.
    pub measure: fn(&Run<'_>) -> Result<Vec<Row>>,
}

impl Figure {
    /// Measures the rows.
    pub fn rows(&self, run: &Run<'_>) -> Result<Vec<Row>> {
        let rows = (self.measure)(run)?;
        Ok(rows.into_iter().map(|row| row.note(run.pick("", "quick: less than the figure takes"))).collect())
    }

    /// Whether `--only WORD` means it: its name, the part behind the dash, one of its panels (`waltz13a`), or the number
    /// that the paper has for one (`fig13`, `table2`).
    pub fn is_called(&self, word: &str) -> bool {
        let (set, short) = self.name.split_once('-').unwrap_or(("", self.name));
        let has_number = |panel: &str| {
            let number =
                panel.strip_prefix(set).unwrap_or(panel).trim_end_matches(|c: char| c.is_ascii_lowercase());
            let table = panel.strip_prefix(set).and_then(|rest| rest.strip_prefix('-'));
            word.strip_prefix("fig").is_some_and(|of| of == number) || table == Some(word)
        };
        let mut panels = self.panels.iter().map(|panel| panel.figure);
        self.name == word || short == word || panels.any(|panel| panel == word || has_number(panel))
    }
}

/// Each published number of a drive beside that of its profile.
pub const PROFILES: Figure = Figure {
    name: profiles::FIGURE,
    title: "Drive profiles: how far ours are from what was published",
    panels: &[Panel {
        figure: profiles::FIGURE,
        title: "",
        x: "ours / published - 1, %",
        y: "",
        shape: Shape::Deviation { allowed: 10.0 },
    }],
    measure: |run| {
        let mut rows = Vec::new();
        for (name, measure) in profiles::GROUPS {
            (run.progress)(name);
            let group = measure().map_err(|e| Error::new(format!("measuring {name}"), e))?;
            rows.extend(group.into_iter().map(|checked| checked.row));
        }
        Ok(rows)
    },
};

/// What was being measured, and why it could not be.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct Error {
    doing: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl Error {
    /// With a cause, or a sentence.
    pub fn new(doing: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error { doing: doing.into(), source: source.into() }
    }
}

/// A figure's own.
pub type Result<T> = std::result::Result<T, Error>;
