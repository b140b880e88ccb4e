//! The figures of the ZWAL paper, on both of its drives.

mod alone;
mod barrier;
mod fig2;
mod fig4;
mod fig5;
mod fig6;
mod recovered;

use super::Figure;

/// All of them, those that take longest last.
pub const FIGURES: [Figure; 5] = [fig2::FIGURE, fig4::FIGURE, fig6::FIGURE, fig5::FIGURE, barrier::FIGURE];

/// Bytes of a pair: key and value.
const PAIR: u64 = 4096;

/// The most appends in flight, as in the paper.
const WINDOW: u32 = 32;

/// The paper's drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drive {
    /// The commercial one.
    Zn540,
    /// The model with 32 ways in each zone.
    Confzns,
}

impl Drive {
    const BOTH: [Drive; 2] = [Drive::Confzns, Drive::Zn540];

    fn profile(self) -> &'static str {
        self.pick("zn540", "confzns")
    }

    fn url(self) -> String {
        format!("emu:mem?profile={}", self.profile())
    }

    fn pick<T>(self, zn540: T, confzns: T) -> T {
        match self {
            Drive::Zn540 => zn540,
            Drive::Confzns => confzns,
        }
    }
}

#[cfg(test)]
mod tests;
