//! The atomics of `gate` and `tickets`: tests put loom's in their place.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
