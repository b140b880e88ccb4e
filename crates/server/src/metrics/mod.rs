//! The metrics at `/metrics`.

mod array;
mod drive;
mod exposition;
mod format;

pub(crate) use exposition::render;
pub(crate) use format::Format;
