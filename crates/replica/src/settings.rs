//! The settings of a group.

use std::time::Duration;

use crate::Version;

/// A replica's settings: the group's times, the same on every replica, and the version of the replica's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The time without a heartbeat after which a witness stands for election at the earliest; the length of leases and of promises not to vote. `T` in the documents.
    pub election_timeout: Duration,
    /// The time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// The most by which the fastest clock of a replica runs faster than the slowest one, in parts per million.
    pub drift: u32,
    /// The newest version that the replica's program speaks: [`Version::NEWEST`].
    pub speaks: Version,
    /// The safety rule that is broken.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<crate::BrokenRule>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            election_timeout: Duration::from_millis(500),
            heartbeat: Duration::from_millis(50),
            drift: 1_000,
            speaks: Version::NEWEST,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

impl Settings {
    /// Heartbeats that an election timeout is long at least: fewer, and one lost packet ends a term.
    const LEAST_HEARTBEATS: u32 = 10;
    /// Parts per million: a tenth.
    const GREATEST_DRIFT: u32 = 100_000;

    /// Says what is wrong with the settings.
    ///
    /// # Errors
    /// An election timeout below ten heartbeats, heartbeats that are no time apart, a drift above 10 %.
    pub fn check(&self) -> Result<(), String> {
        let Settings { election_timeout, heartbeat, drift, .. } = *self;
        if heartbeat.is_zero() {
            return Err(String::from("heartbeats must be some time apart"));
        }
        if election_timeout < heartbeat * Settings::LEAST_HEARTBEATS {
            return Err(format!(
                "an election timeout of {election_timeout:?} is below ten heartbeats of {heartbeat:?}: a lost packet or two would end a term"
            ));
        }
        if drift > Settings::GREATEST_DRIFT {
            return Err(format!("a drift of {drift} parts per million is more than 100000"));
        }
        Ok(())
    }

    /// The safety rules of a group with these settings.
    pub(crate) fn rules(&self) -> crate::rules::Rules {
        crate::rules::Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }

    /// The part of the election timeout that has passed by no clock of the group before it has passed by the own one: a lease.
    pub(crate) fn lease(&self) -> Duration {
        let nanos = self.election_timeout.as_nanos();
        let lost = (nanos * u128::from(self.drift)).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(nanos.saturating_sub(lost)).unwrap_or(u64::MAX))
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
            (Settings { heartbeat: Duration::ZERO, ..good }, "some time apart"),
            (Settings { heartbeat: Duration::from_millis(51), ..good }, "ten heartbeats"),
            (Settings { drift: 100_001, ..good }, "drift"),
        ] {
            assert!(bad.check().expect_err("refused").contains(word), "{bad:?}");
        }
    }

    #[test]
    fn a_lease_is_shorter_than_the_timeout_by_the_drift_rounded_up() {
        let settings =
            Settings { election_timeout: Duration::from_nanos(1_500), drift: 1_000, ..Settings::default() };
        assert_eq!(settings.lease(), Duration::from_nanos(1_498));
    }
}
