//! The settings of a group's turns.

use std::time::Duration;

use units::Bytes;

/// No time of a group's turns is longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The settings of a group's turns: the same on every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How long a turn lasts without being renewed. A turn is renewed after half of the time.
    pub lease: Duration,
    /// The greatest age of a report that a grant rests on. Nodes are asked four times as often.
    pub report_age: Duration,
    /// The most by which the fastest clock of a node runs faster than the slowest one, in parts per million.
    pub drift: u32,
    /// The rate of a turn, in bytes a second, is never lower: a turn that hardly goes on disturbs for ever.
    pub least_rate: Bytes,
    /// A node whose log is shorter takes no snapshot. Otherwise one is due when the log is as long as the last snapshot: a restart takes at most
    /// twice as long.
    pub least_log: Bytes,
    /// A snapshot is due at this length of the log in any case.
    pub longest_log: Bytes,
    /// A node that lacks more committed entries does not count for a majority.
    pub most_behind: u64,
    /// Whether the group's consensus can hand leadership over. A leader that can takes no turn while it leads.
    pub hands_over: bool,
    /// How long a leader waits for a handing over to happen, before it takes a turn itself while all others are undisturbed.
    pub hand_over_patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lease: Duration::from_secs(10),
            report_age: Duration::from_secs(1),
            drift: 1_000,
            least_rate: Bytes(1 << 20),
            least_log: Bytes(64 << 20),
            longest_log: Bytes(4 << 30),
            most_behind: 1_000,
            hands_over: true,
            hand_over_patience: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Says what is wrong with the settings.
    ///
    /// # Errors
    /// A lease that is not longer than two report ages (no turn could be renewed) or longer than a day, a report age below a millisecond, a patience of more than
    /// a day, a drift above 10 %, a rate or a least length of the log of zero.
    pub fn check(&self) -> Result<(), String> {
        if self.report_age < Duration::from_millis(1) {
            return Err(format!("a report age of {:?} is too short: at least 1 ms", self.report_age));
        }
        for (name, time) in [("lease", self.lease), ("patience with a handing over", self.hand_over_patience)]
        {
            if time > LONGEST {
                return Err(format!("a {name} of {time:?} is longer than a day"));
            }
        }
        if self.lease / 2 <= self.report_age {
            return Err(format!(
                "a lease of {:?} ends before its renewal: it must be longer than two report ages of {:?}",
                self.lease, self.report_age
            ));
        }
        if self.drift > 100_000 {
            return Err(format!("a drift of {} parts per million is more than 100000", self.drift));
        }
        if self.least_log == Bytes::ZERO {
            return Err(String::from("with a least log of 0 bytes a snapshot is due right after a snapshot"));
        }
        if self.least_rate == Bytes::ZERO {
            return Err(String::from("a turn with a least rate of 0 bytes a second never ends"));
        }
        Ok(())
    }

    /// How long a node's clock must run until `time` has certainly passed by another node's clock.
    pub(crate) fn stretched(&self, time: Duration) -> Duration {
        let nanos = time.as_nanos();
        let more = (nanos * u128::from(self.drift)).div_ceil(1_000_000);
        time + Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_in_words() {
        let good = Options::default();
        assert_eq!(good.check(), Ok(()));
        for (bad, word) in [
            (Options { lease: Duration::from_secs(2), ..good }, "renewal"),
            (Options { report_age: Duration::ZERO, ..good }, "too short"),
            (Options { drift: 100_001, ..good }, "drift"),
            (Options { least_rate: Bytes::ZERO, ..good }, "never ends"),
            (Options { least_log: Bytes::ZERO, ..good }, "right after"),
            (Options { lease: Duration::MAX, report_age: Duration::MAX, ..good }, "longer than a day"),
            (Options { hand_over_patience: Duration::MAX, ..good }, "patience"),
        ] {
            assert!(bad.check().expect_err("refused").contains(word), "{bad:?}");
        }
    }

    #[test]
    fn a_time_is_stretched_by_the_drift_rounded_up() {
        let options = Options { drift: 1_000, ..Options::default() };
        assert_eq!(options.stretched(Duration::from_secs(10)), Duration::from_millis(10_010));
        assert_eq!(options.stretched(Duration::from_nanos(1)), Duration::from_nanos(2));
    }
}
