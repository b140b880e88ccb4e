//! The interface between the exploration and the targets: a target's oracle judges images.

use zoned::emu::Media;

use crate::model::{Fault, Progress};

/// One crash state in this many is written on and cut again; on arrays, one mount in this many is cut.
pub(crate) const SECOND_CUT_EVERY: u64 = 4;

/// Judges the drive images of one workload.
pub(crate) trait Oracle: Sync {
    /// Mounts an image, compares its content with the model, checks its structures.
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault>;
}

/// How a drive image is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Whether the image is written on, cut again and mounted again.
    pub twice: bool,
    pub seed: u64,
    /// The event after which the power is cut.
    pub event: usize,
}
