//! A connection to another process, as long as there is something to send.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::context::Context;
use crate::frame::FrameWriter;
use crate::queue::Queue;
use crate::{socket, tls};
use replica::NodeId;

/// The time between two attempts to connect: the least and the most.
const LEAST_BACKOFF: Duration = Duration::from_millis(50);
const MOST_BACKOFF: Duration = Duration::from_secs(1);
/// The time within which a connection, with TLS, is made.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of a frame to which no more messages are added.
const FRAME_BYTES: usize = 256 << 10;

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The state of the connection to a node, for others.
#[derive(Default)]
pub(crate) struct Link {
    /// The end of the last connection, while there is no other one.
    lost: Mutex<Option<Instant>>,
}

impl Link {
    /// True if the connection ended within the last while, and there is no other one yet.
    pub(crate) fn is_lost_within(&self, while_long: Duration) -> bool {
        self.lost.lock().is_some_and(|at| at.elapsed() < while_long)
    }
}

/// Carries the messages of a queue to a node, for ever.
pub(crate) async fn carry(
    context: Arc<Context>,
    node: NodeId,
    address: SocketAddr,
    (queue, link): (Arc<Queue>, Arc<Link>),
) {
    // One line in the log for an outage, not one for each attempt.
    let (mut backoff, mut is_logged) = (LEAST_BACKOFF, false);
    loop {
        queue.until_filled().await;
        let connected = timeout(CONNECT_WITHIN, connect(&context, node, address)).await;
        match connected.unwrap_or_else(|late| Err(late.into())) {
            Ok(stream) => {
                let since = Instant::now();
                *link.lost.lock() = None;
                let error = write(&context, node, &queue, stream).await;
                *link.lost.lock() = Some(Instant::now());
                // A process that refuses this one closes its connections at once.
                let was_taken = since.elapsed() >= MOST_BACKOFF;
                if was_taken || !is_logged {
                    info!(%node, %address, %error, "a connection to a peer ended");
                }
                is_logged = !was_taken;
                if was_taken {
                    backoff = LEAST_BACKOFF;
                }
            }
            Err(error) => {
                if !is_logged {
                    warn!(%node, %address, %error, "a peer cannot be reached");
                }
                is_logged = true;
                // The messages are old when the peer is there again.
                context.counters.messages_dropped.add(queue.clear());
            }
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(MOST_BACKOFF);
    }
}

async fn connect(context: &Context, node: NodeId, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(address).await?;
    socket::set_options(&stream)?;
    Ok(match &context.tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.connector.connect(tls::server_name(node), stream).await?),
    })
}

/// Writes the messages of the queue. Returns the reason why the connection ended.
async fn write(context: &Context, node: NodeId, queue: &Queue, mut stream: Box<dyn Stream>) -> io::Error {
    let mut frame = FrameWriter::new(context.own);
    if let Err(error) = stream.write_all(frame.hello(context.hello(node))).await {
        return error;
    }
    loop {
        let mut answer = [0];
        tokio::select! {
            () = queue.until_filled() => {}
            read = stream.read(&mut answer) => match read {
                Ok(0) => return io::Error::new(io::ErrorKind::ConnectionReset, "the peer closed it"),
                Ok(_) => return io::Error::new(io::ErrorKind::InvalidData, "the peer sent bytes"),
                Err(error) => return error,
            },
        }
        frame.begin_messages();
        let (mut messages, header) = (0, frame.len());
        while let Some(message) = queue.pop_if(|len| {
            let is_first = frame.len() == header;
            is_first || frame.len() + len <= FRAME_BYTES
        }) {
            frame.add(&message);
            messages += 1;
        }
        if messages == 0 {
            continue;
        }
        let bytes = frame.end();
        let written = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        match written.await {
            Ok(()) => {
                context.counters.messages_sent.add(messages);
                context.counters.frames_sent.add(1);
                context.counters.bytes_sent.add(bytes.len());
            }
            Err(error) => {
                context.counters.messages_dropped.add(messages);
                return error;
            }
        }
    }
}
