//! The metrics at `/metrics`.

mod array;
mod drive;
mod encode;
mod exposition;
mod format;
mod groups;
mod share;

pub(crate) use exposition::render;
pub(crate) use format::Format;
