//! Repository chores (`cargo xtask`). They are a library so that `cargo test` runs them too.
#![forbid(unsafe_code)]

pub mod guest;
pub mod layering;
pub mod metadata;
