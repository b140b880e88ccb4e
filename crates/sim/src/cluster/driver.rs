//! The driver of a node's groups: the node's clock and tasks in virtual time, with a wall clock of its own and with tables whose work takes time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use units::{BoxFuture, Driver, Instant, Parker, VirtualDriver};

/// The task of a group that works on its tables.
const TABLES_TASK: &str = "group tables";

/// The driver of a node's groups.
#[derive(Debug)]
pub(super) struct NodeDriver {
    node: Arc<VirtualDriver>,
    /// The longest pause of a group's tables before each piece of work, in microseconds.
    tables_us: u64,
    /// The wall clock of the node at its start.
    started_unix_ms: u64,
}

impl NodeDriver {
    pub(super) fn new(node: Arc<VirtualDriver>, tables_us: u64, started_unix_ms: u64) -> NodeDriver {
        NodeDriver { node, tables_us, started_unix_ms }
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
        if name == TABLES_TASK && self.tables_us > 0 {
            let driver = Arc::clone(&self.node);
            let slow = SlowTask { task, driver, longest_us: self.tables_us, goes_on_at: None };
            return self.node.spawn(name, Box::pin(slow));
        }
        self.node.spawn(name, task);
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
