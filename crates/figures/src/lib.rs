//! The figures of the papers on ZWAL, WALTZ, RAIZN, buffered I/O and logs on shared drives beside Furrow's numbers, as JSON, CSV and charts.
//!
//! A [`Figure`] measures its rows. The `furrow figures` command runs the figures and writes the files.

#![forbid(unsafe_code)]

pub mod buffered;
pub mod closed_loop;
mod db_bench;
mod figure;
pub mod priority;
pub mod profiles;
pub mod raizn;
pub mod raizn_plus;
mod row;
mod spread;
pub mod svg;
pub mod table;
pub mod waltz;
pub mod zwal;

pub use figure::{Error, Figure, Result, Run};
pub use profiles::PROFILES;
pub use row::{Better, Row, Unit, X};
pub use svg::{Panel, Shape};
