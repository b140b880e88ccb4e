//! Work that starts once the zone locks are released.

use std::future::Future;
use std::pin::Pin;

use zoned::{Completer, Done, Result};

use crate::context::Context;

/// Completions and tasks collected under a lock.
#[derive(Default)]
pub(crate) struct Deferred {
    ready: Vec<(Completer, Result<Done>)>,
    tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Deferred {
    /// Collects the completion of an operation with `result`.
    pub(crate) fn complete(&mut self, completer: Completer, result: Result<Done>) {
        self.ready.push((completer, result));
    }

    /// Runs a task.
    pub(crate) fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }

    /// Completes all collected operations. There are no tasks.
    #[cfg(test)]
    pub(crate) fn complete_all(self) {
        assert!(self.tasks.is_empty());
        self.ready.into_iter().for_each(|(completer, result)| completer.complete(result));
    }

    /// Completes all collected operations, then starts all collected tasks. The caller holds no lock.
    pub(crate) fn finish(self, ctx: &Context) {
        for (completer, result) in self.ready {
            completer.complete(result);
        }
        for task in self.tasks {
            ctx.spawn(task);
        }
    }
}
