//! The end of a run: all faults end, and the groups become whole again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use replica::Version;
use units::Driver as _;

use super::super::clients::Answer;
use super::super::engine::{Asked, Command};
use super::super::group::Fault;
use super::super::objects::{Kind, Object};
use super::super::report::ClusterFailureKind;
use super::{T, World};

/// The time that the groups may take to be whole again, and after that to answer reads of every key.
const HEALING: Duration = Duration::from_secs(20);
/// The least numbers of operations that are answered in a run, and after its faults: clients go on until then.
const LEAST_OPERATIONS: u64 = 300;
const LEAST_AFTERWARDS: u64 = 50;

impl World {
    /// All faults end, and every node that has its drive runs.
    pub(super) fn heal(&mut self) {
        self.cut.clear();
        self.faults.end();
        self.is_healed = true;
        self.programs.heal();
        for node in 0..self.nodes.len() {
            if self.programs.wanted > Version::FIRST {
                self.restart(node);
            }
            self.start(node);
        }
    }

    /// Runs on until the groups are whole: all drives that were lost are replaced, every node holds the same, clients are served.
    pub(super) fn become_whole(&mut self) {
        let end = self.now.after(HEALING);
        let quiet_from = self.now.after(HEALING / 2);
        let least = LEAST_OPERATIONS.max(self.clients.answered.all + LEAST_AFTERWARDS);
        let mut why: (usize, Fault) = (0, (ClusterFailureKind::Stuck, String::new()));
        while self.now < end && self.ended.failure.is_none() {
            self.run_until(self.now.after(T / 2));
            let lacks = self.groups.iter().enumerate().find_map(|(place, group)| {
                let whole = group.is_whole(&self.nodes);
                let whole = whole.and_then(|()| group.is_at(self.programs.wanted, &self.nodes));
                whole.err().map(|lacks| (place, lacks))
            });
            match lacks {
                None if self.clients.answered.all >= least => return self.read_all(),
                None => {
                    let answered = &self.clients.answered;
                    let few =
                        format!("of {least} answers {} came, {} were refused", answered.all, answered.full);
                    why = (0, (ClusterFailureKind::Stuck, few));
                }
                Some(lacks) => why = lacks,
            }
            // Slow drives may not keep up with the clients.
            if self.now >= quiet_from || self.clients.answered.all >= least {
                self.clients.each.iter_mut().for_each(|client| client.turn += 1);
            }
        }
        if self.ended.failure.is_none() {
            let (place, (kind, why)) = why;
            let replicas =
                self.groups.get(place).map(|group| group.describe(&self.nodes)).unwrap_or_default();
            let why = format!("the group does not become whole: {why}; {replicas}");
            self.fail_group(place, (kind, why));
        }
    }

    /// Every object is read, from whoever leads.
    fn read_all(&mut self) {
        let end = self.now.after(HEALING);
        for group in 0..self.groups.len() {
            for number in 0..=self.clients.last {
                let object = Object { group, number };
                let mut is_answered = false;
                while self.now < end && !is_answered && self.ended.failure.is_none() {
                    is_answered = self.read(object);
                }
                if !is_answered {
                    let why = format!("{object:?} cannot be read after healing");
                    self.fail(ClusterFailureKind::Stuck, why);
                }
            }
        }
    }

    /// Reads an object from the node that leads, if one does. False without an answer.
    fn read(&mut self, object: Object) -> bool {
        let command = Command {
            object,
            asked: Asked::read(object.kind()),
            value_bytes: 0,
            is_direct: object.kind() == Kind::Register,
        };
        let called = self.clients.call(command);
        let asked = self.groups.get(object.group).and_then(|group| {
            let node = group.leader(&self.nodes)?;
            let of = self.nodes.get(node)?;
            Some((node, Arc::clone(&of.hosted(object.group)?.engine), Arc::clone(of.driver()?)))
        });
        let answer: Arc<Mutex<Option<Answer>>> = Arc::default();
        if let Some((node, engine, driver)) = asked {
            let answer = Arc::clone(&answer);
            let read = async move {
                let read = engine.run(command).await;
                *answer.lock() = Some(read);
            };
            driver.spawn("client", Box::pin(read));
            self.visit(node, |_| {});
        }
        if !matches!(*answer.lock(), Some(Ok(_))) {
            self.run_until(self.now.after(T));
        }
        let answer = answer.lock().take();
        match answer {
            Some(Ok(done)) => self.clients.history.answered(called, done),
            _ => self.clients.history.refused(called),
        }
        matches!(answer, Some(Ok(_)))
    }
}
