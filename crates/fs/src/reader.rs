//! A reader of a file.

use std::sync::Arc;

use units::Bytes;

use crate::Result;

/// Reads a file: sees what its writer appended so far, and survives the file's removal.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<()>,
}

#[allow(unused_variables, clippy::todo, clippy::unused_async)]
impl Reader {
    /// Reads at `offset`; gives the number of bytes read, less than asked only at the end of the file.
    pub async fn read_at(&self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        todo!()
    }
    /// The length so far.
    pub fn size(&self) -> Bytes {
        todo!()
    }
}
