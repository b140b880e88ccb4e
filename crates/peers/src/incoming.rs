//! Connections of other processes: their frames are checked, and their messages delivered.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tracing::{info, warn};

use crate::admission::Refusal;
use crate::context::Context;
use crate::frame::{Frame, HELLO_BYTES, Payload};
use crate::identity::ProcessId;
use crate::{socket, tls};

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 4096;
/// The time within which a hello comes, TLS included.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// The pause after the system gave no connection, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// Room for the next bytes, and the memory above which a buffer that is empty is given back.
const READ_BYTES: usize = 64 << 10;
const MOST_IDLE_BYTES: usize = 1 << 20;

/// The end of a connection.
enum End {
    /// The other side, or the network, ended it.
    Closed(io::Result<()>),
    /// A frame was refused.
    Refused(Refusal),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> End {
        End::Refused(refusal)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Closed(Err(error))
    }
}

/// Takes connections, for ever.
pub(crate) async fn accept(context: Arc<Context>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((_, address)) if connections.len() >= MAX_CONNECTIONS => {
                warn!(%address, "a connection of a peer is closed: there are {MAX_CONNECTIONS}");
            }
            Ok((stream, address)) => {
                connections.spawn(serve(Arc::clone(&context), stream, address));
            }
            Err(error) => {
                warn!(%error, "no connection of a peer");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(context: Arc<Context>, stream: TcpStream, address: SocketAddr) {
    match receive(&context, stream).await {
        End::Closed(Ok(())) => info!(%address, "a peer closed its connection"),
        End::Closed(Err(error)) => info!(%address, %error, "a connection of a peer ended"),
        End::Refused(why) => {
            context.counters.frames_refused.add(1);
            warn!(%address, %why, "a connection of a peer is closed");
        }
    }
}

/// Receives on a connection until it ends.
async fn receive(context: &Context, stream: TcpStream) -> End {
    if let Err(error) = socket::set_options(&stream) {
        return error.into();
    }
    let Some(tls) = &context.tls else { return read(context, None, stream).await };
    let secured = match timeout(HELLO_WITHIN, tls.acceptor.accept(stream)).await {
        Ok(Ok(secured)) => secured,
        Ok(Err(error)) => return Refusal::Tls(error.to_string()).into(),
        Err(_) => return Refusal::Late.into(),
    };
    let certificates = secured.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(<[_]>::first).map(|first| first.clone().into_owned());
    read(context, certificate, secured).await
}

async fn read<S>(context: &Context, certificate: Option<CertificateDer<'static>>, stream: S) -> End
where
    S: AsyncRead + Unpin,
{
    let mut frames = Frames { stream, buffer: BytesMut::new() };
    let hello = frames.next(HELLO_BYTES, |frame| {
        let Payload::Hello(hello) = frame.payload else { return Err(Refusal::NoHello) };
        let node = frame.from.node;
        if context.tls.is_some() && !certificate.as_ref().is_some_and(|own| tls::names(own, node)) {
            return Err(Refusal::Certificate(node));
        }
        context.admission.admit(frame.from, hello)?;
        Ok(frame.from)
    });
    let from: ProcessId = match timeout(HELLO_WITHIN, hello).await {
        Ok(Ok(from)) => from,
        Ok(Err(end)) => return end,
        Err(_) => return Refusal::Late.into(),
    };
    loop {
        let delivered = frames.next(usize::MAX, |frame| {
            let Payload::Messages(messages) = frame.payload else { return Err(Refusal::OtherProcess) };
            context.admission.check(from, frame.from)?;
            context.deliver(from.node, &messages)
        });
        if let Err(end) = delivered.await {
            return end;
        }
    }
}

/// The frames of a connection.
struct Frames<S> {
    stream: S,
    buffer: BytesMut,
}

impl<S: AsyncRead + Unpin> Frames<S> {
    /// Waits for the next frame, and hands it to `take`. A connection is refused as one without a hello where its first `most` bytes are no frame.
    async fn next<T>(
        &mut self,
        most: usize,
        take: impl FnOnce(Frame<'_>) -> Result<T, Refusal>,
    ) -> Result<T, End> {
        loop {
            if let Some((frame, len)) = Frame::decode(&self.buffer).map_err(Refusal::from)? {
                let taken = take(frame)?;
                self.buffer.advance(len);
                return Ok(taken);
            }
            if self.buffer.len() > most {
                return Err(Refusal::NoHello.into());
            }
            if self.buffer.is_empty() && self.buffer.capacity() > MOST_IDLE_BYTES {
                self.buffer = BytesMut::new();
            }
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let is_whole = self.buffer.is_empty();
                let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "it ended within a frame");
                return Err(End::Closed(if is_whole { Ok(()) } else { Err(cut()) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameError;

    fn first(bytes: &[u8]) -> End {
        let mut frames = Frames { stream: bytes, buffer: BytesMut::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(frames.next(HELLO_BYTES, |_| Ok(()))).expect_err("no frame")
    }

    #[test]
    fn a_long_frame_in_the_place_of_a_hello_is_refused_before_it_is_whole() {
        let begin = [&[0, 0, 128, 0, 0, 0, 0, 0, 1][..], &[7; 100]].concat();
        assert!(matches!(first(&begin), End::Refused(Refusal::NoHello)));
        assert!(matches!(first(&begin[..HELLO_BYTES]), End::Closed(Err(_))), "more may come");
        assert!(matches!(first(&[0; 9]), End::Refused(Refusal::Frame(FrameError::Version(0)))));
        assert!(matches!(first(&[]), End::Closed(Ok(()))));
    }
}
