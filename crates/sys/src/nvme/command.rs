//! NVMe commands as the kernel's passthrough interface takes them (NVM and Zoned Namespace Command Sets).

use units::{Blocks, Bytes, Lba};

/// The fields of an NVMe submission queue entry that a passthrough command sets. Data length and pointer come
/// from the request that carries the command.
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
    /// Milliseconds after which the kernel gives the command up; 0 for the kernel's default.
    pub timeout_ms: u32,
}

/// Opcodes of NVMe commands on an I/O queue.
pub(crate) mod opcode {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const ZONE_SEND: u8 = 0x79;
    pub(crate) const ZONE_RECEIVE: u8 = 0x7a;
    pub(crate) const ZONE_APPEND: u8 = 0x7d;
}

impl Command {
    /// True if a buffer of `len` bytes fits the data length in the command, for some possible block size.
    ///
    /// The kernel does not check this. A device that moves more than the buffer holds reads or writes memory
    /// beyond the buffer, so the engine refuses such a command.
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

    /// True if the command transfers `len` bytes of data from the device: the length fits, and the opcode has
    /// that direction.
    pub(crate) fn transfers_to_host(&self, len: usize) -> bool {
        self.fits(len) && (len == 0 || self.opcode & 3 == 2)
    }
}

/// Forced unit access, in command dword 12 of NVMe writes and appends.
const FUA: u32 = 1 << 30;
/// "Select all" in command dword 13 of zone management send: the action applies to all zones whose state
/// allows it.
const SELECT_ALL: u32 = 1 << 8;
/// "Partial report" in command dword 13 of zone management receive: the report's header counts the zones in
/// the buffer, not all zones of the namespace.
const PARTIAL_REPORT: u32 = 1 << 16;
/// The most blocks that one NVMe command addresses.
pub const MAX_BLOCKS: u64 = 1 << 16;
/// The data structure that an identify command returns.
pub const IDENTIFY_LEN: usize = 4096;
/// The number of the Zoned Namespace Command Set, in command dword 11 of identify.
const ZONED_COMMAND_SET: u32 = 2 << 24;

/// The action of a zone management send command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneAction {
    /// Closes the zone: it stays active and is no longer open.
    Close,
    /// Full.
    Finish,
    /// Opened explicitly.
    Open,
    /// Empty.
    Reset,
    /// Takes the zone offline: allowed for a read-only zone only.
    Offline,
}

impl Command {
    /// A command that reads `blocks` blocks from `at`: 1 to [`MAX_BLOCKS`].
    pub fn read(nsid: u32, at: Lba, blocks: Blocks) -> Command {
        Command::blocks(opcode::READ, nsid, at, blocks, false)
    }

    /// A command that writes `blocks` blocks at `at`; with `fua` they are durable when the command completes.
    pub fn write(nsid: u32, at: Lba, blocks: Blocks, fua: bool) -> Command {
        Command::blocks(opcode::WRITE, nsid, at, blocks, fua)
    }

    /// A command that appends `blocks` blocks to the zone that starts at `zone`; its result is the address.
    pub fn append(nsid: u32, zone: Lba, blocks: Blocks, fua: bool) -> Command {
        Command::blocks(opcode::ZONE_APPEND, nsid, zone, blocks, fua)
    }

    /// A flush command: makes completed writes durable.
    pub fn flush(nsid: u32) -> Command {
        Command { opcode: opcode::FLUSH, nsid, ..Command::default() }
    }

    /// A zone management send command: applies an action to the zone that starts at `zone`.
    pub fn zone(nsid: u32, zone: Lba, action: ZoneAction) -> Command {
        let action = match action {
            ZoneAction::Close => 1,
            ZoneAction::Finish => 2,
            ZoneAction::Open => 3,
            ZoneAction::Reset => 4,
            ZoneAction::Offline => 5,
        };
        Command { cdw13: action, ..Command::at(opcode::ZONE_SEND, nsid, zone) }
    }

    /// A zone management send command for all zones whose state allows the action.
    pub fn all_zones(nsid: u32, action: ZoneAction) -> Command {
        let command = Command::zone(nsid, Lba(0), action);
        Command { cdw13: command.cdw13 | SELECT_ALL, ..command }
    }

