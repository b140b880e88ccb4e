//! The storage below the server's engine.

use fs::Fs;

use crate::array::OpenArray;

/// The file system and the array below the engine, if the server knows them.
#[derive(Default)]
pub(crate) struct Backing {
    pub fs: Option<Fs>,
    pub array: Option<OpenArray>,
}
