//! Settings of a log in a file.

use std::path::PathBuf;

use crate::{Error, Result};

/// How a log's writes reach the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// io_uring, and the priority with each request. Where io_uring is barred: [`How::Thread`].
    #[default]
    Request,
    /// System calls of helper threads, each with the request's priority.
    Thread,
    /// A process of its own, [`Options::writer`], whose file may have the capability that the program lacks. Dropping or closing the log waits for the process's end.
    Process,
}

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// How writes reach the kernel. Default: [`How::Request`].
    pub how: How,
    /// The program of [`How::Process`], looked for in `PATH` if it has no slash. Default: `furrow-prio-writer`.
    pub writer: PathBuf,
    /// Bytes of a block, a power of two from 512 to 65,536: writes begin and end with blocks. Default: 4,096, which drives with sectors of 512 and of 4,096 bytes take.
    pub block: u32,
    /// Bytes of room that are zeroed ahead of the log; 0 for none. Default: 16 MiB, a second at 16 MiB/s.
    pub room: u64,
    /// Bytes that may be appended and not yet written; an append beyond waits. Default: 8 MiB.
    pub buffer: u64,
    /// The safety rule that is broken.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<crate::BrokenRule>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            how: How::default(),
            writer: "furrow-prio-writer".into(),
            block: 4096,
            room: 16 << 20,
            buffer: 8 << 20,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

impl Options {
    /// Refuses settings out of range, and names the setting.
    pub fn validate(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::Options(why));
        if !self.block.is_power_of_two() || !(512..=65_536).contains(&self.block) {
            return refuse(format!(
                "a block of {} bytes: wanted is a power of two from 512 to 65,536",
                self.block
            ));
        }
        if self.room > 1 << 40 {
            return refuse(format!("{} bytes of room: more than a TiB", self.room));
        }
        if self.buffer < u64::from(self.block) {
            return refuse(format!("a buffer of {} bytes holds no block of {}", self.buffer, self.block));
        }
        Ok(())
    }

    /// The safety rules of a log with these options.
    pub(crate) fn rules(&self) -> crate::rules::Rules {
        crate::rules::Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }
}
