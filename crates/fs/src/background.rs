//! The background tasks of a mount, which its unmount waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use units::sync::Event;

/// Counts the background tasks of a mount that have not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackgroundTasks(Arc<Running>);

#[derive(Debug, Default)]
struct Running {
    count: AtomicU32,
    /// Notified when a task ends.
    ended: Event,
}

/// A background task that runs. Dropped when the task has ended and no longer references the mount or its device: the
/// caller of an unmount may open the device again at once. The first argument of an `async fn` is dropped last.
#[derive(Debug)]
pub(crate) struct BackgroundTask(BackgroundTasks);

impl BackgroundTasks {
    /// Counts one more task.
    pub(crate) fn begin(&self) -> BackgroundTask {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        BackgroundTask(self.clone())
    }

    /// Waits until all tasks have ended. Notifies `space` at first and when a task has ended: tasks that wait for space
    /// then see that the file system is closed.
    pub(crate) async fn all_ended(&self, space: &Event) {
        loop {
            let seen = self.0.ended.version();
            space.notify();
            if self.0.count.load(Ordering::Acquire) == 0 {
                return;
            }
            self.0.ended.changed_since(seen).await;
        }
    }
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        let BackgroundTasks(running) = &self.0;
        running.count.fetch_sub(1, Ordering::AcqRel);
        running.ended.notify();
    }
}
