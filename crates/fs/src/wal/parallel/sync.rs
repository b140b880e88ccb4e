//! The locks, events and atomics of `replacement` and `stripe`: a test puts loom's in their place.

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

pub(super) use arc_swap::{ArcSwap, ArcSwapOption};
pub(super) use parking_lot::Mutex;
pub(super) use units::sync::Event;
