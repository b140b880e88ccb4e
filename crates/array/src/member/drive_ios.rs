//! Operations on several drives that are waited for together.

use zoned::{Driver, Error, Io, IoClass, Result, join_all};

use crate::layout::Slot;
use crate::layout::slots::Slots;

/// Runs one task for each drive, all at the same time, and waits for all of them. The results have the order of `tasks`.
pub(crate) async fn run_at_once<T, F>(driver: &dyn Driver, name: &'static str, tasks: Vec<F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = tasks.into_iter().map(|task| units::spawn(driver, name, task)).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await);
    }
    results
}

/// Operations that were submitted to drives, each with the slot of its drive.
#[derive(Default)]
pub(crate) struct DriveIos {
    /// The class of operations on zones that are submitted for this collection.
    class: IoClass,
    slots: Vec<Slot>,
    ios: Vec<Io<()>>,
}

impl DriveIos {
    /// No operation yet; those to come have `class`.
    pub(crate) fn of_class(class: IoClass) -> DriveIos {
        DriveIos { class, ..DriveIos::default() }
    }

    /// The class of the operations.
    pub(crate) fn class(&self) -> IoClass {
        self.class
    }

    /// Adds an operation on the drive in `slot`; `None` (no drive, nothing to do) adds nothing.
    pub(crate) fn push(&mut self, slot: Slot, io: Option<Io<()>>) {
        if let Some(io) = io {
            self.slots.push(slot);
            self.ios.push(io);
        }
    }

    /// The number of collected operations on drives.
    pub(crate) fn len(&self) -> usize {
        self.ios.len()
    }

    /// The slots that have an operation.
    pub(crate) fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        self.slots.iter().for_each(|slot| slots.add(*slot));
        slots
    }

    /// Waits for all operations; returns those that failed.
    pub(crate) async fn join(self) -> Vec<(Slot, Error)> {
        let results = join_all(self.ios).await;
        let failure = |(slot, result): (Slot, Result<()>)| result.err().map(|e| (slot, e));
        self.slots.into_iter().zip(results).filter_map(failure).collect()
    }
}
