//! The bytes from and to a client: as they are, or by TLS.

use std::io::{ErrorKind, Result as IoResult};

use bytes::BytesMut;
use tokio::net::TcpStream;

use crate::tls_stream::TlsStream;

/// A client's connection below the Redis protocol.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket(),
        }
    }

    /// Reads the bytes that have arrived into the free room of `buffer`; returns their number, which is 0 at the end of
    /// the client's bytes.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes have arrived; the error of the socket or of TLS.
    pub fn try_read_buf(&mut self, buffer: &mut BytesMut) -> IoResult<usize> {
        match self {
            Stream::Plain(socket) => socket.try_read_buf(buffer),
            Stream::Tls(stream) => stream.try_read_buf(buffer),
        }
    }

    /// Waits until bytes arrive, after [`try_read_buf`](Stream::try_read_buf) has found none.
    ///
    /// # Errors
    /// The socket's error.
    pub async fn readable(&self) -> IoResult<()> {
        self.socket().readable().await
    }

    /// Takes bytes from the front of `rest` and sends what the socket takes at once; returns whether the socket took any.
    ///
    /// # Errors
    /// The socket's error.
    pub fn try_send(&mut self, rest: &mut &[u8]) -> IoResult<bool> {
        match self {
            Stream::Plain(socket) => match socket.try_write(rest) {
                Ok(0) => Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    *rest = rest.get(sent..).unwrap_or_default();
                    Ok(true)
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
            },
            Stream::Tls(stream) => stream.try_send(rest),
        }
    }

    /// Does as [`try_send`](Stream::try_send), and waits until the socket takes bytes. A dropped future has sent nothing
    /// that is still in `rest`.
    ///
    /// # Errors
    /// The socket's error.
    pub async fn send(&mut self, rest: &mut &[u8]) -> IoResult<()> {
        while !self.try_send(rest)? {
            self.socket().writable().await?;
        }
        Ok(())
    }

    /// True if bytes of earlier writes wait for the socket: with TLS only.
    pub fn has_unsent(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Tells the client, if the protocol has a message for that, that no bytes follow. Does not wait.
    pub fn end(&mut self) {
        match self {
            Stream::Plain(_) => {}
            Stream::Tls(stream) => stream.end(),
        }
    }
}
