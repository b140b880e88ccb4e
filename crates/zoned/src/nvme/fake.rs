//! What the pretended kernel does with NVMe commands.
use sys::nvme::Command;
use sys::{Buf, BufMut, Finished};

use crate::kernel::fake::Inner;

pub(crate) fn perform_out(_fake: &Inner, _command: Command, _data: &[Buf]) -> Finished {
    unimplemented!()
}

pub(crate) fn perform_in(_fake: &Inner, _command: Command, _into: BufMut) -> Finished {
    unimplemented!()
}
