//! The interface between the exploration and the targets: a target's oracle judges images.

use zoned::emu::Media;

use crate::model::{Fault, Progress};

/// One state in this many is written on and cut again; on arrays, one mount in this many is cut.
pub(crate) const TWICE: u64 = 4;

/// Judges images of one workload.
pub(crate) trait Oracle: Sync {
    /// Mounts the image, compares its content with the model, checks its structures.
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault>;
}

/// How an image is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The image is written on, cut again and mounted again.
    pub twice: bool,
    pub seed: u64,
    /// The event after which the power is cut.
    pub event: usize,
}
