//! The kernel's two interfaces to a zoned drive.

/// Interface of the kernel to a zoned drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    /// The block device: any host-managed drive.
    Block,
    /// NVMe passthrough commands: appends are native.
    Nvme,
}

impl Interface {
    /// The URL's scheme.
    pub fn scheme(self) -> &'static str {
        match self {
            Interface::Block => "blk",
            Interface::Nvme => "nvme",
        }
    }
}
