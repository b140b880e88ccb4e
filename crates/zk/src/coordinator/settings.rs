//! The settings of an ensemble's turns.

use std::time::Duration;

use units::Bytes;

/// No time of the settings is longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The settings of an ensemble's turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The longest time that a snapshot takes. Nothing is commanded for that long after the start, because a coordinator before may have commanded a
    /// snapshot. Without an answer after that time a snapshot counts as unanswered.
    pub longest_snapshot: Duration,
    /// The greatest age of a sample that a turn rests on.
    pub sample_age: Duration,
    /// After a snapshot the server's syncs must be as fast as before for this long. The kernel may begin to write a snapshot's pages that late
    /// (`vm.dirty_expire_centisecs`). Zero: a snapshot is on the drive when it is answered.
    pub settle_time: Duration,
    /// A server whose syncs stay slow counts as undisturbed again after this time.
    pub longest_settle_time: Duration,
    /// A server whose log is shorter takes no snapshot. Otherwise a snapshot is due when the log is as large as the last snapshot: a restart takes
    /// at most twice as long.
    pub least_log: Bytes,
    /// A snapshot is due at this length of the log in any case. A server's *room* is what its log lacks to this length.
    pub longest_log: Bytes,
    /// A server that refused a snapshot (429), or failed to take one, is not asked again for this long.
    pub retry_after: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            longest_snapshot: Duration::from_secs(300),
            sample_age: Duration::from_secs(10),
            settle_time: Duration::from_secs(35),
            longest_settle_time: Duration::from_secs(120),
            least_log: Bytes(64 << 20),
            longest_log: Bytes(4 << 30),
            retry_after: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Says what is wrong with the settings.
    ///
    /// # Errors
    /// A time longer than a day; a longest snapshot or a sample age of zero; a settle time that is longer than the longest one; a least log of zero or above the longest log.
    pub fn check(&self) -> Result<(), String> {
        let times = [
            self.longest_snapshot,
            self.sample_age,
            self.settle_time,
            self.longest_settle_time,
            self.retry_after,
        ];
        if let Some(time) = times.into_iter().find(|time| *time > LONGEST) {
            return Err(format!("a time of {time:?} is longer than a day"));
        }
        if self.longest_snapshot.is_zero() {
            return Err("a longest snapshot of no time: each would count as unanswered".into());
        }
        if self.sample_age.is_zero() {
            return Err("a sample age of no time: no sample would be young enough for a turn".into());
        }
        if self.settle_time > self.longest_settle_time {
            return Err(format!(
                "a settle time of {:?} is longer than the longest settle time, {:?}",
                self.settle_time, self.longest_settle_time
            ));
        }
        if self.least_log == Bytes::ZERO {
            return Err("with a least log of 0 bytes a snapshot is due right after a snapshot".into());
        }
        if self.least_log > self.longest_log {
            return Err(format!(
                "the least log of {} bytes is longer than the longest log of {} bytes",
                self.least_log.0, self.longest_log.0
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_in_words() {
        let good = Settings::default();
        assert_eq!(good.check(), Ok(()));
        for (bad, word) in [
            (Settings { longest_snapshot: Duration::ZERO, ..good }, "unanswered"),
            (Settings { longest_snapshot: Duration::MAX, ..good }, "day"),
            (Settings { sample_age: Duration::ZERO, ..good }, "young"),
            (Settings { settle_time: Duration::from_secs(200), ..good }, "settle time"),
            (Settings { least_log: Bytes::ZERO, ..good }, "right after"),
            (Settings { longest_log: Bytes(1), ..good }, "longer than the longest"),
        ] {
            assert!(bad.check().unwrap_err().contains(word), "{bad:?}");
        }
    }
}
