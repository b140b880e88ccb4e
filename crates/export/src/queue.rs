//! The thread of one queue.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::Poll;

use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use sys::ublk::{CharDevice, Queue};
use units::Reactor;
use zoned::{Bytes, ZonedDevice};

use crate::service::{Running, Service};

/// Serves a queue until the block device is stopped, on a thread of its own that polls this future. `asked`: told once
/// whether the kernel took the queue's commands, before the first request can arrive.
pub(crate) async fn serve(
    device: Arc<dyn ZonedDevice>,
    data: Arc<CharDevice>,
    number: u16,
    depth: u16,
    max_io: Bytes,
    asked: Sender<std::io::Result<()>>,
) -> std::io::Result<()> {
    let made = Queue::new(&data, number, depth).and_then(|queue| queue.fetch().map(|()| queue));
    let queue = match made {
        Ok(queue) => queue,
        Err(error) => {
            let _nobody_waits = asked.send(Err(error));
            return Ok(());
        }
    };
    let service = Service::new(&device, &data, number, max_io);
    drop((data, device));
    // A thread waits in its queue: new requests, completed operations and timers all end the wait.
    units::install_reactor(Arc::clone(&queue) as Arc<dyn Reactor>);
    let _nobody_waits = asked.send(Ok(()));
    drop(asked);
    let served = answer_requests(&queue, &service).await;
    units::remove_reactor();
    served
}

async fn answer_requests(queue: &Queue, service: &Service<CharDevice>) -> std::io::Result<()> {
    let mut running: FuturesUnordered<Running> = FuturesUnordered::new();
    let mut arrived = Vec::new();
    poll_fn(|cx| {
        loop {
            let requests = queue.poll_requests(cx, &mut arrived);
            let more = matches!(requests, Poll::Ready(Ok(true)));
            running.extend(arrived.drain(..).map(|request| service.start(request)));
            while let Poll::Ready(Some((tag, outcome))) = Pin::new(&mut running).poll_next(cx) {
                queue.commit(tag, outcome)?;
            }
            match requests {
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                _ if more => {}
                _ => return Poll::Pending,
            }
        }
    })
    .await
}
