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

/// Opcodes of commands on an I/O queue.
pub(crate) mod opcode {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const ZONE_SEND: u8 = 0x79;
    pub(crate) const ZONE_RECEIVE: u8 = 0x7a;
    pub(crate) const ZONE_APPEND: u8 = 0x7d;
}

impl Command {
    /// Whether `len` bytes of data fit what the command says of its length, as far as that can be told without knowing
    /// the block size.
    ///
    /// The kernel does not look. A device that moves more than the buffer holds reads or writes memory that is not
    /// meant for it, so the engine refuses such a command.
    pub fn fits(&self, len: usize) -> bool {
        match self.opcode {
            opcode::READ | opcode::WRITE | opcode::ZONE_APPEND => {
                let blocks = (self.cdw12 as usize & 0xffff) + 1;
                let block = len / blocks;
                len.is_multiple_of(blocks) && block >= 512 && block.is_power_of_two()
            }
            opcode::ZONE_RECEIVE => (u64::from(self.cdw12) + 1).saturating_mul(4) == len as u64,
            opcode::FLUSH | opcode::ZONE_SEND => len == 0,
            _ => true,
        }
    }
}
