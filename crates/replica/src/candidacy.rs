//! When a replica stands for election.

use std::time::Duration;

use units::Instant;

use crate::{Role, Settings};

/// The time at which a replica stands for election if no message of a leader comes.
///
/// Witnesses, the primary among them, stand after 1 to 1.5 election timeouts, backups after 3 to 4: a backup leads only where no witness can be elected, because each lacks a committed entry. A backup that refuses such a witness need not wait.
#[derive(Clone, Debug)]
pub struct Candidacy {
    settings: Settings,
    role: Role,
    /// When the election timeout began: at the last message of a leader, the last vote, or the start.
    timeout_began: Instant,
    stands_at: Instant,
}

impl Candidacy {
    /// The candidacy of a replica that starts at `now`. `random`: any number, another one each time.
    pub fn new(settings: &Settings, role: Role, now: Instant, random: u64) -> Candidacy {
        let mut candidacy = Candidacy { settings: *settings, role, timeout_began: now, stands_at: now };
        candidacy.restart_timeout(now, random);
        candidacy
    }

    /// A message of a leader came, or the replica has voted for one.
    pub fn restart_timeout(&mut self, now: Instant, random: u64) {
        self.timeout_began = now;
        self.draw(now, random);
    }

    /// The replica stood at `now`, and was not elected: it stands again later.
    pub fn stood(&mut self, now: Instant, random: u64) {
        self.draw(now, random);
    }

    /// When the replica stands.
    pub fn stands_at(&self) -> Instant {
        self.stands_at
    }

    /// The replica refused the pre-vote of a witness, because the witness's log lacks entries of its own. A backup to which no leader's message came for one election timeout stands at once.
    pub fn refuse_stale_witness(&mut self, now: Instant) {
        if self.role == Role::Backup && now.since(self.timeout_began) >= self.settings.election_timeout {
            self.stands_at = self.stands_at.min(now);
        }
    }

    fn draw(&mut self, now: Instant, random: u64) {
        let timeout = self.settings.election_timeout;
        let (least, range) = match self.role {
            Role::Witness => (timeout, timeout / 2),
            Role::Backup => (timeout * 3, timeout),
        };
        let part = (range.as_nanos() * u128::from(random)) >> u64::BITS;
        self.stands_at = now.after(least + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(1);

    fn candidacy(role: Role, random: u64) -> Candidacy {
        let settings = Settings { election_timeout: T, ..Settings::default() };
        Candidacy::new(&settings, role, Instant::ORIGIN, random)
    }

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN.after(Duration::from_millis(ms))
    }

    #[test]
    fn witnesses_stand_before_backups() {
        assert_eq!(candidacy(Role::Witness, 0).stands_at(), at(1_000));
        assert!(candidacy(Role::Witness, u64::MAX).stands_at() < at(1_500));
        assert_eq!(candidacy(Role::Witness, 1 << 63).stands_at(), at(1_250));
        assert_eq!(candidacy(Role::Backup, 0).stands_at(), at(3_000));
        assert!(candidacy(Role::Backup, u64::MAX).stands_at() < at(4_000));
    }

    #[test]
    fn a_backup_that_refuses_a_stale_witness_stands_at_once_unless_there_was_a_leader() {
        let mut backup = candidacy(Role::Backup, 0);
        backup.refuse_stale_witness(at(999));
        assert_eq!(backup.stands_at(), at(3_000));
        backup.refuse_stale_witness(at(1_100));
        assert_eq!(backup.stands_at(), at(1_100));
        backup.restart_timeout(at(1_200), 0);
        backup.refuse_stale_witness(at(1_300));
        assert_eq!(backup.stands_at(), at(4_200));
        let mut witness = candidacy(Role::Witness, 0);
        witness.restart_timeout(at(5_000), 0);
        witness.refuse_stale_witness(at(6_500));
        assert_eq!(witness.stands_at(), at(6_000));
    }
}
