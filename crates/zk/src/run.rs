//! Runs a coordinator against an ensemble: one thread polls each server, one carries the command under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use units::{Driver, Instant, sleep_until};

use crate::checks;
use crate::coordinator::{Action, Coordinator, Event, Notice, Outcome, Settings};
use crate::ensemble::{AdminServer, AskError, ServerAddress};
use crate::sample::{Health, Role, Sample, ServerId};

/// Events of the threads that wait to be taken in. A thread with one more waits.
const MOST_WAITING_EVENTS: usize = 64;

/// The servers of an ensemble, by their numbers.
#[derive(Clone, Debug)]
pub struct Ensemble {
    servers: BTreeMap<ServerId, AdminServer>,
}

/// How long a run lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// For ever.
    Watch,
    /// Until no snapshot is due. A snapshot that fails, or is not answered, ends the run, and so does a long time in which no turn can begin.
    Once,
    /// Until every server was sampled, or for two sample ages. Nothing is commanded.
    DryRun,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// No snapshot is due.
    NothingDue,
    /// The end of a dry run.
    DryRun {
        /// The servers, with estimates of the log since the last snapshot and of a snapshot, in bytes.
        servers: Vec<(ServerId, Sample, u64, u64)>,
        /// The servers that gave no sample.
        not_serving: Vec<ServerId>,
        /// The server whose turn would be next.
        next: Option<ServerId>,
    },
    /// A snapshot failed, or was not answered, or no turn could begin; the text is a sentence.
    Failed(String),
}

impl Ensemble {
    /// Asks all servers who they are and checks their settings.
    ///
    /// # Errors
    /// Every fault that was found, each a sentence that begins with the server's address. A server that does not answer is a fault.
    pub fn check(servers: Vec<AdminServer>) -> Result<Ensemble, Vec<String>> {
        let mut faults = Vec::new();
        let mut known = BTreeMap::new();
        for server in servers {
            // The version first: an older server may lack a number.
            let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", server.address());
            if let Ok((version, state)) = server.version_and_state()
                && let Some(error) = checks::version_fault(&version).or(checks::state_fault(&state))
            {
                faults.push(fault(&error));
                continue;
            }
            match server.id() {
                Ok(id) => {
                    if let Some(duplicate) = known.get(&id) {
                        let duplicate: &AdminServer = duplicate;
                        faults.push(fault(&format!("is the same server as {}: {id}", duplicate.address())));
                        continue;
                    }
                    known.insert(id, server);
                }
                Err(error) => faults.push(fault(&error)),
            }
        }
        // Without every number the voters cannot be compared.
        if !faults.is_empty() {
            return Err(faults);
        }
        let ids: BTreeSet<ServerId> = known.keys().copied().collect();
        for server in known.values() {
            let found = checks::server(server, &ids).unwrap_or_else(|error| vec![error.to_string()]);
            faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", server.address())));
        }
        if faults.is_empty() { Ok(Ensemble { servers: known }) } else { Err(faults) }
    }

    /// The address of a server.
    pub fn address(&self, server: ServerId) -> Option<&ServerAddress> {
        self.servers.get(&server).map(AdminServer::address)
    }

    /// Runs turns until the mode's end, and notifies `notify` of what happens. An error of `notify` ends the run.
    pub fn run<E>(
        &self,
        driver: &Arc<dyn Driver>,
        settings: Settings,
        interval: Duration,
        mode: Mode,
        mut notify: impl FnMut(&Notice) -> Result<(), E>,
    ) -> Result<Ended, E> {
        let ids: BTreeSet<ServerId> = self.servers.keys().copied().collect();
        let (sender, events) = sync_channel(MOST_WAITING_EVENTS);
        for (id, server) in &self.servers {
            let poller = Poller {
                driver: Arc::clone(driver),
                id: *id,
                server: server.clone(),
                listed: ids.clone(),
                is_checked: false,
            };
            driver.spawn("zk poll", Box::pin(poller.run(interval, sender.clone())));
        }
        let began = driver.now();
        let mut coordinator = Coordinator::new(&ids, settings, began);
        let mut samples: BTreeMap<ServerId, Sample> = BTreeMap::new();
        loop {
            let event = next_event(&events, interval);
            if let Event::Polled { server, health: Health::Serving(sample), .. } = &event {
                samples.insert(*server, sample.clone());
            }
            let mut failure = None;
            for action in coordinator.step(driver.now(), event) {
                match action {
                    Action::Command(_) if mode == Mode::DryRun => {}
                    Action::Command(server) => self.command(driver, server, &samples, settings, &sender),
                    Action::Notify(notice) => {
                        if mode != Mode::DryRun {
                            notify(&notice)?;
                        }
                        if let Notice::NoSnapshot { server, why } | Notice::Unanswered { server, why } =
                            notice
                        {
                            failure = Some(format!("{server}: {why}"));
                        }
                    }
                }
            }
            match mode {
                Mode::Watch => {}
                Mode::Once if failure.is_some() => return Ok(Ended::Failed(failure.unwrap_or_default())),
                Mode::Once if !coordinator.is_busy() => return Ok(Ended::NothingDue),
                Mode::Once => {
                    if let Some(why) = coordinator.stalled(driver.now()) {
                        return Ok(Ended::Failed(why));
                    }
                }
                Mode::DryRun
                    if samples.len() == ids.len() || driver.now().since(began) >= 2 * settings.sample_age =>
                {
                    let of = |(id, sample): (&ServerId, &Sample)| {
                        let (log, snapshot) = coordinator.estimates(*id).unwrap_or_default();
                        (*id, sample.clone(), log.0, snapshot.0)
                    };
                    let next = coordinator.next(driver.now());
                    let not_serving = ids.iter().filter(|id| !samples.contains_key(id)).copied().collect();
                    let servers = samples.iter().map(of).collect();
                    return Ok(Ended::DryRun { servers, not_serving, next });
                }
                Mode::DryRun => {}
            }
        }
    }

