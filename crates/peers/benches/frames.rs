//! Frames.
fn main() {}
