//! The TLS handshake, before a client's first command.

use std::io::Error as IoError;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::Error as TlsError;

use crate::clients::Client;
use crate::connection_end::ConnectionEnd;
use crate::stream::Stream;
use crate::tls_stream::TlsStream;

/// The time within which a client must finish the handshake.
pub(crate) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Performs the TLS handshake with a client that connected.
///
/// # Errors
/// The client speaks no TLS or lacks a certificate, the handshake takes longer than `within`, the client is killed, the
/// server shuts down.
pub(crate) async fn tls_handshake(
    acceptor: &TlsAcceptor,
    socket: TcpStream,
    within: Duration,
    client: &Client,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Stream, ConnectionEnd> {
    let accepting = tokio::time::timeout(within, TlsStream::accept(acceptor, socket));
    let accepted = tokio::select! {
        accepted = accepting => accepted,
        () = client.wait_until_killed() => return Err(ConnectionEnd::Plain),
        _ = stopping.wait_for(|stopping| *stopping) => return Err(ConnectionEnd::Plain),
    };
    match accepted {
        Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
        Ok(Err(error)) => Err(end_of(error)),
        Err(_) => Err(ConnectionEnd::Logged(format!("no TLS handshake within {within:?}"))),
    }
}

fn end_of(error: IoError) -> ConnectionEnd {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidMessage(_)) => {
            ConnectionEnd::Logged(format!("this port speaks TLS, and the client does not ({error})"))
        }
        Some(_) => ConnectionEnd::Logged(format!("TLS handshake: {error}")),
        None => ConnectionEnd::Socket(error),
    }
}

#[cfg(test)]
mod tests;
