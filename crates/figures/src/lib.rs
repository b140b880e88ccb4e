//! Published figures beside ours: rows of numbers, as JSON, CSV and pictures.
//!
//! A [`Figure`] measures its rows; a failure of one does not concern the others. The `furrow figures` command runs
//! them and writes the files.

#![forbid(unsafe_code)]

pub mod closed_loop;
mod db_bench;
mod figure;
pub mod profiles;
pub mod raizn;
mod row;
pub mod svg;
pub mod table;
pub mod waltz;
pub mod zwal;

pub use figure::{Error, Figure, Result, Run};
pub use profiles::PROFILES;
pub use row::{Better, Row, Unit, X};
pub use svg::{Panel, Shape};
