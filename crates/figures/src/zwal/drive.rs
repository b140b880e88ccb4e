//! The paper's drives and its common settings.

/// Bytes of a pair: key and value.
pub const PAIR: u64 = 4096;

/// The most appends in flight, as in the paper.
pub const WINDOW: u32 = 32;

/// The paper's drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drive {
    /// The commercial one.
    Zn540,
    /// The model with 32 ways in each zone.
    Confzns,
}

impl Drive {
    /// Both.
    pub const BOTH: [Drive; 2] = [Drive::Confzns, Drive::Zn540];

    /// The profile's name.
    pub fn profile(self) -> &'static str {
        self.pick("zn540", "confzns")
    }

    /// The URL of such a drive in memory.
    pub fn url(self) -> String {
        format!("emu:mem?profile={}", self.profile())
    }

    /// One of two values.
    pub fn pick<T>(self, zn540: T, confzns: T) -> T {
        match self {
            Drive::Zn540 => zn540,
            Drive::Confzns => confzns,
        }
    }
}