    /// Sends the command for a snapshot from a thread of its own. A server that has become the leader since its last sample is not asked.
    fn command(
        &self,
        driver: &Arc<dyn Driver>,
        id: ServerId,
        samples: &BTreeMap<ServerId, Sample>,
        settings: Settings,
        sender: &SyncSender<Event>,
    ) {
        let Some(server) = self.servers.get(&id).cloned() else { return };
        let role = samples.get(&id).map(|sample| sample.role);
        let sender = sender.clone();
        let command = async move {
            let outcome = match server.sample() {
                Ok(sample) if Some(sample.role) == role || sample.role == Role::Follower => {
                    outcome(server.snapshot(settings.longest_snapshot))
                }
                Ok(_) => Outcome::Refused("the server has become the leader".to_owned()),
                Err(error) => Outcome::Refused(error.to_string()),
            };
            // A run that has ended takes no more events.
            let _ended = sender.send(Event::Ended { server: id, outcome });
        };
        driver.spawn("zk command", Box::pin(command));
    }
}

fn outcome(answer: Result<crate::ensemble::SnapshotTaken, AskError>) -> Outcome {
    match answer {
        Ok(taken) => Outcome::Taken { size: taken.size, zxid: taken.zxid },
        Err(AskError::RateLimited) => Outcome::RateLimited,
        // The server answered, in a form that leaves open what was done.
        Err(
            error @ (AskError::Unanswered { .. }
            | AskError::NoAdminServer { .. }
            | AskError::Malformed { .. }),
        ) => Outcome::Unanswered(error.to_string()),
        Err(error @ AskError::Failed { .. }) => Outcome::Failed(error.to_string()),
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

fn next_event(events: &Receiver<Event>, longest: Duration) -> Event {
    match events.recv_timeout(longest) {
        Ok(event) => event,
        // The run holds a sender, so the channel is never closed.
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Tick,
    }
}

/// Polls one server.
struct Poller {
    driver: Arc<dyn Driver>,
    id: ServerId,
    server: AdminServer,
    listed: BTreeSet<ServerId>,
    /// The settings were checked since the server began to serve.
    is_checked: bool,
}

impl Poller {
    /// Polls until the run has ended.
    async fn run(mut self, interval: Duration, sender: SyncSender<Event>) {
        loop {
            let asked_at = self.driver.now();
            let health = self.poll();
            if sender.send(Event::Polled { server: self.id, asked_at, health }).is_err() {
                return;
            }
            let due: Instant = asked_at.after(interval).max(self.driver.now());
            sleep_until(&*self.driver, due).await;
        }
    }

    fn poll(&mut self) -> Health {
        let sample = match self.server.sample() {
            Ok(sample) => sample,
            Err(error) => {
                // The server may come back with other settings.
                self.is_checked = false;
                return without_answer(error);
            }
        };
        let faults = if self.is_checked {
            self.server
                .voters()
                .map(|voters| checks::voter_fault(&voters, &self.listed).into_iter().collect())
        } else {
            checks::server(&self.server, &self.listed)
        };
        let faults: Vec<String> = match faults {
            Ok(faults) => faults,
            Err(error) => return without_answer(error),
        };
        self.is_checked = faults.is_empty();
        if faults.is_empty() { Health::Serving(sample) } else { Health::Faulty(faults.join("; ")) }
    }
}

/// The health of a server that did not answer a request as a server that serves.
fn without_answer(error: AskError) -> Health {
    match error {
        AskError::Starting => Health::Starting,
        AskError::NotListening(_) => Health::Gone(error.to_string()),
        _ => Health::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
