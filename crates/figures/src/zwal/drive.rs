//! The ZWAL paper's drives and its common settings.

/// Bytes of a key-value pair.
pub const PAIR_BYTES: u64 = 4096;

/// Most appends of the log in flight, as in the paper.
pub const APPENDS_IN_FLIGHT: u32 = 32;

/// The drives of the ZWAL paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drive {
    /// The commercial drive ZN540.
    Zn540,
    /// The drive model ConfZNS with 32 ways in each zone.
    Confzns,
}

impl Drive {
    /// Both drives of the ZWAL paper.
    pub const BOTH: [Drive; 2] = [Drive::Confzns, Drive::Zn540];

    /// The name of the drive's profile.
    pub fn profile(self) -> &'static str {
        self.pick("zn540", "confzns")
    }

    /// The URL of the emulated drive in memory, without a scheduler before it, as the paper's drives are.
    pub fn url(self) -> String {
        format!("emu:mem?profile={}&log-target=none", self.profile())
    }

    /// Selects the value for the drive.
    pub fn pick<T>(self, zn540: T, confzns: T) -> T {
        match self {
            Drive::Zn540 => zn540,
            Drive::Confzns => confzns,
        }
    }
}
