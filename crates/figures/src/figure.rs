//! A figure of a paper.

use std::error::Error as StdError;
use std::fmt;

use crate::row::Row;
use crate::svg::Panel;

/// The settings with which figures are measured.
pub struct Run<'a> {
    /// Whether to run shorter measurements. The rows' notes say so.
    pub quick: bool,
    /// Records of each database, where a figure's size is the caller's to choose; `None`: the figure's own.
    pub records: Option<u64>,
    /// Runs of which a number is the median, where a figure's rows are such medians; `None`: the figure's own.
    pub runs: Option<u32>,
    /// A function that is called with the name of each step of the measurement.
    pub progress: &'a dyn Fn(&str),
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { quick, records, runs, progress: _ } = self;
        let mut fields = f.debug_struct("Run");
        fields.field("quick", quick).field("records", records).field("runs", runs).finish_non_exhaustive()
    }
}

impl Default for Run<'_> {
    fn default() -> Self {
        Run { quick: false, records: None, runs: None, progress: &|_| () }
    }
}

impl Run<'_> {
    /// Selects `quick` in a quick run, else `full`.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A figure of a paper, with its measurement.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The name of the figure and of its files: `zwal-fig2`.
    pub name: &'static str,
    /// The title of the figure, one line.
    pub title: &'static str,
    /// The charts of the figure. Rows whose `figure` no panel names are in the files only.
    pub panels: &'static [Panel],
    /// The function that measures the rows. [`Figure::rows`] adds the note of a quick run.
    pub measure: fn(&Run<'_>) -> Result<Vec<Row>>,
}

impl Figure {
    /// Measures the rows of the figure.
    pub fn rows(&self, run: &Run<'_>) -> Result<Vec<Row>> {
        let rows = (self.measure)(run)?;
        Ok(rows.into_iter().map(|row| row.note(run.pick("", "quick: less than the figure takes"))).collect())
    }

    /// Whether `--only WORD` names the figure: by its name, by the part of its name behind the dash, by one of its panels
    /// (`waltz13a`), or by the number in the paper (`fig13`, `table2`).
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

/// A measurement that failed: the step and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{source}; {doing}")]
pub struct Error {
    doing: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl Error {
    /// An error of the step `doing`, with its cause.
    pub fn new(doing: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error { doing: doing.into(), source: source.into() }
    }
}

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;
