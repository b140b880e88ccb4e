//! The driver of a node's groups: the node's clock and tasks in virtual time, with a wall clock of its own and with tables whose work takes time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use units::{BoxFuture, Driver, Instant, Parker, VirtualDriver};

/// The tasks of a group that works on its tables, and that gets the values which a new leader lacks.
const TABLES_TASK: &str = "group tables";
const VALUES_TASK: &str = "group values";

/// The longest pauses of a group's tasks before each piece of work, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// Of the tables.
    pub tables_us: u64,
    /// Of what gets the values that a new leader lacks.
    pub values_us: u64,
}

/// The driver of a node's groups.
#[derive(Debug)]
pub(super) struct NodeDriver {
    node: Arc<VirtualDriver>,
    pauses: Pauses,
    /// The wall clock of the node at its start.
    started_unix_ms: u64,
}

impl NodeDriver {
    pub(super) fn new(node: Arc<VirtualDriver>, pauses: Pauses, started_unix_ms: u64) -> NodeDriver {
        NodeDriver { node, pauses, started_unix_ms }
    }
}

impl Driver for NodeDriver {
    fn now(&self) -> Instant {
        self.node.now()
    }

    fn wake_at(&self, due: Instant, waker: &Waker) {
        self.node.wake_at(due, waker);
    }

    fn park(&self, me: &Parker) {
        self.node.park(me);
    }

    fn spawn(&self, name: &'static str, task: BoxFuture) {
        let longest_us = match name {
            TABLES_TASK => self.pauses.tables_us,
            VALUES_TASK => self.pauses.values_us,
            _ => 0,
        };
        if longest_us == 0 {
            return self.node.spawn(name, task);
        }
        let slow = SlowTask { task, driver: Arc::clone(&self.node), longest_us, goes_on_at: None };
        self.node.spawn(name, Box::pin(slow));
    }

    fn drive(&self, task: BoxFuture) {
        self.node.drive(task);
    }

    fn random(&self) -> u64 {
        self.node.random()
    }

    fn unix_millis(&self) -> u64 {
        self.started_unix_ms + self.node.now().0 / 1_000_000
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// A task that pauses whenever it is woken, before it goes on.
struct SlowTask {
    task: BoxFuture,
    driver: Arc<VirtualDriver>,
    longest_us: u64,
    /// The end of the pause under way.
    goes_on_at: Option<Instant>,
}

impl Future for SlowTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = self.driver.now();
        match self.goes_on_at {
            None => {
                let pause = Duration::from_micros(1 + self.driver.random() % self.longest_us);
                let due = now.after(pause);
                self.goes_on_at = Some(due);
                self.driver.wake_at(due, context.waker());
                Poll::Pending
            }
            Some(due) if now < due => {
                self.driver.wake_at(due, context.waker());
                Poll::Pending
            }
            Some(_) => {
                self.goes_on_at = None;
                self.task.as_mut().poll(context)
            }
        }
    }
}
