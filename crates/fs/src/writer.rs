//! The one writer of a file.

use std::sync::Arc;

use units::Bytes;

use crate::{Lifetime, Result};

/// Writes a file at its end. One per file; calls may come from several threads.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<()>,
}

#[allow(unused_variables, clippy::todo, clippy::unused_async)]
impl Writer {
    /// Appends a copy of `data`; full buffers are written out.
    pub async fn append(&self, data: &[u8]) -> Result<()> {
        todo!()
    }
    /// Hands buffered data towards the device. Promises nothing about power cuts.
    pub async fn flush(&self) -> Result<()> {
        todo!()
    }
    /// Makes everything appended before durable, data first, then metadata.
    pub async fn sync(&self) -> Result<()> {
        todo!()
    }
    /// The length so far, buffered data included.
    pub fn size(&self) -> Bytes {
        todo!()
    }
    /// Cuts or extends (with zeroes) the file.
    pub async fn truncate(&self, size: Bytes) -> Result<()> {
        todo!()
    }
    /// Changes the expected lifetime for what is written from now on.
    pub fn set_lifetime(&self, lifetime: Lifetime) {
        todo!()
    }
    /// Writes the buffer out and ends writing. Calling it again does nothing.
    pub async fn close(&self) -> Result<()> {
        todo!()
    }
}
