//! Facts and services that every part of an assembled array uses.

use std::any::Any;
use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};

use zoned::{Driver, Error, ErrorKind, Geometry};

use crate::events::{Bus, EventKind};
use crate::layout::Layout;
use crate::layout::places::Places;
use crate::metrics::Metrics;
use crate::options::AppendMode;
use crate::rules::Rules;

/// Shape, clock, counters and event bus of an assembled array.
pub(crate) struct Context {
    pub geometry: Geometry,
    pub layout: Layout,
    pub places: Places,
    pub driver: Arc<dyn Driver>,
    pub rules: Rules,
    pub appends: AppendMode,
    pub append_round: Option<u32>,
    pub metrics: Arc<Metrics>,
    pub events: Bus,
    /// The assembled array. Tasks hold a strong reference until they end.
    pub owner: OnceLock<Weak<dyn Any + Send + Sync>>,
}

impl Context {
    /// The bytes in `blocks` blocks.
    pub(crate) fn bytes(&self, blocks: u64) -> usize {
        usize::try_from(blocks * u64::from(self.geometry.block_size)).expect("fits memory")
    }

    /// An error of operation `name` on the array.
    pub(crate) fn error(&self, kind: ErrorKind, name: &'static str) -> Error {
        Error::new(kind, &self.geometry.name, name)
    }

    /// Publishes an event.
    pub(crate) fn publish(&self, kind: EventKind) {
        self.events.publish(&*self.driver, kind);
    }

    /// Starts a task. The assembled array lives until the task ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let owner = self.keep_alive();
        self.driver.drive(Box::pin(async move {
            task.await;
            drop(owner);
        }));
    }

    /// A strong reference to the assembled array.
    pub(crate) fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.owner.get().and_then(Weak::upgrade)
    }
}
