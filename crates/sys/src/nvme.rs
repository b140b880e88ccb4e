//! NVMe commands as the kernel's passthrough takes them (NVM and Zoned Namespace Command Sets).

/// The parts of a submission queue entry that a passthrough command sets. Data length and pointer come from the
/// request that carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Command {
    /// The opcode.
    pub opcode: u8,
    /// The namespace.
    pub nsid: u32,
    /// Command dword 10.
    pub cdw10: u32,
    /// Command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Milliseconds after which the kernel gives the command up; 0 for its default.
    pub timeout_ms: u32,
}