    /// A command that reports the zones from the one that holds block `from` on, as many as fit `into`: at
    /// least 64 bytes, of which the last ones beyond a multiple of 4 stay unused.
    ///
    /// Pass a buffer of [`report_len`](super::report_len).
    pub fn report(nsid: u32, from: Lba, into: Bytes) -> Command {
        let dwords = u32::try_from(into.0 / 4).expect("a report is shorter than 16 GiB");
        assert!(dwords >= 16, "a report has a header of 64 bytes");
        let command = Command::at(opcode::ZONE_RECEIVE, nsid, from);
        Command { cdw12: dwords - 1, cdw13: PARTIAL_REPORT, ..command }
    }

    /// An identify command for the namespace's data structure of the NVM Command Set.
    pub fn identify_namespace(nsid: u32) -> Command {
        Command::identify(nsid, 0x00, 0)
    }

    /// An identify command for the controller's data structure.
    pub fn identify_controller() -> Command {
        Command::identify(0, 0x01, 0)
    }

    /// An identify command for the namespace's identifiers and command set.
    pub fn identify_descriptors(nsid: u32) -> Command {
        Command::identify(nsid, 0x03, 0)
    }

    /// An identify command for the namespace's data structure of the Zoned Namespace Command Set.
    pub fn identify_zoned_namespace(nsid: u32) -> Command {
        Command::identify(nsid, 0x05, ZONED_COMMAND_SET)
    }

    /// An identify command for the controller's data structure of the Zoned Namespace Command Set.
    pub fn identify_zoned_controller() -> Command {
        Command::identify(0, 0x06, ZONED_COMMAND_SET)
    }

    fn identify(nsid: u32, structure: u32, command_set: u32) -> Command {
        Command { opcode: 0x06, nsid, cdw10: structure, cdw11: command_set, ..Command::default() }
    }

    fn at(opcode: u8, nsid: u32, at: Lba) -> Command {
        let (low, high) = (at.0 as u32, (at.0 >> 32) as u32);
        Command { opcode, nsid, cdw10: low, cdw11: high, ..Command::default() }
    }

    fn blocks(opcode: u8, nsid: u32, at: Lba, blocks: Blocks, fua: bool) -> Command {
        assert!(
            (1..=MAX_BLOCKS).contains(&blocks.0),
            "a command moves 1 to {MAX_BLOCKS} blocks, not {}",
            blocks.0
        );
        let count = (blocks.0 - 1) as u32;
        Command { cdw12: count | if fua { FUA } else { 0 }, ..Command::at(opcode, nsid, at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Lba = Lba(0x1_2345_6789);

    #[test]
    fn commands_are_laid_out_as_the_specification_says() {
        let append = Command::append(3, AT, Blocks(16), true);
        let parts = (append.opcode, append.nsid, append.cdw10, append.cdw11, append.cdw12, append.cdw13);
        assert_eq!(parts, (0x7d, 3, 0x2345_6789, 1, 0x4000_000f, 0));
        let write = Command::write(1, AT, Blocks(MAX_BLOCKS), false);
        assert_eq!((write.opcode, write.cdw12), (0x01, 0xffff));
        assert_eq!(Command::read(1, AT, Blocks(1)).opcode, 0x02);
        assert_eq!(Command::flush(1), Command { nsid: 1, ..Command::default() });
        let reset = Command::zone(1, AT, ZoneAction::Reset);
        assert_eq!((reset.opcode, reset.cdw10, reset.cdw13), (0x79, 0x2345_6789, 4));
        assert_eq!(Command::all_zones(1, ZoneAction::Close).cdw13, 0x101);
        let report = Command::report(1, AT, Bytes(4096));
        assert_eq!((report.opcode, report.cdw12, report.cdw13), (0x7a, 1023, 0x1_0000));
        let zoned = Command::identify_zoned_namespace(7);
        assert_eq!((zoned.opcode, zoned.nsid, zoned.cdw10, zoned.cdw11), (0x06, 7, 5, 0x0200_0000));
    }

    #[test]
    fn a_command_fits_its_own_buffer_and_no_other() {
        let read = Command::read(1, AT, Blocks(8));
        assert!(read.fits(8 * 512) && read.fits(8 * 4096));
        assert!(!read.fits(0) && !read.fits(4096 + 512) && !read.fits(8 * 256));
        let report = Command::report(1, AT, Bytes(8192));
        assert!(report.fits(8192) && !report.fits(4096));
        assert!(Command::flush(1).fits(0) && !Command::flush(1).fits(512));
    }

    #[test]
    #[should_panic(expected = "65537")]
    fn a_command_of_too_many_blocks_is_a_defect() {
        let _command = Command::read(1, AT, Blocks(MAX_BLOCKS + 1));
    }
}
