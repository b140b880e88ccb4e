//! The task that writes the drive file, so that a submitter does not wait for a file sync. Requests that arrive during
//! a flush share the next flush.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::sync::Event;

use crate::emu::Media;
use crate::io::Completer;
use crate::{Done, Driver, Error, ErrorKind, Result, ZoneId};

/// Handle of the task that writes the drive file. Dropping the handle ends the task.
pub(in crate::emu) struct Flusher {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Event,
}

#[derive(Default)]
struct Queue {
    requests: Vec<Request>,
    closed: bool,
}

struct Request {
    /// The zone that a request wants durable; `None` for all zones.
    zone: Option<ZoneId>,
    operation: &'static str,
    done: Done,
    completer: Completer,
}

impl Flusher {
    /// Starts the task that writes the drive file. The task references the medium only during a flush, so a
    /// dropped drive's file is unlocked at once.
    pub(in crate::emu) fn start(media: &Arc<Media>, driver: &dyn Driver) -> Flusher {
        let shared = Arc::new(Shared::default());
        driver.spawn("emu-flush", Box::pin(serve_flush_requests(Arc::downgrade(media), Arc::clone(&shared))));
        Flusher { shared }
    }

    /// Requests that `zone` (`None` for all) becomes durable; then completes `completer` with `done`.
    pub(in crate::emu) fn ask(
        &self,
        zone: Option<ZoneId>,
        operation: &'static str,
        done: Done,
        completer: Completer,
    ) {
        self.shared.queue.lock().requests.push(Request { zone, operation, done, completer });
        self.shared.changed.notify();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.changed.notify();
    }
}

async fn serve_flush_requests(media: Weak<Media>, shared: Arc<Shared>) {
    loop {
        let version = shared.changed.version();
        let (requests, closed) = {
            let mut queue = shared.queue.lock();
            (std::mem::take(&mut queue.requests), queue.closed)
        };
        // Dropping a drive acts as a power cut: unflushed data is lost.
        if closed {
            return;
        }
        // The task references the medium only while requests are queued, so dropping an idle drive unlocks
        // its file at once.
        if requests.is_empty() {
            shared.changed.changed_since(version).await;
            continue;
        }
        let Some(media) = media.upgrade() else { return };
        let results: Vec<Result<()>> = flush(&media, &requests);
        // The medium is released before the completions: a submitter that then drops the device must find the
        // file unlocked.
        drop(media);
        for (request, result) in requests.into_iter().zip(results) {
            request.completer.complete(result.map(|()| request.done));
        }
    }
}

fn flush(media: &Media, requests: &[Request]) -> Vec<Result<()>> {
    let Some(drive) = &media.drive else { return requests.iter().map(|_| Ok(())).collect() };
    let result = if requests.iter().any(|r| r.zone.is_none()) {
        drive.flush(media)
    } else {
        let mut zones: Vec<ZoneId> = requests.iter().filter_map(|r| r.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        drive.flush_only(media, &zones)
    };
    let failure = result.err().map(|e| e.to_string());
    let judge = |request: &Request| match &failure {
        None => Ok(()),
        Some(why) => {
            let error = Error::new(ErrorKind::Host, &media.geometry.name, request.operation);
            let error = error.because(format!("writing the drive file: {why}"));
            Err(match request.zone {
                Some(zone) => error.in_zone(zone),
                None => error,
            })
        }
    };
    requests.iter().map(judge).collect()
}
