//! The kernel's two interfaces to a zoned drive.

/// An interface of the kernel to a zoned drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    /// The block device interface, which serves any host-managed drive.
    Block,
    /// NVMe passthrough commands, with the drive's own appends.
    Nvme,
}

impl Interface {
    /// The scheme of URLs that use the interface.
    pub fn scheme(self) -> &'static str {
        match self {
            Interface::Block => "blk",
            Interface::Nvme => "nvme",
        }
    }
}
