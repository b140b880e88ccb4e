//! A figure of a paper, and how it is measured.

use std::error::Error as StdError;
use std::fmt;

use crate::row::Row;
use crate::svg::Panel;

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
