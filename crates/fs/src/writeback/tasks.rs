//! The task of a mount that writes back.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::Poll;

use units::sync::Event;
use units::{Driver, Instant, sleep_until};
use zoned::IoClass;

use crate::background::BackgroundTask;
use crate::device::Purpose;
use crate::files::file::File;
use crate::files::writes::WriteOut;
use crate::shared::Shared;

/// Number of files that are written side by side.
const FILES_AT_ONCE: usize = 8;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Writes files back until the mount is gone.
pub(crate) async fn run(_task: BackgroundTask, shared: Weak<Shared>, work: Event, driver: Arc<dyn Driver>) {
    let mut running: Vec<Running> = Vec::new();
    loop {
        let seen = work.version();
        let due = {
            let Some(shared) = shared.upgrade() else { return };
            let Some(dirty) = &shared.dirty else { return };
            let is_closed = shared.metadata.is_closed();
            if is_closed && running.is_empty() {
                dirty.wake_writers();
                return;
            }
            while !is_closed && shared.metadata.check().is_ok() && running.len() < FILES_AT_ONCE {
                let Some((file, what, class)) = dirty.next(driver.now()) else { break };
                let shared = Arc::clone(&shared);
                running.push(Box::pin(async move { write_file(&shared, &file, what, class).await }));
            }
            if shared.metadata.check().is_err() {
                dirty.wake_writers();
            }
            dirty.raise_for_waiting(&**shared.device.purpose(Purpose::Write));
            let may_begin = !is_closed && shared.metadata.check().is_ok() && running.len() < FILES_AT_ONCE;
            if may_begin { dirty.due() } else { None }
        };
        wait(&mut running, &driver, due, &work, seen).await;
    }
}

/// Writes one file. A failure is the file's, whose callers hear of it, or the mount's.
async fn write_file(shared: &Shared, file: &Arc<File>, what: WriteOut, class: IoClass) {
    let began = shared.driver.now();
    if let Err(error) = shared.write_out_as(class, file, what).await {
        tracing::debug!(ino = file.ino, %error, "writing back a file failed");
    }
    shared.count_dirty(file, &file.content.read());
    if let Some(dirty) = &shared.dirty {
        dirty.ended(file, what == WriteOut::Everything, began);
    }
}

/// Waits until one of `running` has ended, which is removed, or until there may be more to write.
async fn wait(
    running: &mut Vec<Running>,
    driver: &Arc<dyn Driver>,
    due: Option<Instant>,
    work: &Event,
    seen: u64,
) {
    let mut changed = pin!(work.changed_since(seen));
    let mut due = pin!(async {
        match due {
            Some(due) => sleep_until(&**driver, due).await,
            None => std::future::pending().await,
        }
    });
    std::future::poll_fn(|cx| {
        let before = running.len();
        running.retain_mut(|write| write.as_mut().poll(cx).is_pending());
        let ended = running.len() < before;
        let woken = changed.as_mut().poll(cx).is_ready() || due.as_mut().poll(cx).is_ready();
        if ended || woken { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
