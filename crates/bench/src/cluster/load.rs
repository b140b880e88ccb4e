//! The settings of a measured cluster.

use std::time::Duration;

use serde::Serialize;
use units::Bytes;

use crate::{Error, Result};

/// A value that fits into one entry beside its key.
const LONGEST_VALUE: Bytes = Bytes(64 << 10);
const MOST_WRITERS: u32 = 4096;

/// A measured cluster, and the clients' load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterLoad {
    /// The profile of each node's emulated drive. Default `zn540`.
    pub profile: String,
    /// The time that a message takes behind its sender's link. Default 10 us.
    pub one_way: Duration,
    /// Bits a second of each node's link. Default 100 Gbit/s.
    pub link_bits_per_s: u64,
    /// Bytes of a value. Default 512.
    #[serde(serialize_with = "bytes")]
    pub value: Bytes,
    /// Writes that are measured one after the other. Default 1,000.
    pub lone_writes: u64,
    /// Writers that write side by side. Default 64.
    pub writers: u32,
    /// Records that these write together. Default 100,000.
    pub records: u64,
    /// Reads under the lease. Default 10,000.
    pub reads: u64,
    /// Clusters that lose their primary. Default 1,000.
    pub lost_primaries: u64,
    /// The election timeout; a heartbeat is a tenth of it. Default 500 ms.
    pub election_timeout: Duration,
    /// The seed of all that is random. Default 1.
    pub seed: u64,
}

impl Default for ClusterLoad {
    fn default() -> ClusterLoad {
        ClusterLoad {
            profile: String::from("zn540"),
            one_way: Duration::from_micros(10),
            link_bits_per_s: 100_000_000_000,
            value: Bytes(512),
            lone_writes: 1_000,
            writers: 64,
            records: 100_000,
            reads: 10_000,
            lost_primaries: 1_000,
            election_timeout: Duration::from_millis(500),
            seed: 1,
        }
    }
}

impl ClusterLoad {
    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// [`Error::Settings`] names the setting that does not.
    pub fn check(&self) -> Result<()> {
        let problem = if self.value > LONGEST_VALUE {
            format!("a value of {} bytes: at most {}", self.value.0, LONGEST_VALUE.0)
        } else if self.writers == 0 || self.writers > MOST_WRITERS {
            format!("{} writers: from 1 to {MOST_WRITERS}", self.writers)
        } else if self.link_bits_per_s == 0 {
            String::from("the link sends nothing: give its bits a second")
        } else if self.lone_writes == 0 || self.records == 0 || self.reads == 0 || self.lost_primaries == 0 {
            String::from("of writes, records, reads and lost primaries there is one at least")
        } else {
            return Ok(());
        };
        Err(Error::settings(problem))
    }
}

fn bytes<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.0)
}
