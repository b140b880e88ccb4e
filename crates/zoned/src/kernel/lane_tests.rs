//! The lane alone.
